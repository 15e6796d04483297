// Package machine decides for one Machine, whatever API it comes from: its
// phase and conditions, when its Node may be drained, when its infrastructure
// may go, and when it is over. It is pure. It sees the infrastructure as Infra
// only; Decide serves owners of a separate infrastructure object, DecideOwner
// those that own the cloud instance themselves.
//
// It must never let the infrastructure go before the drain has ended, remove
// the Node before the infrastructure is gone, or remove the finalizer before
// both; nor call a Machine Running that has no Node.
package machine

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/engine/drain"
	"millwright.io/millwright/internal/engine/instance"
	"millwright.io/millwright/internal/engine/plan"
)

// Phase is where a Machine is in its life; empty before it was looked at.
type Phase string

// Phases.
const (
	Provisioning Phase = "Provisioning"
	Provisioned  Phase = "Provisioned"
	Running      Phase = "Running"
	Deleting     Phase = "Deleting"
	Failed       Phase = "Failed"
)

// Hook is somebody's veto against a step of the deletion.
type Hook struct{ Name, Owner string }

// NodeRef is the recorded link to a Node.
type NodeRef struct{ Name, UID string }

// NodeFacts is the Node that NodeRef names, as it is now.
type NodeFacts struct {
	Name, UID     string
	Ready         corev1.ConditionStatus
	Unschedulable bool
	ControlPlane  bool
	Off           bool // the cloud says that the instance does not run; only asked while NeedsProof
}

// PodFacts is one pod on the Node.
type PodFacts = drain.Pod

// Infra is the infrastructure under a Machine.
type Infra struct {
	Presence   instance.Presence
	ProviderID string
	Addresses  []corev1.NodeAddress
	State      cloud.State
	Outlook    instance.Outlook
	Fault      *cloud.Fault
	Op         instance.Op
	Fresh      bool // the fault came now
	Repeat     bool // with a text that was known already
	Did        instance.Done
	Gone       bool // nothing is left of it
}

// Input is one Machine.
type Input struct {
	Name                    string
	Phase                   Phase  // as recorded
	ErrorReason             string // as recorded
	ErrorMessage            string
	Deleting                bool
	Finalizer               bool
	ExcludeDrain            bool // the admin wants no drain
	Drained                 bool // recorded: the drain has ended
	PreDrain, PreTerminate  []Hook
	NodeRef                 *NodeRef
	Node                    *NodeFacts // nil: there is none, or no NodeRef
	OtherControlPlaneCordon bool       // another control plane Node is cordoned
	Pods                    []PodFacts // on the Node; only asked while NeedsPods
	Budgets                 []drain.Budget
	DrainTold               string    // message of the recorded condition Drained=False
	DrainSince              time.Time // of that condition
	Evicted                 Eviction  // what came of the evictions of this reconcile
	Infra                   Infra
	Now                     time.Time
}

// Eviction is the result of this reconcile's drain actions.
type Eviction struct {
	Tried    bool
	Cordoned bool // the Node was cordoned just now
	Refused  []drain.Refusal
	Error    string // a call that failed; empty: all were answered
}

// Status is what is known about the Machine.
type Status struct {
	Phase        Phase
	ErrorReason  string
	ErrorMessage string
	// Goal is what the Machine wants of its infrastructure.
	Goal instance.Goal
	// Instance is only filled by DecideOwner.
	Instance instance.Status
}

// Goal returns what the Machine wants of its infrastructure now.
func (in Input) Goal() instance.Goal {
	switch {
	case !in.Deleting && in.Phase == "":
		return instance.Hold // Provisioning is shown before anything is made
	case !in.Deleting:
		return instance.Keep
	case in.drain().done && len(in.PreTerminate) == 0:
		return instance.Remove
	}
	return instance.Hold
}

// Buried reports that the Machine failed in a way that only a new Machine
// cures: its instance vanished, or came up broken.
func (in Input) Buried() bool {
	return in.Phase == Failed && in.ErrorReason != ReasonInvalidConfiguration
}

// Decide returns the next step of a Machine.
func Decide(in Input) plan.Decision[Status] {
	d := plan.Decision[Status]{Status: Status{Goal: in.Goal()}}
	if in.Deleting {
		return deleting(in, d)
	}
	if !in.Finalizer {
		d.Actions = []plan.Action{plan.AddFinalizer{}}
	}
	d.Notes = note(d.Notes, in.Name+": reconciling Machine")
	if in.Buried() {
		d.Notes = note(d.Notes, in.Name+`: machine has gone "Failed" phase. It won't reconcile`)
	}
	d.Status.Phase, d.Status.ErrorReason, d.Status.ErrorMessage = phase(in)
	d.Conditions = conditions(in, drainage{})
	d.Events, d.Notes = told(in, d.Events, d.Notes)
	d.Wake = wake(in, d.Status.Phase)
	return d
}

