package agent

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/engine/node"
	"millwright.io/millwright/internal/host"
	"millwright.io/millwright/internal/testenv"
)

// logged is a Log that keeps its lines.
type logged struct {
	mu    sync.Mutex
	lines []string
}

func (l *logged) Infof(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *logged) Errorf(format string, args ...any) { l.Infof(format, args...) }

func (l *logged) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines[max(0, len(l.lines)-30):], "\n")
}

// until polls a condition with a deadline.
func until(t *testing.T, what string, log *logged, done func() (bool, string)) {
	t.Helper()
	var last string
	for range 300 {
		var ok bool
		if ok, last = done(); ok {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
	t.Fatalf("waiting for %s: %s\nlog:\n%s", what, last, log.text())
}

// firstBoot is a machine that just booted into a config whose files are given.
func firstBoot(t *testing.T, config string, files map[string]string) *host.Memory {
	t.Helper()
	h := host.NewMemory(host.MemoryOptions{Image: image1})
	all := map[string]string{bootstrapPath: fmt.Sprintf(`{%q:%q,%q:%q,%q:"Done"}`, node.CurrentConfig, config, node.DesiredConfig, config, node.State)}
	for p, body := range files {
		all[p] = body
	}
	for p, body := range all {
		if err := h.Files().Replace(p, []byte(body), host.Attr{Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// answer acts as the drain controller for some nodes until the test ends.
func answer(ctx context.Context, c client.Client, names ...string) {
	for ctx.Err() == nil {
		for _, name := range names {
			var n corev1.Node
			if c.Get(ctx, client.ObjectKey{Name: name}, &n) != nil {
				continue
			}
			want := n.Annotations[node.DesiredDrain]
			if want == "" || want == n.Annotations[node.LastAppliedDrain] {
				continue
			}
			before := n.DeepCopy()
			n.Spec.Unschedulable = strings.HasPrefix(want, "drain-")
			n.Annotations[node.LastAppliedDrain] = want
			_ = c.Patch(ctx, &n, client.MergeFrom(before))
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// serverWorld has two configs on the server, named after the test.
func serverWorld(t *testing.T, nodes ...string) (env *testenv.Env, a, b string) {
	t.Helper()
	env = testenv.Start(t)
	a, b = "rendered-"+nodes[0]+"-a", "rendered-"+nodes[0]+"-b"
	objects := []client.Object{
		rendered(a, etc),
		rendered(b, map[string]string{"/etc/a": "b", "/etc/c": "c"}),
	}
	for _, n := range nodes {
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n}})
	}
	for _, o := range objects {
		if err := env.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = env.Client.Delete(context.Background(), o) })
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := client.IgnoreAlreadyExists(env.Client.Create(t.Context(), ns)); err != nil {
		t.Fatal(err)
	}
	return env, a, b
}

func nodeSays(t *testing.T, c client.Client, name, config, state string) (bool, string) {
	t.Helper()
	var n corev1.Node
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, &n); err != nil {
		return false, err.Error()
	}
	got := n.Annotations[node.CurrentConfig] + " " + n.Annotations[node.State] + " " + n.Annotations[node.Reason]
	return got == config+" "+state+" " && !n.Spec.Unschedulable, got
}

func want(t *testing.T, c client.Client, name, config string) {
	t.Helper()
	var n corev1.Node
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, &n); err != nil {
		t.Fatal(err)
	}
	before := n.DeepCopy()
	n.Annotations[node.DesiredConfig] = config
	if err := c.Patch(t.Context(), &n, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

func TestRunAgainstAServer(t *testing.T) {
	env, a, b := serverWorld(t, "served-0")
	log := &logged{}
	cluster, err := NewREST("served-0", env.Config, env.Config, clock.RealClock{}, log)
	if err != nil {
		t.Fatal(err)
	}
	go answer(t.Context(), env.Client, "served-0")
	h := firstBoot(t, a, etc)
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		ended <- New(Config{Node: "served-0", Host: h, Cluster: cluster, Clock: clock.RealClock{}, Log: log}).Run(ctx)
	}()
	until(t, "the first config", log, func() (bool, string) { return nodeSays(t, env.Client, "served-0", a, node.Done) })
	want(t, env.Client, "served-0", b)
	until(t, "the reboot", log, func() (bool, string) { return h.RebootAsked(), "not asked" })
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	booted := h.Boot(false, nil)
	if cluster, err = NewREST("served-0", env.Config, env.Config, clock.RealClock{}, log); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = New(Config{Node: "served-0", Host: booted, Cluster: cluster, Clock: clock.RealClock{}, Log: log}).Run(t.Context())
	}()
	until(t, "the second config", log, func() (bool, string) { return nodeSays(t, env.Client, "served-0", b, node.Done) })
	var events corev1.EventList
	if err := env.Client.List(t.Context(), &events, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for _, e := range events.Items {
		if e.InvolvedObject.Name == "served-0" {
			reasons = append(reasons, e.Reason)
		}
	}
	for _, r := range []string{"Cordon", "Drain", "Reboot", "Uncordon", "NodeDone"} {
		if !strings.Contains(strings.Join(reasons, " "), r) {
			t.Errorf("no event %s among %v", r, reasons)
		}
	}
}

func TestAPoolRunsManyNodes(t *testing.T) {
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprintf("hollow-%d", i))
	}
	env, a, b := serverWorld(t, names...)
	log := &logged{}
	var mu sync.Mutex
	machines := map[string]*host.Memory{}
	boots := 0
	var p *Pool
	p, err := NewPool(PoolConfig{Rest: env.Config, Clock: clock.RealClock{}, Log: log, Reboot: func(name string) {
		mu.Lock()
		boots++
		h := machines[name].Boot(false, nil)
		machines[name] = h
		mu.Unlock()
		p.Put(name, h)
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		machines[n] = firstBoot(t, a, etc)
		p.Put(n, machines[n])
	}
	go answer(t.Context(), env.Client, names...)
	go func() { _ = p.Run(t.Context()) }()
	all := func(config, state string) func() (bool, string) {
		return func() (bool, string) {
			for _, n := range names {
				if ok, got := nodeSays(t, env.Client, n, config, state); !ok {
					return false, n + " says " + got
				}
			}
			return true, ""
		}
	}
	until(t, "the first config everywhere", log, all(a, node.Done))
	for _, n := range names {
		want(t, env.Client, n, b)
	}
	until(t, "the second config everywhere", log, all(b, node.Done))
	mu.Lock()
	defer mu.Unlock()
	if boots != len(names) {
		t.Errorf("%d boots, want one for each of %d nodes", boots, len(names))
	}
	for n, h := range machines {
		if raw, err := h.Files().ReadFile("/etc/c"); err != nil || string(raw) != "c" {
			t.Errorf("%s has %q, %v in /etc/c", n, raw, err)
		}
	}
	h := machines[names[3]]
	if err := h.Files().Replace("/etc/c", []byte("drift"), host.Attr{Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	until(t, "the drift", log, func() (bool, string) {
		var n corev1.Node
		if err := env.Client.Get(t.Context(), client.ObjectKey{Name: names[3]}, &n); err != nil {
			return false, err.Error()
		}
		return strings.Contains(n.Annotations[node.Reason], `content mismatch for file "/etc/c"`), n.Annotations[node.Reason]
	})
}
