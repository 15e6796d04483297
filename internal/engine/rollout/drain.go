package rollout

import (
	"fmt"
	"strings"
	"time"

	"millwright.io/millwright/internal/engine/drain"
	"millwright.io/millwright/internal/engine/plan"
)

// Verbs of what an agent asks for: verb, dash, name of a config.
const (
	VerbDrain    = "drain"
	VerbUncordon = "uncordon"
)

// Who cordoned a node: we, or, noted when a drain found a cordon that was
// there before, somebody else.
const (
	CordonedByUs    = "machine-config-controller"
	CordonedByOther = "somebody-else"
)

// OwnCordon says whether a cordoned node's cordon is one of ours: its note
// says so, or, where there is none, the drain that was answered last shows
// that it was made for one.
func OwnCordon(cordonedBy, lastApplied string) bool {
	if cordonedBy == "" {
		return strings.HasPrefix(lastApplied, VerbDrain+"-")
	}
	return cordonedBy == CordonedByUs
}

// Forget returns what becomes of the note of who cordoned a node that somebody
// uncordoned: the next cordon is theirs, although the last drain may have been
// answered and not been taken back.
func Forget(cordonedBy, lastApplied string) string {
	switch {
	case cordonedBy != CordonedByUs && cordonedBy != CordonedByOther:
		return cordonedBy
	case OwnCordon("", lastApplied):
		return CordonedByOther
	}
	return ""
}

// Drainee is a node whose agent asks to be drained or uncordoned.
type Drainee struct {
	Name        string
	Unreachable bool // its kubelet does not answer
	Cordoned    bool
	CordonedBy  string
	Desired     string // what it asks for
	Last        string // what it was told last
	// Started is when its drain began; zero: it did not.
	Started time.Time
	// Blocked is what it says of its blockers.
	Blocked string
}

// DrainInput is a node and, where NeedsPods says so, what stands on it.
type DrainInput struct {
	Now     time.Time
	Node    Drainee
	Pods    []drain.Pod
	Budgets []drain.Budget
	Refused []drain.Refusal
	// Since is when the drain was first found blocked.
	Since time.Time
}

// DrainStatus is where a drain stands.
type DrainStatus struct {
	Phase   DrainPhase
	Done    bool
	Blocked string // what it waits for, pod by pod; empty: nothing but time
	// Late is how long it has taken beyond what alerts wait for; 0: not yet.
	Late time.Duration
	// Slow says that it has been failing for long enough to say so.
	Slow bool
	// Unknown is a verb that nobody knows.
	Unknown string
}

// DrainPhase is what happens to the node.
type DrainPhase string

// Phases.
const (
	PhaseIdle      DrainPhase = ""
	PhaseCordon    DrainPhase = "Cordon"
	PhaseDrain     DrainPhase = "Drain"
	PhaseDrained   DrainPhase = "Drained"
	PhaseUncordon  DrainPhase = "Uncordon"
	PhaseUnknown   DrainPhase = "Unknown"
	PhaseForgotten DrainPhase = "Forgotten"
)

// When people are told about a drain that does not end.
const (
	SlowAfter = 10 * time.Minute
	LateAfter = time.Hour
)

// NeedsPods says whether the decision depends on what stands on the node.
func (n Drainee) NeedsPods() bool {
	return n.Desired != n.Last && n.verb() == VerbDrain && n.Cordoned && !n.newForeign()
}

func (n Drainee) verb() string {
	verb, _, _ := strings.Cut(n.Desired, "-")
	return verb
}

// newForeign: it was cordoned before we came, and that is not noted yet.
func (n Drainee) newForeign() bool {
	return n.Cordoned && n.CordonedBy == "" && !OwnCordon("", n.Last)
}

// DecideDrain returns the next step of emptying a node, or of putting it back
// into service. A cordon of somebody else is kept throughout.
func DecideDrain(in DrainInput) plan.Decision[DrainStatus] {
	var d plan.Decision[DrainStatus]
	n := &in.Node
	switch {
	case n.Desired == n.Last:
		if !n.Cordoned && n.CordonedBy != Forget(n.CordonedBy, n.Last) {
			d.Status.Phase = PhaseForgotten
			d.Actions = []plan.Action{plan.AnswerDrain{Node: n.Name, Uncordon: true}}
		}
	case n.verb() == VerbDrain:
		in.drain(&d)
	case n.verb() == VerbUncordon:
		d.Status.Phase, d.Status.Done = PhaseUncordon, true
		ours := n.Cordoned && OwnCordon(n.CordonedBy, n.Last)
		d.Actions = []plan.Action{plan.AnswerDrain{Node: n.Name, Answer: n.Desired, Uncordon: ours || !n.Cordoned}}
		if n.Cordoned && !ours {
			d.Events = []plan.Event{{Type: plan.Normal, Reason: ReasonCordonKept, Message: fmt.Sprintf("Node %s has its config and stays cordoned: somebody else cordoned it", n.Name)}}
		}
		d.Notes = append(d.Notes, plan.Note{Message: fmt.Sprintf("node %s: uncordoning", n.Name)})
	default:
		d.Status.Phase, d.Status.Unknown = PhaseUnknown, fmt.Sprintf("node %s: non-recognized drain verb detected %s", n.Name, n.Desired)
		d.Notes = append(d.Notes, plan.Note{Message: d.Status.Unknown})
	}
	return d
}

func (in *DrainInput) drain(d *plan.Decision[DrainStatus]) {
	n := &in.Node
	switch {
	case !n.Cordoned:
		d.Status.Phase = PhaseCordon
		d.Actions = []plan.Action{plan.BeginDrain{Node: n.Name, By: CordonedByUs}}
		d.Notes = append(d.Notes, plan.Note{Message: fmt.Sprintf("node %s: cordoning", n.Name)})
		return
	case n.newForeign():
		d.Status.Phase = PhaseCordon
		d.Actions = []plan.Action{plan.BeginDrain{Node: n.Name, By: CordonedByOther, Keep: true}}
		d.Notes = append(d.Notes, plan.Note{Message: fmt.Sprintf("node %s: somebody else cordoned it, and it stays so after the drain", n.Name)})
		return
	}
	e := drain.Decide(drain.Input{Node: drain.Node{Name: n.Name, Unreachable: n.Unreachable}, Pods: in.Pods, Budgets: in.Budgets, Refused: in.Refused, Since: in.Since, Now: in.Now})
	d.Actions, d.Events, d.Notes, d.Wake = e.Actions, e.Events, e.Notes, e.Wake
	d.Status.Phase = PhaseDrain
	if e.Status.Done {
		d.Status.Phase, d.Status.Done = PhaseDrained, true
		d.Actions = append(d.Actions, plan.AnswerDrain{Node: n.Name, Answer: n.Desired})
		d.Notes = append(d.Notes, plan.Note{Message: fmt.Sprintf("node %s: operation successful; applying completion annotation", n.Name)})
		d.Wake = 0
		return
	}
	d.Status.Blocked = e.Status.Text()
	in.complain(d)
}

// complain says since when a drain fails, in the original's words.
func (in *DrainInput) complain(d *plan.Decision[DrainStatus]) {
	if in.Node.Started.IsZero() {
		return
	}
	took := in.Now.Sub(in.Node.Started)
	d.Status.Slow = took > SlowAfter && d.Status.Blocked != ""
	if took > LateAfter {
		d.Status.Late = took
	}
	for _, at := range []time.Duration{SlowAfter, LateAfter} {
		if left := at - took + time.Second; left > 0 && (d.Wake == 0 || left < d.Wake) {
			d.Wake = left
		}
	}
}