// DecideOwner decides for a Machine that owns its instance itself.
func DecideOwner(in Input, own instance.Input) plan.Decision[Status] {
	own.Goal, own.Finalizer, own.Now = in.Goal(), in.Finalizer, in.Now
	own.Joined = in.NodeRef != nil
	if !in.Deleting && in.Buried() {
		own.Buried = instance.Lost
		if in.ErrorReason == ReasonCreateError {
			own.Buried = instance.Broken
		}
	}
	di := instance.Decide(own)
	in.Infra = infraOf(di.Status)
	d := Decide(in)
	d.Status.Instance = di.Status
	d.Actions = append(d.Actions, di.Actions...)
	d.Wake = sooner(d.Wake, di.Wake)
	return d
}

// DrainedBy returns the input as it is after these actions were performed;
// refused are evictions that the server turned down, failed is why another
// action was not performed, empty when all were.
func (in Input) DrainedBy(done []plan.Action, refused []drain.Refusal, failed string) Input {
	for _, a := range done {
		switch a.(type) {
		case plan.CordonNode:
			in.Evicted.Tried = true
			if in.Node != nil {
				n := *in.Node
				n.Unschedulable = true
				in.Node, in.Evicted.Cordoned = &n, true
			}
		case plan.EvictPod, plan.DeletePod:
			in.Evicted.Tried = true
		}
	}
	in.Evicted.Refused = append(in.Evicted.Refused, refused...)
	if failed != "" {
		in.Evicted.Tried, in.Evicted.Error = true, failed
	}
	return in
}

// Asks reports whether DecideOwner needs to know what the cloud has.
func Asks(in Input) bool { return in.Deleting && in.Finalizer || !in.Deleting && !in.Buried() }

func infraOf(s instance.Status) Infra {
	i := Infra{
		Presence: s.Presence, Outlook: s.Outlook, Fault: s.Fault, Op: s.Op,
		Fresh: s.Fresh, Repeat: s.Last.Repeat, Did: s.Did, Gone: s.Gone,
	}
	if s.Instance != nil {
		i.ProviderID, i.Addresses, i.State = s.Instance.ProviderID, s.Instance.Addresses, s.Instance.State
	}
	return i
}

// phase returns the phase of a Machine that is wanted, with its error.
func phase(in Input) (p Phase, reason, message string) {
	p = in.Phase
	if p == "" || p == Failed || p == Deleting {
		p = Provisioning
	}
	switch {
	case in.Buried():
		return Failed, in.ErrorReason, in.ErrorMessage
	case in.Infra.Outlook == instance.Lost:
		return Failed, "", TextLost
	case in.Infra.Outlook == instance.Broken:
		return Failed, ReasonCreateError, TextBroken
	case in.Infra.Outlook == instance.Failed:
		return Failed, ReasonInvalidConfiguration, in.Infra.Fault.Error()
	}
	p = alive(in, p)
	if in.Infra.Outlook == instance.Waiting && p != Running {
		message = in.Infra.Fault.Error()
	}
	return p, "", message
}

// alive returns the phase of a Machine that nothing has ended; p is the one
// it had.
func alive(in Input, p Phase) Phase {
	known := in.Infra.ProviderID != "" || len(in.Infra.Addresses) > 0
	switch {
	case in.Infra.Presence == instance.Absent:
		return Provisioning
	case in.Infra.Presence == instance.Present && in.NodeRef != nil:
		return Running
	case in.Infra.Presence == instance.Present && known:
		return Provisioned
	case p == Running && in.NodeRef == nil:
		return Provisioned
	}
	return p
}

// Waits between looks while nothing reports by itself.
const (
	wakeFirst  = 5 * time.Second  // after the first look; the phase's own event comes sooner
	wakeJoin   = 30 * time.Second // an instance that is to become a Node, a Node that is not Ready
	wakeSteady = 10 * time.Minute // everything is fine: notice what vanished quietly
)

func wake(in Input, p Phase) time.Duration {
	switch {
	case in.Infra.Outlook == instance.Waiting, in.Infra.Outlook == instance.Failed:
		return 0 // the infrastructure says when
	case p == Failed:
		return 0
	case in.Phase == "":
		return wakeFirst
	case p == Running && in.Node != nil && in.Node.Ready == corev1.ConditionTrue:
		return wakeSteady
	}
	return wakeJoin
}

func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
