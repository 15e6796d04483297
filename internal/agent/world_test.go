package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/engine/node"
	"millwright.io/millwright/internal/host"
	"millwright.io/millwright/internal/memapi"
)

const (
	nodeName = "worker-0"
	image1   = "registry.example.com/os@sha256:1"
	image2   = "registry.example.com/os@sha256:2"
)

// world is one agent on a machine in memory and an API in memory, with a controller
// that answers drains.
type world struct {
	t     *testing.T
	api   *memapi.API
	clk   *clocktesting.FakeClock
	host  *host.Memory
	agent *Agent
	log   []string
	evs   []string
	boots int
	// annotated are the keys of each write of annotations.
	annotated [][]string
	// answers tells whether drains and uncordons are answered.
	answers bool
}

// memory is a Cluster over an API in memory.
type memory struct{ w *world }

func read[T client.Object](w *world, name string, obj T) (T, error) {
	var none T
	err := w.api.Get(context.Background(), client.ObjectKey{Name: name}, obj)
	if apierrors.IsNotFound(err) {
		return none, nil
	}
	return obj, err
}

func (m memory) Node(context.Context) (*corev1.Node, error) {
	return read(m.w, nodeName, &corev1.Node{})
}

func (m memory) Annotate(ctx context.Context, set map[string]*string) (*corev1.Node, error) {
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": set}})
	if err != nil {
		return nil, err
	}
	m.w.annotated = append(m.w.annotated, slices.Sorted(maps.Keys(set)))
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	return n, m.w.api.Patch(ctx, n, client.RawPatch(types.MergePatchType, raw))
}

func (m memory) Config(_ context.Context, name string) (*mcfgv1.MachineConfig, error) {
	return read(m.w, name, &mcfgv1.MachineConfig{})
}

func (m memory) Pools(ctx context.Context) ([]mcfgv1.MachineConfigPool, error) {
	var list mcfgv1.MachineConfigPoolList
	err := m.w.api.List(ctx, &list)
	return list.Items, err
}

func (m memory) Settings(context.Context) (*operatorv1.MachineConfiguration, error) {
	return read(m.w, "cluster", &operatorv1.MachineConfiguration{})
}

func (m memory) ControllerConfig(context.Context) (*mcfgv1.ControllerConfig, error) {
	return read(m.w, controllerConfigName, &mcfgv1.ControllerConfig{})
}

func (m memory) Record(context.Context) (*mcfgv1.MachineConfigNode, error) {
	return read(m.w, nodeName, &mcfgv1.MachineConfigNode{})
}

func (m memory) SetConditions(ctx context.Context, record *mcfgv1.MachineConfigNode, conditions []metav1.Condition) error {
	after := record.DeepCopy()
	after.Status.Conditions = conditions
	return m.w.api.Status().Patch(ctx, after, client.MergeFrom(record))
}

func (m memory) Publish(ctx context.Context, cm *corev1.ConfigMap) error {
	return client.IgnoreAlreadyExists(m.w.api.Create(ctx, cm))
}

func (m memory) Event(_ context.Context, _ *corev1.Node, kind, reason, message string) {
	m.w.evs = append(m.w.evs, kind+" "+reason+": "+message)
}

// Infof and Errorf implement Log.
func (w *world) Infof(format string, args ...any) {
	w.log = append(w.log, "I "+fmt.Sprintf(format, args...))
}

func (w *world) Errorf(format string, args ...any) {
	w.log = append(w.log, "E "+fmt.Sprintf(format, args...))
}

// rendered is a config in few words: path=contents files, and what the functions add.
func rendered(name string, files map[string]string, more ...func(*mcfgv1.MachineConfig)) *mcfgv1.MachineConfig {
	var list []any
	for _, p := range slices.Sorted(maps.Keys(files)) {
		list = append(list, map[string]any{"path": p, "mode": 0o644, "overwrite": true, "contents": map[string]any{"source": "data:," + files[p]}})
	}
	raw, err := json.Marshal(map[string]any{"ignition": map[string]any{"version": "3.5.0"}, "storage": map[string]any{"files": list}})
	if err != nil {
		panic(err)
	}
	mc := &mcfgv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: raw}, OSImageURL: image1},
	}
	for _, f := range more {
		f(mc)
	}
	return mc
}

func arguments(list ...string) func(*mcfgv1.MachineConfig) {
	return func(mc *mcfgv1.MachineConfig) { mc.Spec.KernelArguments = list }
}

func image(name string) func(*mcfgv1.MachineConfig) {
	return func(mc *mcfgv1.MachineConfig) { mc.Spec.OSImageURL = name }
}

// newWorld has a node that just booted for the first time into config a.
func newWorld(t *testing.T, a *mcfgv1.MachineConfig, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, mcfgv1.Install, operatorv1.Install} {
		utilruntime.Must(add(scheme))
	}
	w := &world{t: t, clk: clocktesting.NewFakeClock(time.Unix(1e9, 0)), answers: true}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{"node-role.kubernetes.io/worker": ""}}}
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"},
		Spec: mcfgv1.MachineConfigPoolSpec{NodeSelector: &metav1.LabelSelector{MatchLabels: n.Labels}}}
	w.api = memapi.New(scheme, w.clk, append(objects, n, pool, a, &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: nodeName}})...)
	w.host = host.NewMemory(host.MemoryOptions{Image: image1, Arguments: []string{"quiet"}})
	w.put("/etc/machine-config-daemon/node-annotations.json", fmt.Sprintf(`{%q:%q,%q:%q,%q:"Done"}`, node.CurrentConfig, a.Name, node.DesiredConfig, a.Name, node.State))
	w.put("/etc/ignition-machine-config-encapsulated.json", "{}")
	cfg, err := decodeConfig(must(json.Marshal(a)))
	if err != nil {
		t.Fatal(err)
	}
	var ign struct {
		Storage struct {
			Files []struct {
				Path     string
				Contents struct{ Source string }
			}
		}
	}
	if err := json.Unmarshal(cfg.Spec.Config.Raw, &ign); err != nil {
		t.Fatal(err)
	}
	for _, f := range ign.Storage.Files {
		w.put(f.Path, strings.TrimPrefix(f.Contents.Source, "data:,"))
	}
	w.restart()
	return w
}

