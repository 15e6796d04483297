package controlplane

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"millwright.io/millwright/internal/engine/plan"
)

// Conditions that the planner owns, as the API promises them.
const (
	Available   = "Available"
	Degraded    = "Degraded"
	Progressing = "Progressing"
)

// Reasons of these conditions.
const (
	ReasonAllReplicasAvailable  = "AllReplicasAvailable"
	ReasonUnavailableReplicas   = "UnavailableReplicas"
	ReasonAsExpected            = "AsExpected"
	ReasonNoReadyMachines       = "NoReadyMachines"
	ReasonUnmanagedNodes        = "UnmanagedNodes"
	ReasonExcessIndexes         = "ExcessIndexes"
	ReasonFailedReplacement     = "FailedReplacement"
	ReasonMachinesAlreadyOwned  = "MachinesAlreadyOwned"
	ReasonInvalidStrategy       = "InvalidStrategy"
	ReasonInvalidSet            = "InvalidSpec" // ours: the template cannot be acted upon
	ReasonAllReplicasUpdated    = "AllReplicasUpdated"
	ReasonNeedsUpdateReplicas   = "NeedsUpdateReplicas"
	ReasonExcessReplicas        = "ExcessReplicas"
	ReasonExcessUpdatedReplicas = "ExcessUpdatedReplicas"
	ReasonOperatorDegraded      = "OperatorDegraded"
)

// status counts.
func (w world) status(in Input) Status {
	st := Status{Replicas: len(w.members), Generation: in.Set.Generation, Placed: map[string]string{}, Outdated: map[string]string{}}
	ready := 0
	for _, g := range w.groups {
		st.Ready += g.ready()
		st.Updated += g.count(func(m Member) bool { return m.Ready && g.why(m) == "" })
		if g.ready() > 0 {
			ready++
		}
		for _, m := range g.all {
			if why := g.why(m); why != "" {
				st.Outdated[m.Name] = why
			}
		}
	}
	for _, m := range w.stray {
		if m.Ready {
			st.Ready++
		}
	}
	st.Unavailable = max(0, in.Set.Replicas-ready)
	return st
}

// fault is why nothing may be moved, nil when something may.
func (w world) fault() *plan.Condition {
	if w.set.Strategy != "" && w.set.Strategy != RollingUpdate && w.set.Strategy != OnDelete {
		return degraded(ReasonInvalidStrategy, fmt.Sprintf("invalid value for spec.strategy.type: unknown update strategy: %s", w.set.Strategy))
	}
	if len(w.set.Problems) > 0 {
		return degraded(ReasonInvalidSet, strings.Join(w.set.Problems, "; "))
	}
	if len(w.foreign) > 0 {
		return degraded(ReasonMachinesAlreadyOwned, fmt.Sprintf("Observed %d machine(s) already owned by another controller: %s", len(w.foreign), names(w.foreign)))
	}
	if w.ready() == 0 {
		return degraded(ReasonNoReadyMachines, "No ready control plane machines found")
	}
	if len(w.nodes) > 0 {
		return degraded(ReasonUnmanagedNodes, fmt.Sprintf("Found %d unmanaged node(s)", len(w.nodes)))
	}
	if len(w.stray) > 0 {
		return degraded(ReasonExcessIndexes, fmt.Sprintf("Observed %d machine(s) whose name does not end in an index (-<number>): %s", len(w.stray), names(w.stray)))
	}
	if n := len(w.groups) - w.set.Replicas; n > 0 {
		return degraded(ReasonExcessIndexes, fmt.Sprintf("Observed %d index(es) in excess", n))
	}
	return nil
}

func (w world) ready() int {
	n := 0
	for _, m := range w.members {
		if m.Ready {
			n++
		}
	}
	return n
}

func names(ms []Member) string {
	out := make([]string, 0, len(ms))
	for _, m := range ms {
		out = append(out, m.Name)
	}
	return strings.Join(out, ", ")
}

func degraded(reason, message string) *plan.Condition {
	return &plan.Condition{Type: Degraded, Status: corev1.ConditionTrue, Reason: reason, Message: message}
}

// conditions returns all of them, each time.
func (w world) conditions(in Input) []plan.Condition {
	return []plan.Condition{w.available(in), w.degraded(), w.progressing()}
}

func (w world) available(in Input) plan.Condition {
	if n := w.status(in).Unavailable; n > 0 {
		return plan.Condition{Type: Available, Status: corev1.ConditionFalse, Reason: ReasonUnavailableReplicas, Message: fmt.Sprintf("Missing %d available replica(s)", n)}
	}
	return plan.Condition{Type: Available, Status: corev1.ConditionTrue, Reason: ReasonAllReplicasAvailable}
}

// degraded tells the fault, or that a replacement failed. A failed one does
// not stop the rest: deleting it is how it is tried again.
func (w world) degraded() plan.Condition {
	if f := w.fault(); f != nil {
		return *f
	}
	failed := 0
	for _, g := range w.groups {
		failed += g.count(func(m Member) bool { return m.Failed && !m.Ready && !m.Deleting && g.why(m) == "" && len(g.all) > 1 })
	}
	if failed > 0 {
		return *degraded(ReasonFailedReplacement, fmt.Sprintf("Observed %d replacement machine(s) in error state", failed))
	}
	return plan.Condition{Type: Degraded, Status: corev1.ConditionFalse, Reason: ReasonAsExpected}
}

func (w world) progressing() plan.Condition {
	if w.degraded().Status == corev1.ConditionTrue {
		return plan.Condition{Type: Progressing, Status: corev1.ConditionFalse, Reason: ReasonOperatorDegraded}
	}
	old, excess := 0, 0
	for _, g := range w.groups {
		if n := g.current(); n > 1 {
			return progress(ReasonExcessUpdatedReplicas, fmt.Sprintf("Observed %d updated machine(s) in excess for index %d", n-1, g.index))
		}
		switch {
		case g.current() == 0 || g.settled() == 0 && len(g.old()) > 0:
			old++ // missing, outdated, or the successor is still coming
		default:
			excess += len(g.all) - 1
		}
	}
	switch {
	case old > 0:
		return progress(ReasonNeedsUpdateReplicas, fmt.Sprintf("Observed %d replica(s) in need of update", old))
	case excess > 0:
		return progress(ReasonExcessReplicas, fmt.Sprintf("Waiting for %d old replica(s) to be removed", excess))
	}
	return plan.Condition{Type: Progressing, Status: corev1.ConditionFalse, Reason: ReasonAllReplicasUpdated}
}

func progress(reason, message string) plan.Condition {
	return plan.Condition{Type: Progressing, Status: corev1.ConditionTrue, Reason: reason, Message: message}
}
