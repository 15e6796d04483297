package rollout

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"millwright.io/millwright/internal/engine/budget"
	"millwright.io/millwright/internal/engine/plan"
)

// report fills in what the pool says of itself. It speaks of the nodes as they
// were seen, not as this decision makes them.
func (v *view) report() {
	st, p := &v.d.Status, &v.in.Pool
	st.Goal, st.Limit, st.Machines = v.goal, v.limit, len(v.nodes)
	for i := range v.nodes {
		n := &v.nodes[i]
		if n.updated(p.Target) {
			st.Updated++
			if n.serving() {
				st.Ready++
			}
		}
		if n.unavailable() {
			st.Unavailable++
		}
		if n.degraded() {
			st.Degraded++
		}
		if n.busy() || v.claimed(n) {
			st.Out = append(st.Out, n.Name)
		}
	}
	slices.Sort(st.Out)
	for _, c := range v.claims {
		st.Claims = append(st.Claims, c)
	}
	slices.SortFunc(st.Claims, func(a, b budget.Claim) int { return strings.Compare(a.Node, b.Node) })
	if p.Target != "" {
		v.conditions()
	}
	v.unassigned()
	v.waiting()
	v.blocked()
}

func (v *view) condition(kind string, on bool, reason, message string) {
	c := plan.Condition{Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message}
	if on {
		c.Status = corev1.ConditionTrue
	}
	v.d.Conditions = append(v.d.Conditions, c)
}

// conditions are the original's, computed as it does.
func (v *view) conditions() {
	st, p := &v.d.Status, &v.in.Pool
	st.Settled = st.Updated == st.Machines && st.Ready == st.Machines && st.Unavailable == 0
	switch {
	case st.Settled:
		v.condition(ConditionUpdated, true, "", "All nodes are updated with MachineConfig "+p.Target)
		v.condition(ConditionUpdating, false, "", "")
	default:
		v.condition(ConditionUpdated, false, "", "")
		v.updating()
	}
	if st.Settled && p.Settled != p.Target {
		v.tell(plan.Normal, ReasonCompleted, fmt.Sprintf("Pool %s has completed update to MachineConfig %s", p.Name, p.Target))
		v.d.Notes = append(v.d.Notes, plan.Note{Message: fmt.Sprintf("Pool %s: All nodes are updated with MachineConfig %s", p.Name, p.Target)})
	}
	reason, message := "", ""
	if st.Degraded > 0 {
		reason = fmt.Sprintf("%d nodes are reporting degraded status on sync", st.Degraded)
		message = v.degradation()
	}
	v.condition(ConditionNodeDegraded, st.Degraded > 0, reason, message)
	if message == "" && p.RenderDegraded {
		message = p.RenderError
	}
	v.condition(ConditionDegraded, st.Degraded > 0 || p.RenderDegraded, "", message)
}

func (v *view) updating() {
	p, r := &v.in.Pool, &v.d.Status.Record
	switch {
	case p.Paused:
		v.condition(ConditionUpdating, false, "", "Pool is paused; will not update to MachineConfig "+p.Target)
	case r.Stopped != "" && v.goal != r.Target:
		v.condition(ConditionUpdating, false, "", fmt.Sprintf("Rollout stopped; nodes go back from MachineConfig %s to MachineConfig %s", r.Target, v.goal))
	case r.Stopped != "":
		v.condition(ConditionUpdating, false, "", "Rollout stopped; will not update further nodes to MachineConfig "+p.Target)
	default:
		v.condition(ConditionUpdating, true, "", "All nodes are updating to MachineConfig "+p.Target)
	}
}

