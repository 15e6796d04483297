package machine_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	machinev1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/dialect/machineapi/machine"
	"millwright.io/millwright/internal/dialect/machineapi/nodelink"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/memapi"
	"millwright.io/millwright/internal/provider/fake"
)

const name = "demo-worker-a-x7k2p"

var (
	start   = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	key     = client.ObjectKey{Namespace: wire.Namespace, Name: name}
	nodeKey = client.ObjectKey{Name: name}
)

type world struct {
	metrics *machine.Metrics // nil: none
	t       *testing.T
	api     *memapi.API
	cache   *memapi.Cache
	clk     *clocktesting.FakeClock
	cloud   *fake.Cloud
	log     *bytes.Buffer
	rec     *events.FakeRecorder
	c, nl   kube.Controller
}

func newWorld(t *testing.T, objs ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{machinev1.Install, configv1.Install, corev1.AddToScheme, policyv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{t: t, clk: clocktesting.NewFakeClock(start), log: &bytes.Buffer{}, rec: events.NewFakeRecorder(1000)}
	w.cloud = fake.New(w.clk)
	objs = append(objs,
		&configv1.Infrastructure{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}, Status: configv1.InfrastructureStatus{InfrastructureName: "demo"}},
		secret("fake-cloud-credentials", "token", "t"), secret("worker-user-data", "userData", "ignition"))
	w.api = memapi.New(scheme, w.clk, objs...)
	w.cache = w.api.NewCache()
	w.restart()
	for _, fi := range []client.FieldIndexer{w.cache, w.api} {
		if err := kube.AddIndexes(t.Context(), fi, append(w.c.Indexes, w.nl.Indexes...)...); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// restart gives the controllers an empty memory.
func (w *world) restart() {
	log := kube.KlogTextTo("machine-controller", kube.KlogOptions{Out: w.log, Clock: w.clk})
	w.c = machine.New(machine.Deps{
		Client: w.cache.Client(), Live: w.api, Clock: w.clk, Opener: fake.Opener{Cloud: w.cloud}, Codec: fake.Codec{},
		ProviderStatus: providerStatus, Recorder: w.rec, Metrics: w.metrics, Log: log,
	})
	w.nl = nodelink.New(nodelink.Deps{Client: w.cache.Client(), Clock: w.clk, Log: log})
}

// providerStatus keeps the state and the fault, and prev when both stay.
func providerStatus(prev []byte, inst *cloud.Instance, fault *cloud.Fault, _ metav1.Time) ([]byte, error) {
	s := map[string]string{}
	if inst != nil {
		s["vmState"] = string(inst.State)
	}
	if fault != nil {
		s["fault"] = fault.Error()
	}
	raw, err := json.Marshal(s)
	if bytes.Equal(raw, prev) {
		return prev, err
	}
	return raw, err
}

func secret(name, k, v string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: wire.Namespace, Name: name}, Data: map[string][]byte{k: []byte(v)}}
}

func worker(change func(*machinev1.Machine)) *machinev1.Machine {
	m := &machinev1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: wire.Namespace, Name: name, Finalizers: []string{wire.MachineFinalizer},
			Labels: map[string]string{wire.LabelCluster: "demo", wire.LabelMachineRole: "worker", wire.LabelMachineSet: "demo-worker-a"},
		},
		Spec: machinev1.MachineSpec{
			ObjectMeta:   machinev1.ObjectMeta{Labels: map[string]string{"training/trainee": "t1"}},
			Taints:       []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}},
			ProviderSpec: machinev1.ProviderSpec{Value: &runtime.RawExtension{Raw: []byte(`{"kind":"FakeMachineProviderSpec","zone":"2","size":"small"}`)}},
		},
	}
	if change != nil {
		change(m)
	}
	return m
}

// step lets the cache catch up and reconciles once.
func (w *world) step() time.Duration {
	w.t.Helper()
	w.cache.Sync()
	res, err := w.c.Step(w.t.Context(), key)
	if err != nil {
		w.t.Fatalf("step: %v", err)
	}
	return res.RequeueAfter
}

func (w *world) after(d time.Duration) time.Duration {
	w.t.Helper()
	w.clk.Step(d)
	return w.step()
}

