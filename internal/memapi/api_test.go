package memapi_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

func newAPI(t testing.TB, objs ...client.Object) (*memapi.API, *clocktesting.FakePassiveClock) {
	t.Helper()
	clk := clocktesting.NewFakePassiveClock(start)
	return memapi.New(newScheme(t), clk, objs...), clk
}

func machine(name string) *machinev1beta1.Machine {
	return &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
}

func get[T client.Object](t *testing.T, r client.Reader, obj T) T {
	t.Helper()
	if err := r.Get(context.Background(), client.ObjectKeyFromObject(obj), obj); err != nil {
		t.Fatalf("get %s: %v", obj.GetName(), err)
	}
	return obj
}

func TestCreateGivesIdentityAndVirtualAge(t *testing.T) {
	api, clk := newAPI(t)
	clk.SetTime(start.Add(time.Minute + 300*time.Millisecond))
	m := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", GenerateName: "worker-"}}
	m.Status.Phase = ptr.To("Running")
	if err := api.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if m.UID == "" || m.ResourceVersion == "" || len(m.Name) != len("worker-")+5 {
		t.Errorf("got uid %q, version %q, name %q", m.UID, m.ResourceVersion, m.Name)
	}
	have := get(t, api, machine(m.Name))
	if want := start.Add(time.Minute); !have.CreationTimestamp.Time.Equal(want) {
		t.Errorf("created %v, want %v", have.CreationTimestamp, want)
	}
	if have.Status.Phase != nil {
		t.Errorf("phase %q survived the creation", *have.Status.Phase)
	}
	if have.Generation != 1 {
		t.Errorf("generation %d, want 1", have.Generation)
	}
}

func TestUIDsAreTheSameInEveryRunAndNewInEveryLife(t *testing.T) {
	lives := func() []types.UID {
		api, _ := newAPI(t)
		var out []types.UID
		for range 2 {
			m := machine("a")
			if err := api.Create(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			out = append(out, m.UID)
			if err := api.Delete(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		return out
	}
	one, two := lives(), lives()
	if d := cmp.Diff(two, one); d != "" {
		t.Errorf("two runs differ (-two +one):\n%s", d)
	}
	if one[0] == one[1] {
		t.Errorf("two lives share UID %s", one[0])
	}
}

func TestStaleUpdateIsAConflict(t *testing.T) {
	api, _ := newAPI(t, machine("a"))
	one, two := get(t, api, machine("a")), get(t, api, machine("a"))
	one.Labels = map[string]string{"x": "1"}
	if err := api.Update(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	two.Labels = map[string]string{"x": "2"}
	if err := api.Update(t.Context(), two); !apierrors.IsConflict(err) {
		t.Errorf("stale update: got %v, want a conflict", err)
	}
	p := client.MergeFromWithOptions(get(t, api, machine("a")), client.MergeFromWithOptimisticLock{})
	api.FailNext("get", "Machine", nil)
	three := get(t, api, machine("a"))
	three.Labels = map[string]string{"x": "3"}
	if err := api.Patch(t.Context(), three, p); err != nil {
		t.Fatal(err)
	}
	four := machine("a")
	if err := api.Patch(t.Context(), four, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"resourceVersion":"1","labels":{"x":"4"}}}`))); !apierrors.IsConflict(err) {
		t.Errorf("stale locked patch: got %v, want a conflict", err)
	}
}

func TestStatusIsASubresource(t *testing.T) {
	api, _ := newAPI(t, machine("a"))
	m := get(t, api, machine("a"))
	m.Status.Phase = ptr.To("Running")
	m.Spec.ProviderID = ptr.To("azure:///x")
	if err := api.Status().Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	m = get(t, api, machine("a"))
	if m.Status.Phase == nil || m.Spec.ProviderID != nil || m.Generation != 1 {
		t.Errorf("after a status update: phase %v, provider ID %v, generation %d", m.Status.Phase, m.Spec.ProviderID, m.Generation)
	}
	m.Status.Phase = nil
	m.Spec.ProviderID = ptr.To("azure:///x")
	if err := api.Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	m = get(t, api, machine("a"))
	if m.Status.Phase == nil || m.Spec.ProviderID == nil || m.Generation != 2 {
		t.Errorf("after an update: phase %v, provider ID %v, generation %d", m.Status.Phase, m.Spec.ProviderID, m.Generation)
	}
}

func TestWriteWithoutChangeKeepsTheVersion(t *testing.T) {
	api, _ := newAPI(t, machine("a"))
	c := api.NewCache()
	m := get(t, api, machine("a"))
	before := m.ResourceVersion
	if err := api.Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if err := api.Patch(t.Context(), m, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"absent":null}}}`))); err != nil {
		t.Fatal(err)
	}
	if m.ResourceVersion != before || get(t, api, machine("a")).ResourceVersion != before {
		t.Errorf("version went from %s to %s", before, m.ResourceVersion)
	}
	if kinds := c.Behind(); len(kinds) > 0 {
		t.Errorf("caches would see events of %v", kinds)
	}
}