// degradation names each broken node with its own words, and the next step.
// The words name the item.
func (v *view) degradation() string {
	var texts []string
	broken := make([]*Node, 0, v.d.Status.Degraded)
	for i := range v.nodes {
		if v.nodes[i].degraded() {
			broken = append(broken, &v.nodes[i])
		}
	}
	slices.SortFunc(broken, func(a, b *Node) int { return strings.Compare(a.Name, b.Name) })
	const most = 50 // a condition holds 32 KiB
	for i, n := range broken {
		if i == most {
			texts = append(texts, fmt.Sprintf("%d more nodes", len(broken)-most))
			break
		}
		for j, why := range []string{n.Detail, n.Reason} {
			if why == "" && j == 0 || j == 1 && why == n.Detail {
				continue
			}
			texts = append(texts, fmt.Sprintf("Node %s is reporting: %q", n.Name, cut(why)))
		}
	}
	return strings.Join(texts, ", ") + ". " + v.nextStep(broken)
}

// nextStep says what a person should do about the first broken node.
func (v *view) nextStep(broken []*Node) string {
	n := broken[0]
	switch {
	case !n.aims(v.goal) && n.foreign():
		return fmt.Sprintf("Next: uncordon node %s, so that it may take MachineConfig %s", n.Name, v.goal)
	case !n.aims(v.goal) && v.in.Pool.Original:
		return fmt.Sprintf("Next: self-heal is disabled on pool %s: set desiredConfig of node %s to %s and uncordon it, or run millwright recover %s", v.in.Pool.Name, n.Name, v.goal, n.Name)
	case !n.aims(v.goal) && v.in.Pool.Paused:
		return fmt.Sprintf("Next: unpause pool %s, so that node %s may take MachineConfig %s", v.in.Pool.Name, n.Name, v.goal)
	case !n.aims(v.goal):
		return fmt.Sprintf("Next: nothing, node %s goes to MachineConfig %s by itself", n.Name, v.goal)
	case n.Current != n.Desired && v.in.Pool.Original:
		return fmt.Sprintf("Next: mend or delete the MachineConfig that brings this into %s; self-heal is disabled on pool %s, so run millwright recover %s then", v.goal, v.in.Pool.Name, n.Name)
	case n.Current == n.Desired:
		return fmt.Sprintf("Next: put back what was changed on node %s, or run millwright recover %s", n.Name, n.Name)
	}
	return fmt.Sprintf("Next: mend or delete the MachineConfig that brings this into %s, then node %s goes on by itself; millwright explain node/%s names it", v.goal, n.Name, n.Name)
}

// cut keeps a quoted reason short enough for a condition.
func cut(text string) string {
	const most = 500
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}

// unassigned names the nodes that are nobody's.
func (v *view) unassigned() {
	texts := make([]string, 0, len(v.in.Strays))
	for _, s := range v.in.Strays {
		texts = append(texts, s.String())
	}
	slices.Sort(texts)
	message := list(texts)
	if message != "" {
		message += "; remove all but one of the pools' labels from each"
	}
	v.condition(ConditionNodesUnassigned, len(texts) > 0, "", message)
}

// String is the original's refusal and, beyond it, the pools' names.
func (s Stray) String() string {
	return fmt.Sprintf("node %s belongs to %d custom roles, cannot proceed with this Node: %s", s.Node, len(s.Pools), strings.Join(s.Pools, ", "))
}

// waiting folds what the rollout waits for into one condition.
func (v *view) waiting() {
	waits := v.d.Status.Waits
	if len(waits) == 0 {
		v.condition(ConditionWaiting, false, "", "")
		return
	}
	texts := make([]string, 0, len(waits))
	for _, w := range waits {
		texts = append(texts, w.Text)
	}
	v.condition(ConditionWaiting, true, waits[0].Reason, strings.Join(texts, "; "))
}

// blocked forecasts what the drains still to come would wait for.
func (v *view) blocked() {
	var texts []string
	for i := range v.nodes {
		if n := &v.nodes[i]; len(n.Blockers) > 0 && !n.updated(v.goal) && !v.same(n, v.goal) {
			texts = append(texts, fmt.Sprintf("node %s: %s", n.Name, list(n.Blockers)))
		}
	}
	slices.Sort(texts)
	v.condition(ConditionDrainBlocked, len(texts) > 0, "", list(texts))
}