func (w *world) link() {
	w.t.Helper()
	w.cache.Sync()
	if _, err := w.nl.Step(w.t.Context(), nodeKey); err != nil {
		w.t.Fatalf("link: %v", err)
	}
}

func (w *world) machine() *machinev1.Machine {
	w.t.Helper()
	var m machinev1.Machine
	if err := w.api.Get(w.t.Context(), key, &m); err != nil {
		w.t.Fatal(err)
	}
	return &m
}

func (w *world) is(phase string) *machinev1.Machine {
	w.t.Helper()
	m := w.machine()
	if got := ptr.Deref(m.Status.Phase, ""); got != phase {
		w.t.Fatalf("phase %q, want %q; error %q; log:\n%s", got, phase, ptr.Deref(m.Status.ErrorMessage, ""), w.log)
	}
	return m
}

// boot makes the Node of the running instance.
func (w *world) boot() {
	w.t.Helper()
	i := w.cloud.Instances()[0]
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := w.api.Create(w.t.Context(), n); err != nil {
		w.t.Fatal(err)
	}
	n.Status.Addresses = i.Addresses
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := w.api.Status().Update(w.t.Context(), n); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) running() {
	w.t.Helper()
	w.step()
	w.is(wire.PhaseProvisioning)
	w.step()
	w.is(wire.PhaseProvisioned)
	w.after(5 * time.Second)
	w.boot()
	w.link()
	w.after(time.Second)
	w.is(wire.PhaseRunning)
}

func conditionsOf(m *machinev1.Machine) []string {
	var out []string
	for _, c := range m.Status.Conditions {
		out = append(out, strings.TrimSuffix(fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason), "/"))
	}
	return out
}

func TestMachineComesToRunningInSixWrites(t *testing.T) {
	for _, boot := range []time.Duration{0, 4 * time.Second} {
		t.Run(boot.String(), func(t *testing.T) { comesToRunning(t, boot) })
	}
}

func comesToRunning(t *testing.T, boot time.Duration) {
	w := newWorld(t, worker(nil))
	w.cloud.Slow(fake.OpCreate, boot)
	w.running()
	// The seventh is the MachineSet's create, the Node's own two are boot's.
	ours := 0
	for _, op := range w.api.Log() {
		if !strings.HasPrefix(op.String(), "create Node") && !strings.HasPrefix(op.String(), "update Node") {
			ours++
		}
	}
	if ours > 6 {
		t.Errorf("%d writes, want at most 6: %v", ours, w.api.Log())
	}
	m := w.machine()
	want := map[string]string{wire.LabelRegion: "nowhere", wire.LabelZone: "2", wire.LabelInstanceType: "small"}
	for k, v := range want {
		if m.Labels[k] != v {
			t.Errorf("label %s is %q, want %q", k, m.Labels[k], v)
		}
	}
	if got := m.Annotations[wire.AnnotationInstanceState]; got != "Running" {
		t.Errorf("instance state %q, want Running", got)
	}
	if got, want := ptr.Deref(m.Spec.ProviderID, ""), fake.ProviderID("nowhere", name); got != want {
		t.Errorf("provider ID %q, want %q", got, want)
	}
	if diff := cmp.Diff(conditionsOf(m), []string{"Drainable=True", "InstanceExists=True", "Terminable=True"}); diff != "" {
		t.Errorf("conditions (-got +want):\n%s", diff)
	}
	var n corev1.Node
	if err := w.api.Get(t.Context(), nodeKey, &n); err != nil {
		t.Fatal(err)
	}
	if n.Annotations[wire.AnnotationNodeMachine] != key.String() || n.Labels["training/trainee"] != "t1" || len(n.Spec.Taints) != 1 {
		t.Errorf("node %v %v %v", n.Annotations, n.Labels, n.Spec.Taints)
	}
	if _, ok := n.Labels[wire.NodeRoleWorker]; !ok {
		t.Error("node has no role")
	}
	if diff := cmp.Diff(m.Status.NodeRef, &corev1.ObjectReference{Kind: "Node", Name: name, UID: n.UID}); diff != "" {
		t.Errorf("nodeRef (-got +want):\n%s", diff)
	}
	if got := string(w.cloud.UserData(name)); got != "ignition" {
		t.Errorf("user data %q", got)
	}
	before := w.api.Writes()
	for range 5 {
		w.after(10 * time.Minute)
		w.link()
	}
	if got := w.api.Writes() - before; got != 0 {
		t.Errorf("%d writes while nothing changed: %v", got, w.api.Log()[before:])
	}
	if got := string(m.Status.ProviderStatus.Raw); got != `{"vmState":"Running"}` {
		t.Errorf("provider status %s", got)
	}
	if !strings.Contains(w.log.String(), name+": created instance, requeuing") {
		t.Errorf("log:\n%s", w.log)
	}
}

