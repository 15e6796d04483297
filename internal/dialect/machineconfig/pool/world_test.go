package pool_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineconfig/drain"
	"millwright.io/millwright/internal/dialect/machineconfig/pool"
	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/memapi"
)

var start = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// Names of rendered configs: equal ends hold the same.
const (
	configA = "rendered-worker-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	configB = "rendered-worker-bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	configC = "rendered-worker-cccccccccccccccccccccccccccccccc"
)

// world is the two controllers on an API in memory, and agents that follow the
// annotations.
type world struct {
	t      testing.TB
	api    *memapi.API
	cache  *memapi.Cache
	clk    *clocktesting.FakeClock
	log    *bytes.Buffer
	rec    *events.FakeRecorder
	pools  kube.Controller
	drains kube.Controller
	agents map[string]*agent
	anyhow bool // agents do not mind an uncordon after the drain
}

// agent is a node's own part: what its disk holds and what it fails on.
type agent struct {
	disk    string
	fails   map[string]string // config → reason
	noDrain bool
	boots   int
}

func scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, policyv1.AddToScheme, configv1.Install, machineconfigv1.Install} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func newWorld(t testing.TB, objs ...client.Object) *world {
	t.Helper()
	w := &world{t: t, clk: clocktesting.NewFakeClock(start), log: &bytes.Buffer{}, rec: events.NewFakeRecorder(100000), agents: map[string]*agent{}}
	w.api = memapi.New(scheme(t), w.clk, objs...)
	if err := w.api.IndexField(t.Context(), &corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
		return []string{o.(*corev1.Pod).Spec.NodeName}
	}); err != nil {
		t.Fatal(err)
	}
	w.cache = w.api.NewCache()
	for _, o := range objs {
		if n, ok := o.(*corev1.Node); ok {
			w.agents[n.Name] = &agent{disk: n.Annotations[wire.AnnotationCurrentConfig], fails: map[string]string{}}
		}
	}
	w.restart()
	return w
}

// restart makes controllers without memory.
func (w *world) restart() {
	c, log := w.cache.Client(), kube.KlogTextTo("", kube.KlogOptions{Out: w.log, Clock: w.clk})
	w.pools = pool.New(pool.Deps{Client: c, Live: w.api, Clock: w.clk, Recorder: w.rec, Log: log})
	w.drains = drain.New(drain.Deps{Client: c, Live: w.api, Clock: w.clk, Recorder: w.rec, Log: log})
}

func poolNamed(name, target string, edits ...func(*machineconfigv1.MachineConfigPool)) *machineconfigv1.MachineConfigPool {
	p := &machineconfigv1.MachineConfigPool{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name), Generation: 1, Annotations: map[string]string{}},
		Spec:       machineconfigv1.MachineConfigPoolSpec{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{wire.NodeRolePrefix + name: ""}}},
	}
	p.Spec.Configuration.Name, p.Status.Configuration.Name = target, target
	for _, e := range edits {
		e(p)
	}
	return p
}

func nodeOf(name, role, config string, edits ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{wire.NodeRolePrefix + role: ""}, Annotations: map[string]string{
		wire.AnnotationCurrentConfig: config, wire.AnnotationDesiredConfig: config, wire.AnnotationState: "Done"}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, e := range edits {
		e(n)
	}
	return n
}

func workers(n int) []client.Object {
	out := []client.Object{poolNamed(wire.PoolWorker, configA)}
	for i := range n {
		out = append(out, nodeOf(fmt.Sprintf("w-%d", i), "worker", configA))
	}
	return out
}

// step lets every controller look at everything once.
func (w *world) step() {
	w.t.Helper()
	w.cache.Sync()
	for _, p := range w.poolNames() {
		if _, err := w.pools.Step(w.t.Context(), client.ObjectKey{Name: p}); err != nil {
			w.t.Fatalf("pool %s: %v", p, err)
		}
	}
	w.cache.Sync()
	for _, n := range w.nodeNames() {
		if _, err := w.drains.Step(w.t.Context(), client.ObjectKey{Name: n}); err != nil {
			w.t.Fatalf("node %s: %v", n, err)
		}
	}
}

// round is a step of everybody, and a second.
func (w *world) round() {
	w.t.Helper()
	w.step()
	for _, n := range w.nodeNames() {
		w.agent(n)
	}
	w.clk.Step(time.Second)
}

// settle plays rounds until nobody writes any more.
func (w *world) settle() {
	w.t.Helper()
	quiet := 0
	for range 3000 {
		before := w.api.Writes()
		w.round()
		if quiet++; w.api.Writes() != before {
			quiet = 0
		}
		if quiet > 3 {
			return
		}
	}
	w.t.Fatalf("does not settle: %v", w.api.Log()[len(w.api.Log())-10:])
}

func (w *world) poolNames() []string {
	var list machineconfigv1.MachineConfigPoolList
	if err := w.api.List(w.t.Context(), &list); err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for i := range list.Items {
		out = append(out, list.Items[i].Name)
	}
	return out
}

func (w *world) nodeNames() []string {
	var list corev1.NodeList
	if err := w.api.List(w.t.Context(), &list); err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for i := range list.Items {
		out = append(out, list.Items[i].Name)
	}
	return out
}

