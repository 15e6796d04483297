package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright.io/millwright/internal/engine/budget"
	"millwright.io/millwright/internal/engine/plan"
)

// start chooses the nodes that move now and claims them.
func (v *view) start() {
	p := &v.in.Pool
	if p.SelectsAll {
		v.tell(plan.Warning, ReasonSelectingAll, textSelectingAll)
	}
	if p.Target == "" || p.SelectsAll || p.Deleting {
		return
	}
	if p.Paused {
		v.paused()
		return
	}
	moves := v.free()
	moves = append(moves, v.fresh()...)
	v.move(moves)
}

// paused holds back configs, and nothing else.
func (v *view) paused() {
	behind := 0
	for i := range v.nodes {
		if !v.nodes[i].aims(v.in.Pool.Target) {
			behind++
		}
	}
	if behind == 0 {
		return
	}
	text := fmt.Sprintf("paused: %d nodes keep their config; certificates and CA bundles still reach them", behind)
	if e := v.in.Pool.Expires; !e.IsZero() && e.Sub(v.in.Now) < 30*24*time.Hour {
		text += fmt.Sprintf("; the first of them ends in %d days", int(max(0, e.Sub(v.in.Now)).Hours()/24))
	}
	v.wait(WaitPaused, text, time.Time{})
}

// free are the nodes that move without costing anything, the broken ones
// first: they are out of service already.
func (v *view) free() []*Node {
	var broken, others []*Node
	for i := range v.nodes {
		n := &v.nodes[i]
		switch {
		case !v.costsNothing(n):
		case n.degraded() && v.mayHeal(),
			n.Down != "" && !v.gated && v.d.Status.Record.Stopped == "":
			broken = append(broken, n)
		case v.permits(n) && v.allowed():
			others = append(others, n)
		}
	}
	return append(broken, others...)
}

// costsNothing: the node needs the goal, nobody else has plans with it, and
// its unit of the budget is used already.
func (v *view) costsNothing(n *Node) bool {
	switch {
	case n.aims(v.goal), n.foreign(), len(n.Join) > 0, n.Current == "":
		return false
	case !n.busy():
		return v.mine(n) // claimed, and then something kept us from moving it
	case v.claimed(n) && !v.mine(n) && n.done():
		return false // somebody else is about to repair or replace it
	}
	return !v.in.Pool.Original
}

// mayHeal: a broken node may always go to a config that did not break it; one
// that is known to fail is none.
func (v *view) mayHeal() bool {
	r := &v.d.Status.Record
	return r.Stopped == "" || v.goal != r.Target
}

// allowed says whether anything may start at all that is not broken.
func (v *view) allowed() bool {
	return v.in.Pool.LimitError == "" && v.in.Pool.SettingsError == "" && v.in.Pool.Windows.Open(v.in.Now)
}

// fresh are the nodes in service that start now, within the budget.
func (v *view) fresh() []*Node {
	cand := v.candidates()
	if len(cand) == 0 {
		return nil
	}
	p := &v.in.Pool
	if bad := strings.Join(compact(p.LimitError, p.SettingsError), "; "); bad != "" {
		v.d.Status.Invalid = bad
		v.wait(WaitInvalid, bad, time.Time{})
		return nil
	}
	cand = v.inWindow(cand)
	cand = v.inWave(cand)
	if len(cand) == 0 {
		return nil
	}
	if len(p.Peers) > 0 && p.ControlPlane {
		v.wait(WaitControlPlane, "another pool of the control plane comes first: "+list(p.Peers), time.Time{})
		return nil
	}
	return v.within(cand)
}

// candidates are the nodes that need the goal and may be started, in order.
func (v *view) candidates() []*Node {
	var out []*Node
	for i := range v.nodes {
		n := &v.nodes[i]
		if n.aims(v.goal) || len(n.Join) > 0 || n.Current == "" || v.claimed(n) {
			continue
		}
		if v.in.Pool.Original {
			if n.serving() {
				out = append(out, n)
			}
			continue
		}
		if !n.busy() {
			out = append(out, n)
		}
	}
	return out
}