func TestLaggingCacheRepeatsNoWrite(t *testing.T) {
	w := newWorld(t, worker(nil))
	for range 6 { // the cache shows nothing of what we write
		if _, err := w.c.Step(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(w.cloud.Instances()); got != 1 {
		t.Errorf("%d instances", got)
	}
	if got := w.api.Writes(); got != 3 {
		t.Errorf("%d writes, want Provisioning, record, Provisioned: %v", got, w.api.Log())
	}
}

func TestQuotaWaitsAndEndsByItself(t *testing.T) {
	w := newWorld(t, worker(nil))
	text := `failed to reconcile machine "` + name + `": exceeding approved Total Regional Cores quota`
	w.cloud.FailEvery(fake.OpCreateVM, &cloud.Fault{Kind: cloud.Quota, Reason: "OperationNotAllowed", Message: "exceeding approved Total Regional Cores quota"})
	w.step()
	if wake := w.step(); wake < 20*time.Second || wake > 30*time.Second {
		t.Errorf("wake %s, want 20 to 30 s", wake)
	}
	m := w.is(wire.PhaseProvisioning)
	if got := ptr.Deref(m.Status.ErrorMessage, ""); got != text || m.Status.ErrorReason != nil {
		t.Errorf("error %q, reason %v", got, m.Status.ErrorReason)
	}
	if !strings.Contains(w.log.String(), name+": failed to create machine: "+text) {
		t.Errorf("log:\n%s", w.log)
	}
	before, calls := w.api.Writes(), w.cloud.Calls(fake.OpCreate)
	w.after(time.Second) // an event must not cut the pause short
	if got := w.cloud.Calls(fake.OpCreate); got != calls {
		t.Errorf("%d creates during the pause", got-calls)
	}
	w.after(25 * time.Second)
	w.after(25 * time.Second)
	if got := w.api.Writes(); got != before {
		t.Errorf("waiting wrote %v", w.api.Log()[before:])
	}
	w.cloud.FailEvery(fake.OpCreateVM, nil)
	w.after(25 * time.Second)
	if m = w.is(wire.PhaseProvisioned); m.Status.ErrorMessage != nil {
		t.Errorf("error stays: %s", *m.Status.ErrorMessage)
	}
	if diff := cmp.Diff(conditionsOf(m), []string{"Drainable=True", "InstanceExists=True", "Terminable=True"}); diff != "" {
		t.Errorf("conditions (-got +want):\n%s", diff)
	}
}

func TestInvalidIsFailedUntilTheSpecChanges(t *testing.T) {
	w := newWorld(t, worker(nil))
	w.cloud.FailEvery(fake.OpCreateVM, &cloud.Fault{Kind: cloud.Invalid, Message: "no such image"})
	w.step()
	if wake := w.step(); wake < 8*time.Minute || wake > 12*time.Minute {
		t.Errorf("wake %s, want about ten minutes", wake)
	}
	m := w.is(wire.PhaseFailed)
	if got := ptr.Deref(m.Status.ErrorReason, ""); got != machinev1.InvalidConfigurationMachineError {
		t.Errorf("reason %q", got)
	}
	calls := w.cloud.Calls(fake.OpCreate)
	w.after(time.Minute)
	if got := w.cloud.Calls(fake.OpCreate); got != calls {
		t.Error("tried again before its time")
	}
	w.cloud.FailEvery(fake.OpCreateVM, nil)
	after := w.machine()
	after.Spec.ProviderSpec.Value.Raw = []byte(`{"kind":"FakeMachineProviderSpec","zone":"1","size":"medium"}`)
	if err := w.api.Update(t.Context(), after); err != nil {
		t.Fatal(err)
	}
	w.step()
	if m = w.is(wire.PhaseProvisioned); m.Status.ErrorReason != nil || m.Status.ErrorMessage != nil {
		t.Errorf("error stays: %v %v", m.Status.ErrorReason, m.Status.ErrorMessage)
	}
}

func TestVanishedInstanceIsFailedForGood(t *testing.T) {
	w := newWorld(t, worker(nil))
	w.running()
	w.cloud.Vanish(name)
	w.after(time.Second)
	m := w.is(wire.PhaseFailed)
	if got := ptr.Deref(m.Status.ErrorMessage, ""); got != "can't find created instance" || m.Status.ErrorReason != nil {
		t.Errorf("error %q, reason %v", got, m.Status.ErrorReason)
	}
	if got := m.Annotations[wire.AnnotationInstanceState]; got != "Unknown" {
		t.Errorf("state %q, want Unknown", got)
	}
	w.restart()
	before := w.api.Writes()
	w.after(time.Hour)
	w.is(wire.PhaseFailed)
	if got := w.api.Writes(); got != before || len(w.cloud.Instances()) != 0 {
		t.Errorf("%d writes, %d instances", got-before, len(w.cloud.Instances()))
	}
}

func TestStrangerIsReportedAndLeftAlone(t *testing.T) {
	w := newWorld(t, worker(nil))
	if _, err := w.cloud.Create(t.Context(), cloud.Intent{Key: cloud.Key{UID: "other", Name: name}, Spec: &fake.Spec{Kind: fake.Kind}}); err != nil {
		t.Fatal(err)
	}
	w.step()
	w.step()
	m := w.is(wire.PhaseProvisioning)
	if m.Status.ErrorMessage == nil || m.Status.ErrorReason != nil {
		t.Errorf("error %v, reason %v", m.Status.ErrorMessage, m.Status.ErrorReason)
	}
	if err := w.api.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		w.after(3 * time.Second)
	}
	w.gone()
	if got := w.cloud.Instances(); len(got) != 1 || got[0].Key.UID != "other" {
		t.Errorf("instances %v", got)
	}
}

func (w *world) gone() {
	w.t.Helper()
	var m machinev1.Machine
	if err := w.api.Get(w.t.Context(), key, &m); !apierrors.IsNotFound(err) {
		w.t.Fatalf("machine still there: %v, finalizers %v; log:\n%s", err, m.Finalizers, w.log)
	}
}

func TestDeletionDrainsThenRemovesInstanceNodeAndFinalizer(t *testing.T) {
	w := newWorld(t, worker(nil))
	w.running()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "app", Labels: map[string]string{"app": "a"}}, Spec: corev1.PodSpec{NodeName: name}}
	ds := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "ds", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "ds", UID: "d", Controller: ptr.To(true)}}}, Spec: corev1.PodSpec{NodeName: name}}
	pdb := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "app"},
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}}}
	for _, o := range []client.Object{pod, ds, pdb} {
		if err := w.api.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.api.Delete(t.Context(), w.machine()); err != nil {
		t.Fatal(err)
	}
	w.step()
	m := w.is(wire.PhaseDeleting)
	if got := conditionsOf(m); !strings.Contains(strings.Join(got, " "), "Drained=False/DrainError") {
		t.Errorf("blocked drain is not told: %v", got)
	}
	if len(w.cloud.Instances()) != 1 {
		t.Fatal("instance gone before the drain")
	}
	if err := w.api.Delete(t.Context(), pdb); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		w.cache.Sync()
		w.clk.Step(5 * time.Second)
		if _, err := w.c.Step(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	w.gone()
	if got := w.cloud.Parts(); len(got) != 0 {
		t.Errorf("left in the cloud: %v", got)
	}
	var n corev1.Node
	if err := w.api.Get(t.Context(), nodeKey, &n); !apierrors.IsNotFound(err) {
		t.Errorf("node is still there: %v", err)
	}
	if !strings.Contains(w.log.String(), name+": machine deletion successful") {
		t.Errorf("log:\n%s", w.log)
	}
	var told []string
	for len(w.rec.Events) > 0 {
		told = append(told, <-w.rec.Events)
	}
	for _, want := range []string{"Created", "DrainProceeds", "DrainRequeued", "DrainSucceeded", `Deleted machine "` + name} {
		if !strings.Contains(strings.Join(told, "\n"), want) {
			t.Errorf("no event %s in %v", want, told)
		}
	}
}

func TestCredentialsAndUserDataAreWaitedFor(t *testing.T) {
	w := newWorld(t, worker(nil))
	creds, data := secret("fake-cloud-credentials", "token", "t"), secret("worker-user-data", "userData", "ignition")
	for _, s := range []*corev1.Secret{creds, data} {
		if err := w.api.Delete(t.Context(), s.DeepCopy()); err != nil {
			t.Fatal(err)
		}
	}
	w.step()
	m := w.is(wire.PhaseProvisioning)
	if got := strings.Join(conditionsOf(m), " "); !strings.Contains(got, "InstanceExists=Unknown/ErrorCheckingProvider") || m.Status.ErrorMessage == nil {
		t.Errorf("conditions %s, error %v", got, m.Status.ErrorMessage)
	}
	if err := w.api.Create(t.Context(), creds); err != nil {
		t.Fatal(err)
	}
	w.after(time.Minute)
	m = w.is(wire.PhaseProvisioning)
	if got := ptr.Deref(m.Status.ErrorMessage, ""); !strings.Contains(got, "user data secret worker-user-data") {
		t.Errorf("error %q", got)
	}
	if err := w.api.Create(t.Context(), data); err != nil {
		t.Fatal(err)
	}
	w.after(time.Minute)
	w.is(wire.PhaseProvisioned)
}

func TestCrashAfterCreateMakesNoSecondInstance(t *testing.T) {
	w := newWorld(t, worker(nil))
	w.step()
	w.api.FailNext("patch", "*", errors.New("connection reset"))
	w.api.FailNext("patch", "*", errors.New("connection reset"))
	w.cache.Sync()
	if _, err := w.c.Step(t.Context(), key); err == nil {
		t.Fatal("no error although nothing could be written")
	}
	w.restart()
	w.after(time.Second)
	w.is(wire.PhaseProvisioned)
	if got := w.cloud.Calls(fake.OpCreateVM); got != 1 {
		t.Errorf("%d instances were made", got)
	}
}

func TestInvalidMachineIsRefusedWithoutATrace(t *testing.T) {
	w := newWorld(t, worker(func(m *machinev1.Machine) { m.Labels = nil }))
	w.step()
	if got := w.api.Writes(); got != 0 {
		t.Errorf("%d writes", got)
	}
	if e := <-w.rec.Events; !strings.Contains(e, "FailedValidate") || !strings.Contains(e, "missing machine.openshift.io/cluster-api-cluster label.") {
		t.Errorf("event %q", e)
	}
}

func TestUndecodableSpecIsFailedAndDeletable(t *testing.T) {
	w := newWorld(t, worker(func(m *machinev1.Machine) { m.Spec.ProviderSpec.Value.Raw = []byte(`{"kind":3}`) }))
	w.step()
	w.step()
	m := w.is(wire.PhaseFailed)
	if err := w.api.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	w.step()
	w.gone()
}

func TestExistingMasterComesToRunning(t *testing.T) {
	w := newWorld(t, worker(func(m *machinev1.Machine) { m.Labels[wire.LabelMachineRole] = "master" }))
	if _, err := w.cloud.Create(t.Context(), cloud.Intent{Key: cloud.Key{UID: string(w.machine().UID), Name: name}, Spec: &fake.Spec{Kind: fake.Kind, Region: "nowhere"}}); err != nil {
		t.Fatal(err)
	}
	w.boot()
	w.step()
	w.is(wire.PhaseProvisioned)
	w.link()
	w.step()
	w.is(wire.PhaseRunning)
	var n corev1.Node
	if err := w.api.Get(t.Context(), nodeKey, &n); err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{wire.NodeRoleControlPlane, wire.NodeRoleMaster} {
		if _, ok := n.Labels[role]; !ok {
			t.Errorf("node lacks %s: %v", role, n.Labels)
		}
	}
}