func TestFinalizerHoldsAnObjectUntilItIsTakenOff(t *testing.T) {
	m := machine("a")
	m.Finalizers = []string{"machine.machine.openshift.io"}
	api, clk := newAPI(t, m)
	clk.SetTime(start.Add(time.Hour))
	if err := api.Delete(t.Context(), machine("a")); err != nil {
		t.Fatal(err)
	}
	have := get(t, api, machine("a"))
	if have.DeletionTimestamp == nil || !have.DeletionTimestamp.Time.Equal(start.Add(time.Hour)) {
		t.Fatalf("deleted at %v, want %v", have.DeletionTimestamp, start.Add(time.Hour))
	}
	clk.SetTime(start.Add(2 * time.Hour))
	if err := api.Delete(t.Context(), machine("a")); err != nil {
		t.Fatal(err)
	}
	again := get(t, api, machine("a"))
	if !again.DeletionTimestamp.Equal(have.DeletionTimestamp) || again.ResourceVersion != have.ResourceVersion {
		t.Errorf("a second deletion changed the object")
	}
	again.Finalizers = nil
	if err := api.Update(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(m), machine("a")); !apierrors.IsNotFound(err) {
		t.Errorf("after the finalizer: got %v, want not found", err)
	}
}

func TestDeletePreconditions(t *testing.T) {
	api, _ := newAPI(t, machine("a"))
	wrong := types.UID("other")
	if err := api.Delete(t.Context(), machine("a"), client.Preconditions{UID: &wrong}); !apierrors.IsConflict(err) {
		t.Errorf("wrong UID: got %v, want a conflict", err)
	}
	right := get(t, api, machine("a")).UID
	if err := api.Delete(t.Context(), machine("a"), client.Preconditions{UID: &right}); err != nil {
		t.Errorf("right UID: %v", err)
	}
}

func TestDependentsFollowTheirOwner(t *testing.T) {
	api, _ := newAPI(t)
	set := &machinev1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "set"}}
	if err := api.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	owner := []metav1.OwnerReference{{APIVersion: "machine.openshift.io/v1beta1", Kind: "MachineSet", Name: "set", UID: set.UID}}
	held, free, foreign := machine("held"), machine("free"), machine("foreign")
	held.OwnerReferences, free.OwnerReferences = owner, owner
	held.Finalizers = []string{"f"}
	foreign.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineSet", APIVersion: "v1", Name: "x", UID: "never-seen"}}
	for _, m := range []*machinev1beta1.Machine{held, free, foreign} {
		if err := api.Create(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	writes := api.Writes()
	if err := api.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	if got := api.Writes() - writes; got != 1 {
		t.Errorf("%d writes counted, want only the client's", got)
	}
	var list machinev1beta1.MachineList
	if err := api.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, m := range list.Items {
		got[m.Name] = m.DeletionTimestamp != nil
	}
	if d := cmp.Diff(map[string]bool{"held": true, "foreign": false}, got); d != "" {
		t.Errorf("machines left, and whether they are deleting (-want +got):\n%s", d)
	}
}

func TestOrphaningTakesTheOwnerOff(t *testing.T) {
	api, _ := newAPI(t)
	set := &machinev1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "set"}}
	if err := api.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	m := machine("a")
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "MachineSet", Name: "set", UID: set.UID}}
	if err := api.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if err := api.Delete(t.Context(), set, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
		t.Fatal(err)
	}
	if refs := get(t, api, machine("a")).OwnerReferences; len(refs) > 0 {
		t.Errorf("still owned by %v", refs)
	}
}

func TestEvictionHonoursBudgets(t *testing.T) {
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"app": "web"}}}
	}
	pdb := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}}
	pdb.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	pdb.Status.DisruptionsAllowed, pdb.Status.DesiredHealthy, pdb.Status.CurrentHealthy = 1, 1, 2
	api, _ := newAPI(t, pod("one"), pod("two"), pdb)
	evict := func(name string) error {
		return api.SubResource("eviction").Create(t.Context(), pod(name), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}})
	}
	if err := evict("one"); err != nil {
		t.Fatal(err)
	}
	if err := evict("two"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("spent budget: got %v, want too many requests", err)
	}
	if err := evict("one"); !apierrors.IsNotFound(err) {
		t.Errorf("gone pod: got %v, want not found", err)
	}
}

func TestApprovalStoresConditionsOnly(t *testing.T) {
	csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr-1"}}
	csr.Status.Certificate = []byte("issued")
	api, _ := newAPI(t, csr)
	ask := get(t, api, &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr-1"}})
	stale := ask.DeepCopy()
	ask.Status.Certificate = nil
	ask.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "R"}}
	if err := api.SubResource("approval").Update(t.Context(), ask); err != nil {
		t.Fatal(err)
	}
	have := get(t, api, &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr-1"}})
	if len(have.Status.Conditions) != 1 || string(have.Status.Certificate) != "issued" || have.Status.Conditions[0].LastUpdateTime.IsZero() {
		t.Errorf("got status %+v", have.Status)
	}
	stale.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue}}
	if err := api.SubResource("approval").Update(t.Context(), stale); !apierrors.IsConflict(err) {
		t.Errorf("stale approval: got %v, want a conflict", err)
	}
}

