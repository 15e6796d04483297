package healthcheck_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	machinev1 "github.com/openshift/api/machine/v1beta1"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"millwright.io/millwright/internal/dialect/machineapi/healthcheck"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/memapi"
)

var (
	start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	key   = client.ObjectKey{Namespace: wire.Namespace, Name: "mhc"}
)

// world is one controller on an API in memory, with a cache that lags unless
// it is brought up to date.
type world struct {
	t     *testing.T
	api   *memapi.API
	cache *memapi.Cache
	clk   *clocktesting.FakeClock
	log   *bytes.Buffer
	rec   *events.FakeRecorder
	reg   *prometheus.Registry
	c     kube.Controller
}

func newWorld(t *testing.T, objs ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{machinev1.Install, machineconfigv1.Install, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{"RepairTemplate", "Repair"} {
		gvk := repairs.WithKind(kind)
		scheme.AddKnownTypeWithName(gvk, &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(repairs.WithKind(kind+"List"), &unstructured.UnstructuredList{})
	}
	w := &world{t: t, clk: clocktesting.NewFakeClock(start), log: &bytes.Buffer{}, rec: events.NewFakeRecorder(1000), reg: prometheus.NewRegistry()}
	w.api = memapi.New(scheme, w.clk, objs...)
	w.cache = w.api.NewCache()
	m, err := healthcheck.NewMetrics(w.reg)
	if err != nil {
		t.Fatal(err)
	}
	w.c = healthcheck.New(healthcheck.Deps{
		Client: w.cache.Client(), Live: w.api, Clock: w.clk, Recorder: w.rec, Metrics: m,
		Log: kube.KlogTextTo("", kube.KlogOptions{Out: w.log, Clock: w.clk}),
	})
	if err := kube.AddIndexes(t.Context(), w.cache, w.c.Indexes...); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) step() reconcile.Result {
	w.t.Helper()
	w.cache.Sync()
	res, err := w.c.Step(w.t.Context(), key)
	if err != nil {
		w.t.Fatalf("step: %v", err)
	}
	return res
}

func (w *world) events() []string {
	var out []string
	for {
		select {
		case e := <-w.rec.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}

func (w *world) status() machinev1.MachineHealthCheckStatus {
	w.t.Helper()
	var m machinev1.MachineHealthCheck
	if err := w.api.Get(w.t.Context(), key, &m); err != nil {
		w.t.Fatal(err)
	}
	return m.Status
}

// living counts the Machines that are not going.
func (w *world) living() int {
	w.t.Helper()
	var list machinev1.MachineList
	if err := w.api.List(w.t.Context(), &list); err != nil {
		w.t.Fatal(err)
	}
	n := 0
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

func (w *world) metric(name string) float64 {
	w.t.Helper()
	families, err := w.reg.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		m := f.GetMetric()[0]
		if f.GetType().String() == "COUNTER" {
			return m.GetCounter().GetValue()
		}
		return m.GetGauge().GetValue()
	}
	return -1
}

func check(limit string, edit ...func(*machinev1.MachineHealthCheck)) *machinev1.MachineHealthCheck {
	v := intstr.Parse(limit)
	m := &machinev1.MachineHealthCheck{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec: machinev1.MachineHealthCheckSpec{
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{wire.LabelMachineRole: "worker"}}, MaxUnhealthy: &v,
			UnhealthyConditions: []machinev1.UnhealthyCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Timeout: metav1.Duration{Duration: 5 * time.Minute}},
				{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Timeout: metav1.Duration{Duration: 5 * time.Minute}},
			},
		},
	}
	for _, f := range edit {
		f(m)
	}
	return m
}

// fleet is n running Machines of one set with their Nodes, in three zones.
func fleet(n int) []client.Object {
	var out []client.Object
	for i := range n {
		name := fmt.Sprintf("w-%02d", i)
		m := &machinev1.Machine{ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: name, Finalizers: []string{wire.MachineFinalizer},
			Labels:          map[string]string{wire.LabelMachineRole: "worker", wire.LabelZone: fmt.Sprint(i%3 + 1)},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: machinev1.GroupVersion.String(), Kind: "MachineSet", Name: "set", UID: "set", Controller: ptr.To(true)}},
		}}
		m.Status.Phase, m.Status.NodeRef = ptr.To(wire.PhaseRunning), &corev1.ObjectReference{Kind: "Node", Name: name}
		m.Status.LastUpdated = &metav1.Time{Time: start.Add(-time.Hour)}
		out = append(out, m, nodeNamed(name, corev1.ConditionTrue, start.Add(-time.Hour)))
	}
	return out
}

