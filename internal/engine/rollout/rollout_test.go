package rollout_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"millwright.io/millwright/internal/engine/budget"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/engine/rollout"
)

var now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

type edit = func(*rollout.Node)

// node runs config current and was asked for it.
func node(name, current string, edits ...edit) rollout.Node {
	n := rollout.Node{Name: name, Current: current, Desired: current, State: rollout.StateDone, Created: now.Add(-24 * time.Hour)}
	for _, e := range edits {
		e(&n)
	}
	return n
}

func to(config, state string) edit {
	return func(n *rollout.Node) { n.Desired, n.State = config, state }
}

func notReady(n *rollout.Node) { n.Down = "node " + n.Name + " is reporting NotReady=False" }
func cordoned(n *rollout.Node) { n.Cordoned = true }
func ours(n *rollout.Node)     { n.Cordoned, n.Ours = true, true }
func operator(n *rollout.Node) { n.Operator = true }
func broken(reason string) edit {
	return func(n *rollout.Node) { n.State, n.Reason = rollout.StateDegraded, reason }
}
func zone(z string) edit { return func(n *rollout.Node) { n.Zone = z } }
func pods(k int) edit    { return func(n *rollout.Node) { n.Pods = k } }

func pool(target string, limit int, edits ...func(*rollout.Pool)) rollout.Pool {
	p := rollout.Pool{Name: "worker", Target: target, Settled: "v0", Limit: limit}
	for _, e := range edits {
		e(&p)
	}
	return p
}

func original(p *rollout.Pool)     { p.Original = true }
func paused(p *rollout.Pool)       { p.Paused = true }
func controlPlane(p *rollout.Pool) { p.Name, p.ControlPlane = "master", true }

func cond(d plan.Decision[rollout.Status], kind string) plan.Condition {
	for _, c := range d.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return plan.Condition{}
}

func reasons(d plan.Decision[rollout.Status]) []string {
	var out []string
	for _, w := range d.Status.Waits {
		out = append(out, w.Reason)
	}
	return out
}

