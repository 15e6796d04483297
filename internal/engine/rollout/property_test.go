package rollout_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"millwright.io/millwright/internal/engine/budget"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/engine/rollout"
)

var configs = []string{"v0", "v1", "v2", "bad"}

func drawNode(rt *rapid.T, i int) rollout.Node {
	n := rollout.Node{
		Name: fmt.Sprintf("n%02d", i), Zone: rapid.SampledFrom([]string{"", "1", "2"}).Draw(rt, "zone"),
		Created: now.Add(-time.Duration(rapid.IntRange(0, 9).Draw(rt, "age")) * time.Hour),
		Current: rapid.SampledFrom(configs[:3]).Draw(rt, "current"), State: rollout.StateDone,
		Pods: rapid.IntRange(0, 3).Draw(rt, "pods"),
	}
	n.Desired = n.Current
	switch rapid.IntRange(0, 9).Draw(rt, "kind") {
	case 0:
		n.Down = "node is reporting NotReady=Unknown"
	case 1:
		n.Cordoned = true
	case 2:
		n.Desired, n.State = rapid.SampledFrom(configs).Draw(rt, "desired"), rollout.StateWorking
		n.Cordoned = rapid.Bool().Draw(rt, "drained")
		n.Ours = n.Cordoned
	case 3:
		n.Desired, n.State, n.Reason = rapid.SampledFrom(configs).Draw(rt, "desired"), rollout.StateDegraded, "why"
		n.Cordoned = rapid.Bool().Draw(rt, "drained")
		n.Ours = n.Cordoned
	case 4:
		n.Current, n.Desired, n.State = "", "", ""
	}
	return n
}

func drawInput(rt *rapid.T) rollout.Input {
	in := rollout.Input{Now: now, Pool: pool(rapid.SampledFrom([]string{"v1", "v2"}).Draw(rt, "target"), rapid.IntRange(1, 4).Draw(rt, "limit"))}
	for i := range rapid.IntRange(0, 12).Draw(rt, "nodes") {
		in.Nodes = append(in.Nodes, drawNode(rt, i))
	}
	for i := range rapid.IntRange(0, 3).Draw(rt, "claims") {
		by := rapid.SampledFrom([]string{rollout.By("worker"), "machinehealthcheck/x"}).Draw(rt, "by")
		in.Claims = append(in.Claims, budget.Claim{Node: fmt.Sprintf("n%02d", i*3), By: by, Since: now.Add(-time.Duration(rapid.IntRange(0, 20).Draw(rt, "minutes")) * time.Minute)})
	}
	p := &in.Pool
	p.ControlPlane = rapid.IntRange(0, 5).Draw(rt, "controlPlane") == 0
	p.Original = rapid.IntRange(0, 5).Draw(rt, "original") == 0
	p.Paused = rapid.IntRange(0, 9).Draw(rt, "paused") == 0
	if rapid.IntRange(0, 3).Draw(rt, "same") == 0 {
		in.Content = map[string]string{"v0": "x", "v1": "x", "v2": "y"}
	}
	if rapid.Bool().Draw(rt, "waves") {
		s, err := rollout.ParseSettings(rapid.SampledFrom([]string{`{"canary":{"nodes":1}}`, `{"canary":{"nodes":2},"growth":2,"onFailure":"Rollback"}`, `{"onFailure":"Rollback"}`, `{"canary":{"nodes":"20%"},"growth":1,"failureThreshold":2}`}).Draw(rt, "settings"))
		if err != nil {
			rt.Fatal(err)
		}
		p.Settings = s
	}
	if rapid.IntRange(0, 3).Draw(rt, "windows") == 0 {
		p.Windows, _ = rollout.ParseWindows(rapid.SampledFrom([]string{"daily 22:00-04:00", "daily 11:00-13:00"}).Draw(rt, "window"))
	}
	return in
}

