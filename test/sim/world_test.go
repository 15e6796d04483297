// Package sim_test steps the real controllers on an API in memory with a fake
// cloud, in a random order that a seed fixes: caches lag, processes die between
// any two effects, clouds and API servers fail, people interfere. It checks
// what must hold all the time, and what must hold once the trouble stops.
package sim_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	machinev1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/dialect/machineapi/healthcheck"
	"millwright.io/millwright/internal/dialect/machineapi/machine"
	"millwright.io/millwright/internal/dialect/machineapi/machineset"
	"millwright.io/millwright/internal/dialect/machineapi/nodelink"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/memapi"
	"millwright.io/millwright/internal/provider/fake"
	"millwright.io/millwright/internal/telemetry"
)

var (
	start     = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	errKilled = errors.New("killed")
)

// Actors that are no process of ours, and do not die.
const (
	actorUser  = "user"
	actorCloud = "cloud"
)

// actorHealth is the process that repairs.
const actorHealth = "machine-healthcheck"

const setName = "demo-worker-nowhere1"

// world is one simulated cluster.
type world struct {
	t      *testing.T
	seed   uint64
	rng    *rand.Rand
	clk    *clocktesting.FakeClock
	scheme *runtime.Scheme
	api    *memapi.API
	cloud  *fake.Cloud
	procs  []*process
	want   int // replicas asked for
	most   int // most replicas ever asked for
	chaos  bool
	out    bytes.Buffer

	seen      [3]int          // lengths when operate had nothing to do
	podNumber int             // of the last pod made
	silent    map[string]bool // provider IDs whose kubelets do not answer
	sick      map[string]bool // Machines that ever had a reason to be repaired
	going     map[string]bool // Machines that were deleted: to do it again is no harm
	early     map[string]bool // Machines that were deleted before they had a Node

	mu     sync.Mutex // guards the rest: effects of one step may run side by side
	actor  string
	lines  []string
	dead   string // the effect the present process died in
	counts map[string]int
	broken []string // what must not have happened
}

// process is one controller with a cache and a queue of its own.
type process struct {
	name  string
	w     *world
	make  func(client.Client) kube.Controller
	c     kube.Controller
	cache *memapi.Cache
	due   map[client.ObjectKey]time.Time
	marks map[schema.GroupVersionKind][]int // history lengths between steps
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 7)), clk: clocktesting.NewFakeClock(start),
		scheme: runtime.NewScheme(), chaos: true,
		counts: map[string]int{}, silent: map[string]bool{}, sick: map[string]bool{}, going: map[string]bool{}, early: map[string]bool{}}
	for _, add := range []func(*runtime.Scheme) error{machinev1.Install, configv1.Install, corev1.AddToScheme, policyv1.AddToScheme} {
		if err := add(w.scheme); err != nil {
			t.Fatal(err)
		}
	}
	w.cloud = fake.New(w.clk, fake.WithBootDelay(20*time.Second), fake.WithDeleteDelay(10*time.Second), fake.WithCreateCalls(1+int(seed%3)))
	w.want, w.most = 3, 3
	w.api = memapi.New(w.scheme, w.clk, append(cluster(),
		&configv1.Infrastructure{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}, Status: configv1.InfrastructureStatus{InfrastructureName: "demo"}},
		secret("fake-cloud-credentials", "token"), secret("worker-user-data", wire.UserDataKey), workers(int32(w.want)))...)
	opener := opener{w}
	rec := func() events.EventRecorder { return &events.FakeRecorder{} } // drops them
	w.procs = []*process{
		w.process("machineset", func(c client.Client) kube.Controller {
			return machineset.New(machineset.Deps{Client: c, Live: w.api, Clock: w.clk, Recorder: rec(), Log: logr.Discard()})
		}),
		w.process("machine", func(c client.Client) kube.Controller {
			return machine.New(machine.Deps{Client: c, Live: w.api, Clock: w.clk, Opener: opener, Codec: fake.Codec{},
				ProviderStatus: providerStatus, Recorder: rec(), Log: logr.Discard()})
		}),
		w.process("nodelink", func(c client.Client) kube.Controller {
			return nodelink.New(nodelink.Deps{Client: c, Clock: w.clk, Log: logr.Discard()})
		}),
		w.process(actorHealth, func(c client.Client) kube.Controller {
			return healthcheck.New(healthcheck.Deps{Client: c, Live: w.api, Clock: w.clk, Recorder: rec(), Log: logr.Discard()})
		}),
	}
	w.api.Hook(func(o memapi.Op) error { w.judge(o); return w.maybeDie("before", o.String()) },
		func(o memapi.Op) error { w.line(o.String()); return w.maybeDie("after", o.String()) })
	return w
}

