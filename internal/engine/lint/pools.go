package lint

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/engine/render"
)

const worker = "worker"

// builtin are the pools that are not custom.
var builtin = []string{"master", worker, "arbiter"}

func custom(pool string) bool { return !slices.Contains(builtin, pool) }

// membership looks for fragments that nobody takes.
func (l *linter) membership(f *Fragment) {
	if f.Annotations[render.GeneratedByControllerVersion] != "" && len(f.Manifest) > 0 {
		l.add(f.object(), Finding{Rule: RuleCopied, Field: "metadata.annotations", Value: f.Annotations[render.GeneratedByControllerVersion]})
	}
	if f.Labels[render.RoleLabel] == "" {
		for key := range f.Labels {
			if cloud.Nearest(key, []string{render.RoleLabel}) != "" {
				l.add(f.object(), Finding{Rule: RuleNoPool, Severity: Error, Field: "metadata.labels", Value: key, Fix: "write " + render.RoleLabel})
				return
			}
		}
		if len(l.members[f.Name]) == 0 {
			l.add(f.object(), Finding{Rule: RuleNoPool, Field: "metadata.labels"})
		}
		return
	}
	if len(l.in.Pools) > 0 && len(l.members[f.Name]) == 0 {
		l.add(f.object(), Finding{Rule: RuleNoPool, Field: "metadata.labels", Value: f.Labels[render.RoleLabel],
			Why: "no pool that is known here takes this config", Fix: "use the role of a pool: " + strings.Join(l.poolNames(), ", ")})
	}
}

func (l *linter) poolNames() []string {
	names := make([]string, len(l.in.Pools))
	for i := range l.in.Pools {
		names[i] = l.in.Pools[i].Name
	}
	return names
}

func (l *linter) pools() {
	for i := range l.in.Pools {
		p := &l.in.Pools[i]
		if l.poolSelectors(p) {
			l.poolRenders(p)
		}
	}
	l.sameNodes()
}

