package machineset_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"millwright.io/millwright/internal/dialect/machineapi/machineset"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/memapi"
)

const (
	namespace = "openshift-machine-api"
	name      = "demo-worker-francecentral2"
)

var (
	start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	key   = client.ObjectKey{Namespace: namespace, Name: name}
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
	c     kube.Controller
}

func newWorld(t *testing.T, objs ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{machinev1beta1.Install, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{t: t, clk: clocktesting.NewFakeClock(start), log: &bytes.Buffer{}, rec: events.NewFakeRecorder(1000)}
	w.api = memapi.New(scheme, w.clk, objs...)
	w.cache = w.api.NewCache()
	w.c = w.controller()
	for _, fi := range []client.FieldIndexer{w.cache, w.api} {
		if err := kube.AddIndexes(t.Context(), fi, w.c.Indexes...); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// controller makes a controller without memory, as after a restart.
func (w *world) controller() kube.Controller {
	return machineset.New(machineset.Deps{
		Client: w.cache.Client(), Live: w.api, Clock: w.clk, Recorder: w.rec,
		Log: kube.KlogTextTo("machineset-controller", kube.KlogOptions{Out: w.log, Clock: w.clk}),
	})
}

func (w *world) step() (reconcile.Result, error) { return w.c.Step(w.t.Context(), key) }

// settle steps with a fresh cache until nothing is written any more; it sits
// out the short waits between two statuses.
func (w *world) settle() {
	w.t.Helper()
	for range 20 {
		w.cache.Sync()
		before := w.api.Writes()
		res, err := w.step()
		if err != nil {
			w.t.Fatalf("step: %v", err)
		}
		if w.api.Writes() > before {
			continue
		}
		if res.RequeueAfter == 0 || res.RequeueAfter > 2*time.Second {
			return
		}
		w.clk.Step(res.RequeueAfter + 200*time.Millisecond) // at most a tenth early by jitter
	}
	w.t.Fatal("does not settle")
}

func (w *world) set() *machinev1beta1.MachineSet {
	w.t.Helper()
	var s machinev1beta1.MachineSet
	if err := w.api.Get(w.t.Context(), key, &s); err != nil {
		w.t.Fatal(err)
	}
	return &s
}

// machines returns what is not going.
func (w *world) machines() []machinev1beta1.Machine {
	w.t.Helper()
	var all machinev1beta1.MachineList
	if err := w.api.List(w.t.Context(), &all, client.InNamespace(namespace)); err != nil {
		w.t.Fatal(err)
	}
	var out []machinev1beta1.Machine
	for _, m := range all.Items {
		if m.DeletionTimestamp == nil {
			out = append(out, m)
		}
	}
	return out
}

func (w *world) change(edit func(*machinev1beta1.MachineSet)) {
	w.t.Helper()
	s := w.set()
	edit(s)
	if err := w.api.Update(w.t.Context(), s); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) scale(n int32) {
	w.change(func(s *machinev1beta1.MachineSet) { s.Spec.Replicas = ptr.To(n) })
}

// join gives a Machine a node, ready since now.
func (w *world) join(m *machinev1beta1.Machine) {
	w.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.clk.Now())},
	}}}
	status := n.Status
	if err := w.api.Create(w.t.Context(), n); err != nil {
		w.t.Fatal(err)
	}
	n.Status = status
	if err := w.api.Status().Update(w.t.Context(), n); err != nil {
		w.t.Fatal(err)
	}
	m.Status.NodeRef = &corev1.ObjectReference{Kind: "Node", Name: m.Name}
	if err := w.api.Status().Update(w.t.Context(), m); err != nil {
		w.t.Fatal(err)
	}
}

// events returns what was recorded since the last call.
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