func secret(name, key string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: wire.Namespace, Name: name}, Data: map[string][]byte{key: []byte("x")}}
}

func workers(replicas int32) *machinev1.MachineSet {
	labels := map[string]string{wire.LabelCluster: "demo", wire.LabelMachineSet: setName}
	return &machinev1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: wire.Namespace, Name: setName, Labels: map[string]string{wire.LabelCluster: "demo"}},
		Spec: machinev1.MachineSetSpec{
			Replicas: &replicas,
			Selector: metav1.LabelSelector{MatchLabels: labels},
			Template: machinev1.MachineTemplateSpec{
				ObjectMeta: machinev1.ObjectMeta{Labels: labels},
				Spec: machinev1.MachineSpec{ProviderSpec: machinev1.ProviderSpec{Value: &runtime.RawExtension{
					Raw: []byte(`{"kind":"FakeMachineProviderSpec","zone":"1","size":"small"}`),
				}}},
			},
		},
	}
}

func providerStatus(prev []byte, inst *cloud.Instance, fault *cloud.Fault, _ metav1.Time) ([]byte, error) {
	s := map[string]string{}
	if inst != nil {
		s["vmState"] = string(inst.State)
	}
	if fault != nil {
		s["fault"] = string(fault.Kind)
	}
	raw, err := json.Marshal(s)
	if bytes.Equal(raw, prev) {
		return prev, err
	}
	return raw, err
}

func (w *world) process(name string, mk func(client.Client) kube.Controller) *process {
	p := &process{name: name, w: w, make: mk, marks: map[schema.GroupVersionKind][]int{}}
	p.restart()
	return p
}

// restart is a new process: no memory, and a cache that has just been filled.
func (p *process) restart() {
	p.cache = p.w.api.NewCache()
	p.c = p.make(p.cache.Client())
	p.due = map[client.ObjectKey]time.Time{}
	p.marks = map[schema.GroupVersionKind][]int{}
	if err := kube.AddIndexes(p.w.t.Context(), p.cache, p.c.Indexes...); err != nil {
		p.w.t.Fatal(err)
	}
	for _, o := range p.cache.Objects() {
		p.event(o.GetObjectKind().GroupVersionKind(), memapi.Event{Key: client.ObjectKeyFromObject(o), New: o})
	}
}

// event queues what a watch event concerns, through the controller's own
// predicates and maps.
func (p *process) event(gvk schema.GroupVersionKind, e memapi.Event) {
	passes := func(changed func(old, new client.Object) bool) bool {
		return e.Old == nil || e.New == nil || changed == nil || changed(e.Old, e.New)
	}
	is := func(o client.Object) bool {
		k, err := apiutil.GVKForObject(o, p.w.scheme)
		return err == nil && k == gvk
	}
	if is(p.c.For) && passes(p.c.Changed) {
		p.due[e.Key] = p.w.clk.Now()
	}
	for _, watch := range p.c.Watches {
		if !is(watch.Object) || !passes(watch.Changed) {
			continue
		}
		for _, o := range []client.Object{e.Old, e.New} {
			if o == nil {
				continue
			}
			for _, k := range watch.Map(p.w.t.Context(), p.cache, o.DeepCopyObject().(client.Object)) {
				p.due[k] = p.w.clk.Now()
			}
		}
	}
}

// show lets the cache of a process see a kind's history up to a length.
func (p *process) show(gvk schema.GroupVersionKind, upTo int) {
	for p.cache.Position(gvk) < upTo {
		e, ok := p.cache.Next(gvk)
		if !ok {
			return
		}
		p.event(gvk, e)
	}
}

