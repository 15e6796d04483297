package pool

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	"millwright.io/millwright/internal/engine/drain"
	"millwright.io/millwright/internal/engine/rollout"
	"millwright.io/millwright/internal/observe"
)

// survey is what stood on a pool's nodes when its rollout began, or a while
// ago: one list of all pods instead of one for each node.
type survey struct {
	target   string
	at       time.Time
	pods     map[string]int      // that a drain would move
	blockers map[string][]string // what would hold it up
	operator string              // the Node of the operator
}

const (
	surveyAge   = 5 * time.Minute
	gateRecheck = 15 * time.Second
	page        = 500
)

// observeLive reads what no cache holds: only while there is something to
// roll out.
func (c *controller) observeLive(ctx context.Context, live client.Reader, p *picture, m *memory) error {
	if !behind(p.in) {
		m.survey = survey{}
		return nil
	}
	s, now := &m.survey, p.in.Now
	stale := s.target != p.in.Pool.Target || !p.in.Pool.Paused && now.Sub(s.at) >= surveyAge
	if stale {
		next, err := look(ctx, live, p)
		if err != nil {
			// A rollout does without the forecast; a drain asks again anyway.
			c.Log.Info("Forecasting drains", "reason", err.Error())
			next = survey{}
		}
		next.target, next.at = p.in.Pool.Target, now
		m.survey = next
	}
	for i := range p.in.Nodes {
		n := &p.in.Nodes[i]
		n.Pods, n.Blockers, n.Operator = s.pods[n.Name], s.blockers[n.Name], n.Name == s.operator
	}
	if !p.in.Pool.Paused {
		p.recheck = surveyAge
	}
	return c.observeWorkloads(ctx, live, p)
}

func behind(in rollout.Input) bool {
	for i := range in.Nodes {
		if n := &in.Nodes[i]; n.Desired != in.Pool.Target || n.Current != n.Desired || n.DesiredImage != "" {
			return in.Pool.Target != ""
		}
	}
	return false
}

// look lists pods and budgets.
func look(ctx context.Context, live client.Reader, p *picture) (survey, error) {
	s := survey{pods: map[string]int{}, blockers: map[string][]string{}}
	mine := map[string]bool{}
	for i := range p.in.Nodes {
		mine[p.in.Nodes[i].Name] = true
	}
	byNode := map[string][]drain.Pod{}
	var all []drain.Pod
	var more string
	for {
		var list corev1.PodList
		if err := live.List(ctx, &list, client.Limit(page), client.Continue(more)); err != nil {
			return s, fmt.Errorf("list pods: %w", err)
		}
		for i, d := range observe.Drainees(list.Items) {
			pod := &list.Items[i]
			if pod.Namespace == wire.Namespace && pod.Labels[wire.LabelOperatorPod] == wire.LabelOperatorValue {
				s.operator = pod.Spec.NodeName
			}
			if mine[pod.Spec.NodeName] && !d.Mirror && !d.DaemonSet && !d.Finished {
				byNode[pod.Spec.NodeName] = append(byNode[pod.Spec.NodeName], d)
				all = append(all, d)
				s.pods[pod.Spec.NodeName]++
			}
		}
		if more = list.Continue; more == "" {
			break
		}
	}
	budgets, err := observe.Budgets(ctx, live, all)
	if err != nil {
		return s, err
	}
	bySpace := map[string][]drain.Budget{}
	for _, b := range budgets {
		bySpace[b.Namespace] = append(bySpace[b.Namespace], b)
	}
	for node, pods := range byNode {
		s.blockers[node] = forecast(node, pods, bySpace, p.in.Now)
	}
	return s, nil
}

// forecast names what would hold up the drain of a node now. That two pods of
// one budget go one after the other is no blocker.
func forecast(node string, pods []drain.Pod, bySpace map[string][]drain.Budget, now time.Time) []string {
	in := drain.Input{Node: drain.Node{Name: node}, Pods: pods, Now: now}
	spaces := map[string]bool{}
	for i := range pods {
		if ns := pods[i].Namespace; !spaces[ns] {
			spaces[ns] = true
			in.Budgets = append(in.Budgets, bySpace[ns]...)
		}
	}
	if len(in.Budgets) == 0 {
		return nil
	}
	var out []string
	for _, v := range drain.Decide(in).Status.Blocked {
		spent := v.Why != drain.WhyBudget
		for _, b := range bySpace[v.Pod.Namespace] {
			spent = spent || slices.Contains(v.Budgets, b.Name) && (b.Allowed <= 0 || b.Stale)
		}
		if spent {
			out = append(out, fmt.Sprintf("pod %s/%s: %s", v.Pod.Namespace, v.Pod.Name, why(v)))
		}
	}
	return out
}

func why(v drain.Verdict) string {
	text := string(v.Why)
	if len(v.Budgets) > 0 {
		text += " " + strings.Join(v.Budgets, ", ")
	}
	if v.Why == drain.WhyBudget {
		text += " allows no disruption"
	}
	return text
}

// observeWorkloads asks after the workloads that gate the waves. Nobody tells
// when they change, so they are asked again.
func (c *controller) observeWorkloads(ctx context.Context, live client.Reader, p *picture) error {
	s := p.in.Pool.Settings
	if s == nil || len(s.Workloads) == 0 || p.in.Pool.Paused {
		return nil
	}
	p.in.Workloads = map[string]string{}
	p.recheck = gateRecheck
	for _, w := range s.Workloads {
		ns, kind, name, err := rollout.SplitWorkload(w)
		if err != nil {
			continue // the settings were checked
		}
		text, err := health(ctx, live, kind, client.ObjectKey{Namespace: ns, Name: name})
		if err != nil {
			return fmt.Errorf("read %s: %w", w, err)
		}
		p.in.Workloads[w] = text
	}
	return nil
}

// health says what is wrong with a workload; empty: nothing.
func health(ctx context.Context, live client.Reader, kind string, key client.ObjectKey) (string, error) {
	var want, have int32
	var current bool
	var err error
	switch kind {
	case "Deployment":
		var d appsv1.Deployment
		err = live.Get(ctx, key, &d)
		want, have, current = replicas(d.Spec.Replicas), d.Status.AvailableReplicas, d.Status.ObservedGeneration >= d.Generation
	case "StatefulSet":
		var d appsv1.StatefulSet
		err = live.Get(ctx, key, &d)
		want, have, current = replicas(d.Spec.Replicas), d.Status.ReadyReplicas, d.Status.ObservedGeneration >= d.Generation
	case "DaemonSet":
		var d appsv1.DaemonSet
		err = live.Get(ctx, key, &d)
		want, have, current = d.Status.DesiredNumberScheduled, d.Status.NumberAvailable, d.Status.ObservedGeneration >= d.Generation
	}
	switch {
	case apierrors.IsNotFound(err):
		return "there is none", nil
	case err != nil:
		return "", err
	case !current:
		return "its status is not up to date", nil
	case have < want:
		return fmt.Sprintf("%d of %d available", have, want), nil
	}
	return "", nil
}

func replicas(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}
