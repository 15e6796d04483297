package drain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/act"
	"millwright.io/millwright/internal/dialect/machineconfig/fragment"
	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/engine/rollout"
	"millwright.io/millwright/internal/kube"
)

// memory returns what is remembered of a Node's present request.
func (c *controller) memory(node *corev1.Node) *memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := node.Annotations[wire.AnnotationDesiredDrain]
	m := c.nodes[node.Name]
	if m == nil || m.asked != asked {
		m = &memory{asked: asked}
		c.nodes[node.Name] = m
	}
	return m
}

func (c *controller) forget(node string) {
	c.settled(node)
	failing().DeleteLabelValues(node)
}

// settled drops what is remembered of a Node that asks for nothing.
func (c *controller) settled(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.nodes, node)
}

// fresh returns the notes that are no repetition.
func (c *controller) fresh(m *memory, d plan.Decision[rollout.DrainStatus]) []plan.Note {
	if d.Status.Phase == rollout.PhaseUnknown {
		if m.unknown == d.Status.Unknown {
			return nil
		}
		m.unknown = d.Status.Unknown
	}
	return d.Notes
}

// report tells what came of a step: events, the alert, the Node's own note of
// its blockers and its MachineConfigNode.
func (c *controller) report(ctx context.Context, node *corev1.Node, out act.Outcome, m *memory, d plan.Decision[rollout.DrainStatus], actErr error) error {
	after, ok := out.Object.(*corev1.Node)
	if !ok {
		return fmt.Errorf("report to a %T", out.Object)
	}
	if after.ResourceVersion != node.ResourceVersion {
		c.recent.Wrote(after)
	}
	if actErr != nil {
		return nil // it is told by the error
	}
	evs := append(d.Events, c.complaints(node.Name, m, d.Status)...)
	kube.RecordEvents(c.Recorder, fragment.Involved(node), evs)
	measure(node.Name, d.Status)
	noteErr := c.note(ctx, after, d.Status)
	return errors.Join(noteErr, c.record(ctx, node, m, d.Status))
}

// complaints are the events about a drain that waits, each once.
func (c *controller) complaints(node string, m *memory, s rollout.DrainStatus) []plan.Event {
	var evs []plan.Event
	warn := func(reason, message string) {
		evs = append(evs, plan.Event{Type: plan.Warning, Reason: reason, Message: message})
	}
	if s.Blocked != m.told && s.Blocked != "" {
		if m.since.IsZero() {
			m.since = c.Clock.Now()
		}
		warn(wire.ReasonDrainBlocked, "Drain waits: "+s.Blocked)
	}
	if s.Blocked == "" {
		m.since = time.Time{}
	}
	m.told = s.Blocked
	if s.Slow && !m.slow {
		m.slow = true
		warn(wire.ReasonDrainThresholdExceeded, wire.TextDrainSlow(s.Blocked))
	}
	if s.Late > 0 && !m.late {
		m.late = true
		warn(wire.ReasonDrainFailed, wire.TextDrainLate(node, rollout.LateAfter))
	}
	return evs
}

// note keeps the Node's own note of what its drain waits for.
func (c *controller) note(ctx context.Context, node *corev1.Node, s rollout.DrainStatus) error {
	if s.Phase != rollout.PhaseDrain || node.Annotations[wire.AnnotationDrainBlocked] == s.Blocked {
		return nil
	}
	after := node.DeepCopy()
	if s.Blocked == "" {
		delete(after.Annotations, wire.AnnotationDrainBlocked)
	} else {
		after.Annotations[wire.AnnotationDrainBlocked] = s.Blocked
	}
	if err := kube.Patch(ctx, c.Client, node, after); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("note blockers on node %s: %w", node.Name, err))
	}
	c.recent.Wrote(after)
	return nil
}

// record keeps the conditions of the Node's MachineConfigNode, if there is
// one. Cordon and drain are told together, since the cordon alone lasts for a
// moment; those of a Node with nothing to evict are told at the uncordon.
func (c *controller) record(ctx context.Context, n *corev1.Node, m *memory, s rollout.DrainStatus) error {
	node := n.Name
	if s.Phase == rollout.PhaseDrained && !m.long {
		return nil
	}
	m.long = m.long || s.Phase == rollout.PhaseDrain
	conds := conditions(node, s)
	if last := n.Annotations[wire.AnnotationLastAppliedDrain]; s.Phase == rollout.PhaseUncordon && strings.HasPrefix(last, rollout.VerbDrain+"-") {
		conds = append(conditions(node, rollout.DrainStatus{Phase: rollout.PhaseDrained}), conds...)
	}
	if len(conds) == 0 {
		return nil
	}
	var mcn machineconfigv1.MachineConfigNode
	if err := c.Client.Get(ctx, client.ObjectKey{Name: node}, &mcn); err != nil {
		return client.IgnoreNotFound(err)
	}
	after := mcn.DeepCopy()
	after.Status.Conditions = kube.SetConditions(mcn.Status.Conditions, conds, mcn.Generation, c.Clock.Now())
	err := kube.PatchStatus(ctx, c.Client, &mcn, after, kube.OptimisticLock())
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the agent writes it too, and the Node says the same
	}
	return err
}

// conditions are what a MachineConfigNode says of a phase.
func conditions(node string, s rollout.DrainStatus) []plan.Condition {
	cond := func(kind machineconfigv1.StateProgress, status corev1.ConditionStatus, reason, message string) plan.Condition {
		return plan.Condition{Type: string(kind), Status: status, Reason: reason, Message: message}
	}
	cordoned := cond(machineconfigv1.MachineConfigNodeUpdateCordoned, corev1.ConditionTrue, wire.ReasonExecutedCordoned, fmt.Sprintf("Node %s is cordoned", node))
	switch s.Phase {
	case rollout.PhaseDrain:
		text := fmt.Sprintf("Node %s is being drained", node)
		if s.Blocked != "" {
			text = "Error: " + s.Blocked
		}
		return []plan.Condition{
			cond(machineconfigv1.MachineConfigNodeUpdateExecuted, corev1.ConditionUnknown, wire.ReasonDrained, text), cordoned,
			cond(machineconfigv1.MachineConfigNodeUpdateDrained, corev1.ConditionUnknown, wire.ReasonExecutedDrained, text),
		}
	case rollout.PhaseDrained:
		text := fmt.Sprintf("Node %s is drained", node)
		return []plan.Condition{
			cond(machineconfigv1.MachineConfigNodeUpdateExecuted, corev1.ConditionUnknown, wire.ReasonDrained, text), cordoned,
			cond(machineconfigv1.MachineConfigNodeUpdateDrained, corev1.ConditionTrue, wire.ReasonExecutedDrained, text),
		}
	case rollout.PhaseUncordon:
		text := fmt.Sprintf("Node %s is uncordoned", node)
		return []plan.Condition{
			cond(machineconfigv1.MachineConfigNodeUpdateComplete, corev1.ConditionTrue, wire.ReasonUncordoned, text),
			cond(machineconfigv1.MachineConfigNodeUpdateUncordoned, corev1.ConditionTrue, wire.ReasonCompleteUncordoned, text),
		}
	case rollout.PhaseIdle, rollout.PhaseCordon, rollout.PhaseUnknown, rollout.PhaseForgotten:
	}
	return nil
}