// mark remembers where each history ends. Caches stop only at marks, since
// within a step effects may run side by side.
func (p *process) mark() {
	for _, gvk := range p.cache.Behind() {
		n := p.w.api.Length(gvk)
		if m := p.marks[gvk]; len(m) == 0 || m[len(m)-1] < n {
			p.marks[gvk] = append(m, n)
		}
	}
}

// ready returns the keys that are due, sorted.
func (p *process) ready() []client.ObjectKey {
	var out []client.ObjectKey
	for k, at := range p.due {
		if !at.After(p.w.clk.Now()) {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b client.ObjectKey) int { return cmp.Compare(a.String(), b.String()) })
	return out
}

// reconcile does one key, and starts the process anew if it died.
func (p *process) reconcile(key client.ObjectKey) {
	w := p.w
	delete(p.due, key)
	w.begin(p.name + " " + key.Name)
	res, err := p.c.Step(context.Background(), key)
	died := w.end()
	switch {
	case died != "":
		w.print("%s died %s", p.name, died)
		p.restart()
		return
	case err != nil:
		p.due[key] = w.clk.Now().Add(time.Second)
	case res.RequeueAfter > 0:
		at := w.clk.Now().Add(res.RequeueAfter)
		if have, ok := p.due[key]; !ok || at.Before(have) {
			p.due[key] = at
		}
	}
	w.check()
}

// begin and end frame the effects of one actor.
func (w *world) begin(actor string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.actor, w.lines, w.dead = actor, nil, ""
}

func (w *world) end() (died string) {
	w.mu.Lock()
	slices.Sort(w.lines)
	lines, actor, died := w.lines, w.actor, w.dead
	w.actor, w.dead = "", ""
	w.mu.Unlock()
	for _, l := range lines {
		w.print("%s: %s", actor, l)
	}
	for _, p := range w.procs {
		p.mark()
	}
	return died
}

func (w *world) line(s string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, s)
}

func (w *world) print(format string, args ...any) {
	fmt.Fprintf(&w.out, "%7.1fs  %s\n", w.clk.Now().Sub(start).Seconds(), fmt.Sprintf(format, args...))
}

// maybeDie kills the present process around an effect. Which effects are fatal
// depends on the seed and on the effect, not on the order in which goroutines
// came to it. Once dead, only what was in flight beside it still happens.
func (w *world) maybeDie(when, effect string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.chaos || w.actor == "" || w.actor == actorUser || w.actor == actorCloud {
		return nil
	}
	verb := effect
	if i := bytes.IndexByte([]byte(effect), ' '); i > 0 {
		verb = effect[:i]
	}
	if w.dead != "" {
		if when == "before" && !bytes.HasSuffix([]byte(w.dead), []byte(" "+verb)) {
			return errKilled
		}
		return nil
	}
	id := w.actor + "|" + when + "|" + effect
	w.counts[id]++
	h := fnv.New64a()
	fmt.Fprintf(h, "%d|%s|%d", w.seed, id, w.counts[id])
	if h.Sum64()%14 != 0 {
		return nil
	}
	w.dead = when + " " + verb
	return errKilled
}

// opener opens the cloud through which processes die.
type opener struct{ w *world }

func (o opener) Open(context.Context, cloud.Account) (cloud.Cloud, error) {
	return mortal{Cloud: o.w.cloud, w: o.w}, nil
}

type mortal struct {
	cloud.Cloud
	w *world
}

func (m mortal) Create(ctx context.Context, in cloud.Intent) (cloud.Instance, error) {
	what := "cloud-create " + in.Key.Name
	if err := m.w.maybeDie("before", what); err != nil {
		return cloud.Instance{}, err
	}
	inst, err := m.Cloud.Create(ctx, in)
	m.w.line(what + result(err))
	if e := m.w.maybeDie("after", what); e != nil {
		return cloud.Instance{}, e
	}
	return inst, err
}