func machineSet(replicas int32) *machinev1beta1.MachineSet {
	labels := map[string]string{wire.LabelMachineSet: name, wire.LabelCluster: "demo"}
	s := &machinev1beta1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "set-uid", Generation: 1},
		Spec: machinev1beta1.MachineSetSpec{
			Replicas: ptr.To(replicas),
			Selector: metav1.LabelSelector{MatchLabels: labels},
		},
	}
	s.Spec.Template.Labels = map[string]string{wire.LabelMachineRole: wire.RoleWorker}
	for k, v := range labels {
		s.Spec.Template.Labels[k] = v
	}
	s.Spec.Template.Annotations = map[string]string{"example.com/note": "kept"}
	s.Spec.Template.Spec.ObjectMeta.Labels = map[string]string{"training/trainee": "t1"}
	s.Spec.Template.Spec.ProviderSpec.Value = &runtime.RawExtension{Raw: []byte(`{"kind":"AzureMachineProviderSpec"}`)}
	return s
}

func TestScaleUpMakesCompleteMachines(t *testing.T) {
	w := newWorld(t, machineSet(2))
	w.settle()
	got := w.machines()
	if len(got) != 2 {
		t.Fatalf("got %d machines, want 2", len(got))
	}
	m := got[0]
	want := machineSet(2).Spec.Template
	if diff := cmp.Diff(want.Labels, m.Labels); diff != "" {
		t.Errorf("labels (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(want.Annotations, m.Annotations); diff != "" {
		t.Errorf("annotations (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(want.Spec, m.Spec); diff != "" {
		t.Errorf("spec (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{wire.MachineFinalizer}, m.Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got)\n%s", diff)
	}
	owner := []metav1.OwnerReference{{APIVersion: "machine.openshift.io/v1beta1", Kind: "MachineSet", Name: name, UID: w.set().UID, Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}}
	if diff := cmp.Diff(owner, m.OwnerReferences); diff != "" {
		t.Errorf("owners (-want +got)\n%s", diff)
	}
	for _, line := range []string{
		"] Too few replicas for machine.openshift.io/v1beta1, Kind=MachineSet " + namespace + "/" + name + ", need 2, creating 2\n",
		"] Creating machine 2 of 2, ( spec.replicas(2) > currentMachineCount(0) )\n",
	} {
		if !strings.Contains(w.log.String(), line) {
			t.Errorf("log lacks %q:\n%s", line, w.log)
		}
	}
	st := w.set().Status
	if st.Replicas != 2 || st.FullyLabeledReplicas != 2 || st.ReadyReplicas != 0 || st.ObservedGeneration != w.set().Generation {
		t.Errorf("status is %+v", st)
	}
	if st.LabelSelector != wire.LabelCluster+"=demo,"+wire.LabelMachineSet+"="+name {
		t.Errorf("label selector is %q", st.LabelSelector)
	}
	if ev := w.events(); len(ev) != 0 {
		t.Errorf("got events %v, want none", ev)
	}
}

func TestOneWritePerMachineAndOnePerStatus(t *testing.T) {
	w := newWorld(t, machineSet(10))
	w.settle()
	for _, m := range w.machines() {
		w.join(&m)
	}
	before := w.api.Writes()
	w.settle()
	if n := w.api.Writes() - before; n != 1 {
		t.Errorf("%d writes for ten nodes that became ready at once, want 1", n)
	}
	if st := w.set().Status; st.ReadyReplicas != 10 || st.AvailableReplicas != 10 {
		t.Errorf("status is %+v", st)
	}
	before = w.api.Writes()
	for range 5 {
		w.settle()
	}
	if n := w.api.Writes() - before; n != 0 {
		t.Errorf("%d writes while nothing changes, want 0", n)
	}
}

func TestStatusOfManyChangesIsWrittenOnceASecond(t *testing.T) {
	w := newWorld(t, machineSet(5))
	w.settle()
	w.clk.Step(time.Minute)
	writes := 0
	for _, m := range w.machines() { // one after the other, within a second
		w.join(&m)
		w.cache.Sync()
		before := w.api.Writes()
		if _, err := w.step(); err != nil {
			t.Fatal(err)
		}
		writes += w.api.Writes() - before
		w.clk.Step(100 * time.Millisecond)
	}
	if st := w.set().Status; st.ReadyReplicas != 1 {
		t.Errorf("status tells of %d ready, want the first at once", st.ReadyReplicas)
	}
	before := w.api.Writes()
	w.settle()
	if st := w.set().Status; st.ReadyReplicas != 5 {
		t.Errorf("status tells of %d ready, want all 5", st.ReadyReplicas)
	}
	if writes += w.api.Writes() - before; writes != 2 {
		t.Errorf("%d writes for five nodes that became ready within a second, want 2", writes)
	}
}

func TestCopiedMachineIsAdoptedAndOneGoes(t *testing.T) {
	w := newWorld(t, machineSet(1))
	w.settle()
	first := w.machines()[0]
	w.join(&first)
	w.settle()
	w.log.Reset()
	orphan := first.DeepCopy()
	orphan.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: name + "-copy", Labels: first.Labels, Annotations: first.Annotations, Finalizers: first.Finalizers}
	orphan.Status = machinev1beta1.MachineStatus{}
	if err := w.api.Create(t.Context(), orphan); err != nil {
		t.Fatal(err)
	}
	w.settle()
	line := "Too many replicas for machine.openshift.io/v1beta1, Kind=MachineSet " + namespace + "/" + name + ", need 1, deleting 1"
	if n := strings.Count(w.log.String(), line); n != 1 {
		t.Errorf("the line stands %d times in the log, want once:\n%s", n, w.log)
	}
	if !strings.Contains(w.log.String(), "] Found Random delete policy\n") {
		t.Errorf("log lacks the policy:\n%s", w.log)
	}
	left := w.machines()
	if len(left) != 1 || left[0].Name != first.Name {
		t.Errorf("left are %v, want the one with a node", left)
	}
}

func TestAdoptionAsksWhetherTheSetStillIs(t *testing.T) {
	s := machineSet(2)
	orphan := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "orphan", Labels: s.Spec.Template.Labels}}
	w := newWorld(t, s, orphan)
	if err := w.api.Delete(t.Context(), w.set(), client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.step(); err == nil {
		t.Error("a set that is gone adopted a machine")
	}
	for _, m := range w.machines() {
		if len(m.OwnerReferences) != 0 || len(w.machines()) != 1 {
			t.Errorf("machines are %v, want the orphan alone and unowned", w.machines())
		}
	}
}

