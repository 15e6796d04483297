package kube

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright.io/millwright/internal/engine/plan"
)

// SetConditions returns current with the owned conditions brought up to date:
// lastTransitionTime moves only when a status changes, conditions of others
// stay, the order of current is kept and new ones follow in their own order.
// current is not changed. An empty reason becomes the condition's type, since
// the API wants one.
func SetConditions(current []metav1.Condition, owned []plan.Condition, generation int64, now time.Time) []metav1.Condition {
	out := slices.Clone(current)
	for _, o := range owned {
		next := metav1.Condition{
			Type: o.Type, Status: metav1.ConditionStatus(o.Status), Reason: o.Reason, Message: o.Message,
			ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		}
		if next.Reason == "" {
			next.Reason = o.Type
		}
		i := slices.IndexFunc(out, func(c metav1.Condition) bool { return c.Type == o.Type })
		if i < 0 {
			out = append(out, next)
			continue
		}
		if out[i].Status == next.Status {
			next.LastTransitionTime = out[i].LastTransitionTime
		}
		out[i] = next
	}
	return out
}

// Condition returns the condition of a type, nil when there is none.
func Condition(conditions []metav1.Condition, kind string) *metav1.Condition {
	for i := range conditions {
		if conditions[i].Type == kind {
			return &conditions[i]
		}
	}
	return nil
}

// NodeReady reports the Ready condition of a Node; Unknown when it has none.
func NodeReady(n *corev1.Node) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return corev1.ConditionUnknown
}