func must(raw []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return raw
}

func (w *world) put(p, body string) {
	w.t.Helper()
	if err := w.host.Files().Replace(p, []byte(body), host.Attr{Mode: 0o644}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) body(p string) string {
	raw, err := w.host.Files().ReadFile(p)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// restart starts a new agent on the same machine.
func (w *world) restart() {
	w.host = w.host.Restart(nil)
	w.agent = New(Config{Node: nodeName, Host: w.host, Cluster: memory{w}, Clock: w.clk, Log: w})
}

func (w *world) boot() {
	w.boots++
	w.host = w.host.Boot(false, nil)
	w.restart()
}

// run steps agent and controller until nothing changes any more; a reboot that was
// asked for happens.
func (w *world) run() {
	w.t.Helper()
	for range 60 {
		before := w.api.Writes()
		wake, err := w.agent.Step(context.Background())
		if err != nil {
			w.t.Fatalf("step: %v\nlog:\n%s", err, strings.Join(w.log, "\n"))
		}
		if w.host.RebootAsked() {
			w.boot()
			continue
		}
		if w.control() || wake == again || w.api.Writes() != before {
			continue
		}
		return
	}
	w.t.Fatalf("no rest; log:\n%s", strings.Join(w.log[max(0, len(w.log)-20):], "\n"))
}

// control answers a drain or an uncordon, as the drain controller does.
func (w *world) control() bool {
	n := w.node()
	want := n.Annotations[node.DesiredDrain]
	if !w.answers || want == "" || want == n.Annotations[node.LastAppliedDrain] {
		return false
	}
	n.Spec.Unschedulable = strings.HasPrefix(want, "drain-")
	n.Annotations[node.LastAppliedDrain] = want
	if err := w.api.Update(context.Background(), n); err != nil {
		w.t.Fatal(err)
	}
	return true
}

func (w *world) node() *corev1.Node {
	w.t.Helper()
	n := &corev1.Node{}
	if err := w.api.Get(context.Background(), client.ObjectKey{Name: nodeName}, n); err != nil {
		w.t.Fatal(err)
	}
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	return n
}

func (w *world) set(key, value string) {
	w.t.Helper()
	n := w.node()
	n.Annotations[key] = value
	if err := w.api.Update(context.Background(), n); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) create(objects ...client.Object) {
	w.t.Helper()
	for _, o := range objects {
		if err := w.api.Create(context.Background(), o); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) poolAnnotation(key, value string) {
	w.t.Helper()
	var p mcfgv1.MachineConfigPool
	if err := w.api.Get(context.Background(), client.ObjectKey{Name: "worker"}, &p); err != nil {
		w.t.Fatal(err)
	}
	p.Annotations = map[string]string{key: value}
	if err := w.api.Update(context.Background(), &p); err != nil {
		w.t.Fatal(err)
	}
}

// want checks what users see of the node.
func (w *world) want(current, state, reason string) {
	w.t.Helper()
	n := w.node()
	got := fmt.Sprintf("%s %s %q", n.Annotations[node.CurrentConfig], n.Annotations[node.State], n.Annotations[node.Reason])
	if want := fmt.Sprintf("%s %s %q", current, state, reason); got != want {
		w.t.Fatalf("node is\n%s\nwant\n%s\nlog:\n%s", got, want, strings.Join(w.log, "\n"))
	}
	if state == node.Done && n.Spec.Unschedulable {
		w.t.Fatalf("node is done and cordoned")
	}
}

func (w *world) wantLog(lines ...string) {
	w.t.Helper()
	for _, l := range lines {
		if !slices.Contains(w.log, l) {
			w.t.Errorf("the log lacks\n%s\nit is\n%s", l, strings.Join(w.log, "\n"))
		}
	}
}

func (w *world) wantEvent(event string) {
	w.t.Helper()
	if !slices.Contains(w.evs, event) {
		w.t.Errorf("no event %s among\n%s", event, strings.Join(w.evs, "\n"))
	}
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

func (w *world) unset(key string) {
	w.t.Helper()
	n := w.node()
	delete(n.Annotations, key)
	if err := w.api.Update(context.Background(), n); err != nil {
		w.t.Fatal(err)
	}
}

// restartWith is restart on a machine whose disk fails.
func (w *world) restartWith(fault *host.Faulty) {
	w.host = w.host.Restart(fault)
	w.agent = New(Config{Node: nodeName, Host: w.host, Cluster: memory{w}, Clock: w.clk, Log: w})
}

// runKilled is run until the agent is killed; false: it came to rest before.
func (w *world) runKilled() (killed bool) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case host.Killed, *host.Killed:
			killed = true
		default:
			panic(r)
		}
	}()
	w.run()
	return false
}
