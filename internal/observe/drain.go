package observe

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/engine/drain"
)

// Drainees reduces pods to what a drain decides on.
func Drainees(pods []corev1.Pod) []drain.Pod {
	out := make([]drain.Pod, 0, len(pods))
	for i := range pods {
		out = append(out, drainee(&pods[i]))
	}
	return out
}

func drainee(p *corev1.Pod) drain.Pod {
	f := drain.Pod{
		Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Labels: p.Labels,
		Finished: p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		Pending:  p.Status.Phase == corev1.PodPending,
	}
	_, f.Mirror = p.Annotations[corev1.MirrorPodAnnotationKey]
	if ref := metav1.GetControllerOfNoCopy(p); ref != nil {
		f.Owner, f.DaemonSet = ref.Kind+"/"+ref.Name, ref.Kind == "DaemonSet"
	}
	if p.Spec.Priority != nil {
		f.Priority = *p.Spec.Priority
	}
	for i := range p.Spec.Volumes {
		f.LocalStorage = f.LocalStorage || p.Spec.Volumes[i].EmptyDir != nil
	}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
			f.Ready = c.Status == corev1.ConditionTrue
		}
	}
	if p.DeletionTimestamp != nil {
		f.Deleted = p.DeletionTimestamp.Time
	}
	return f
}

// Budgets lists the disruption budgets that may hold these pods back. Hand it
// a reader that asks the server: a budget is charged by every eviction.
func Budgets(ctx context.Context, r client.Reader, pods []drain.Pod) ([]drain.Budget, error) {
	spaces := map[string]bool{}
	for _, p := range pods {
		if !p.Mirror && !p.DaemonSet && !p.Finished {
			spaces[p.Namespace] = true
		}
	}
	if len(spaces) == 0 {
		return nil, nil
	}
	var opts []client.ListOption
	if len(spaces) == 1 {
		for ns := range spaces {
			opts = append(opts, client.InNamespace(ns))
		}
	}
	var list policyv1.PodDisruptionBudgetList
	if err := r.List(ctx, &list, opts...); err != nil {
		return nil, fmt.Errorf("list disruption budgets: %w", err)
	}
	var out []drain.Budget
	for i := range list.Items {
		b := &list.Items[i]
		if !spaces[b.Namespace] {
			continue
		}
		s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			continue // the server counts it for no pod either
		}
		out = append(out, drain.Budget{
			Namespace: b.Namespace, Name: b.Name, Selector: s,
			Allowed: b.Status.DisruptionsAllowed, Healthy: b.Status.CurrentHealthy, Desired: b.Status.DesiredHealthy,
			AlwaysAllow: b.Spec.UnhealthyPodEvictionPolicy != nil && *b.Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow,
			Stale:       b.Status.ObservedGeneration < b.Generation,
		})
	}
	return out, nil
}
