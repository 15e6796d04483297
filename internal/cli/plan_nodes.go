package cli

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// estimates are how long things take; they are guesses that the user may
// correct.
type estimates struct {
	Reboot  time.Duration
	Drain   time.Duration // when the pods of a node are not known
	Service time.Duration // reload or restart of units
	Files   time.Duration // writing files
}

func defaultEstimates() estimates {
	return estimates{Reboot: 4 * time.Minute, Drain: time.Minute, Service: 10 * time.Second, Files: 5 * time.Second}
}

// node is how long one node is busy.
func (e estimates) node(n NodePlan, drain time.Duration) time.Duration {
	d := e.Files
	if n.Drains {
		d += drain
	}
	switch n.Action {
	case "reboot":
		d += e.Reboot
	case "none":
	default:
		d += e.Service
	}
	return d
}

// waves puts nodes into groups of at most limit, in order. Nodes out of service
// come first; they use the budget already.
func waves(nodes []NodePlan, limit int) int {
	if limit < 1 {
		limit = 1
	}
	next := 0
	for i := range nodes {
		if nodes[i].Action == "" {
			continue // it has the config already
		}
		nodes[i].Wave = next/limit + 1
		next++
	}
	return (next + limit - 1) / limit
}

// total is how long all waves take: each lasts as long as its slowest node.
func (e estimates) total(nodes []NodePlan) time.Duration {
	slowest := map[int]time.Duration{}
	for _, n := range nodes {
		if n.Wave > 0 {
			slowest[n.Wave] = max(slowest[n.Wave], time.Duration(n.Seconds)*time.Second)
		}
	}
	var sum time.Duration
	for _, d := range slowest {
		sum += d
	}
	return sum
}

// drains answers what a drain of a node would meet now.
type drains struct {
	pods    map[string][]*corev1.Pod // by node
	budgets map[string][]compiledBudget
	known   bool
}

type compiledBudget struct {
	*policyv1.PodDisruptionBudget
	match labels.Selector
}

func newDrains(c *cluster) *drains {
	d := &drains{pods: map[string][]*corev1.Pod{}, budgets: map[string][]compiledBudget{}, known: c.podsKnown}
	for i := range c.pods {
		if p := &c.pods[i]; p.Spec.NodeName != "" && evictable(p) {
			d.pods[p.Spec.NodeName] = append(d.pods[p.Spec.NodeName], p)
		}
	}
	for i := range c.budgets {
		b := &c.budgets[i]
		if b.Spec.Selector == nil {
			continue // it matches no pods
		}
		match, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			continue // the API server refuses such a budget
		}
		d.budgets[b.Namespace] = append(d.budgets[b.Namespace], compiledBudget{b, match})
	}
	for _, bs := range d.budgets {
		slices.SortFunc(bs, func(a, b compiledBudget) int { return cmp.Compare(a.Name, b.Name) })
	}
	return d
}

// evictable tells the pods a drain has to move: not those of DaemonSets, not
// static ones, not finished ones.
func evictable(p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return false
	}
	if _, static := p.Annotations[corev1.MirrorPodAnnotationKey]; static {
		return false
	}
	owner := metav1.GetControllerOfNoCopy(p)
	return owner == nil || owner.Kind != "DaemonSet"
}

// duration is how long the pods of a node may take to end.
func (d *drains) duration(node string, unknown time.Duration) time.Duration {
	if !d.known {
		return unknown
	}
	longest := time.Duration(0)
	for _, p := range d.pods[node] {
		grace := int64(30)
		if g := p.Spec.TerminationGracePeriodSeconds; g != nil {
			grace = *g
		}
		longest = max(longest, time.Duration(grace)*time.Second)
	}
	return longest
}

// blockers names what would hold up the node's drain now.
func (d *drains) blockers(node string) []Blocker {
	var out []Blocker
	held := map[string]int{} // budget → index in out
	for _, p := range d.pods[node] {
		var matching []compiledBudget
		for _, b := range d.budgets[p.Namespace] {
			if b.match.Matches(labels.Set(p.Labels)) {
				matching = append(matching, b)
			}
		}
		switch {
		case len(matching) > 1:
			out = append(out, Blocker{Pods: []string{p.Namespace + "/" + p.Name},
				Why: fmt.Sprintf("it belongs to %d PodDisruptionBudgets (%s and %s), and the eviction API refuses such pods", len(matching), matching[0].Name, matching[1].Name)})
		case len(matching) == 1:
			why := refuses(matching[0].PodDisruptionBudget, p)
			if why == "" {
				continue
			}
			name := p.Namespace + "/" + matching[0].Name
			i, ok := held[name]
			if !ok {
				i = len(out)
				held[name] = i
				out = append(out, Blocker{Budget: name, Why: why})
			}
			out[i].Pods = append(out[i].Pods, p.Namespace+"/"+p.Name)
		}
	}
	return out
}

// refuses says why the budget does not let the pod go now.
func refuses(b *policyv1.PodDisruptionBudget, p *corev1.Pod) string {
	s := b.Status
	if s.DisruptionsAllowed > 0 {
		return ""
	}
	if !ready(p) {
		always := b.Spec.UnhealthyPodEvictionPolicy != nil && *b.Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow
		if always || s.CurrentHealthy >= s.DesiredHealthy && s.DesiredHealthy > 0 {
			return ""
		}
	}
	if s.ExpectedPods == 0 {
		return "its status says nothing about these pods, so it is not known whether it lets them go"
	}
	return fmt.Sprintf("it allows 0 disruptions: %d of its %d pods are healthy and %d must be", s.CurrentHealthy, s.ExpectedPods, s.DesiredHealthy)
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