func nodeNamed(name string, ready corev1.ConditionStatus, since time.Time) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(since)}},
	}}
}

// turn gives n Nodes another readiness since now.
func (w *world) turn(n int, ready corev1.ConditionStatus) {
	w.t.Helper()
	for i := range n {
		var node corev1.Node
		if err := w.api.Get(w.t.Context(), client.ObjectKey{Name: fmt.Sprintf("w-%02d", i)}, &node); err != nil {
			w.t.Fatal(err)
		}
		node.Status.Conditions[0].Status, node.Status.Conditions[0].LastTransitionTime = ready, metav1.NewTime(w.clk.Now())
		if err := w.api.Status().Update(w.t.Context(), &node); err != nil {
			w.t.Fatal(err)
		}
	}
}

func TestOneDeadMachineIsRepairedOnce(t *testing.T) {
	w := newWorld(t, append(fleet(40), check("40%"))...)
	w.step()
	if s := w.status(); *s.ExpectedMachines != 40 || *s.CurrentHealthy != 40 || s.RemediationsAllowed != 16 {
		t.Errorf("status %+v", s)
	}
	w.turn(1, corev1.ConditionUnknown)
	before := w.api.Writes()
	res := w.step()
	if w.living() != 40 || res.RequeueAfter < 4*time.Minute || res.RequeueAfter > 6*time.Minute {
		t.Fatalf("%d living, again in %s", w.living(), res.RequeueAfter)
	}
	w.step()
	if diff := cmp.Diff(w.events(), []string{"Normal DetectedUnhealthy Machine openshift-machine-api/mhc/w-00/w-00 has unhealthy node w-00"}); diff != "" {
		t.Errorf("events (-got +want):\n%s", diff)
	}
	w.clk.Step(5*time.Minute + time.Second)
	w.step()
	if w.living() != 39 {
		t.Fatalf("%d living, want 39", w.living())
	}
	if _, err := w.c.Step(t.Context(), key); err != nil { // with a cache that shows nothing of it
		t.Fatal(err)
	}
	w.step()
	if diff := cmp.Diff(w.events(), []string{"Normal MachineDeleted Machine openshift-machine-api/mhc/w-00/w-00 has been remediated by requesting to delete Machine object"}); diff != "" {
		t.Errorf("events (-got +want):\n%s", diff)
	}
	// The node's own status, one status for the suspicion, one deletion.
	if got := w.api.Writes() - before; got != 2 {
		t.Errorf("%d writes, want 2: %v", got, w.api.Log())
	}
	if got := w.metric(wire.MetricRemediations); got != 1 {
		t.Errorf("%s %v, want 1", wire.MetricRemediations, got)
	}
	if got := w.metric(wire.MetricNodesCovered); got != 40 {
		t.Errorf("%s %v, want 40", wire.MetricNodesCovered, got)
	}
}

func TestNoneIsRepairedWhenAllFallSilent(t *testing.T) {
	for _, limit := range []string{"40%", "100%"} {
		t.Run(limit, func(t *testing.T) {
			w := newWorld(t, append(fleet(40), check(limit))...)
			w.step()
			w.turn(40, corev1.ConditionUnknown)
			w.step()
			w.clk.Step(30 * time.Minute)
			w.step()
			w.step()
			if w.living() != 40 {
				t.Fatalf("%d living, want 40", w.living())
			}
			s := w.status()
			if s.RemediationsAllowed != 0 || s.Conditions[0].Status != corev1.ConditionFalse {
				t.Errorf("status %+v", s)
			}
			frozen := 0
			for _, e := range w.events() {
				if strings.HasPrefix(e, "Warning RemediationFrozen ") {
					frozen++
				}
			}
			if frozen != 1 {
				t.Errorf("told %d times, want once", frozen)
			}
			w.turn(40, corev1.ConditionTrue)
			w.step()
			if s := w.status(); *s.CurrentHealthy != 40 || s.Conditions[0].Status != corev1.ConditionTrue {
				t.Errorf("did not resume: %+v", s)
			}
		})
	}
}