func TestDecideChoosesNodes(t *testing.T) {
	rows := []struct {
		name, why string
		pool      rollout.Pool
		nodes     []rollout.Node
		want      []string
	}{
		{name: "all done", why: "nothing to do", pool: pool("v1", 1), nodes: []rollout.Node{node("a", "v1")}},
		{name: "one at a time", why: "the default budget", pool: pool("v1", 1), nodes: []rollout.Node{node("a", "v0"), node("b", "v0")}, want: []string{"a"}},
		{name: "no target yet", why: "nothing to aim at", pool: pool("", 1), nodes: []rollout.Node{node("a", "v0")}},
		{name: "unready among done", why: "it uses the only unit", pool: pool("v1", 1), nodes: []rollout.Node{node("a", "v1", notReady), node("b", "v0"), node("c", "v1")}},
		{name: "down node goes first and for free", why: "it is out of service already", pool: pool("v1", 2), nodes: []rollout.Node{node("a", "v0", notReady), node("b", "v0"), node("c", "v0")}, want: []string{"a", "b"}},
		{name: "original skips the down node", why: "upstream's table", pool: pool("v1", 2, original), nodes: []rollout.Node{node("a", "v0", notReady), node("b", "v0"), node("c", "v0")}, want: []string{"b"}},
		{name: "three units, one done, one moving", why: "upstream's table", pool: pool("v1", 2), nodes: []rollout.Node{node("a", "v1"), node("b", "v0", to("v1", rollout.StateWorking)), node("c", "v0"), node("d", "v0")}, want: []string{"c"}},
		{name: "moving back a broken node", why: "rollback is always allowed", pool: pool("v1", 1), nodes: []rollout.Node{node("a", "v1", to("v2", rollout.StateDegraded)), node("b", "v1")}, want: []string{"a"}},
		{name: "original moves it too when it serves", why: "upstream's table", pool: pool("v1", 1, original), nodes: []rollout.Node{node("a", "v1", to("v2", rollout.StateDegraded)), node("b", "v1")}, want: []string{"a"}},
		{name: "original leaves it when it is cordoned", why: "that is how the original gets stuck", pool: pool("v1", 1, original), nodes: []rollout.Node{node("a", "v1", to("v2", rollout.StateDegraded), ours), node("b", "v1")}},
		{name: "cordoned by our drain and broken", why: "its way back is open", pool: pool("v1", 1), nodes: []rollout.Node{node("a", "v1", to("v2", rollout.StateDegraded), ours), node("b", "v1")}, want: []string{"a"}},
		{name: "broken on the target keeps its unit", why: "no other starts", pool: pool("v1", 1), nodes: []rollout.Node{node("a", "v0", to("v1", rollout.StateDegraded)), node("b", "v0")}},
		{name: "broken, second unit free", why: "the budget counts, not the failure", pool: pool("v1", 2), nodes: []rollout.Node{node("a", "v0", to("v1", rollout.StateDegraded)), node("b", "v0"), node("c", "v0")}, want: []string{"b"}},
		{name: "asked but not begun", why: "state Done with another desired config is not done", pool: pool("v2", 1), nodes: []rollout.Node{node("a", "v0", func(n *rollout.Node) { n.Desired = "v2" }), node("b", "v0")}},
		{name: "somebody else's cordon", why: "it uses a unit and is no candidate", pool: pool("v1", 1), nodes: []rollout.Node{node("a", "v0", cordoned), node("b", "v0")}},
		{name: "somebody else's cordon and another unit", why: "others may go", pool: pool("v1", 2), nodes: []rollout.Node{node("a", "v0", cordoned), node("b", "v0"), node("c", "v0")}, want: []string{"b"}},
		{name: "paused", why: "config waits", pool: pool("v1", 3, paused), nodes: []rollout.Node{node("a", "v0"), node("b", "v0", notReady)}},
		{name: "control plane ignores a larger budget", why: "one at a time", pool: pool("v1", 3, controlPlane), nodes: []rollout.Node{node("a", "v0"), node("b", "v0"), node("c", "v0")}, want: []string{"a"}},
		{name: "operator's node last", why: "the operator shall see the others through", pool: pool("v1", 1, controlPlane), nodes: []rollout.Node{node("a", "v0", operator), node("b", "v0"), node("c", "v1")}, want: []string{"b"}},
		{name: "operator's node alone", why: "nobody else is left", pool: pool("v1", 1, controlPlane), nodes: []rollout.Node{node("a", "v0", operator), node("b", "v1")}, want: []string{"a"}},
		{name: "other control plane pool", why: "quorum", pool: pool("v1", 1, controlPlane, func(p *rollout.Pool) { p.Peers = []string{"arbiter-0 (not ready)"} }), nodes: []rollout.Node{node("a", "v0")}},
		{name: "unreadable limit", why: "nobody knows how many", pool: pool("v1", 1, func(p *rollout.Pool) { p.LimitError = "maxUnavailable: x" }), nodes: []rollout.Node{node("a", "v0"), node("b", "v0", to("v9", rollout.StateDegraded))}, want: []string{"b"}},
		{name: "no agent yet", why: "nobody would act on it", pool: pool("v1", 2), nodes: []rollout.Node{{Name: "a"}, node("b", "v0")}, want: []string{"b"}},
		{name: "leaving an image of its own", why: "the config is right, the image is not", pool: pool("v0", 1), nodes: []rollout.Node{node("a", "v0", func(n *rollout.Node) { n.CurrentImage, n.DesiredImage = "i", "i" })}, want: []string{"a"}},
		{name: "zone by zone", why: "what is bound to a zone moves once", pool: pool("v1", 3), nodes: []rollout.Node{node("a", "v0"), node("b", "v0", zone("2")), node("c", "v0", zone("1")), node("d", "v0", zone("1"), pods(9)), node("e", "v0", zone("1"), pods(1))}, want: []string{"c", "e", "d"}},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			d := rollout.Decide(rollout.Input{Now: now, Pool: r.pool, Nodes: r.nodes})
			if diff := cmp.Diff(r.want, d.Status.Started); diff != "" {
				t.Errorf("%s: started (-want +got)\n%s\nwaits: %v", r.why, diff, d.Status.Waits)
			}
		})
	}
}