func moved(d plan.Decision[rollout.Status]) []string {
	var out []string
	for _, a := range d.Actions {
		if s, ok := a.(plan.SetDesiredConfig); ok {
			out = append(out, s.Node)
		}
	}
	return out
}

// apply does what was decided, as seen a moment later.
func apply(in rollout.Input, d plan.Decision[rollout.Status]) rollout.Input {
	in.Nodes = slices.Clone(in.Nodes)
	in.Claims, in.Record = d.Status.Claims, d.Status.Record
	for i := range in.Nodes {
		n := &in.Nodes[i]
		for _, a := range d.Actions {
			if s, ok := a.(plan.SetDesiredConfig); ok && s.Node == n.Name {
				n.Desired, n.DesiredImage = s.Config, ""
			}
		}
	}
	return in
}

func inService(n *rollout.Node) bool {
	return n.Down == "" && !n.Cordoned && n.Current == n.Desired && n.State == rollout.StateDone
}

func out(in rollout.Input) map[string]bool {
	set := map[string]bool{}
	for i := range in.Nodes {
		if !inService(&in.Nodes[i]) {
			set[in.Nodes[i].Name] = true
		}
	}
	for _, c := range in.Claims {
		if slices.ContainsFunc(in.Nodes, func(n rollout.Node) bool { return n.Name == c.Node }) {
			set[c.Node] = true
		}
	}
	return set
}

func TestDecideNeverExceedsBudget(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawInput(rt)
		d := rollout.Decide(in)
		live := in
		live.Claims = nil
		for _, c := range d.Status.Claims {
			if slices.ContainsFunc(in.Claims, func(o budget.Claim) bool { return o.Node == c.Node }) {
				live.Claims = append(live.Claims, c) // was there and still counts
			}
		}
		before := out(live)
		after := out(apply(live, d))
		for _, c := range d.Status.Claims {
			after[c.Node] = true
		}
		limit := in.Pool.Limit
		if in.Pool.ControlPlane {
			limit = 1
		}
		if len(after) > max(limit, len(before)) && !in.Pool.Original {
			rt.Fatalf("%d out of service before, %d after, %d allowed; moved %v", len(before), len(after), limit, moved(d))
		}
		for _, n := range moved(d) {
			if !slices.ContainsFunc(d.Status.Claims, func(c budget.Claim) bool { return c.Node == n }) {
				rt.Fatalf("%s moves without a claim", n)
			}
		}
	})
}

func TestDecidingAgainComesToNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawInput(rt)
		in.Pool.Original = false // which takes several looks for nodes that are at work
		next := apply(in, rollout.Decide(in))
		again := rollout.Decide(next)
		if m := moved(again); len(m) > 0 {
			rt.Fatalf("moves %v again", m)
		}
		third := rollout.Decide(apply(next, again))
		if diff := cmp.Diff(again.Status, third.Status, cmpopts.EquateEmpty()); diff != "" {
			rt.Fatalf("status does not settle:\n%s", diff)
		}
	})
}

func TestDecideIgnoresInputOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawInput(rt)
		other := in
		other.Nodes, other.Claims = slices.Clone(in.Nodes), slices.Clone(in.Claims)
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		rnd.Shuffle(len(other.Nodes), func(i, j int) { other.Nodes[i], other.Nodes[j] = other.Nodes[j], other.Nodes[i] })
		rnd.Shuffle(len(other.Claims), func(i, j int) { other.Claims[i], other.Claims[j] = other.Claims[j], other.Claims[i] })
		if diff := cmp.Diff(rollout.Decide(in), rollout.Decide(other), cmpopts.EquateEmpty()); diff != "" {
			rt.Fatal(diff)
		}
	})
}