func TestShortCircuitIsToldOnceAndMeasured(t *testing.T) {
	w := newWorld(t, append(fleet(10), check("10%"))...)
	w.turn(2, corev1.ConditionFalse)
	w.clk.Step(6 * time.Minute)
	for range 3 {
		if res := w.step(); res.RequeueAfter != 0 {
			t.Errorf("looks again in %s", res.RequeueAfter)
		}
	}
	want := []string{"Warning RemediationRestricted Remediation restricted due to exceeded number of unhealthy machines (total: 10, unhealthy: 2, maxUnhealthy: 10%)"}
	if diff := cmp.Diff(w.events(), want); diff != "" {
		t.Errorf("events (-got +want):\n%s", diff)
	}
	if w.living() != 10 || w.metric(wire.MetricShortCircuit) != 1 {
		t.Errorf("%d living, metric %v", w.living(), w.metric(wire.MetricShortCircuit))
	}
	if !strings.Contains(w.log.String(), "total targets: 10,  maxUnhealthy: 10%, unhealthy: 2. Short-circuiting remediation") {
		t.Errorf("log: %s", w.log)
	}
	w.turn(1, corev1.ConditionTrue)
	w.step()
	if w.living() != 9 || w.metric(wire.MetricShortCircuit) != 0 {
		t.Errorf("%d living, metric %v after one recovered", w.living(), w.metric(wire.MetricShortCircuit))
	}
}

func TestPausedCheckDoesNothing(t *testing.T) {
	w := newWorld(t, append(fleet(3), check("100%", func(m *machinev1.MachineHealthCheck) {
		m.Annotations = map[string]string{wire.AnnotationPaused: ""}
	}))...)
	w.turn(1, corev1.ConditionFalse)
	before := w.api.Writes()
	w.clk.Step(time.Hour)
	w.step()
	if w.living() != 3 || w.api.Writes() != before {
		t.Errorf("%d living, %d writes", w.living(), w.api.Writes()-before)
	}
}

func TestIdleCheckWritesNothing(t *testing.T) {
	w := newWorld(t, append(fleet(3), check("100%"))...)
	w.step()
	before := w.api.Writes()
	for range 5 {
		w.clk.Step(time.Minute)
		w.step()
	}
	if w.api.Writes() != before {
		t.Errorf("%d writes", w.api.Writes()-before)
	}
}

func TestNodeThatTheCacheLacksIsNotGone(t *testing.T) {
	w := newWorld(t, check("100%"))
	w.cache.Sync()
	for _, o := range fleet(3) {
		made := o.DeepCopyObject().(client.Object)
		if err := w.api.Create(t.Context(), made); err != nil {
			t.Fatal(err)
		}
		o.SetUID(made.GetUID())
		o.SetResourceVersion(made.GetResourceVersion())
		if err := w.api.Status().Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	w.cache.Advance(machinev1.GroupVersion.WithKind("Machine"), 100)
	if _, err := w.c.Step(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if s := w.status(); w.living() != 3 || *s.CurrentHealthy != 3 {
		t.Errorf("%d living, status %+v", w.living(), s)
	}
	var n corev1.Node
	n.Name = "w-00"
	if err := w.api.Delete(t.Context(), &n); err != nil {
		t.Fatal(err)
	}
	w.step()
	if w.living() != 2 {
		t.Errorf("%d living after a node went, want 2", w.living())
	}
}

func TestBareMachineIsLeftAlone(t *testing.T) {
	objs := fleet(3)
	for _, o := range objs {
		o.SetOwnerReferences(nil)
	}
	w := newWorld(t, append(objs, check("100%"))...)
	w.turn(1, corev1.ConditionFalse)
	w.clk.Step(time.Hour)
	w.step()
	w.step()
	if diff := cmp.Diff(w.events(), []string{"Normal SkippedNoController Machine openshift-machine-api/mhc/w-00/w-00 has no controller owner, skipping remediation"}); diff != "" || w.living() != 3 {
		t.Errorf("%d living, events (-got +want):\n%s", w.living(), diff)
	}
}

func TestMachineIsMarkedForExternalRepair(t *testing.T) {
	w := newWorld(t, append(fleet(3), check("100%", func(m *machinev1.MachineHealthCheck) {
		m.Annotations = map[string]string{wire.AnnotationRemediationStrategy: wire.RemediationExternalBaremetal}
	}))...)
	w.turn(1, corev1.ConditionFalse)
	w.clk.Step(time.Hour)
	w.step()
	w.step()
	var m machinev1.Machine
	if err := w.api.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "w-00"}, &m); err != nil {
		t.Fatal(err)
	}
	if _, ok := m.Annotations["host.metal3.io/external-remediation"]; !ok || w.living() != 3 {
		t.Errorf("annotations %v, %d living", m.Annotations, w.living())
	}
	if got := w.events(); len(got) != 1 || !strings.HasPrefix(got[0], "Normal ExternalAnnotationAdded ") {
		t.Errorf("events %v", got)
	}
}

