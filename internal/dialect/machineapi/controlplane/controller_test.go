package controlplane_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineapi/controlplane"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	engine "millwright.io/millwright/internal/engine/controlplane"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/memapi"
	"millwright.io/millwright/internal/provider/azure/spec"
)

const namespace = "openshift-machine-api"

var (
	start  = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	theKey = client.ObjectKey{Namespace: namespace, Name: "cluster"}
)

// world is the two controllers on an API in memory, beside actors that bring
// Machines up and take them away.
type world struct {
	t          *testing.T
	api        *memapi.API
	cache      *memapi.Cache
	clk        *clocktesting.FakeClock
	log        *bytes.Buffer
	sets, gens kube.Controller
	story      []string // what came and went, in order
}

func newWorld(t *testing.T, objs ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{machinev1.Install, machinev1beta1.Install, configv1.Install, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{t: t, clk: clocktesting.NewFakeClock(start), log: &bytes.Buffer{}}
	w.api = memapi.New(scheme, w.clk, objs...)
	w.cache = w.api.NewCache()
	cs := controlplane.New(controlplane.Deps{Client: w.cache.Client(), Live: w.api, Codec: spec.Codec{}, Clock: w.clk, Version: "1.2.3",
		Log: kube.KlogTextTo("controlplanemachineset", kube.KlogOptions{Out: w.log, Clock: w.clk})})
	w.sets, w.gens = cs[0], cs[1]
	w.cache.Sync()
	return w
}

// masters are three control plane Machines as an installer makes them, with
// their Nodes.
func masters() []client.Object {
	var out []client.Object
	for i := range 3 {
		raw := fmt.Sprintf(`{"kind":"AzureMachineProviderSpec","apiVersion":"machine.openshift.io/v1beta1","vmSize":"Standard_D8s_v3","zone":"%d","vnet":"v","subnet":"s","internalLoadBalancer":"demo-internal","location":"francecentral","osDisk":{"diskSizeGB":128,"osType":"Linux","managedDisk":{}}}`, i+1)
		name := fmt.Sprintf("demo-master-%d", i)
		out = append(out, &machinev1beta1.Machine{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: []string{wire.MachineFinalizer},
				Labels: map[string]string{wire.LabelCluster: "demo", wire.LabelMachineRole: "master", wire.LabelMachineType: "master"}},
			Spec:   machinev1beta1.MachineSpec{ProviderSpec: machinev1beta1.ProviderSpec{Value: &runtime.RawExtension{Raw: []byte(raw)}}},
			Status: machinev1beta1.MachineStatus{NodeRef: &corev1.ObjectReference{Kind: "Node", Name: name}},
		}, node(name))
	}
	return out
}