// agent does one step of a node's own work.
func (w *world) agent(name string) {
	w.t.Helper()
	n, a := w.node(name), w.agents[name]
	if n == nil || a == nil {
		return
	}
	cordoned := n.Spec.Unschedulable
	disk := a.disk
	if a.step(n) {
		if err := w.api.Update(w.t.Context(), n); err != nil {
			w.t.Fatal(err)
		}
	}
	if a.disk != disk && !a.noDrain && !w.anyhow && !cordoned {
		w.t.Fatalf("node %s applies %s and is not cordoned", name, a.disk)
	}
}

// step does as the daemon does: it asks for a drain, applies and reboots, asks
// to be uncordoned, and is done. It returns whether the Node has to be written.
func (a *agent) step(n *corev1.Node) bool {
	get := func(k string) string { return n.Annotations[k] }
	set := func(kv ...string) bool {
		for i := 0; i < len(kv); i += 2 {
			n.Annotations[kv[i]] = kv[i+1]
		}
		return true
	}
	desired, state, drain := get(wire.AnnotationDesiredConfig), get(wire.AnnotationState), get(wire.AnnotationDesiredDrain)
	if drain != get(wire.AnnotationLastAppliedDrain) {
		return false
	}
	reason, broken := a.fails[desired]
	switch {
	case desired == get(wire.AnnotationCurrentConfig) && state == "Done" && a.disk == desired:
		return false
	case a.disk == desired && drain != "uncordon-"+desired && drain != "":
		return set(wire.AnnotationDesiredDrain, "uncordon-"+desired)
	case a.disk == desired:
		return set(wire.AnnotationCurrentConfig, desired, wire.AnnotationState, "Done", wire.AnnotationReason, "")
	case !a.noDrain && drain != "drain-"+desired:
		if state == "Done" {
			state = "Working"
		}
		return set(wire.AnnotationState, state, wire.AnnotationDesiredDrain, "drain-"+desired)
	case broken:
		return (state != "Degraded" || get(wire.AnnotationReason) != reason) && set(wire.AnnotationState, "Degraded", wire.AnnotationReason, reason)
	case state == "Done":
		return set(wire.AnnotationState, "Working")
	}
	a.disk = desired
	a.boots++
	return false
}

func (w *world) node(name string) *corev1.Node {
	w.t.Helper()
	var n corev1.Node
	if err := w.api.Get(w.t.Context(), client.ObjectKey{Name: name}, &n); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil
		}
		w.t.Fatal(err)
	}
	return &n
}

func (w *world) pool(name string) *machineconfigv1.MachineConfigPool {
	w.t.Helper()
	var p machineconfigv1.MachineConfigPool
	if err := w.api.Get(w.t.Context(), client.ObjectKey{Name: name}, &p); err != nil {
		w.t.Fatal(err)
	}
	return &p
}

// edit changes an object as a person does.
func edit[T client.Object](w *world, obj T, f func(T)) {
	w.t.Helper()
	if obj.GetAnnotations() == nil {
		obj.SetAnnotations(map[string]string{})
	}
	f(obj)
	if err := w.api.Update(w.t.Context(), obj); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) aim(target string) {
	w.t.Helper()
	edit(w, w.pool(wire.PoolWorker), func(p *machineconfigv1.MachineConfigPool) { p.Spec.Configuration.Name = target; p.Generation++ })
}

// columns are those of kubectl get mcp, and the config.
func (w *world) columns(name string) string {
	w.t.Helper()
	p := w.pool(name)
	c := func(kind string) string {
		for _, c := range p.Status.Conditions {
			if string(c.Type) == kind {
				return string(c.Status)
			}
		}
		return "-"
	}
	s := p.Status
	return fmt.Sprintf("%s %s %s %s %d %d %d %d", s.Configuration.Name[len("rendered-worker-"):][:1], c("Updated"), c("Updating"), c("Degraded"),
		s.MachineCount, s.ReadyMachineCount, s.UpdatedMachineCount, s.DegradedMachineCount)
}

func (w *world) message(pool, kind string) (status, reason, message string) {
	w.t.Helper()
	for _, c := range w.pool(pool).Status.Conditions {
		if string(c.Type) == kind {
			return string(c.Status), c.Reason, c.Message
		}
	}
	return "", "", ""
}

func (w *world) events(reason string) []string {
	var out []string
	for {
		select {
		case e := <-w.rec.Events:
			if strings.Contains(e, " "+reason+" ") {
				out = append(out, e)
			}
		default:
			return out
		}
	}
}

func (w *world) ops(text string, skip int) int {
	n := 0
	for _, op := range w.api.Log()[skip:] {
		if strings.Contains(op.String(), text) {
			n++
		}
	}
	return n
}

// busy are the nodes that are on their way.
func (w *world) busy() []string {
	var out []string
	for _, name := range w.nodeNames() {
		n := w.node(name)
		if n.Annotations[wire.AnnotationCurrentConfig] != n.Annotations[wire.AnnotationDesiredConfig] || n.Annotations[wire.AnnotationState] != "Done" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func podOn(node, name string, edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": name}, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: "r", Controller: ptr.To(true)}}},
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	for _, e := range edits {
		e(p)
	}
	return p
}

func spentBudget(app string) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: app, Generation: 1},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
		Status:     policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, CurrentHealthy: 1, DesiredHealthy: 1, ExpectedPods: 1},
	}
}
