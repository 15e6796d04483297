package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"millwright.io/millwright/internal/engine/rollout"
)

func sinceOf(n PoolNodeReport) *time.Time {
	if n.Since == nil {
		return nil
	}
	return Since(n.Since.Time)
}

func explainConfig(ctx context.Context, in ExplainInput) (Explanation, error) {
	var mc mcfgv1.MachineConfig
	if err := in.Reader.Get(ctx, in.Key, &mc); err != nil {
		return Explanation{}, err
	}
	f, err := readFleet(ctx, in.Reader)
	if err != nil {
		return Explanation{}, err
	}
	var e Explanation
	if strings.HasPrefix(mc.Name, renderedPrefix) {
		e.rendered(&mc, &f, in.Now)
	} else {
		e.fragment(&mc, &f, in.Now)
	}
	return e, nil
}

// rendered says who has, wants or fails on a rendered config.
func (e *Explanation) rendered(mc *mcfgv1.MachineConfig, f *fleet, now time.Time) {
	e.State = StateFine
	var wanted []string
	has, failing := 0, 0
	for i := range f.pools {
		p := f.report(&f.pools[i], now)
		if p.Target == mc.Name {
			wanted = append(wanted, p.Name)
			e.follow(&f.pools[i], &p)
		}
		for _, n := range p.Nodes {
			if n.Current == mc.Name {
				has++
			}
			if n.Desired == mc.Name && n.Step == StepBroken {
				failing++
				e.Evidence = append(e.Evidence, Evidence{What: "node " + n.Name + ": " + n.State, Text: n.WaitsFor, Since: sinceOf(n)})
				e.Next = append(e.Next, NextStep{Text: "See what node " + n.Name + " needs.", Command: "millwright explain node/" + n.Name})
			}
		}
	}
	switch {
	case len(wanted) > 0:
		e.Why = fmt.Sprintf("%s is what pool %s wants; so far %s got it.", mc.Name, strings.Join(wanted, ", "), plural(has, "node"))
	case has > 0:
		e.Why = fmt.Sprintf("No pool wants %s any more; %s kept it.", mc.Name, plural(has, "node"))
	default:
		e.Why = fmt.Sprintf("No pool wants %s and no node has it.", mc.Name)
	}
	if failing > 0 {
		e.State, e.Cause = StateStuck, "Degraded"
		e.Why += fmt.Sprintf(" %s cannot take it.", plural(failing, "node"))
	}
}

// fragment says where a MachineConfig that people or controllers write has got to.
func (e *Explanation) fragment(mc *mcfgv1.MachineConfig, f *fleet, now time.Time) {
	e.State = StateFine
	var texts []string
	for i := range f.pools {
		pool := &f.pools[i]
		s, err := metav1.LabelSelectorAsSelector(pool.Spec.MachineConfigSelector)
		if err != nil || s.Empty() || !s.Matches(labels.Set(mc.Labels)) {
			continue
		}
		texts = append(texts, e.inPool(mc, pool, f, now))
	}
	if len(texts) == 0 {
		e.State, e.Cause = StateStuck, "NotSelected"
		e.Why = fmt.Sprintf("No pool selects MachineConfig %s, so no node ever gets it.", mc.Name)
		e.Evidence = []Evidence{{What: "metadata.labels", Text: or(labels.Set(mc.Labels).String(), "none")}}
		e.Next = []NextStep{{Text: "Label it for a pool.", Command: "kubectl label mc " + mc.Name + " " + labelRole + "=" + poolWorker}}
		return
	}
	e.Why = strings.Join(texts, " ")
}

// inPool says how far one pool is with a MachineConfig.
func (e *Explanation) inPool(mc *mcfgv1.MachineConfig, pool *mcfgv1.MachineConfigPool, f *fleet, now time.Time) string {
	p := f.report(pool, now)
	if c := poolCondition(pool, rollout.ConditionRenderDegraded); c != nil && c.Status == corev1.ConditionTrue {
		e.State, e.Cause = StateStuck, "RenderDegraded"
		e.Evidence = append(e.Evidence, poolEvidence(pool)...)
		e.Next = append(e.Next, NextStep{Text: "Find what cannot be merged.", Command: "millwright lint -f FILE"})
		return fmt.Sprintf("Pool %s cannot be rendered, so %s does not reach its nodes: %s.", pool.Name, mc.Name, strings.TrimSuffix(c.Message, "."))
	}
	merged := slices.ContainsFunc(pool.Spec.Configuration.Source, func(o corev1.ObjectReference) bool { return o.Name == mc.Name })
	if !merged {
		e.progressing()
		e.Next = append(e.Next, NextStep{Text: "See whether machine-config-controller runs.", Command: "kubectl -n " + namespaceMCO + " get pods"})
		return fmt.Sprintf("Pool %s selects %s and has not merged it yet.", pool.Name, mc.Name)
	}
	e.follow(pool, &p)
	return fmt.Sprintf("It is in %s, which %d of %s of pool %s have.", p.Target, p.Updated, plural(int(p.Machines), "node"), pool.Name)
}

// progressing lowers a good opinion.
func (e *Explanation) progressing() {
	if e.State == StateFine {
		e.State = StateProgressing
	}
}

// follow takes over how a pool fares with what it wants.
func (e *Explanation) follow(pool *mcfgv1.MachineConfigPool, p *PoolReport) {
	var of Explanation
	of.pool(pool, p)
	if of.State == StateFine {
		return
	}
	e.Evidence = append(e.Evidence, poolEvidence(pool)...)
	e.Next = append(e.Next, NextStep{Text: "See what pool " + p.Name + " waits for.", Command: "millwright explain mcp/" + p.Name})
	if e.progressing(); of.State == StateStuck {
		e.State, e.Cause = StateStuck, of.Cause
	}
}