func TestScriptedFailuresAreTakenInOrder(t *testing.T) {
	api, _ := newAPI(t, machine("a"))
	boom := errors.New("boom")
	api.FailNext("update", "Machine/status", boom)
	m := get(t, api, machine("a"))
	if err := api.Update(t.Context(), m); err != nil {
		t.Errorf("update of the main resource: %v", err)
	}
	if err := api.Status().Update(t.Context(), m); !errors.Is(err, boom) {
		t.Errorf("status update: got %v, want boom", err)
	}
	if err := api.Status().Update(t.Context(), m); err != nil {
		t.Errorf("second status update: %v", err)
	}
	if got := api.Log()[1].String(); got != "update Machine/status ns/a: boom" {
		t.Errorf("log says %q", got)
	}
}

func TestHooksKillBeforeOrAfterAWrite(t *testing.T) {
	api, _ := newAPI(t)
	killed := errors.New("killed")
	api.Hook(func(memapi.Op) error { return killed }, nil)
	if err := api.Create(t.Context(), machine("a")); !errors.Is(err, killed) {
		t.Fatalf("got %v", err)
	}
	api.Hook(nil, func(memapi.Op) error { return killed })
	if err := api.Create(t.Context(), machine("b")); !errors.Is(err, killed) {
		t.Fatalf("got %v", err)
	}
	api.Hook(nil, nil)
	var list machinev1beta1.MachineList
	if err := api.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Name != "b" {
		t.Errorf("got %d machines, want only b", len(list.Items))
	}
}

func TestIndexesAndServerFields(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{ProviderID: "azure:///n"}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: corev1.PodSpec{NodeName: "n"}}
	api, _ := newAPI(t, node, pod)
	byID := func(o client.Object) []string { return []string{o.(*corev1.Node).Spec.ProviderID} }
	c := api.NewCache()
	for range 2 { // twice is fine
		for _, fi := range []client.FieldIndexer{api, c} {
			if err := fi.IndexField(t.Context(), &corev1.Node{}, "spec.providerID", byID); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, r := range map[string]client.Reader{"api": api, "cache": c} {
		var nodes corev1.NodeList
		var pods corev1.PodList
		if err := r.List(t.Context(), &nodes, client.MatchingFields{"spec.providerID": "azure:///n"}); err != nil || len(nodes.Items) != 1 {
			t.Errorf("%s: nodes %d, %v", name, len(nodes.Items), err)
		}
		if err := r.List(t.Context(), &pods, client.MatchingFields{"spec.nodeName": "n"}); err != nil || len(pods.Items) != 1 {
			t.Errorf("%s: pods %d, %v", name, len(pods.Items), err)
		}
		if err := r.List(t.Context(), &pods, client.MatchingFields{"spec.nodeName": "m"}); err != nil || len(pods.Items) != 0 {
			t.Errorf("%s: pods on m %d, %v", name, len(pods.Items), err)
		}
	}
}

func TestWatchDeliversChanges(t *testing.T) {
	api, _ := newAPI(t)
	w, err := api.Watch(t.Context(), &machinev1beta1.MachineList{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := api.Create(t.Context(), machine("a")); err != nil {
		t.Fatal(err)
	}
	if err := api.Delete(t.Context(), machine("a")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ADDED", "DELETED"} {
		select {
		case e := <-w.ResultChan():
			if string(e.Type) != want {
				t.Errorf("got %s, want %s", e.Type, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("no %s", want)
		}
	}
}

func TestUnstructuredObjectsBehaveAlike(t *testing.T) {
	api, _ := newAPI(t)
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine",
		"metadata": map[string]any{"namespace": "ns", "name": "a"},
	}}
	if err := api.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	if u.GetUID() == "" {
		t.Error("the creator saw no UID")
	}
	u.SetLabels(map[string]string{"x": "1"})
	if err := api.Update(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	if err := api.Update(t.Context(), u); err != nil {
		t.Errorf("second update: %v", err)
	}
	if get(t, api, machine("a")).Labels["x"] != "1" {
		t.Error("the typed reader does not see the label")
	}
}

func TestServerSideApplyCreatesAndChanges(t *testing.T) {
	api, _ := newAPI(t)
	cm := func(v string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"namespace": "ns", "name": "c"}, "data": map[string]any{"k": v},
		}}
	}
	for _, v := range []string{"1", "2"} {
		if err := api.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(cm(v)), client.FieldOwner("o"), client.ForceOwnership); err != nil {
			t.Fatal(err)
		}
	}
	have := get(t, api, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}})
	if have.Data["k"] != "2" || have.UID == "" || !have.CreationTimestamp.Time.Equal(start) {
		t.Errorf("got %+v", have)
	}
}