func TestEventsAndNotesWordForWord(t *testing.T) {
	d := rollout.Decide(rollout.Input{Now: now, Pool: pool("rendered-worker-b", 1), Nodes: []rollout.Node{node("a", "v0"), node("b", "v0")}})
	want := []plan.Event{{Type: plan.Normal, Reason: "SetDesiredConfig", Message: "Targeted node a to MachineConfig: rendered-worker-b"}}
	if diff := cmp.Diff(want, d.Events); diff != "" {
		t.Errorf("events (-want +got)\n%s", diff)
	}
	d = rollout.Decide(rollout.Input{Now: now, Pool: pool("b", 2), Nodes: []rollout.Node{node("a", "v0"), node("b", "v0")}})
	if got := d.Events[0].Message; got != "Set target for 2 nodes to MachineConfig: b" {
		t.Errorf("event %q", got)
	}
	d = rollout.Decide(rollout.Input{Now: now, Pool: pool("rendered-worker-b", 1), Nodes: []rollout.Node{node("a", "rendered-worker-b")}})
	want = []plan.Event{{Type: plan.Normal, Reason: "Completed", Message: "Pool worker has completed update to MachineConfig rendered-worker-b"}}
	if diff := cmp.Diff(want, d.Events); diff != "" {
		t.Errorf("events (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]plan.Note{{Message: "Pool worker: All nodes are updated with MachineConfig rendered-worker-b"}}, d.Notes); diff != "" {
		t.Errorf("notes (-want +got)\n%s", diff)
	}
	if !d.Status.Settled {
		t.Error("not settled")
	}
	d = rollout.Decide(rollout.Input{Now: now, Pool: pool("v1", 1, controlPlane), Nodes: []rollout.Node{node("m0", "v0", operator), node("m1", "v0")}})
	if got := d.Events[0]; got.Reason != "DeferringOperatorNodeUpdate" || got.Message != "Deferring update of machine config operator node m0" {
		t.Errorf("event %+v", got)
	}
}

// TestColumnsOfABrokenRollout walks the table that the original's users know:
// columns COUNT READY UPDATED DEGRADED and the three conditions.
func TestColumnsOfABrokenRollout(t *testing.T) {
	reason := `unexpected on-disk state validating against rendered-worker-b: mode mismatch for file: "/etc/x"; expected: -rw-r--r--/420/0644; received: -rwxr-xr-x/493/0755`
	bad := node("n1", "a", to("b", rollout.StateDegraded), ours, func(n *rollout.Node) { n.Reason = reason })
	rows := []struct {
		name   string
		target string
		nodes  []rollout.Node
		want   string
	}{
		{"steady", "a", []rollout.Node{node("n1", "a"), node("n2", "a"), node("n3", "a")}, "True False False 3 3 3 0"},
		{"first node fails", "b", []rollout.Node{bad, node("n2", "a"), node("n3", "a")}, "False True True 3 0 0 1"},
		{"config deleted", "a", []rollout.Node{bad, node("n2", "a"), node("n3", "a")}, "False True True 3 2 2 1"},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			d := rollout.Decide(rollout.Input{Now: now, Pool: pool(r.target, 1, original, func(p *rollout.Pool) { p.Settled = "a" }), Nodes: r.nodes})
			s := d.Status
			got := fmt.Sprint(cond(d, "Updated").Status, " ", cond(d, "Updating").Status, " ", cond(d, "Degraded").Status, " ", s.Machines, s.Ready, s.Updated, s.Degraded)
			if got != r.want {
				t.Errorf("got %s, want %s", got, r.want)
			}
			if s.Degraded == 0 {
				return
			}
			c := cond(d, "NodeDegraded")
			if c.Reason != "1 nodes are reporting degraded status on sync" || !strings.HasPrefix(c.Message, fmt.Sprintf("Node n1 is reporting: %q. Next: ", reason)) {
				t.Errorf("NodeDegraded: %s: %s", c.Reason, c.Message)
			}
			if deg := cond(d, "Degraded"); deg.Reason != "" || deg.Message != c.Message {
				t.Errorf("Degraded: %+v", deg)
			}
		})
	}
}

func TestConditionsSayWhatTheOriginalSays(t *testing.T) {
	d := rollout.Decide(rollout.Input{Now: now, Pool: pool("b", 1), Nodes: nil})
	if c := cond(d, "Updated"); c.Status != corev1.ConditionTrue || c.Message != "All nodes are updated with MachineConfig b" {
		t.Errorf("an empty pool: %+v", c)
	}
	d = rollout.Decide(rollout.Input{Now: now, Pool: pool("b", 1, paused), Nodes: []rollout.Node{node("a", "v0")}})
	if c := cond(d, "Updating"); c.Status != corev1.ConditionFalse || c.Message != "Pool is paused; will not update to MachineConfig b" {
		t.Errorf("a paused pool: %+v", c)
	}
	d = rollout.Decide(rollout.Input{Now: now, Pool: pool("b", 1), Nodes: []rollout.Node{node("a", "b", cordoned)}})
	if c := cond(d, "Updating"); c.Status != corev1.ConditionTrue || c.Message != "All nodes are updating to MachineConfig b" {
		t.Errorf("a cordon is enough: %+v", c)
	}
	if d.Status.Updated != 1 || d.Status.Ready != 0 || d.Status.Unavailable != 1 {
		t.Errorf("counters %+v", d.Status)
	}
	d = rollout.Decide(rollout.Input{Now: now, Pool: pool("b", 1, func(p *rollout.Pool) { p.RenderDegraded, p.RenderError = true, "why" }), Nodes: nil})
	if c := cond(d, "Degraded"); c.Status != corev1.ConditionTrue || c.Message != "why" {
		t.Errorf("a pool that cannot be rendered: %+v", c)
	}
}