func node(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{wire.NodeRoleMaster: ""}, Annotations: map[string]string{wire.AnnotationNodeMachine: namespace + "/" + name}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

func (w *world) step(c kube.Controller) {
	w.t.Helper()
	w.cache.Sync()
	if _, err := c.Step(w.t.Context(), theKey); err != nil && !apierrors.IsConflict(err) {
		w.t.Fatal(err)
	}
	w.cache.Sync()
}

func (w *world) set() *machinev1.ControlPlaneMachineSet {
	w.t.Helper()
	var s machinev1.ControlPlaneMachineSet
	if err := w.api.Get(w.t.Context(), theKey, &s); err != nil {
		w.t.Fatal(err)
	}
	return &s
}

func (w *world) change(f func(s *machinev1.ControlPlaneMachineSet)) {
	w.t.Helper()
	s := w.set()
	f(s)
	s.Generation++
	if err := w.api.Update(w.t.Context(), s); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) machines() []machinev1beta1.Machine {
	w.t.Helper()
	var list machinev1beta1.MachineList
	if err := w.api.List(w.t.Context(), &list); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// live moves the world: what is new gets a ready Node, what goes is gone. It
// checks that there are never fewer than three ready Nodes, nor more than one
// Machine in excess.
func (w *world) live() {
	w.t.Helper()
	ctx := w.t.Context()
	for _, m := range w.machines() {
		switch {
		case m.DeletionTimestamp != nil:
			w.story = append(w.story, "gone "+short(m.Name))
			w.must(w.api.Delete(ctx, node(m.Name)))
			m.Finalizers = nil
			w.must(w.api.Update(ctx, &m))
		case m.Status.NodeRef == nil:
			w.story = append(w.story, "up "+short(m.Name))
			n := node(m.Name)
			w.must(w.api.Create(ctx, n))
			n.Status = node(m.Name).Status
			w.must(w.api.Status().Update(ctx, n))
			m.Status.NodeRef = &corev1.ObjectReference{Kind: "Node", Name: m.Name}
			w.must(w.api.Status().Update(ctx, &m))
		}
	}
	ready := 0
	for _, m := range w.machines() {
		if m.Status.NodeRef != nil {
			ready++
		}
	}
	if n := len(w.machines()); ready < 3 || n > 4 {
		w.t.Fatalf("%d ready of %d machines after %v", ready, n, w.story)
	}
}

// short drops the random part of a replacement's name.
func short(name string) string {
	if p := strings.Split(name, "-"); len(p) == 4 {
		return "new " + p[3]
	}
	return name
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) operator() map[string]string {
	w.t.Helper()
	op := &configv1.ClusterOperator{}
	w.must(w.api.Get(w.t.Context(), client.ObjectKey{Name: "control-plane-machine-set"}, op))
	out := map[string]string{}
	for _, c := range op.Status.Conditions {
		out[string(c.Type)] = string(c.Status) + "/" + c.Reason
	}
	return out
}

// bigger asks for another size.
func bigger(s *machinev1.ControlPlaneMachineSet) {
	v := s.Spec.Template.OpenShiftMachineV1Beta1Machine.Spec.ProviderSpec.Value
	v.Raw = bytes.ReplaceAll(v.Raw, []byte("Standard_D8s_v3"), []byte("Standard_D16s_v3"))
}

func activate(s *machinev1.ControlPlaneMachineSet) {
	s.Spec.State = machinev1.ControlPlaneMachineSetStateActive
}

func TestGeneratesAnInactiveSetThatChangesNothing(t *testing.T) {
	w := newWorld(t, masters()...)
	w.step(w.gens)
	w.step(w.sets)
	s := w.set()
	if s.Spec.State != machinev1.ControlPlaneMachineSetStateInactive || *s.Spec.Replicas != 3 {
		t.Errorf("state %s, %d replicas", s.Spec.State, *s.Spec.Replicas)
	}
	want := []machinev1.AzureFailureDomain{{Zone: "1", Subnet: "s"}, {Zone: "2", Subnet: "s"}, {Zone: "3", Subnet: "s"}}
	if diff := cmp.Diff(want, *s.Spec.Template.OpenShiftMachineV1Beta1Machine.FailureDomains.Azure); diff != "" {
		t.Errorf("failure domains (-want +got):\n%s", diff)
	}
	if st := s.Status; st.Replicas != 3 || st.ReadyReplicas != 3 || st.UpdatedReplicas != 3 || st.UnavailableReplicas != 0 {
		t.Errorf("counters %+v", st)
	}
	for _, m := range w.machines() {
		if len(m.OwnerReferences) > 0 {
			t.Errorf("machine %s is owned while the set is inactive", m.Name)
		}
	}
	if got := w.operator(); got["Available"] != "True/AsExpected" || got["Degraded"] != "False/AsExpected" {
		t.Errorf("cluster operator %v", got)
	}
	writes := w.api.Writes()
	for range 3 {
		w.step(w.gens)
		w.step(w.sets)
	}
	if n := w.api.Writes() - writes; n != 0 {
		t.Errorf("%d writes while nothing changes", n)
	}
	// Active as generated: nothing to replace.
	w.change(activate)
	for range 5 {
		w.step(w.sets)
		w.live()
	}
	if len(w.story) > 0 {
		t.Errorf("activation alone did %v", w.story)
	}
}

func TestWaitsForTheWholeControlPlane(t *testing.T) {
	objs := masters()
	w := newWorld(t, objs[:4]...)
	w.step(w.gens)
	if err := w.api.Get(t.Context(), theKey, &machinev1.ControlPlaneMachineSet{}); !apierrors.IsNotFound(err) {
		t.Errorf("a set is made of two machines: %v", err)
	}
}

func TestRollsMastersOneAtATime(t *testing.T) {
	w := newWorld(t, masters()...)
	w.step(w.gens)
	w.change(func(s *machinev1.ControlPlaneMachineSet) { activate(s); bigger(s) })
	for range 30 {
		w.step(w.sets)
		w.live()
		w.clk.Step(time.Minute)
	}
	want := []string{"up new 0", "gone demo-master-0", "up new 1", "gone demo-master-1", "up new 2", "gone demo-master-2"}
	if diff := cmp.Diff(want, w.story); diff != "" {
		t.Errorf("story (-want +got):\n%s", diff)
	}
	zones := map[string]bool{}
	for _, m := range w.machines() {
		s, _, err := spec.Codec{}.Decode(m.Spec.ProviderSpec.Value.Raw)
		w.must(err)
		_, zone, size := spec.Codec{}.Place(s)
		zones[zone] = true
		if size != "Standard_D16s_v3" || !metav1.IsControlledBy(&m, w.set()) {
			t.Errorf("machine %s: size %s, owners %v", m.Name, size, m.OwnerReferences)
		}
	}
	if len(zones) != 3 {
		t.Errorf("zones %v", zones)
	}
	st := w.set().Status
	if st.Replicas != 3 || st.UpdatedReplicas != 3 || st.UnavailableReplicas != 0 {
		t.Errorf("counters %+v", st)
	}
	if c := kube.Condition(st.Conditions, engine.Progressing); c == nil || c.Reason != engine.ReasonAllReplicasUpdated {
		t.Errorf("progressing %+v", c)
	}
	if got := w.operator(); got["Progressing"] != "False/AllReplicasUpdated" {
		t.Errorf("cluster operator %v", got)
	}
	for _, line := range []string{"Created replacement machine index=0", "Removing old machine index=2"} {
		if !strings.Contains(w.log.String(), line) {
			t.Errorf("the log lacks %q", line)
		}
	}
}

func TestNothingGoesBeforeItsSuccessorIsReady(t *testing.T) {
	w := newWorld(t, masters()...)
	w.step(w.gens)
	w.change(func(s *machinev1.ControlPlaneMachineSet) { activate(s); bigger(s) })
	for range 10 {
		w.step(w.sets) // nobody brings the replacement up
	}
	if n := len(w.machines()); n != 4 {
		t.Fatalf("%d machines, want one in excess", n)
	}
	for _, m := range w.machines() {
		if m.DeletionTimestamp != nil {
			t.Errorf("machine %s is deleted", m.Name)
		}
	}
	c := kube.Condition(w.set().Status.Conditions, engine.Progressing)
	if c == nil || !strings.HasPrefix(c.Message, "Observed 3 replica(s) in need of update; index 0 waits until replacement machine demo-master-") {
		t.Errorf("progressing %+v", c)
	}
}

func TestOnDeleteReplacesWhatIsDeleted(t *testing.T) {
	w := newWorld(t, masters()...)
	w.step(w.gens)
	w.change(func(s *machinev1.ControlPlaneMachineSet) {
		activate(s)
		bigger(s)
		s.Spec.Strategy.Type = machinev1.OnDelete
	})
	for range 5 {
		w.step(w.sets)
		w.live()
	}
	if len(w.story) > 0 {
		t.Fatalf("did %v by itself", w.story)
	}
	w.must(w.api.Delete(t.Context(), &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "demo-master-1"}}))
	w.step(w.sets)
	w.live()
	for range 5 {
		w.step(w.sets)
	}
	if got := strings.Join(w.story, ", "); !strings.Contains(got, "up new 1") || len(w.machines()) != 3 {
		t.Errorf("story %s, %d machines", got, len(w.machines()))
	}
}