// The cache lags behind every write; neither one process nor the next one
// makes a machine twice.
func TestStaleCacheMakesNoTwins(t *testing.T) {
	w := newWorld(t, machineSet(3))
	for range 5 {
		if _, err := w.step(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(w.machines()); n != 3 {
		t.Fatalf("one process made %d machines, want 3", n)
	}
	w.c = w.controller()
	if _, err := w.step(); err != nil {
		t.Fatal(err)
	}
	if n := len(w.machines()); n != 3 {
		t.Fatalf("its successor made it %d machines, want 3", n)
	}
	w.scale(1)
	w.cache.Sync()
	for range 5 {
		if _, err := w.step(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(w.machines()); n != 1 {
		t.Errorf("left %d machines, want 1", n)
	}
}

func TestStrangersNameIsPassedBy(t *testing.T) {
	w := newWorld(t, machineSet(1))
	d, err := w.c.Decide(t.Context(), w.cache, key)
	if err != nil {
		t.Fatal(err)
	}
	wanted := strings.TrimPrefix(d.Actions[0].String(), "create machine ")
	other := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: wanted, OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "machine.openshift.io/v1beta1", Kind: "MachineSet", Name: "other", UID: "other-uid", Controller: ptr.To(true)},
	}}}
	if err := w.api.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if n := len(w.machines()); n != 2 {
		t.Errorf("there are %d machines, want the stranger and ours", n)
	}
}

