package drain_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"millwright.io/millwright/internal/engine/drain"
	"millwright.io/millwright/internal/engine/plan"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func pod(name string, edit ...func(*drain.Pod)) drain.Pod {
	p := drain.Pod{Namespace: "a", Name: name, UID: "u-" + name, Owner: "ReplicaSet/" + name, Labels: map[string]string{"app": name}, Ready: true}
	for _, f := range edit {
		f(&p)
	}
	return p
}

// budget selects pods by their app label.
func budget(name, app string, allowed, healthy, desired int32, edit ...func(*drain.Budget)) drain.Budget {
	b := drain.Budget{Namespace: "a", Name: name, Selector: labels.SelectorFromSet(labels.Set{"app": app}), Allowed: allowed, Healthy: healthy, Desired: desired}
	for _, f := range edit {
		f(&b)
	}
	return b
}

func actions(d plan.Decision[drain.Status]) string {
	var out []string
	for _, a := range d.Actions {
		out = append(out, a.String())
	}
	return strings.Join(out, ", ")
}

func whys(vs []drain.Verdict) string {
	var out []string
	for _, v := range vs {
		text := v.Pod.Name + ": " + string(v.Why)
		if len(v.Budgets) > 0 {
			text += " " + strings.Join(v.Budgets, "+")
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func TestRules(t *testing.T) {
	notReady := func(p *drain.Pod) { p.Ready = false }
	always := func(b *drain.Budget) { b.AlwaysAllow = true }
	stale := func(b *drain.Budget) { b.Stale = true }
	app := func(p *drain.Pod) { p.Labels = map[string]string{"app": "app"} }
	deleted := func(ago time.Duration) func(*drain.Pod) {
		return func(p *drain.Pod) { p.Deleted = now.Add(-ago) }
	}
	silent, off := drain.Node{Unreachable: true}, drain.Node{Unreachable: true, Off: true}
	for _, r := range []struct {
		name             string
		in               drain.Input
		acts             string
		blocked, skipped string
		done             bool
		wake             time.Duration
	}{
		{name: "empty", in: drain.Input{}, done: true},
		{name: "plain", in: drain.Input{Pods: []drain.Pod{pod("app")}}, acts: "evict pod a/app", wake: 2 * time.Second},
		{name: "without owner", in: drain.Input{Pods: []drain.Pod{pod("app", func(p *drain.Pod) { p.Owner = "" })}}, acts: "evict pod a/app", wake: 2 * time.Second},
		{name: "local storage", in: drain.Input{Pods: []drain.Pod{pod("app", func(p *drain.Pod) { p.LocalStorage = true })}}, acts: "evict pod a/app", wake: 2 * time.Second},
		{name: "without owner, kept", in: drain.Input{Policy: drain.Policy{KeepUnmanaged: true}, Pods: []drain.Pod{pod("app", func(p *drain.Pod) { p.Owner = "" })}},
			blocked: "app: no controller would replace it", wake: 5 * time.Second},
		{name: "local storage, kept", in: drain.Input{Policy: drain.Policy{KeepLocalData: true}, Pods: []drain.Pod{pod("app", func(p *drain.Pod) { p.LocalStorage = true })}},
			blocked: "app: local data would be lost", wake: 5 * time.Second},
		{name: "left alone", in: drain.Input{Pods: []drain.Pod{
			pod("d", func(p *drain.Pod) { p.DaemonSet = true }), pod("f", func(p *drain.Pod) { p.Finished = true }), pod("m", func(p *drain.Pod) { p.Mirror = true })}},
			done: true, skipped: "d: managed by a DaemonSet, f: finished, m: mirror pod"},
		{name: "terminating in its grace", in: drain.Input{Pods: []drain.Pod{pod("app", deleted(-time.Minute))}}, wake: 2 * time.Second},
		{name: "terminating for too long", in: drain.Input{Pods: []drain.Pod{pod("app", deleted(time.Minute))}}, blocked: "app: still terminating", wake: 5 * time.Second},
		{name: "lowest priority first", in: drain.Input{Pods: []drain.Pod{pod("a", func(p *drain.Pod) { p.Priority = 9 }), pod("b")}},
			acts: "evict pod a/b, evict pod a/a", wake: 2 * time.Second},

		{name: "budget with room", in: drain.Input{Pods: []drain.Pod{pod("app")}, Budgets: []drain.Budget{budget("b", "app", 1, 2, 1)}}, acts: "evict pod a/app", wake: 2 * time.Second},
		{name: "budget spent", in: drain.Input{Pods: []drain.Pod{pod("app")}, Budgets: []drain.Budget{budget("b", "app", 0, 2, 2)}}, blocked: "app: disruption budget b", wake: 5 * time.Second},
		{name: "budget for one of two", in: drain.Input{Pods: []drain.Pod{pod("x", app), pod("y", app)}, Budgets: []drain.Budget{budget("b", "app", 1, 2, 1)}},
			acts: "evict pod a/x", blocked: "y: disruption budget b", wake: 5 * time.Second},
		{name: "budget of another namespace", in: drain.Input{Pods: []drain.Pod{pod("app")}, Budgets: []drain.Budget{budget("b", "app", 0, 2, 2, func(b *drain.Budget) { b.Namespace = "z" })}},
			acts: "evict pod a/app", wake: 2 * time.Second},
		{name: "budget not observed", in: drain.Input{Pods: []drain.Pod{pod("app")}, Budgets: []drain.Budget{budget("b", "app", 5, 2, 1, stale)}},
			blocked: "app: disruption budget not observed yet b", wake: 5 * time.Second},
		{name: "pending pod", in: drain.Input{Pods: []drain.Pod{pod("app", func(p *drain.Pod) { p.Pending = true })}, Budgets: []drain.Budget{budget("b", "app", 0, 2, 2)}},
			acts: "evict pod a/app", wake: 2 * time.Second},

		{name: "unhealthy, healthy budget", in: drain.Input{Pods: []drain.Pod{pod("app", notReady)}, Budgets: []drain.Budget{budget("b", "app", 0, 2, 2)}}, acts: "evict pod a/app", wake: 2 * time.Second},
		{name: "unhealthy, unhealthy budget", in: drain.Input{Pods: []drain.Pod{pod("app", notReady)}, Budgets: []drain.Budget{budget("b", "app", 0, 1, 2)}},
			blocked: "app: disruption budget b", wake: 5 * time.Second},
		{name: "unhealthy, always allowed", in: drain.Input{Pods: []drain.Pod{pod("app", notReady)}, Budgets: []drain.Budget{budget("b", "app", 0, 1, 2, always)}},
			acts: "evict pod a/app", wake: 2 * time.Second},
		{name: "healthy, always allowed is for the unhealthy", in: drain.Input{Pods: []drain.Pod{pod("app")}, Budgets: []drain.Budget{budget("b", "app", 0, 1, 2, always)}},
			blocked: "app: disruption budget b", wake: 5 * time.Second},

		{name: "two budgets with room", in: drain.Input{Pods: []drain.Pod{pod("app")}, Budgets: []drain.Budget{budget("b", "app", 1, 2, 1), budget("c", "app", 1, 2, 1)}},
			acts: "delete pod a/app", wake: 2 * time.Second},
		{name: "two budgets, one spent", in: drain.Input{Pods: []drain.Pod{pod("app")}, Budgets: []drain.Budget{budget("c", "app", 0, 2, 2), budget("b", "app", 1, 2, 1)}},
			blocked: "app: disruption budget c", wake: 5 * time.Second},
		{name: "two budgets, both spent", in: drain.Input{Pods: []drain.Pod{pod("app")}, Budgets: []drain.Budget{budget("c", "app", 0, 2, 2), budget("b", "app", 0, 2, 2)}},
			blocked: "app: several disruption budgets b+c", wake: 5 * time.Second},

		{name: "silent node waits", in: drain.Input{Node: silent, Pods: []drain.Pod{pod("app", notReady)}, Budgets: []drain.Budget{budget("b", "app", 0, 0, 1)}},
			blocked: "app: disruption budget b", wake: 5 * time.Second},
		{name: "node proven off", in: drain.Input{Node: off, Pods: []drain.Pod{pod("app", notReady)}, Budgets: []drain.Budget{budget("b", "app", 0, 0, 1)}},
			acts: "delete pod a/app", wake: 2 * time.Second},
		{name: "silent node, nobody confirms", in: drain.Input{Node: silent, Pods: []drain.Pod{pod("app", deleted(2*time.Second))}}, done: true, skipped: "app: its kubelet does not answer"},
		{name: "refused by the server", in: drain.Input{Pods: []drain.Pod{pod("app")}, Refused: []drain.Refusal{{Namespace: "a", Name: "app", Message: "denied"}}},
			blocked: "app: eviction refused", wake: 5 * time.Second},
		{name: "blocked for long", in: drain.Input{Since: now.Add(-2 * time.Minute), Pods: []drain.Pod{pod("app")}, Budgets: []drain.Budget{budget("b", "app", 0, 2, 2)}},
			blocked: "app: disruption budget b", wake: 15 * time.Second},
		{name: "blocked for ever", in: drain.Input{Since: now.Add(-time.Hour), Pods: []drain.Pod{pod("app")}, Budgets: []drain.Budget{budget("b", "app", 0, 2, 2)}},
			blocked: "app: disruption budget b", wake: 30 * time.Second},
	} {
		t.Run(r.name, func(t *testing.T) {
			r.in.Now = now
			d := drain.Decide(r.in)
			got := []string{actions(d), whys(d.Status.Blocked), whys(d.Status.Skipped), fmt.Sprint(d.Status.Done), d.Wake.String()}
			want := []string{r.acts, r.blocked, r.skipped, fmt.Sprint(r.done), r.wake.String()}
			if diff := cmp.Diff(got, want); diff != "" {
				t.Errorf("(-got +want):\n%s", diff)
			}
		})
	}
}

func TestGraceOfLostPods(t *testing.T) {
	for _, r := range []struct {
		node drain.Node
		want time.Duration
	}{{drain.Node{}, -1}, {drain.Node{Unreachable: true}, time.Second}} {
		d := drain.Decide(drain.Input{Node: r.node, Pods: []drain.Pod{pod("app")}, Now: now})
		if e, ok := d.Actions[0].(plan.EvictPod); !ok || e.Grace != r.want || e.UID != "u-app" {
			t.Errorf("%+v: %+v, want grace %s", r.node, d.Actions[0], r.want)
		}
	}
}

func TestTextNamesPodOwnerAndBudget(t *testing.T) {
	d := drain.Decide(drain.Input{Pods: []drain.Pod{pod("app")}, Budgets: []drain.Budget{budget("b", "app", 0, 2, 2)}, Now: now})
	want := `error when evicting pods/"app" -n "a" (ReplicaSet/app): Cannot evict pod as it would violate the pod's disruption budget. The disruption budget b needs 2 healthy pods and has 2 currently`
	if got := d.Status.Text(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var in drain.Input
	for i := range 8 {
		in.Pods = append(in.Pods, pod(fmt.Sprintf("p%d", i), func(p *drain.Pod) { p.Labels = map[string]string{"app": "app"} }))
	}
	in.Budgets = []drain.Budget{budget("b", "app", 0, 8, 8)}
	if got := drain.Decide(in).Status.Text(); !strings.HasSuffix(got, ", and 3 more]") || strings.Count(got, "pods/") != 5 {
		t.Errorf("text of eight: %s", got)
	}
}

func drawInput(rt *rapid.T) drain.Input {
	flag := rapid.Bool()
	in := drain.Input{Node: drain.Node{Unreachable: flag.Draw(rt, "silent")}, Now: now}
	for i := range rapid.IntRange(0, 12).Draw(rt, "pods") {
		p := pod(fmt.Sprintf("p%02d", i))
		p.Labels = map[string]string{"app": rapid.SampledFrom([]string{"x", "y", "z"}).Draw(rt, "app")}
		p.Mirror, p.DaemonSet, p.Finished = rapid.IntRange(0, 9).Draw(rt, "m") == 0, rapid.IntRange(0, 4).Draw(rt, "d") == 0, rapid.IntRange(0, 9).Draw(rt, "f") == 0
		p.Ready, p.Pending = flag.Draw(rt, "ready"), rapid.IntRange(0, 5).Draw(rt, "pending") == 0
		p.Priority = int32(rapid.IntRange(0, 2).Draw(rt, "priority"))
		in.Pods = append(in.Pods, p)
	}
	for i := range rapid.IntRange(0, 4).Draw(rt, "budgets") {
		n := func(what string) int32 { return int32(rapid.IntRange(0, 3).Draw(rt, what)) }
		in.Budgets = append(in.Budgets, budget(fmt.Sprintf("b%d", i), rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "over"), n("allowed"), n("healthy"), n("desired")))
	}
	return in
}

func TestBudgetsAreNeverOverdrawn(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawInput(rt)
		d := drain.Decide(in)
		for _, b := range in.Budgets {
			taken := int32(0)
			for _, p := range in.Pods {
				name := p.Namespace + "/" + p.Name
				goes := slices.ContainsFunc(d.Actions, func(a plan.Action) bool { return strings.HasSuffix(a.String(), name) })
				if goes && p.Ready && !p.Pending && b.Selector.Matches(labels.Set(p.Labels)) {
					taken++
				}
			}
			if taken > b.Allowed {
				rt.Fatalf("%s allows %d, taken %d", b.Name, b.Allowed, taken)
			}
		}
	})
}

func TestEveryPodHasOneFate(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawInput(rt)
		d := drain.Decide(in)
		s := d.Status
		if len(s.Skipped)+len(s.Waiting) != len(in.Pods) || len(d.Actions)+len(s.Blocked) != len(s.Waiting) {
			rt.Fatalf("%d pods: %d skipped, %d waiting, %d blocked, %d actions", len(in.Pods), len(s.Skipped), len(s.Waiting), len(s.Blocked), len(d.Actions))
		}
		if s.Done != (len(s.Waiting) == 0) || s.Done != (d.Wake == 0) {
			rt.Fatalf("done %t, %d waiting, wake %s", s.Done, len(s.Waiting), d.Wake)
		}
		if (s.Text() == "") != (len(s.Blocked) == 0) {
			rt.Fatalf("text %q of %d blocked", s.Text(), len(s.Blocked))
		}
	})
}