// Corpus C11: a node in two custom pools is nobody's, and both pools say so.
func TestNodeInTwoPoolsIsNamedAndHoldsUpNobody(t *testing.T) {
	stray := rollout.Stray{Node: "n1", Pools: []string{"gpu", "infra"}}
	d := rollout.Decide(rollout.Input{Now: now, Pool: pool("b", 1), Nodes: []rollout.Node{node("n2", "v0")}, Strays: []rollout.Stray{stray}})
	c := cond(d, "NodesUnassigned")
	if want := "node n1 belongs to 2 custom roles, cannot proceed with this Node: gpu, infra"; c.Status != corev1.ConditionTrue || !strings.HasPrefix(c.Message, want) {
		t.Errorf("condition %+v", c)
	}
	if !slices.Equal(d.Status.Started, []string{"n2"}) || d.Status.Machines != 1 {
		t.Errorf("started %v of %d", d.Status.Started, d.Status.Machines)
	}
}

// Corpus C14: the only broken node fills the budget, and the fix goes to it
// first; the others only change their name, and not while it is down.
func TestRevertReachesTheNodeThatFillsTheBudget(t *testing.T) {
	in := rollout.Input{Now: now, Pool: pool("fixed", 1), Content: map[string]string{"good": "1", "fixed": "1", "bad": "2"},
		Nodes: []rollout.Node{node("w1", "good", to("bad", rollout.StateWorking), notReady), node("w2", "good"), node("w3", "good")}}
	d := rollout.Decide(in)
	if want := []plan.Action{plan.SetDesiredConfig{Node: "w1", Config: "fixed"}}; cmp.Diff(want, d.Actions) != "" {
		t.Fatalf("got %v, want %v", d.Actions, want)
	}
	in.Nodes[0].Desired, in.Claims = "fixed", d.Status.Claims
	if d = rollout.Decide(in); len(d.Actions) != 0 || !slices.Contains(reasons(d), rollout.WaitBudget) {
		t.Errorf("while w1 is down: %v, waits %v", d.Actions, d.Status.Waits)
	}
	in.Nodes[0] = node("w1", "fixed")
	if d = rollout.Decide(in); !slices.Equal(d.Status.Started, []string{"w2"}) {
		t.Errorf("then %v", d.Status.Started)
	}
}

// Corpus C16: pause holds back config and nothing else, and says when that
// gets dangerous.
func TestPauseHoldsConfigAndWarns(t *testing.T) {
	p := pool("b", 1, paused, func(p *rollout.Pool) { p.Expires = now.Add(9*24*time.Hour + time.Hour) })
	d := rollout.Decide(rollout.Input{Now: now, Pool: p, Nodes: []rollout.Node{node("a", "v0", broken("x")), node("b", "v0")}})
	if len(d.Actions) != 0 {
		t.Errorf("a paused pool does %v", d.Actions)
	}
	if c := cond(d, "Waiting"); c.Reason != "Paused" || !strings.Contains(c.Message, "CA bundles still reach them") || !strings.Contains(c.Message, "9 days") {
		t.Errorf("condition %+v", c)
	}
}

func TestClaimsCountAndAreDropped(t *testing.T) {
	claim := func(n, by string, age time.Duration) budget.Claim {
		return budget.Claim{Node: n, By: by, Since: now.Add(-age)}
	}
	rows := []struct {
		name   string
		claims []budget.Claim
		nodes  []rollout.Node
		want   []string
		left   []string
	}{
		{"somebody's young claim uses a unit", []budget.Claim{claim("b", "machinehealthcheck/x", time.Minute)}, []rollout.Node{node("a", "v0"), node("b", "v0")}, nil, []string{"b"}},
		{"an old one means nothing", []budget.Claim{claim("b", "machinehealthcheck/x", time.Hour)}, []rollout.Node{node("a", "v0"), node("b", "v0")}, []string{"a"}, []string{"a"}},
		{"gone node", []budget.Claim{claim("z", "machinehealthcheck/x", time.Minute)}, []rollout.Node{node("a", "v0")}, []string{"a"}, []string{"a"}},
		{"ours, finished", []budget.Claim{claim("b", rollout.By("worker"), time.Minute)}, []rollout.Node{node("a", "v0"), node("b", "v1")}, []string{"a"}, []string{"a"}},
		{"ours, written but the node was not", []budget.Claim{claim("b", rollout.By("worker"), 30*time.Second)}, []rollout.Node{node("a", "v0"), node("b", "v0")}, []string{"b"}, []string{"b"}},
		{"of a node about to be replaced", []budget.Claim{claim("a", "machinehealthcheck/x", time.Minute)}, []rollout.Node{node("a", "v0", notReady)}, nil, []string{"a"}},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			d := rollout.Decide(rollout.Input{Now: now, Pool: pool("v1", 1), Nodes: r.nodes, Claims: r.claims})
			if diff := cmp.Diff(r.want, d.Status.Started); diff != "" {
				t.Errorf("started (-want +got)\n%s", diff)
			}
			var left []string
			for _, c := range d.Status.Claims {
				left = append(left, c.Node)
			}
			if diff := cmp.Diff(r.left, left); diff != "" {
				t.Errorf("claims (-want +got)\n%s", diff)
			}
		})
	}
}