func TestADeletedSetLetsItsMachinesGo(t *testing.T) {
	w := newWorld(t, masters()...)
	w.step(w.gens)
	w.change(activate)
	for range 3 {
		w.step(w.sets)
	}
	for _, m := range w.machines() {
		if !metav1.IsControlledBy(&m, w.set()) {
			t.Fatalf("machine %s is not adopted", m.Name)
		}
	}
	w.must(w.api.Delete(t.Context(), w.set()))
	for range 3 {
		w.step(w.sets)
	}
	if err := w.api.Get(t.Context(), theKey, &machinev1.ControlPlaneMachineSet{}); !apierrors.IsNotFound(err) {
		t.Errorf("the set is still there: %v", err)
	}
	if n := len(w.machines()); n != 3 {
		t.Fatalf("%d machines are left of 3", n)
	}
	for _, m := range w.machines() {
		if m.DeletionTimestamp != nil || len(m.OwnerReferences) > 0 {
			t.Errorf("machine %s: %v %v", m.Name, m.DeletionTimestamp, m.OwnerReferences)
		}
	}
	w.step(w.gens)
	if s := w.set(); s.Spec.State != machinev1.ControlPlaneMachineSetStateInactive {
		t.Errorf("a new set is %s", s.Spec.State)
	}
}