// poolSelectors tells whether the pool can be rendered.
func (l *linter) poolSelectors(p *Pool) bool {
	if p.NodeSelector == nil || len(p.NodeSelector.MatchLabels)+len(p.NodeSelector.MatchExpressions) == 0 {
		l.add(p.object(), Finding{Rule: RulePoolNodes, Field: "spec.nodeSelector"})
	} else if _, err := metav1.LabelSelectorAsSelector(p.NodeSelector); err != nil {
		l.add(p.object(), Finding{Rule: RulePoolNodes, Severity: Error, Field: "spec.nodeSelector", Why: "the selector cannot be read: " + err.Error()})
	}
	finding := Finding{Rule: RulePoolSelector, Field: "spec.machineConfigSelector"}
	if p.Selector == nil {
		finding.Why = "a pool without a selector takes no MachineConfig and cannot be rendered"
		l.add(p.object(), finding)
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(p.Selector)
	switch {
	case err != nil:
		finding.Why = "the selector cannot be read: " + err.Error()
	case selector.Empty():
		finding.Why = "an empty selector selects all MachineConfigs; such a pool is left alone"
	case custom(p.Name) && !inheritsWorker(p.Selector):
		finding.Why = "the pool does not take the worker's configs, so its nodes would lose them; the API refuses such a pool"
	default:
		return true
	}
	l.add(p.object(), finding)
	return false
}

// inheritsWorker has the API's own rule for selectors.
func inheritsWorker(s *metav1.LabelSelector) bool {
	if slices.Contains(builtin, s.MatchLabels[render.RoleLabel]) {
		return true
	}
	return slices.ContainsFunc(s.MatchExpressions, func(e metav1.LabelSelectorRequirement) bool {
		in := slices.Contains(e.Values, worker)
		return e.Key == render.RoleLabel && (e.Operator == metav1.LabelSelectorOpIn && in || e.Operator == metav1.LabelSelectorOpNotIn && !in)
	})
}

// poolRenders merges a pool's fragments as rendering does, if each is sound.
func (l *linter) poolRenders(p *Pool) {
	var selected []render.Fragment
	roles := map[string]string{}
	for i := range l.in.Fragments {
		f := &l.in.Fragments[i]
		if f.rendered() || !slices.Contains(l.members[f.Name], p) {
			continue
		}
		if l.broken[f.Name] {
			return
		}
		selected = append(selected, f.Fragment)
		roles[f.Name] = f.Labels[render.RoleLabel]
	}
	if len(selected) == 0 {
		l.add(p.object(), Finding{Rule: RulePoolEmpty, Field: "spec.machineConfigSelector"})
		return
	}
	result, err := render.RenderSelected(p.Name, selected, l.in.Base)
	if err != nil {
		l.renderError(p, err)
		return
	}
	for _, problem := range result.Problems {
		l.renderProblem(p, problem)
	}
	if custom(p.Name) {
		l.order(p, result.Origins, roles)
	}
}

func (l *linter) renderError(p *Pool, err error) {
	var e *render.Error
	if !errors.As(err, &e) || len(e.Problems) == 0 {
		l.add(p.object(), Finding{Rule: RuleRender, Why: err.Error()})
		return
	}
	for _, problem := range e.Problems {
		l.renderProblem(p, problem)
	}
}

func (l *linter) renderProblem(p *Pool, problem render.Problem) {
	o := p.object()
	for i := range l.in.Fragments {
		if f := &l.in.Fragments[i]; problem.Fragment != "" && f.Name == problem.Fragment {
			o = f.object()
		}
	}
	finding := Finding{Rule: RuleRender, Field: field(problem.Path), Value: problem.Value, Why: "in pool " + p.Name + ": " + problem.Detail}
	if problem.Warning {
		finding.Severity = Warning
	}
	l.add(o, finding)
}

// order tells of winners whose name stands before the loser's.
func (l *linter) order(p *Pool, origins []render.Origin, roles map[string]string) {
	for _, o := range origins {
		if roles[o.SetBy] == worker {
			continue
		}
		for _, loser := range o.Overrode {
			if roles[loser] == worker && loser > o.SetBy {
				l.add(p.object(), Finding{Rule: RulePoolOrder, Field: o.Kind, Value: o.Key,
					Why: fmt.Sprintf("%s wins over %s, which the pool inherits from worker: a custom pool's own configs win whatever the names", o.SetBy, loser)})
			}
		}
	}
}

// sameNodes looks for custom pools that select the very same nodes.
func (l *linter) sameNodes() {
	seen := map[string]string{}
	for i := range l.in.Pools {
		p := &l.in.Pools[i]
		selector, ok := selectorOf(p.NodeSelector)
		if !ok || !custom(p.Name) {
			continue
		}
		key := selector.String()
		if other, taken := seen[key]; taken {
			l.add(p.object(), Finding{Rule: RulePoolNodes, Severity: Error, Field: "spec.nodeSelector", Value: key,
				Why: fmt.Sprintf("pool %s selects the same nodes; no pool acts on a node of two custom pools", other), Fix: "give each custom pool its own node label"})
			continue
		}
		seen[key] = p.Name
	}
}

// nodes looks for nodes that two custom pools claim.
func (l *linter) nodes() {
	for _, n := range l.in.Nodes {
		if n.Labels["kubernetes.io/os"] == "windows" {
			continue
		}
		var claimed []string
		for i := range l.in.Pools {
			p := &l.in.Pools[i]
			if selector, ok := selectorOf(p.NodeSelector); ok && custom(p.Name) && selector.Matches(labels.Set(n.Labels)) {
				claimed = append(claimed, p.Name)
			}
		}
		if len(claimed) > 1 {
			l.add(object{name: "Node/" + n.Name}, Finding{Rule: RuleNodeTwoPools, Field: "metadata.labels", Value: strings.Join(claimed, ", "),
				Why: "no pool acts on a node that belongs to the custom pools " + strings.Join(claimed, " and ")})
		}
	}
}
