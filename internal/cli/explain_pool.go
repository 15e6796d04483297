package cli

import (
	"context"
	"fmt"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"

	"millwright.io/millwright/internal/engine/rollout"
)

func explainPool(ctx context.Context, in ExplainInput) (Explanation, error) {
	var pool mcfgv1.MachineConfigPool
	if err := in.Reader.Get(ctx, in.Key, &pool); err != nil {
		return Explanation{}, err
	}
	f, err := readFleet(ctx, in.Reader)
	if err != nil {
		return Explanation{}, err
	}
	p := f.report(&pool, in.Now)
	e := Explanation{Evidence: append(poolEvidence(&pool), counters(&p))}
	e.pool(&pool, &p)
	for _, n := range p.Nodes {
		if n.Step != StepDone && n.Step != StepQueued && len(e.Evidence) < shownNodes {
			e.Evidence = append(e.Evidence, Evidence{What: fmt.Sprintf("node %s: %s", n.Name, n.Step), Text: n.WaitsFor, Since: sinceOf(n)})
		}
	}
	evs, err := in.Events(ctx, "MachineConfigPool", &pool)
	if err != nil {
		return Explanation{}, err
	}
	e.Evidence = append(e.Evidence, evs...)
	return e, nil
}

func counters(p *PoolReport) Evidence {
	return Evidence{What: "status", Text: fmt.Sprintf("%d machines, %d updated, %d ready, %d unavailable, %d degraded", p.Machines, p.Updated, p.Ready, p.Unavailable, p.Degraded)}
}

// pool says how a pool fares; the first of its troubles is what is told.
func (e *Explanation) pool(pool *mcfgv1.MachineConfigPool, p *PoolReport) {
	e.State = StateProgressing
	waits := strings.TrimSuffix(p.WaitsFor, ".")
	if render := poolCondition(pool, rollout.ConditionRenderDegraded); render != nil && render.Status == corev1.ConditionTrue {
		e.State, e.Cause = StateStuck, "RenderDegraded"
		e.Why = fmt.Sprintf("The MachineConfigs of pool %s cannot be merged: %s. Its nodes keep %s.", p.Name, strings.TrimSuffix(render.Message, "."), or(p.Target, "what they have"))
		e.Next = []NextStep{{Text: "Mend or delete the MachineConfig it names.", Command: "kubectl get mc"}}
		return
	}
	switch {
	case p.Phase == "Updated":
		e.State, e.Why = StateFine, fmt.Sprintf("Every node of pool %s has %s.", p.Name, p.Target)
	case p.Stopped != "":
		e.State, e.Cause = StateStuck, "Stopped"
		e.Why = fmt.Sprintf("The rollout of %s in pool %s is stopped: %s.", p.Target, p.Name, strings.TrimSuffix(p.Stopped, "."))
		if p.Goal != "" {
			e.Why += fmt.Sprintf(" Nodes that took it go back to %s.", p.Goal)
		}
		e.Next = []NextStep{{Text: "Mend or delete the MachineConfig that makes the nodes fail; the rollout begins anew with what that gives.", Command: "millwright explain mc/" + p.Target}}
	case p.Phase == "Degraded":
		e.State, e.Cause = StateStuck, "Degraded"
		e.Why = fmt.Sprintf("In pool %s, %s cannot get what was asked for: %s", p.Name, plural(int(p.Degraded), "node"), or(p.Problem, "no reason is given."))
	case p.Phase == "Paused":
		e.State, e.Cause = StateStuck, "Paused"
		e.Why = fmt.Sprintf("Pool %s is paused: %d of %s have %s, and no other node is sent it. Certificates and CA bundles still reach them.", p.Name, p.Updated, plural(int(p.Machines), "node"), p.Target)
		e.Next = []NextStep{unpause(p.Name)}
		if pool.Annotations[annoAdopting] != "" {
			e.Why += " An adoption paused it and did not come to its end."
			e.Next = []NextStep{{Text: "Run the adoption again with the same files.", Command: "millwright adopt " + p.Name + " -f FILE"}}
		}
	case p.Target == "":
		e.State, e.Cause = StateStuck, "NotRendered"
		e.Why = fmt.Sprintf("Pool %s has no rendered config yet.", p.Name)
		e.Next = []NextStep{{Text: "See whether machine-config-controller runs, and whether the pool's machineConfigSelector selects anything.", Command: "kubectl -n " + namespaceMCO + " get pods"}}
	default:
		e.Why = fmt.Sprintf("Pool %s takes %s: %d of %s have it.", p.Name, p.Target, p.Updated, plural(int(p.Machines), "node"))
		if waits != "" {
			e.Why += " It waits for: " + waits + "."
		}
	}
	e.poolNodes(p)
}

// poolNodes adds what to do about nodes that cannot go on by themselves.
func (e *Explanation) poolNodes(p *PoolReport) {
	for _, n := range p.Nodes {
		switch n.Step {
		case StepBroken, StepNoAgent:
		case StepDraining:
			if n.WaitsFor == "its pods to leave" {
				continue
			}
			if e.State == StateProgressing {
				e.State, e.Cause = StateStuck, "DrainBlocked"
				e.Why += fmt.Sprintf(" The drain of node %s waits for %s.", n.Name, n.WaitsFor)
			}
		default:
			continue
		}
		if len(e.Next) < maxEvents {
			e.Next = append(e.Next, NextStep{Text: "See what node " + n.Name + " needs.", Command: "millwright explain node/" + n.Name})
		}
	}
	if e.State == StateProgressing && len(e.Next) == 0 {
		e.Next = []NextStep{{Text: "Watch it.", Command: "millwright status -w"}}
	}
}

// poolEvidence is what a pool's conditions say, as far as they say something.
func poolEvidence(pool *mcfgv1.MachineConfigPool) []Evidence {
	out := []Evidence{{What: "pool " + pool.Name, Text: "spec.configuration.name is " + or(pool.Spec.Configuration.Name, "empty")}}
	for _, c := range pool.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			ev := ConditionEvidence(string(c.Type), string(c.Status), c.Reason, c.Message, c.LastTransitionTime.Time)
			ev.What = "pool " + pool.Name + " " + ev.What
			out = append(out, ev)
		}
	}
	return out
}
