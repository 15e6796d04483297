package machine

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"millwright.io/millwright/internal/engine/plan"
)

// Waits of a deletion.
const (
	wakeDrain      = 2 * time.Second  // pods are terminating
	wakeRefused    = 5 * time.Second  // an eviction was refused
	wakeOtherDrain = 20 * time.Second // another control plane Node is being drained
)

// unreachableGrace is the grace of pods whose kubelet does not answer, and
// how long their deletion is waited for.
const unreachableGrace = time.Second

// drain is where the drain of a Machine stands.
type drain struct {
	done    bool
	skipped bool
	blocked bool // by a hook
	other   bool // by another control plane Node
	missing bool // the Node is gone
	actions []plan.Action
	waitFor []PodFacts
}

// NeedsPods reports whether Decide must know the pods on the Node.
func (in Input) NeedsPods() bool {
	return in.Deleting && in.Finalizer && !in.Drained && !in.ExcludeDrain && in.Node != nil && len(in.PreDrain) == 0
}

func (in Input) drain() drain {
	switch {
	case in.Drained:
		return drain{done: true, skipped: in.ExcludeDrain || in.NodeRef == nil}
	case in.ExcludeDrain || in.NodeRef == nil:
		return drain{done: true, skipped: true}
	case len(in.PreDrain) > 0:
		return drain{blocked: true}
	case in.Node == nil:
		return drain{done: true, missing: true}
	case in.Node.ControlPlane && !in.Node.Unschedulable && in.OtherControlPlaneCordon:
		return drain{other: true}
	}
	return in.evictions()
}

func (in Input) evictions() drain {
	var dr drain
	unreachable := in.Node.Ready == corev1.ConditionUnknown
	grace := time.Duration(-1)
	if unreachable {
		grace = unreachableGrace
	}
	if !in.Node.Unschedulable {
		dr.actions = append(dr.actions, plan.CordonNode{Node: in.Node.Name, By: "machine/" + in.Name})
	}
	pods := slices.Clone(in.Pods)
	slices.SortFunc(pods, func(a, b PodFacts) int {
		if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	for _, p := range pods {
		switch {
		case p.Mirror, p.DaemonSet, p.Finished:
			continue
		case !p.Deleted.IsZero():
			if unreachable && in.Now.Sub(p.Deleted) > unreachableGrace {
				continue
			}
		default:
			dr.actions = append(dr.actions, plan.EvictPod{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Grace: grace})
		}
		dr.waitFor = append(dr.waitFor, p)
	}
	dr.done = len(dr.waitFor) == 0 && in.Node.Unschedulable
	return dr
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

func draining(in Input, d plan.Decision[Status], dr drain) plan.Decision[Status] {
	d.Notes = note(d.Notes, in.Name+": waiting for node to be drained before deleting instance")
	switch {
	case dr.blocked:
		return d // the hook's removal is an event
	case dr.other:
		d.Notes = note(d.Notes, in.Name+": drain not permitted: requeue in: 20s")
		d.Wake = wakeOtherDrain
		return d
	case in.Evicted.Tried && in.Evicted.Error != "":
		d.Wake = wakeRefused
		return d
	case in.Evicted.Tried:
		d.Wake = wakeDrain
		return d
	}
	d.Actions = append(d.Actions, dr.actions...)
	d.Wake = wakeDrain
	return d
}

func drainEvents(in Input, dr drain) []plan.Event {
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
	case in.Evicted.Error != "":
		evs = append(evs, normal("DrainRequeued", "Node drain requeued: "+in.Evicted.Error))
	}
	return evs
}