func TestNeitherForeignCordonsNorPausedPoolsAreTouched(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawInput(rt)
		names := moved(rollout.Decide(in))
		if in.Pool.Paused && len(names) > 0 {
			rt.Fatalf("paused, and %v move", names)
		}
		for i := range in.Nodes {
			n := &in.Nodes[i]
			if slices.Contains(names, n.Name) && n.Cordoned && !n.Ours && n.State == rollout.StateDone && n.Current == n.Desired {
				rt.Fatalf("%s is cordoned by somebody else and moves", n.Name)
			}
		}
	})
}

// TestEveryNodeEndsOnTargetOrIsReported plays a rollout with agents that
// drain, reboot and fail, admins that cordon, and nodes that go down.
func TestEveryNodeEndsOnTargetOrIsReported(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawInput(rt)
		in.Pool.Original, in.Pool.Paused = false, false
		failsOn := map[string]string{}
		for i := range in.Nodes {
			if rapid.IntRange(0, 5).Draw(rt, "fails") == 0 {
				failsOn[in.Nodes[i].Name] = in.Pool.Target
			}
		}
		failed := false // a first wave failed before anything else had started
		for step := range 400 {
			in.Now = in.Now.Add(time.Duration(rapid.IntRange(1, 30).Draw(rt, "minutes")) * time.Minute)
			if step == 60 {
				delete(failsOn, "n00")
			}
			d := rollout.Decide(in)
			if failed && d.Status.Record.Wave == 0 && d.Status.Record.Stopped != "" && d.Status.Goal == in.Pool.Target && len(moved(d)) > 0 {
				rt.Fatalf("%v move after the first wave failed", moved(d))
			}
			failed = d.Status.Record.Stopped != ""
			in = apply(in, d)
			for i := range in.Nodes {
				n := &in.Nodes[i]
				if n.Current == "" || rapid.IntRange(0, 2).Draw(rt, "slow") == 0 {
					continue
				}
				if n.Down != "" && step > 20 {
					n.Down = ""
				}
				agent(n, failsOn[n.Name])
			}
		}
		d := rollout.Decide(in)
		for i := range in.Nodes {
			n := &in.Nodes[i]
			if n.Desired == d.Status.Goal && inService(n) {
				continue
			}
			reported := n.Current == "" || n.Cordoned || n.State == rollout.StateDegraded || len(d.Status.Waits) > 0
			if !reported {
				rt.Fatalf("%+v: goal %s, record %s, waits %v", *n, d.Status.Goal, d.Status.Record.Encode(), d.Status.Waits)
			}
		}
	})
}

// agent does one step of a node's work.
func agent(n *rollout.Node, fails string) {
	switch {
	case n.Desired == fails && (n.Current != n.Desired || n.State != rollout.StateDone):
		n.State, n.Reason = rollout.StateDegraded, "why"
	case n.Current != n.Desired && !n.Cordoned:
		n.Cordoned, n.Ours = true, true
		if n.State == rollout.StateDone {
			n.State = rollout.StateWorking
		}
	case n.Current != n.Desired || n.State != rollout.StateDone:
		n.Current, n.State, n.Reason = n.Desired, rollout.StateDone, ""
		if n.Ours {
			n.Cordoned, n.Ours = false, false
		}
	case n.Ours:
		n.Cordoned, n.Ours = false, false
	}
}

func big(n int) rollout.Input {
	in := rollout.Input{Now: now, Pool: pool("v1", max(1, n/10)), Content: map[string]string{"v0": "a", "v1": "b"}}
	for i := range n {
		in.Nodes = append(in.Nodes, node(fmt.Sprintf("node-%05d", i), "v0", zone(fmt.Sprint(i%3)), pods(i%30)))
	}
	d := rollout.Decide(in)
	return apply(in, d)
}

func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{10, 1000, 5000} {
		for _, waves := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/waves=%t", n, waves), func(b *testing.B) {
				in := big(n)
				if waves {
					in.Pool.Settings, _ = rollout.ParseSettings(`{"canary":{"nodes":1},"growth":3}`)
				}
				b.ReportAllocs()
				for b.Loop() {
					rollout.Decide(in)
				}
			})
		}
	}
}