func (m mortal) Delete(ctx context.Context, key cloud.Key) error {
	what := "cloud-delete " + key.Name
	if err := m.w.maybeDie("before", what); err != nil {
		return err
	}
	m.w.deleting(key.Name)
	err := m.Cloud.Delete(ctx, key)
	m.w.line(what + result(err))
	if e := m.w.maybeDie("after", what); e != nil {
		return e
	}
	return err
}

func result(err error) string {
	if err == nil {
		return ""
	}
	return ": " + string(cloud.KindOf(err))
}

func (w *world) machines() []machinev1.Machine {
	var l machinev1.MachineList
	if err := w.api.List(context.Background(), &l); err != nil {
		w.t.Fatal(err)
	}
	return l.Items
}

func (w *world) nodes() []corev1.Node {
	var l corev1.NodeList
	if err := w.api.List(context.Background(), &l); err != nil {
		w.t.Fatal(err)
	}
	return l.Items
}

// check fails when something does not hold that must hold all the time.
func (w *world) check() {
	w.t.Helper()
	byUID := map[string]machinev1.Machine{}
	live := 0
	for _, m := range w.machines() {
		byUID[string(m.UID)] = m
		if m.DeletionTimestamp == nil {
			live++
		}
	}
	if live > w.most {
		w.fail("%d machines, never more than %d were asked for", live, w.most)
	}
	vms := map[string]int{}
	for _, i := range w.cloud.Instances() {
		if vms[i.Key.UID]++; vms[i.Key.UID] > 1 {
			w.fail("two instances of machine %s", i.Key)
		}
	}
	for _, part := range w.cloud.Parts() {
		m, ok := byUID[part.Key.UID]
		if !ok {
			w.fail("%s of %s is left, and its machine is gone", part.Kind, part.Key)
		} else if !slices.Contains(m.Finalizers, wire.MachineFinalizer) {
			w.fail("machine %s has a %s and no finalizer", m.Name, part.Kind)
		}
	}
	w.checkCluster()
}

// checkEnd fails unless the world came to rest as asked.
func (w *world) checkEnd() {
	w.t.Helper()
	w.check()
	machines, nodes := w.machines(), w.nodes()
	if len(machines) != w.want {
		w.fail("%d machines at the end, want %d", len(machines), w.want)
	}
	if n := len(w.cloud.Instances()); n != w.want {
		w.fail("%d instances at the end, want %d", n, w.want)
	}
	if n := len(w.cloud.Parts()); n != 3*w.want {
		w.fail("%d parts at the end, want %d", n, 3*w.want)
	}
	if len(nodes) != w.want+1 {
		w.fail("%d nodes at the end, want %d and the haven", len(nodes), w.want)
	}
	for _, n := range nodes {
		if n.Spec.Unschedulable {
			w.fail("node %s is cordoned at the end", n.Name)
		}
	}
	for i := range machines {
		m := &machines[i]
		if ptr.Deref(m.Status.Phase, "") != "Running" || m.Status.NodeRef == nil || ptr.Deref(m.Status.ErrorMessage, "") != "" {
			w.fail("machine %s ended as %s, node %v, error %q", m.Name, ptr.Deref(m.Status.Phase, "none"), m.Status.NodeRef, ptr.Deref(m.Status.ErrorMessage, ""))
		}
	}
	var set machinev1.MachineSet
	if err := w.api.Get(context.Background(), client.ObjectKey{Namespace: wire.Namespace, Name: setName}, &set); err != nil {
		w.t.Fatal(err)
	}
	if claims := set.Annotations[telemetry.AnnotationClaims]; claims != "" {
		w.fail("claims are left at the end: %s", claims)
	}
	if s := set.Status; int(s.Replicas) != w.want || int(s.ReadyReplicas) != w.want || int(s.AvailableReplicas) != w.want {
		w.fail("the set says replicas %d, ready %d, available %d, want %d", s.Replicas, s.ReadyReplicas, s.AvailableReplicas, w.want)
	}
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	tail := w.out.Bytes()
	if len(tail) > 6000 {
		tail = tail[len(tail)-6000:]
	}
	w.t.Fatalf("seed %d: %s; the end of its history:\n%s", w.seed, fmt.Sprintf(format, args...), tail)
}
