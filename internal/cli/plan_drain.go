package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright.io/millwright/internal/engine/drain"
	"millwright.io/millwright/internal/observe"
)

// drains answers what a drain of a node would meet now.
type drains struct {
	pods    map[string][]corev1.Pod // by node
	budgets map[string][]drain.Budget
	known   bool
	now     time.Time
}

func newDrains(c *cluster, now time.Time) *drains {
	d := &drains{pods: map[string][]corev1.Pod{}, budgets: map[string][]drain.Budget{}, known: c.podsKnown, now: now}
	for _, p := range c.pods {
		if p.Spec.NodeName != "" {
			d.pods[p.Spec.NodeName] = append(d.pods[p.Spec.NodeName], p)
		}
	}
	for i := range c.budgets {
		if b, ok := budgetOf(&c.budgets[i]); ok {
			d.budgets[b.Namespace] = append(d.budgets[b.Namespace], b)
		}
	}
	return d
}

// budgetOf translates a budget; one without a selector selects no pods.
func budgetOf(b *policyv1.PodDisruptionBudget) (drain.Budget, bool) {
	if b.Spec.Selector == nil {
		return drain.Budget{}, false
	}
	match, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return drain.Budget{}, false // the API server refuses such a budget
	}
	s := b.Status
	return drain.Budget{
		Namespace: b.Namespace, Name: b.Name, Selector: match,
		Allowed: s.DisruptionsAllowed, Healthy: s.CurrentHealthy, Desired: s.DesiredHealthy,
		AlwaysAllow: b.Spec.UnhealthyPodEvictionPolicy != nil && *b.Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow,
		// A budget of a file was never counted by anybody.
		Stale: s.ObservedGeneration < b.Generation || s.ExpectedPods == 0,
	}, true
}

// ask decides the node's drain as the controllers do.
func (d *drains) ask(node string) drain.Status {
	in := drain.Input{Node: drain.Node{Name: node}, Pods: observe.Drainees(d.pods[node]), Now: d.now}
	namespaces := map[string]bool{}
	for _, p := range in.Pods {
		namespaces[p.Namespace] = true
	}
	for _, ns := range sortedKeys(namespaces) {
		in.Budgets = append(in.Budgets, d.budgets[ns]...)
	}
	return drain.Decide(in).Status
}

// duration is how long the pods that have to go may take to end.
func (d *drains) duration(node string, s drain.Status, unknown time.Duration) time.Duration {
	if !d.known {
		return unknown
	}
	waiting := map[string]bool{}
	for _, p := range s.Waiting {
		waiting[p.Namespace+"/"+p.Name] = true
	}
	longest := time.Duration(0)
	for _, p := range d.pods[node] {
		if !waiting[p.Namespace+"/"+p.Name] {
			continue
		}
		grace := int64(30)
		if g := p.Spec.TerminationGracePeriodSeconds; g != nil {
			grace = *g
		}
		longest = max(longest, time.Duration(grace)*time.Second)
	}
	return longest
}

// blockers names what would hold up the node's drain: pods whose budgets allow
// no disruption now. That two pods of one budget go one after the other is no
// blocker.
func (d *drains) blockers(s drain.Status) []Blocker {
	var out []Blocker
	for _, v := range s.Blocked {
		spent := v.Why != drain.WhyBudget
		for _, b := range d.budgets[v.Pod.Namespace] {
			spent = spent || slices.Contains(v.Budgets, b.Name) && (b.Allowed <= 0 || b.Stale)
		}
		if !spent {
			continue
		}
		pod := v.Pod.Namespace + "/" + v.Pod.Name
		budget := ""
		if len(v.Budgets) > 0 {
			budget = v.Pod.Namespace + "/" + strings.Join(v.Budgets, ",")
		}
		why := v.Detail
		if why == "" {
			why = string(v.Why)
		}
		i := slices.IndexFunc(out, func(b Blocker) bool { return budget != "" && b.Budget == budget && b.Why == why })
		if i < 0 {
			out, i = append(out, Blocker{Budget: budget, Why: why}), len(out)
		}
		out[i].Pods = append(out[i].Pods, pod)
	}
	return out
}

func (b Blocker) String() string {
	pods := b.Pods
	more := ""
	const few = 5
	if len(pods) > few {
		more = fmt.Sprintf(" and %d more", len(pods)-few)
		pods = pods[:few]
	}
	return strings.Join(pods, ", ") + more + ": " + b.Why
}