// inWindow returns those of cand that may start at this time of the week. A
// mere change of name is no maintenance.
func (v *view) inWindow(cand []*Node) []*Node {
	w := v.in.Pool.Windows
	if w.Open(v.in.Now) {
		v.wakeAt(w.Closes(v.in.Now))
		return cand
	}
	opens := w.Opens(v.in.Now)
	held := 0
	cand = slices.DeleteFunc(slices.Clone(cand), func(n *Node) bool {
		keep := v.same(n, v.goal)
		if !keep {
			held++
		}
		return !keep
	})
	if held > 0 {
		v.wait(WaitWindow, fmt.Sprintf("%d nodes wait for the maintenance window, which opens at %s", held, opens.Format(time.RFC3339)), opens)
	}
	return cand
}

// within cuts cand to what the budget has left.
func (v *view) within(cand []*Node) []*Node {
	room := v.room()
	if room <= 0 {
		v.wait(WaitBudget, v.spent(), time.Time{})
		return nil
	}
	if len(cand) <= room {
		return cand
	}
	if op := slices.IndexFunc(cand, func(n *Node) bool { return n.Operator }); op >= room && v.in.Pool.ControlPlane {
		v.tell(plan.Normal, ReasonDeferringOperator, "Deferring update of machine config operator node "+cand[op].Name)
	}
	return cand[:room]
}

// room is how many more nodes may be taken out of service.
func (v *view) room() int {
	if v.in.Pool.Original {
		return v.originalRoom()
	}
	used := 0
	for i := range v.nodes {
		if v.nodes[i].busy() || v.claimed(&v.nodes[i]) {
			used++
		}
	}
	return v.limit - used
}

// originalRoom leaves broken nodes that take pods out, except those that fail
// on this very config; others' claims still count.
func (v *view) originalRoom() int {
	used, failing := 0, 0
	for i := range v.nodes {
		n := &v.nodes[i]
		switch {
		case n.unavailable() || v.claimed(n):
			used++
		case n.failing() && n.aims(v.goal):
			failing++
		}
	}
	return v.limit - used - failing
}

// spent names what fills the budget.
func (v *view) spent() string {
	var names []string
	for i := range v.nodes {
		n := &v.nodes[i]
		why := ""
		switch {
		case n.degraded():
			why = "degraded"
		case !n.done():
			why = "updating"
		case n.Cordoned && !n.Ours:
			why = "cordoned by somebody else"
		case n.Down != "":
			why = "not ready"
		case n.Cordoned:
			why = "cordoned"
		case v.claimed(n):
			why = "claimed by " + v.claims[n.Name].By
		default:
			continue
		}
		names = append(names, n.Name+" ("+why+")")
	}
	return fmt.Sprintf("%d of %d nodes may be out of service: %s", v.limit, len(v.nodes), list(names))
}

// move claims the nodes and sends them.
func (v *view) move(nodes []*Node) {
	by := By(v.in.Pool.Name)
	for _, n := range nodes {
		if len(v.claims) >= MaxClaims && !v.claimed(n) {
			break
		}
		if _, ok := v.claims[n.Name]; !ok || v.mine(n) && n.busy() {
			v.claims[n.Name] = budget.Claim{Node: n.Name, By: by, Since: v.in.Now}
		}
		if r := &v.d.Status.Record; v.in.Pool.Settings != nil && n.degraded() && v.goal == r.Target {
			r.Healing = append(r.Healing, n.Name)
		}
		v.d.Actions = append(v.d.Actions, plan.SetDesiredConfig{Node: n.Name, Config: v.goal})
		v.d.Status.Started = append(v.d.Status.Started, n.Name)
	}
	slices.Sort(v.d.Status.Record.Healing)
	switch k := len(v.d.Status.Started); k {
	case 0:
	case 1:
		v.tell(plan.Normal, ReasonSetDesiredConfig, fmt.Sprintf("Targeted node %s to MachineConfig: %s", v.d.Status.Started[0], v.goal))
	default:
		v.tell(plan.Normal, ReasonSetDesiredConfig, fmt.Sprintf("Set target for %d nodes to MachineConfig: %s", k, v.goal))
	}
}

// list joins the first few of texts.
func list(texts []string) string {
	const few = 5
	if len(texts) > few {
		return strings.Join(texts[:few], ", ") + fmt.Sprintf(" and %d more", len(texts)-few)
	}
	return strings.Join(texts, ", ")
}

func compact(texts ...string) []string {
	return slices.DeleteFunc(texts, func(s string) bool { return s == "" })
}
