package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright.io/millwright/internal/engine/node"
	"millwright.io/millwright/internal/engine/rollout"
)

// configExplainers are the kinds that the configs of nodes hang on. What agents and
// controllers of pools know they write down, so no code of theirs is asked.
func configExplainers() []Explainer {
	return []Explainer{
		{Kind: "Node", Names: []string{"node", "nodes", "no"}, Explain: explainNode},
		{Kind: "MachineConfigPool", Group: groupMachineConfig, Names: []string{"machineconfigpool", "machineconfigpools", "mcp"}, Explain: explainPool},
		{Kind: "MachineConfig", Group: groupMachineConfig, Names: []string{"machineconfig", "machineconfigs", "mc"}, Explain: explainConfig},
	}
}

// slowStep is how long a step that ends by itself may take before it is worth a look.
const slowStep = 30 * time.Minute

func explainNode(ctx context.Context, in ExplainInput) (Explanation, error) {
	var n corev1.Node
	if err := in.Reader.Get(ctx, in.Key, &n); err != nil {
		return Explanation{}, err
	}
	f, err := readFleet(ctx, in.Reader)
	if err != nil {
		return Explanation{}, err
	}
	pool := f.poolOfNode(n.Name)
	e := Explanation{Evidence: nodeEvidence(&n, f.records[n.Name])}
	if pool == nil {
		e.unassigned(&n, &f)
	} else {
		p := f.report(pool, in.Now)
		e.Evidence = append(e.Evidence, poolEvidence(pool)...)
		goal := or(p.Goal, p.Target)
		e.node(&n, &p, nodeReport(&n, f.records[n.Name], goal), goal, in.Now)
	}
	// Agents tell theirs in their own namespace.
	mine := n.DeepCopy()
	mine.Namespace = namespaceMCO
	evs, err := in.Events(ctx, "Node", mine)
	if err != nil {
		return Explanation{}, err
	}
	e.Evidence = append(e.Evidence, evs...)
	return e, nil
}

// unassigned is a node that no pool takes care of.
func (e *Explanation) unassigned(n *corev1.Node, f *fleet) {
	for _, s := range f.strays {
		if text, ok := strings.CutPrefix(s, "node "+n.Name+": "); ok {
			e.State, e.Cause, e.Why = StateStuck, "Unassigned", fmt.Sprintf("Nobody changes node %s: %s.", n.Name, text)
			e.Next = []NextStep{{Text: "Remove all but one of the custom pools' labels from it.", Command: "kubectl label node " + n.Name + " LABEL-"}}
			return
		}
	}
	e.State, e.Cause, e.Why = StateStuck, "Unassigned", fmt.Sprintf("No MachineConfigPool selects node %s, so nobody changes its config.", n.Name)
	e.Next = []NextStep{{Text: "Give it the label of a pool.", Command: "kubectl label node " + n.Name + " " + labelNodeRole + poolWorker + "="}}
}

// node says how a node of a pool fares.
func (e *Explanation) node(n *corev1.Node, p *PoolReport, r PoolNodeReport, goal string, now time.Time) {
	e.State = StateProgressing
	took := ""
	if r.Since != nil {
		took = " for " + age(now.Sub(r.Since.Time))
	}
	status := NextStep{Text: "Watch it.", Command: "millwright status -w"}
	switch r.Step {
	case StepDone:
		e.State, e.Why = StateFine, fmt.Sprintf("Node %s has %s, which pool %s wants, and serves.", n.Name, goal, p.Name)
	case StepOutOfOrder:
		e.outOfOrder(n, p, goal)
	case StepQueued:
		e.queued(n, p, goal)
	case StepNoAgent:
		e.State, e.Cause = StateStuck, "NoAgent"
		e.Why = fmt.Sprintf("The agent of node %s has not said anything yet, so pool %s does not know what it has.", n.Name, p.Name)
		e.Next = []NextStep{agentLog(n.Name)}
	case StepDraining:
		e.draining(n, r, took)
	case StepBroken:
		e.broken(n, p, goal, took)
	case StepRebooting:
		e.Why = fmt.Sprintf("Node %s has been rebooting into %s%s.", n.Name, r.Desired, took)
		e.Next = []NextStep{{Text: "If it does not come back, look at its console and restart it there."}}
	case StepUncordon:
		e.Why = fmt.Sprintf("Node %s has taken %s and waits%s for machine-config-controller to uncordon it.", n.Name, r.Desired, took)
		e.Next = []NextStep{{Text: "If that lasts, see whether the controller runs.", Command: "kubectl -n " + namespaceMCO + " get deployment machine-config-controller"}}
	default:
		e.Why = fmt.Sprintf("The agent of node %s is %s on its way to %s%s.", n.Name, r.Step, r.Desired, took)
		e.Next = []NextStep{status}
	}
	if e.State == StateProgressing && r.Since != nil && now.Sub(r.Since.Time) > slowStep {
		e.State, e.Cause = StateStuck, "Slow"
		e.Next = append(e.Next, agentLog(n.Name))
	}
}

func agentLog(node string) NextStep {
	return NextStep{Text: "Read what its agent says.", Command: fmt.Sprintf("kubectl -n %s logs -c machine-config-daemon $(kubectl -n %s get pods -l k8s-app=machine-config-daemon --field-selector spec.nodeName=%s -o name)", namespaceMCO, namespaceMCO, node)}
}

