package kube_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/memapi"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func newScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, machinev1beta1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func newAPI(t testing.TB, objs ...client.Object) *memapi.API {
	t.Helper()
	return memapi.New(newScheme(t), clocktesting.NewFakePassiveClock(start), objs...)
}

func stored(t *testing.T, api client.Reader) *machinev1beta1.Machine {
	t.Helper()
	m := &machinev1beta1.Machine{}
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "a"}, m); err != nil {
		t.Fatal(err)
	}
	return m
}

func oneMachine() *machinev1beta1.Machine {
	return &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", Labels: map[string]string{"keep": "1", "drop": "1"}}}
}

func TestPatchMakesNoRequestWithoutDifference(t *testing.T) {
	api := newAPI(t, oneMachine())
	m := stored(t, api)
	same := m.DeepCopy()
	same.ResourceVersion = "77" // somebody's fresher copy is no wish
	statusOnly := m.DeepCopy()
	statusOnly.Status.Phase = ptr.To("Running")
	for name, err := range map[string]error{
		"equal":          kube.Patch(t.Context(), api, m, same),
		"equal, locked":  kube.Patch(t.Context(), api, m, same, kube.OptimisticLock()),
		"equal status":   kube.PatchStatus(t.Context(), api, m, same, kube.OptimisticLock()),
		"only status":    kube.Patch(t.Context(), api, m, statusOnly),
		"status of spec": kube.PatchStatus(t.Context(), api, m, withProviderID(m)),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := api.Writes(); n != 0 {
		t.Errorf("%d requests: %v", n, api.Log())
	}
}

func withProviderID(m *machinev1beta1.Machine) *machinev1beta1.Machine {
	c := m.DeepCopy()
	c.Spec.ProviderID = ptr.To("azure:///a")
	return c
}

func TestPatchThenPatchStatusFromOneCopy(t *testing.T) {
	api := newAPI(t, oneMachine())
	before := stored(t, api)
	after := withProviderID(before)
	delete(after.Labels, "drop")
	after.Status.Phase = ptr.To("Provisioned")
	if err := kube.Patch(t.Context(), api, before, after); err != nil {
		t.Fatal(err)
	}
	if after.Status.Phase == nil {
		t.Fatal("the status wanted was lost")
	}
	if after.ResourceVersion == before.ResourceVersion {
		t.Error("after does not hold what the server has")
	}
	if err := kube.PatchStatus(t.Context(), api, before, after); err != nil {
		t.Fatal(err)
	}
	have := stored(t, api)
	if ptr.Deref(have.Spec.ProviderID, "") != "azure:///a" || ptr.Deref(have.Status.Phase, "") != "Provisioned" {
		t.Errorf("stored provider ID %v, phase %v", have.Spec.ProviderID, have.Status.Phase)
	}
	if d := cmp.Diff(map[string]string{"keep": "1"}, have.Labels); d != "" {
		t.Errorf("labels (-want +got):\n%s", d)
	}
	if n := api.Writes(); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

func TestOptimisticLockSeesOthers(t *testing.T) {
	api := newAPI(t, oneMachine())
	before := stored(t, api)
	other := stored(t, api)
	other.Finalizers = []string{"theirs"}
	if err := api.Update(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	after := before.DeepCopy()
	after.Finalizers = []string{"ours"}
	if err := kube.Patch(t.Context(), api, before, after.DeepCopy(), kube.OptimisticLock()); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	lock := before.DeepCopy()
	lock.Status.Phase = ptr.To("Running")
	if err := kube.PatchStatus(t.Context(), api, before, lock, kube.OptimisticLock()); !apierrors.IsConflict(err) {
		t.Errorf("status: got %v, want a conflict", err)
	}
	plain := before.DeepCopy()
	plain.Labels["x"] = "1"
	if err := kube.Patch(t.Context(), api, before, plain); err != nil {
		t.Errorf("without a lock: %v", err)
	}
}

func TestPatchOfUnstructuredKeepsItsStatus(t *testing.T) {
	api := newAPI(t, oneMachine())
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(machinev1beta1.GroupVersion.WithKind("Machine"))
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "a"}, u); err != nil {
		t.Fatal(err)
	}
	after := u.DeepCopy()
	after.SetLabels(map[string]string{"keep": "2"})
	after.Object["status"] = map[string]any{"phase": "Running"}
	if err := kube.Patch(t.Context(), api, u, after); err != nil {
		t.Fatal(err)
	}
	if err := kube.PatchStatus(t.Context(), api, u, after); err != nil {
		t.Fatal(err)
	}
	if got := stored(t, api); got.Labels["keep"] != "2" || ptr.Deref(got.Status.Phase, "") != "Running" {
		t.Errorf("stored labels %v, phase %v", got.Labels, got.Status.Phase)
	}
}

func TestApplyWritesOnlyWhatChanged(t *testing.T) {
	api := newAPI(t)
	cm := func(data map[string]string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", Labels: map[string]string{"l": "1"}}, Data: data}
	}
	apply := func(why string, c *corev1.ConfigMap, want int) {
		t.Helper()
		if err := kube.Apply(t.Context(), api, "operator", c); err != nil {
			t.Fatalf("%s: %v", why, err)
		}
		if got := api.Writes(); got != want {
			t.Errorf("%s: %d requests so far, want %d", why, got, want)
		}
	}
	apply("new", cm(map[string]string{"a": "1", "b": "2"}), 1)
	apply("same", cm(map[string]string{"a": "1", "b": "2"}), 1)
	apply("changed", cm(map[string]string{"a": "1", "b": "3"}), 2)
	apply("a key less", cm(map[string]string{"a": "1"}), 3)
	var have corev1.ConfigMap
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "c"}, &have); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]string{"a": "1"}, have.Data); d != "" {
		t.Errorf("data (-want +got):\n%s", d)
	}
	have.Data["a"] = "somebody else's"
	if err := api.Update(t.Context(), &have); err != nil {
		t.Fatal(err)
	}
	apply("drifted", cm(map[string]string{"a": "1"}), 5)
}

func TestSetConditionsMovesTimeOnlyWithStatus(t *testing.T) {
	old := metav1.NewTime(start.Add(-time.Hour))
	current := []metav1.Condition{
		{Type: "Theirs", Status: "True", Reason: "X", LastTransitionTime: old},
		{Type: "Ready", Status: "False", Reason: "Waiting", LastTransitionTime: old},
	}
	got := kube.SetConditions(current, []plan.Condition{
		{Type: "Ready", Status: "False", Reason: "Draining", Message: "1 pod left"},
		{Type: "Drained", Status: "True"},
	}, 3, start)
	want := []metav1.Condition{
		current[0],
		{Type: "Ready", Status: "False", Reason: "Draining", Message: "1 pod left", ObservedGeneration: 3, LastTransitionTime: old},
		{Type: "Drained", Status: "True", Reason: "Drained", ObservedGeneration: 3, LastTransitionTime: metav1.NewTime(start)},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("conditions (-want +got):\n%s", d)
	}
	if current[1].Reason != "Waiting" {
		t.Error("the input was changed")
	}
	if again := kube.SetConditions(got, []plan.Condition{{Type: "Drained", Status: "False", Reason: "New"}}, 3, start.Add(time.Minute)); !again[2].LastTransitionTime.Time.Equal(start.Add(time.Minute)) {
		t.Error("a changed status kept its time")
	}
}