func TestDrainEndsWhenBudgetsAreGone(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawInput(rt)
		for range 3 {
			d := drain.Decide(in)
			if d.Status.Done {
				return
			}
			in.Budgets = nil
			for _, a := range d.Actions {
				in.Pods = slices.DeleteFunc(in.Pods, func(p drain.Pod) bool { return strings.HasSuffix(a.String(), "/"+p.Name) })
			}
		}
		rt.Fatalf("still there: %+v", drain.Decide(in).Status.Waiting)
	})
}

func TestDrainIgnoresOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawInput(rt)
		opt := cmp.Comparer(func(a, b labels.Selector) bool { return a.String() == b.String() })
		want := drain.Decide(in)
		in.Pods, in.Budgets = rapid.Permutation(in.Pods).Draw(rt, "pods order"), rapid.Permutation(in.Budgets).Draw(rt, "budgets order")
		if diff := cmp.Diff(drain.Decide(in), want, opt); diff != "" {
			rt.Fatal(diff)
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{10, 1000, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var in drain.Input
			in.Now = now
			for i := range n {
				in.Pods = append(in.Pods, pod(fmt.Sprintf("p%04d", i), func(p *drain.Pod) { p.Labels["app"] = fmt.Sprintf("app-%d", i%(n/10)) }))
			}
			for i := range n / 10 {
				in.Budgets = append(in.Budgets, budget(fmt.Sprintf("b%04d", i), fmt.Sprintf("app-%d", i), int32(i%3), 3, 2))
			}
			b.ReportAllocs()
			for b.Loop() {
				drain.Decide(in)
			}
		})
	}
}