func TestWhatCannotWorkIsToldOnce(t *testing.T) {
	long := machineSet(1)
	long.Name = strings.Repeat("x", 70)
	mismatch := machineSet(1)
	mismatch.Spec.Template.Labels[wire.LabelMachineSet] = "another"
	empty := machineSet(1)
	empty.Spec.Selector = metav1.LabelSelector{}
	nothing := machineSet(1)
	nothing.Spec.Replicas = nil
	for _, r := range []struct {
		name string
		set  *machinev1beta1.MachineSet
		says []string
	}{
		{"long name", long, []string{"metadata.name", long.Name, "63", "57"}},
		{"template outside selector", mismatch, []string{`"` + name + `" machineset validation failed: `, "spec.template.metadata.labels: Invalid value: ", "`selector` does not match template `labels`"}},
		{"empty selector", empty, []string{"spec.selector: Invalid value: ", "empty selector is not valid for MachineSet."}},
		{"no replicas", nothing, []string{"the Replicas field in Spec for machineset " + name + " is nil, this should not be allowed"}},
	} {
		t.Run(r.name, func(t *testing.T) {
			w := newWorld(t, r.set)
			at := client.ObjectKeyFromObject(r.set)
			var told []string
			for range 3 {
				if _, err := w.c.Step(t.Context(), at); err != nil {
					t.Fatal(err)
				}
				told = append(told, w.events()...)
				w.cache.Sync()
			}
			if n := len(w.machines()); n != 0 {
				t.Errorf("made %d machines, want none", n)
			}
			if len(told) != 1 || !strings.HasPrefix(told[0], "Warning ReconcileError ") {
				t.Fatalf("got events %q, want one ReconcileError", told)
			}
			for _, s := range r.says {
				if !strings.Contains(told[0], s) {
					t.Errorf("event %q does not say %q", told[0], s)
				}
			}
			if want := "] Failed to reconcile MachineSet \"" + at.String() + "\": "; strings.Count(w.log.String(), want) != 1 {
				t.Errorf("log does not say once %q:\n%s", want, w.log)
			}
		})
	}
}

// Machines whose labels were taken away count: a thousand passes make none.
func TestSelectorDriftCreatesNothing(t *testing.T) {
	w := newWorld(t, machineSet(3))
	w.settle()
	for _, m := range w.machines() {
		m.Labels[wire.LabelMachineSet] = "elsewhere"
		if err := w.api.Update(t.Context(), &m); err != nil {
			t.Fatal(err)
		}
	}
	w.cache.Sync()
	for range 1000 {
		if _, err := w.step(); err != nil {
			t.Fatal(err)
		}
	}
	w.cache.Sync()
	if n := len(w.machines()); n != 3 {
		t.Errorf("there are %d machines, want 3", n)
	}
	ev := w.events()
	if len(ev) != 1 || !strings.Contains(ev[0], "SelectorDrift owned 3 of 3 wanted, 3 outside the selector") {
		t.Errorf("got events %q, want one SelectorDrift", ev)
	}
}

func TestMinReadySecondsWakes(t *testing.T) {
	s := machineSet(1)
	s.Spec.MinReadySeconds = 60
	w := newWorld(t, s)
	w.settle()
	m := w.machines()[0]
	w.join(&m)
	w.clk.Step(2 * time.Second) // since the last status
	w.cache.Sync()
	res, err := w.step()
	if err != nil {
		t.Fatal(err)
	}
	if res.RequeueAfter < 50*time.Second || res.RequeueAfter > 70*time.Second {
		t.Errorf("comes back after %v, want about a minute", res.RequeueAfter)
	}
	w.clk.Step(time.Minute)
	w.settle()
	if st := w.set().Status; st.ReadyReplicas != 1 || st.AvailableReplicas != 1 {
		t.Errorf("status is %+v", st)
	}
}

