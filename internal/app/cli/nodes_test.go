package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/agent"
	"millwright.io/millwright/internal/cli"
	"millwright.io/millwright/internal/dialect/machineconfig/drain"
	"millwright.io/millwright/internal/dialect/machineconfig/pool"
	"millwright.io/millwright/internal/dialect/machineconfig/poolconfig"
	"millwright.io/millwright/internal/dialect/machineconfig/render"
	"millwright.io/millwright/internal/dialect/machineconfig/template"
	"millwright.io/millwright/internal/engine/node"
	"millwright.io/millwright/internal/host"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/memapi"
)

// machines are workers with real agents on machines in memory, under the real
// controllers of their pool.
type machines struct {
	*pools
	mu     sync.Mutex
	agents map[string]*machine
	off    bool // no controller of a pool runs
}

type machine struct {
	name  string
	m     *machines
	host  *host.Memory
	agent *agent.Agent
	boots int
	log   []string
	hung  atomic.Bool // its agent does not run
}

// newMachines are n workers that have rolled out to the pool's rendered config.
func newMachines(t *testing.T, n int) *machines {
	t.Helper()
	p := &pools{t: t, scheme: runtime.NewScheme(), clk: clocktesting.NewFakeClock(time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC))}
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, policyv1.AddToScheme, configv1.Install, machineconfigv1.Install, operatorv1.Install, operatorv1alpha1.Install} {
		if err := add(p.scheme); err != nil {
			t.Fatal(err)
		}
	}
	p.api = memapi.New(p.scheme, p.clk)
	if err := p.api.IndexField(t.Context(), &corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }); err != nil {
		t.Fatal(err)
	}
	p.apply("testdata/generate/cluster.yaml")
	if err := p.api.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w-1"}}); err != nil {
		t.Fatal(err)
	}
	log, rec := logr.Discard(), events.NewFakeRecorder(100000)
	p.all = []kube.Controller{
		template.New(template.Deps{Client: p.api, Live: p.api, Clock: p.clk, Log: log}),
		poolconfig.New(poolconfig.Deps{Client: p.api, Live: p.api, Clock: p.clk, Recorder: rec, Log: log}),
		render.New(render.Deps{Client: p.api, Live: p.api, Clock: p.clk, Recorder: rec, Log: log}),
		pool.New(pool.Deps{Client: p.api, Live: p.api, Clock: p.clk, Recorder: rec, Log: log}),
		drain.New(drain.Deps{Client: p.api, Live: p.api, Clock: p.clk, Recorder: rec, Log: log}),
	}
	m := &machines{pools: p, agents: map[string]*machine{}}
	const image = "registry.example.com/os@sha256:01"
	first := &machineconfigv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "first-boot"}}
	first.Spec.Config.Raw, first.Spec.OSImageURL = []byte(`{"ignition":{"version":"3.5.0"}}`), image
	if err := p.api.Create(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		m.add(fmt.Sprintf("worker-%d", i), image, first.Name)
	}
	m.rest()
	for name, x := range m.agents {
		if a := m.node(name).Annotations; a[node.State] != node.Done || a[node.CurrentConfig] != m.target("worker") {
			t.Fatalf("%s is %v\n%s", name, a, strings.Join(x.log, "\n"))
		}
		x.boots, x.log = 0, nil
	}
	return m
}

func (m *machines) add(name, image, config string) {
	m.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"node-role.kubernetes.io/worker": ""}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := m.api.Create(m.t.Context(), n); err != nil {
		m.t.Fatal(err)
	}
	x := &machine{name: name, m: m, host: host.NewMemory(host.MemoryOptions{Image: image})}
	x.put("/etc/machine-config-daemon/node-annotations.json", fmt.Sprintf(`{%q:%q,%q:%q,%q:"Done"}`, node.CurrentConfig, config, node.DesiredConfig, config, node.State))
	x.start()
	m.agents[name] = x
}

func (x *machine) put(p, body string) {
	x.m.t.Helper()
	if err := x.host.Files().Replace(p, []byte(body), host.Attr{Mode: 0o644}); err != nil {
		x.m.t.Fatal(err)
	}
}