func TestRefusedDeletionIsToldAndTheOthersGo(t *testing.T) {
	w := newWorld(t, append(fleet(9), check("100%"))...)
	w.turn(3, corev1.ConditionFalse)
	w.clk.Step(time.Hour)
	w.api.FailNext("delete", "Machine", errors.New("refused"))
	w.cache.Sync()
	if _, err := w.c.Step(t.Context(), key); err == nil {
		t.Error("the refusal was swallowed")
	}
	failed := 0
	for _, e := range w.events() {
		if strings.HasPrefix(e, "Warning MachineDeletionFailed ") {
			failed++
		}
	}
	if failed != 1 || w.living() != 7 {
		t.Errorf("%d failures told, %d living; want 1, 7", failed, w.living())
	}
	w.step()
	if w.living() != 6 {
		t.Errorf("%d living after the retry, want 6", w.living())
	}
}

// repairs is the group of somebody's repair objects.
var repairs = schema.GroupVersion{Group: "repair.example.com", Version: "v1"}

func repairTemplate() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"team": "metal"}},
		"spec":     map[string]any{"strategy": "Reboot"},
	}}}}
	u.SetGroupVersionKind(repairs.WithKind("RepairTemplate"))
	u.SetNamespace(key.Namespace)
	u.SetName("reboot")
	return u
}

func withTemplate(m *machinev1.MachineHealthCheck) {
	m.Spec.RemediationTemplate = &corev1.ObjectReference{APIVersion: repairs.String(), Kind: "RepairTemplate", Name: "reboot"}
}

func (w *world) repair() *unstructured.Unstructured {
	w.t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(repairs.WithKind("Repair"))
	err := w.api.Get(w.t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "w-00"}, u)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return u
}

func TestRepairIsRequestedFromATemplateAndTakenBack(t *testing.T) {
	w := newWorld(t, append(fleet(3), check("100%", withTemplate), repairTemplate())...)
	w.step()
	w.turn(1, corev1.ConditionFalse)
	w.clk.Step(time.Hour)
	w.step()
	w.step()
	r := w.repair()
	if r == nil {
		t.Fatal("no repair object")
	}
	strategy, _, _ := unstructured.NestedString(r.Object, "spec", "strategy")
	if strategy != "Reboot" || r.GetLabels()["team"] != "metal" || r.GetOwnerReferences()[0].Name != "w-00" ||
		r.GetAnnotations()[wire.AnnotationClonedFromName] != "reboot" ||
		r.GetAnnotations()[wire.AnnotationClonedFromGroupKind] != "RepairTemplate.repair.example.com" {
		t.Errorf("repair %v", r.Object)
	}
	if w.living() != 3 {
		t.Errorf("%d living, want 3", w.living())
	}
	w.turn(1, corev1.ConditionTrue)
	w.step()
	if w.repair() != nil {
		t.Error("the repair object outlived the fault")
	}
}

func TestMissingTemplateIsACondition(t *testing.T) {
	w := newWorld(t, append(fleet(3), check("100%", withTemplate))...)
	w.turn(1, corev1.ConditionFalse)
	w.clk.Step(time.Hour)
	res := w.step()
	c := w.status().Conditions
	if len(c) != 2 || c[0].Type != "ExternalRemediationTemplateAvailable" || c[0].Reason != "ExternalRemediationTemplateNotFound" || res.RequeueAfter == 0 {
		t.Fatalf("conditions %+v, again in %s", c, res.RequeueAfter)
	}
	if err := w.api.Create(t.Context(), repairTemplate()); err != nil {
		t.Fatal(err)
	}
	w.step()
	if w.repair() == nil || len(w.status().Conditions) != 1 {
		t.Errorf("did not resume: %+v", w.status().Conditions)
	}
}
