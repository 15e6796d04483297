package machine

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"millwright.io/millwright/internal/engine/drain"
	"millwright.io/millwright/internal/engine/plan"
)

// Waits of a deletion.
const (
	wakeRefused    = 5 * time.Second  // a cordon or a call of the eviction API failed
	wakeOtherDrain = 20 * time.Second // another control plane Node is being drained
)

// drainage is where the drain of a Machine stands.
type drainage struct {
	done    bool
	skipped bool
	blocked bool // by a hook
	other   bool // by another control plane Node
	missing bool // the Node is gone
	actions []plan.Action
	status  drain.Status
	wake    time.Duration
}

// NeedsPods reports whether Decide must know the pods on the Node.
func (in Input) NeedsPods() bool {
	return in.Deleting && in.Finalizer && !in.Drained && !in.ExcludeDrain && in.Node != nil && len(in.PreDrain) == 0
}

// NeedsProof reports whether Decide must know if the cloud says that the
// instance does not run: a Node that is silent may still run its pods.
func (in Input) NeedsProof() bool {
	return in.NeedsPods() && in.Node.Ready == corev1.ConditionUnknown && len(in.Pods) > 0
}

func (in Input) drain() drainage {
	switch {
	case in.Drained:
		return drainage{done: true, skipped: in.ExcludeDrain || in.NodeRef == nil}
	case in.ExcludeDrain || in.NodeRef == nil:
		return drainage{done: true, skipped: true}
	case len(in.PreDrain) > 0:
		return drainage{blocked: true}
	case in.Node == nil:
		return drainage{done: true, missing: true}
	case in.Node.ControlPlane && !in.Node.Unschedulable && in.OtherControlPlaneCordon:
		return drainage{other: true}
	}
	return in.evictions()
}

func (in Input) evictions() drainage {
	d := drain.Decide(drain.Input{
		Node:    drain.Node{Name: in.Node.Name, Unreachable: in.Node.Ready == corev1.ConditionUnknown, Off: in.Node.Off},
		Pods:    in.Pods,
		Budgets: in.Budgets,
		Refused: in.Evicted.Refused,
		Since:   in.DrainSince,
		Now:     in.Now,
	})
	dr := drainage{actions: d.Actions, status: d.Status, wake: d.Wake}
	if !in.Node.Unschedulable {
		dr.actions = append([]plan.Action{plan.CordonNode{Node: in.Node.Name, By: "machine/" + in.Name}}, dr.actions...)
	}
	dr.done = d.Status.Done && in.Node.Unschedulable
	return dr
}

// trouble says what keeps the drain from its end; empty: nothing but time.
func (in Input) trouble(dr drainage) string {
	if in.Evicted.Error != "" {
		return in.Evicted.Error
	}
	return dr.status.Text()
}

// deleting goes drain, infrastructure, Node, finalizer.
func deleting(in Input, d plan.Decision[Status]) plan.Decision[Status] {
	if !in.Finalizer {
		d.Status.Phase, d.Status.ErrorReason, d.Status.ErrorMessage = in.Phase, in.ErrorReason, in.ErrorMessage
		return d
	}
	d.Status.Phase = Deleting
	if f := in.Infra.Fault; f != nil {
		d.Status.ErrorMessage = f.Error()
	}
	dr := in.drain()
	d.Conditions = conditions(in, dr)
	d.Notes = note(d.Notes, in.Name+": reconciling Machine")
	d.Events = drainEvents(in, dr)
	d.Events, d.Notes = told(in, d.Events, d.Notes)
	switch {
	case !dr.done:
		return draining(in, d, dr)
	case len(in.PreTerminate) > 0:
		d.Notes = note(d.Notes, in.Name+": not deleting machine: lifecycle blocked by pre-terminate hook")
		return d
	case !in.Infra.Gone:
		return d
	}
	if in.Node != nil {
		d.Actions = append(d.Actions, plan.DeleteNode{Node: in.Node.Name, UID: in.Node.UID})
	}
	d.Actions = append(d.Actions, plan.RemoveFinalizer{})
	d.Notes = note(d.Notes, in.Name+": machine deletion successful")
	return d
}

func draining(in Input, d plan.Decision[Status], dr drainage) plan.Decision[Status] {
	d.Notes = note(d.Notes, in.Name+": waiting for node to be drained before deleting instance")
	switch {
	case dr.blocked:
		return d // the hook's removal is an event
	case dr.other:
		d.Notes = note(d.Notes, in.Name+": drain not permitted: requeue in: 20s")
		d.Wake = wakeOtherDrain
		return d
	case in.Evicted.Error != "":
		d.Wake = wakeRefused
		return d
	case !in.Evicted.Tried:
		d.Actions = append(d.Actions, dr.actions...)
	}
	d.Wake = dr.wake
	return d
}

func drainEvents(in Input, dr drainage) []plan.Event {
	normal := func(reason, message string) plan.Event {
		return plan.Event{Type: plan.Normal, Reason: reason, Action: "Drain", Message: message}
	}
	var evs []plan.Event
	if in.Evicted.Cordoned {
		evs = append(evs, normal("DrainProceeds", "Node drain proceeds"))
	}
	switch {
	case in.Drained: // told when it was recorded
	case dr.skipped:
		evs = append(evs, normal("DrainSkipped", TextDrainSkipped))
	case dr.blocked && in.Phase != Deleting:
		evs = append(evs, normal("DrainBlocked", "Drain blocked by pre-drain hook"))
	case dr.done:
		evs = append(evs,
			normal("Deleted", `Node "`+in.NodeRef.Name+`" drained`),
			normal("DrainSucceeded", "Node drain succeeded"))
	default:
		// What the condition says already was told when it was recorded.
		if text := in.trouble(dr); text != "" && textDrainError+text != in.DrainTold {
			evs = append(evs, normal("DrainRequeued", "Node drain requeued: "+text))
		}
	}
	return evs
}