func (x *machine) body(p string) string {
	raw, err := x.host.Files().ReadFile(p)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// start starts a new agent on the same machine.
func (x *machine) start() {
	x.host = x.host.Restart(nil)
	x.agent = agent.New(agent.Config{Node: x.name, Host: x.host, Cluster: seen{x}, Clock: x.m.clk, Log: x})
}

// Infof and Errorf implement agent.Log.
func (x *machine) Infof(format string, args ...any) {
	x.log = append(x.log, fmt.Sprintf(format, args...))
}

func (x *machine) Errorf(format string, args ...any) { x.Infof(format, args...) }

// round lets everybody look once.
func (m *machines) round(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, x := range m.agents {
		if x.hung.Load() {
			continue
		}
		if _, err := x.agent.Step(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("%s: %w\n%s", x.name, err, strings.Join(x.log, "\n"))
		}
		if x.host.RebootAsked() {
			x.boots++
			x.host = x.host.Boot(false, nil)
			x.start()
		}
	}
	for _, c := range m.all {
		if m.off {
			break
		}
		for _, o := range m.objects() {
			if fmt.Sprintf("%T", o) != fmt.Sprintf("%T", c.For) {
				continue
			}
			if _, err := c.Step(ctx, client.ObjectKeyFromObject(o)); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
		}
	}
	m.clk.Step(time.Second)
	return nil
}

// rest plays rounds until nobody writes any more.
func (m *machines) rest() {
	m.t.Helper()
	for quiet, rounds := 0, 0; quiet < 5; quiet, rounds = quiet+1, rounds+1 {
		before := m.api.Writes()
		if err := m.round(m.t.Context()); err != nil {
			m.t.Fatal(err)
		}
		if m.api.Writes() != before {
			quiet = 0
		}
		if rounds > 500 {
			m.t.Fatal("does not settle")
		}
	}
}

// call runs a command while the cluster goes on beside it.
func (m *machines) call(stdin string, args ...string) (code int, stdout, stderr string) {
	m.t.Helper()
	ctx, stop := context.WithCancel(m.t.Context())
	var beside sync.WaitGroup
	beside.Go(func() {
		for ctx.Err() == nil {
			if err := m.round(ctx); err != nil {
				m.t.Error(err)
				return
			}
			time.Sleep(time.Millisecond) // leaves the command some room
		}
	})
	var out, errs bytes.Buffer
	cmd := cli.Command(cli.Deps{Client: func(string, string) (client.Client, error) { return m.api, nil }})
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	code = cli.ExitCode(cmd.ExecuteContext(ctx), &errs)
	stop()
	beside.Wait()
	m.rest()
	return code, out.String(), errs.String()
}

func (m *machines) node(name string) *corev1.Node {
	m.t.Helper()
	n := &corev1.Node{}
	if err := m.api.Get(m.t.Context(), client.ObjectKey{Name: name}, n); err != nil {
		m.t.Fatal(err)
	}
	return n
}

func (m *machines) edit(name string, change func(*corev1.Node)) {
	m.t.Helper()
	n := m.node(name)
	change(n)
	if err := m.api.Update(m.t.Context(), n); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machines) editPool(change func(*machineconfigv1.MachineConfigPool)) {
	m.t.Helper()
	var p machineconfigv1.MachineConfigPool
	if err := m.api.Get(m.t.Context(), client.ObjectKey{Name: "worker"}, &p); err != nil {
		m.t.Fatal(err)
	}
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	change(&p)
	if err := m.api.Update(m.t.Context(), &p); err != nil {
		m.t.Fatal(err)
	}
}

// fragment is a MachineConfig of workers with files path=contents.
func fragment(name string, files ...string) *machineconfigv1.MachineConfig {
	var list []any
	for _, f := range files {
		p, body, _ := strings.Cut(f, "=")
		list = append(list, map[string]any{"path": p, "mode": 0o644, "overwrite": true, "contents": map[string]any{"source": "data:," + body}})
	}
	raw, err := json.Marshal(map[string]any{"ignition": map[string]any{"version": "3.5.0"}, "storage": map[string]any{"files": list}})
	if err != nil {
		panic(err)
	}
	mc := &machineconfigv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"machineconfiguration.openshift.io/role": "worker"}}}
	mc.APIVersion, mc.Kind = machineconfigv1.GroupVersion.String(), "MachineConfig"
	mc.Spec.Config.Raw = raw
	return mc
}

func (m *machines) create(objects ...client.Object) {
	m.t.Helper()
	for _, o := range objects {
		if err := m.api.Create(m.t.Context(), o); err != nil {
			m.t.Fatal(err)
		}
	}
}

// seen is what an agent sees of the API.
type seen struct{ x *machine }

func read[T client.Object](s seen, ctx context.Context, name string, obj T) (T, error) {
	var none T
	err := s.x.m.api.Get(ctx, client.ObjectKey{Name: name}, obj)
	if apierrors.IsNotFound(err) {
		return none, nil
	}
	return obj, err
}

func (s seen) Node(ctx context.Context) (*corev1.Node, error) {
	return read(s, ctx, s.x.name, &corev1.Node{})
}

func (s seen) Annotate(ctx context.Context, set map[string]*string) (*corev1.Node, error) {
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": set}})
	if err != nil {
		return nil, err
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.x.name}}
	return n, s.x.m.api.Patch(ctx, n, client.RawPatch(types.MergePatchType, raw))
}

func (s seen) Config(ctx context.Context, name string) (*machineconfigv1.MachineConfig, error) {
	return read(s, ctx, name, &machineconfigv1.MachineConfig{})
}

func (s seen) Pools(ctx context.Context) ([]machineconfigv1.MachineConfigPool, error) {
	var list machineconfigv1.MachineConfigPoolList
	err := s.x.m.api.List(ctx, &list)
	return list.Items, err
}

func (s seen) Settings(ctx context.Context) (*operatorv1.MachineConfiguration, error) {
	return read(s, ctx, "cluster", &operatorv1.MachineConfiguration{})
}

func (s seen) ControllerConfig(context.Context) (*machineconfigv1.ControllerConfig, error) {
	return nil, nil
}

func (s seen) Record(context.Context) (*machineconfigv1.MachineConfigNode, error) { return nil, nil }

func (s seen) SetConditions(context.Context, *machineconfigv1.MachineConfigNode, []metav1.Condition) error {
	return nil
}

func (s seen) Publish(context.Context, *corev1.ConfigMap) error { return nil }

func (s seen) Event(_ context.Context, _ *corev1.Node, _, reason, _ string) {
	s.x.Infof("event %s", reason)
}