func TestJoiningNodeGetsItsLabelsFirst(t *testing.T) {
	n := node("a", "v0", func(n *rollout.Node) { n.Join = map[string]string{"node-role.kubernetes.io/infra": ""} })
	d := rollout.Decide(rollout.Input{Now: now, Pool: pool("v1", 1, func(p *rollout.Pool) { p.Topology = "SingleReplica" }), Nodes: []rollout.Node{n}})
	want := []plan.Action{plan.LinkNode{Node: "a", Labels: n.Join, Annotations: map[string]string{
		"machineconfiguration.openshift.io/controlPlaneTopology": "SingleReplica", "machineconfiguration.openshift.io/customPoolLabelsApplied": ""}}}
	if diff := cmp.Diff(want, d.Actions); diff != "" {
		t.Errorf("actions (-want +got)\n%s", diff)
	}
}

func TestBlockersAreForecastBeforeAnyNodeIsTouched(t *testing.T) {
	n := node("b", "v0", func(n *rollout.Node) { n.Blockers = []string{"shop/web: budget shop/web allows no disruption"} })
	d := rollout.Decide(rollout.Input{Now: now, Pool: pool("v1", 1, paused), Nodes: []rollout.Node{node("a", "v0"), n}})
	if c := cond(d, "DrainBlocked"); c.Status != corev1.ConditionTrue || c.Message != "node b: shop/web: budget shop/web allows no disruption" {
		t.Errorf("condition %+v", c)
	}
	n.Current, n.Desired = "v1", "v1"
	d = rollout.Decide(rollout.Input{Now: now, Pool: pool("v1", 1), Nodes: []rollout.Node{n}})
	if c := cond(d, "DrainBlocked"); c.Status != corev1.ConditionFalse {
		t.Errorf("a node that needs no drain: %+v", c)
	}
}

func TestSelectingAllNodesIsRefused(t *testing.T) {
	d := rollout.Decide(rollout.Input{Now: now, Pool: pool("v1", 1, func(p *rollout.Pool) { p.SelectsAll = true }), Nodes: []rollout.Node{node("a", "v0")}})
	if len(d.Actions) != 0 || d.Events[0].Message != "This machineconfigpool is selecting all nodes. A non-empty selector is required." {
		t.Errorf("actions %v, events %v", d.Actions, d.Events)
	}
}

// TestEmptyNodesFirstMovesFewerPods places the pods of each emptied node on
// the node with the fewest, and counts how often pods move.
func TestEmptyNodesFirstMovesFewerPods(t *testing.T) {
	load := map[string]int{"a": 40, "b": 35, "c": 30, "d": 4, "e": 2, "f": 0}
	moves := func(order []string) int {
		now, total := map[string]int{}, 0
		for n, k := range load {
			now[n] = k
		}
		for _, n := range order {
			k := now[n]
			now[n], total = 0, total+k
			for range k {
				least := ""
				for _, m := range []string{"a", "b", "c", "d", "e", "f"} {
					if m != n && (least == "" || now[m] < now[least]) {
						least = m
					}
				}
				now[least]++
			}
		}
		return total
	}
	var nodes []rollout.Node
	for _, n := range []string{"a", "b", "c", "d", "e", "f"} {
		nodes = append(nodes, node(n, "v0", pods(load[n])))
	}
	rollout.Sort(nodes)
	var ordered []string
	for _, n := range nodes {
		ordered = append(ordered, n.Name)
	}
	if ours, naive := moves(ordered), moves([]string{"a", "b", "c", "d", "e", "f"}); ours >= naive {
		t.Errorf("%v moves %d pods, by age %d", ordered, ours, naive)
	}
}