func (e *Explanation) outOfOrder(n *corev1.Node, p *PoolReport, goal string) {
	e.State = StateStuck
	if n.Spec.Unschedulable {
		by, step := "somebody", NextStep{Text: "Uncordon it when whoever cordoned it agrees.", Command: "kubectl uncordon " + n.Name}
		if rollout.OwnCordon(n.Annotations[annoCordonedBy], n.Annotations[node.LastAppliedDrain]) {
			by, step = "machine-config-controller", NextStep{Text: "Have the cordon that was left behind taken away.", Command: "millwright recover " + n.Name}
		}
		e.Cause, e.Next = "Cordoned", []NextStep{step}
		e.Why = fmt.Sprintf("Node %s has %s, which pool %s wants, and is cordoned by %s: it takes no new pods and uses a unit of the pool's budget.", n.Name, goal, p.Name, by)
		return
	}
	e.Cause, e.Why = "NotReady", fmt.Sprintf("Node %s has %s, which pool %s wants, but is %s.", n.Name, goal, p.Name, unavailable(n))
	e.Next = []NextStep{{Text: "See what its kubelet says.", Command: "kubectl describe node " + n.Name}}
}

func (e *Explanation) queued(n *corev1.Node, p *PoolReport, goal string) {
	why := p.WaitsFor
	switch {
	case n.Spec.Unschedulable:
		e.State, e.Cause, why = StateStuck, "Cordoned", "somebody cordoned it, and a cordoned node is never started"
		e.Next = []NextStep{{Text: "Uncordon it when whoever cordoned it agrees.", Command: "kubectl uncordon " + n.Name}}
	case p.Phase == "Paused":
		e.State, e.Cause, why = StateStuck, "Paused", "the pool is paused"
		e.Next = []NextStep{unpause(p.Name)}
	case p.Stopped != "":
		e.State, e.Cause, why = StateStuck, "Stopped", "the rollout is stopped: "+p.Stopped
	case p.Phase == "Degraded":
		e.State, e.Cause, why = StateStuck, "PoolDegraded", or(p.Problem, "the pool is degraded")
	}
	if len(e.Next) == 0 {
		e.Next = []NextStep{{Text: "See what its pool waits for.", Command: "millwright explain mcp/" + p.Name}}
	}
	e.Why = fmt.Sprintf("Node %s is done with what it has and will be sent %s when its turn comes: %s.", n.Name, goal, strings.TrimSuffix(or(why, "others go first"), "."))
}

func (e *Explanation) draining(n *corev1.Node, r PoolNodeReport, took string) {
	e.Why = fmt.Sprintf("Node %s is being emptied%s so that it can take %s; it waits for %s.", n.Name, took, r.Desired, r.WaitsFor)
	if n.Annotations[annoDrainBlocked] == "" {
		e.Next = []NextStep{{Text: "Watch it.", Command: "millwright status -w"}}
		return
	}
	e.State, e.Cause = StateStuck, "DrainBlocked"
	e.Next = []NextStep{{Text: "Free what it waits for; the drain goes on by itself. Do not uncordon the node.", Command: "kubectl get pods -A --field-selector spec.nodeName=" + n.Name}}
}

func (e *Explanation) broken(n *corev1.Node, p *PoolReport, goal, took string) {
	a := n.Annotations
	e.State, e.Cause = StateStuck, a[node.State]
	e.Why = fmt.Sprintf("The agent of node %s has been %s%s: %s.", n.Name, a[node.State], took, strings.TrimSuffix(or(a[node.Reason], "it gives no reason"), "."))
	switch {
	case a[node.DesiredConfig] != goal:
		e.Why += fmt.Sprintf(" It was asked for %s, and pool %s wants %s by now.", a[node.DesiredConfig], p.Name, goal)
	case a[node.CurrentConfig] == goal:
		e.Why += fmt.Sprintf(" It has %s, which pool %s wants, but its disk is not as that says.", goal, p.Name)
	default:
		e.Why += fmt.Sprintf(" It cannot get from %s to %s.", a[node.CurrentConfig], goal)
	}
	if adv := adviceFor(a[node.Reason]); adv != nil {
		e.Next = append(e.Next, NextStep{Text: strings.ToUpper(adv.do[:1]) + adv.do[1:] + "."})
		if adv.never && a[node.DesiredConfig] == goal {
			return
		}
	}
	e.Next = append(e.Next, NextStep{Text: "See how its disk differs and bring it back.", Command: "millwright recover " + n.Name})
}

func unpause(pool string) NextStep {
	return NextStep{Text: "Unpause it.", Command: fmt.Sprintf(`kubectl patch mcp %s --type merge -p '{"spec":{"paused":false}}'`, pool)}
}

// nodeEvidence is what a Node and its record say.
func nodeEvidence(n *corev1.Node, record *mcfgv1.MachineConfigNode) []Evidence {
	var out []Evidence
	for _, key := range []string{node.CurrentConfig, node.DesiredConfig, node.State, node.Reason, node.DesiredDrain, node.LastAppliedDrain, node.PostConfigAction, annoDrainBlocked, annoVerified} {
		if v := n.Annotations[key]; v != "" {
			out = append(out, Evidence{What: "annotation " + key, Text: v})
		}
	}
	if n.Spec.Unschedulable {
		out = append(out, Evidence{What: "spec.unschedulable", Text: "cordoned by " + or(n.Annotations[annoCordonedBy], "somebody who left no name")})
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			out = append(out, ConditionEvidence(string(c.Type), string(c.Status), c.Reason, c.Message, c.LastTransitionTime.Time))
		}
	}
	if record == nil {
		return out
	}
	for _, c := range record.Status.Conditions {
		bad := c.Type == string(mcfgv1.MachineConfigNodeNodeDegraded) && c.Status == metav1.ConditionTrue
		if bad || c.Status == metav1.ConditionUnknown {
			ev := ConditionEvidence(c.Type, string(c.Status), c.Reason, c.Message, c.LastTransitionTime.Time)
			ev.What = "MachineConfigNode " + ev.What
			out = append(out, ev)
		}
	}
	return out
}