func TestFailedCreateIsToldAndRetried(t *testing.T) {
	w := newWorld(t, machineSet(2))
	w.api.FailNext("create", "Machine", errors.New("quota of objects is spent"))
	if _, err := w.step(); err == nil {
		t.Fatal("the failure is not returned")
	}
	ev := w.events()
	if len(ev) != 1 || !strings.Contains(ev[0], "quota of objects is spent") {
		t.Errorf("got events %q, want the failure", ev)
	}
	w.settle()
	if n := len(w.machines()); n != 2 {
		t.Errorf("made %d machines after the failure, want 2", n)
	}
}

func TestDeletedSetIsLeftAlone(t *testing.T) {
	s := machineSet(3)
	s.Finalizers = []string{"example.com/hold"}
	w := newWorld(t, s)
	if err := w.api.Delete(t.Context(), w.set()); err != nil {
		t.Fatal(err)
	}
	w.cache.Sync()
	before := w.api.Writes()
	if _, err := w.step(); err != nil {
		t.Fatal(err)
	}
	if w.api.Writes() != before {
		t.Errorf("wrote %v to a set that is going", w.api.Log()[before:])
	}
}

// Whatever the cache shows, whatever fails, whenever the process dies: when
// that stops, there are as many machines as wanted, and at no time more than
// the most that was ever wanted.
func TestConvergesUnderFaults(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			w := newWorld(t, machineSet(int32(r.IntN(6))))
			most := *w.set().Spec.Replicas
			for range 60 {
				switch r.IntN(8) {
				case 0:
					n := int32(r.IntN(8))
					most = max(most, n)
					w.scale(n)
				case 1:
					w.api.FailNext([]string{"create", "delete", "patch"}[r.IntN(3)], "*", errors.New("connection reset"))
				case 2:
					w.c = w.controller()
					w.cache.Sync() // a new process lists first
				case 3:
					for _, m := range w.machines() {
						if r.IntN(3) == 0 {
							m.Finalizers = nil
							_ = w.api.Update(t.Context(), &m)
						}
					}
				case 4, 5:
					for _, gvk := range w.cache.Behind() {
						w.cache.Advance(gvk, 1+r.IntN(3))
					}
				}
				_, _ = w.step()
				if n := len(w.machines()); n > int(most) {
					t.Fatalf("%d machines live, never more than %d were wanted", n, most)
				}
			}
			for range 30 {
				w.cache.Sync()
				_, _ = w.step() // uses up scripted failures
				w.clk.Step(2 * time.Second)
			}
			w.settle()
			if got, want := len(w.machines()), int(*w.set().Spec.Replicas); got != want {
				t.Fatalf("ended with %d machines, want %d", got, want)
			}
		})
	}
}

func TestWatchesMapToSets(t *testing.T) {
	s := machineSet(1)
	w := newWorld(t, s)
	w.settle()
	m := w.machines()[0]
	w.join(&m)
	w.cache.Sync()
	orphan := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "o", Labels: s.Spec.Template.Labels}}
	stranger := orphan.DeepCopy()
	stranger.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "x", UID: "y", Controller: ptr.To(true)}}
	for _, r := range []struct {
		obj  client.Object
		want []client.ObjectKey
	}{
		{&m, []client.ObjectKey{key}},
		{orphan, []client.ObjectKey{key}},
		{stranger, nil},
		{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Name}}, []client.ObjectKey{key}},
		{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, nil},
	} {
		for _, watch := range w.c.Watches {
			if fmt.Sprintf("%T", watch.Object) != fmt.Sprintf("%T", r.obj) {
				continue
			}
			if diff := cmp.Diff(r.want, watch.Map(context.Background(), w.cache, r.obj)); diff != "" {
				t.Errorf("%T %s (-want +got)\n%s", r.obj, r.obj.GetName(), diff)
			}
		}
	}
}
