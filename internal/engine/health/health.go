// Package health decides which of a set of Machines are broken and may be
// repaired: node conditions that lasted too long, Nodes that never came or
// vanished, Machines that failed. It stops when too many are unhealthy, and it
// holds back when most Nodes of the fleet or of one zone fell silent together,
// since then the observer is more likely to be blind than all of them dead.
//
// It is pure. It must never repair a Machine twice, one that nobody would
// replace, or anything while more than the allowed number are unhealthy.
//
//	d := health.Decide(health.Input{Check: check, Targets: targets, Now: now})
package health

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright.io/millwright/internal/engine/budget"
	"millwright.io/millwright/internal/engine/plan"
)

// Strategy is how a Machine is repaired.
type Strategy int

// Strategies.
const (
	// Replace deletes the Machine; its owner makes a new one.
	Replace Strategy = iota
	// Mark asks somebody else by an annotation. A Failed Machine is replaced
	// all the same.
	Mark
	// Request makes an object from a template, for somebody else to act on.
	Request
)

// Rule is a node condition that must not last.
type Rule struct {
	Type    corev1.NodeConditionType
	Status  corev1.ConditionStatus
	Timeout time.Duration
}

// Check is what is wanted of the Machines.
type Check struct {
	Namespace, Name string
	Rules           []Rule
	StartupTimeout  time.Duration // until a Machine has a Node; 0: for ever
	MaxUnhealthy    *intstr.IntOrString
	Strategy        Strategy
	Problem         string // why the Strategy cannot be carried out now
}

// Node is the Node of a target.
type Node struct {
	Zone       string
	Conditions []corev1.NodeCondition
}

// Target is one checked Machine.
type Target struct {
	Name, UID string
	Zone      string    // where it is, if its Node does not say
	Owned     bool      // something makes a new one when it is deleted
	Failed    bool      // for ever
	Deleting  bool      // it is going
	Marked    bool      // somebody else was asked to repair it
	Requested bool      // the repair object is there
	Updated   time.Time // the last change of its status; zero: none yet
	NodeName  string    // the recorded Node; empty: none yet
	Node      *Node     // nil: there is none of that name
}

// Input is one check and everything it selects.
type Input struct {
	Check   Check
	Targets []Target
	Now     time.Time
}

// Status is what the check shows.
type Status struct {
	Expected, Healthy int
	Max               int  // how many may be unhealthy
	Allowed           int  // how many more
	Short             bool // repair is stopped as a whole
	Frozen            []Group
	Unhealthy         []string // names of those that need repair
	Held              []string // those of them that a freeze holds back
}

// Group is a part of the fleet that fell silent together.
type Group struct {
	Zone          string // empty: the whole fleet
	Silent, Nodes int
	Since         time.Time
}

// Waits for the next look.
const (
	maxWake     = time.Hour
	wakeProblem = time.Minute // the way of repair may have come back
)

// Decide returns who is repaired now.
func Decide(in Input) plan.Decision[Status] {
	targets := slices.Clone(in.Targets)
	slices.SortFunc(targets, func(a, b Target) int { return strings.Compare(a.Name, b.Name) })
	in.Targets = targets

	d := plan.Decision[Status]{Status: Status{Expected: len(targets)}}
	s := &d.Status
	s.Frozen = freezes(in)
	verdicts := make([]verdict, len(targets))
	for i := range targets {
		verdicts[i] = in.judge(&targets[i])
		if verdicts[i].healthy {
			s.Healthy++
		}
	}
	limit, err := budget.MaxUnhealthy(in.Check.MaxUnhealthy, s.Expected)
	s.Max = limit
	unhealthy := s.Expected - s.Healthy
	s.Short = err != nil || unhealthy > limit
	s.Allowed = max(0, limit-unhealthy)
	if s.Short || whole(s.Frozen) != nil {
		s.Allowed = 0
	}
	d.Notes = append(d.Notes, plan.Note{Message: textReconciling(in.Check)})
	for i, v := range verdicts {
		repair(in, &targets[i], v, &d)
	}
	switch {
	case s.Short:
		d.Wake = 0 // only events change the counts
	case in.Check.Problem != "" && len(s.Unhealthy) > 0:
		d.Wake = sooner(d.Wake, wakeProblem)
	}
	d.Conditions = conditions(in, *s)
	d.Events = append(d.Events, stopped(in, *s)...)
	if s.Short {
		d.Notes = append(d.Notes, plan.Note{Message: textShort(in.Check, *s)})
	}
	return d
}

// repair adds what follows from one verdict.
func repair(in Input, t *Target, v verdict, d *plan.Decision[Status]) {
	s := &d.Status
	if v.next > 0 {
		d.Wake = sooner(d.Wake, min(v.next, maxWake))
	}
	if v.suspect {
		d.Events = append(d.Events, plan.Event{Machine: t.Name, Type: plan.Normal, Reason: ReasonDetected, Message: textDetected(in.Check, *t)})
	}
	if v.healthy && t.Requested && in.Check.Strategy == Request {
		d.Actions = append(d.Actions, plan.DeleteRepair{Name: t.Name, UID: t.UID})
	}
	if v.cause == "" {
		return
	}
	s.Unhealthy = append(s.Unhealthy, t.Name)
	if v.silent && frozen(s.Frozen, zoneOf(t)) {
		s.Held = append(s.Held, t.Name)
		return
	}
	if s.Short || t.Deleting {
		return
	}
	d.Notes = append(d.Notes, plan.Note{Message: target(in.Check, *t) + ": unhealthy: " + v.cause})
	a, ev := remedy(in.Check, t)
	if a != nil {
		d.Actions = append(d.Actions, a)
	}
	if ev != nil {
		d.Events = append(d.Events, *ev)
	}
}

// remedy returns what repairs a Machine, or why nothing does.
func remedy(c Check, t *Target) (plan.Action, *plan.Event) {
	switch {
	case c.Strategy == Request:
		if t.Requested || c.Problem != "" {
			return nil, nil
		}
		return plan.CreateRepair{Name: t.Name, UID: t.UID}, nil
	case c.Strategy == Mark && !t.Failed:
		if t.Marked {
			return nil, nil
		}
		return plan.MarkForRepair{Name: t.Name, UID: t.UID}, nil
	case !t.Owned:
		return nil, &plan.Event{Machine: t.Name, Type: plan.Normal, Reason: ReasonNoOwner, Message: textNoOwner(c, *t)}
	}
	return plan.DeleteMachine{Name: t.Name, UID: t.UID}, nil
}

// verdict is what one target is. The zero verdict is a Machine on its way.
type verdict struct {
	healthy bool
	cause   string        // why it needs repair; empty: it does not
	silent  bool          // the cause is that its Node does not report
	suspect bool          // a condition lasts, but not long enough yet
	next    time.Duration // when it may need repair; 0: an event will tell
}

// judge applies the rules in their order; the first hit counts.
func (in Input) judge(t *Target) verdict {
	switch {
	case t.Failed:
		return verdict{cause: `machine phase is "Failed"`}
	case t.NodeName == "":
		return in.starting(t)
	case t.Node == nil:
		return verdict{cause: "its node is gone"}
	}
	var v verdict
	for _, r := range in.Check.Rules {
		c := conditionOf(t.Node, r.Type)
		if c == nil || c.Status != r.Status {
			continue
		}
		silent := c.Status == corev1.ConditionUnknown
		lasts := in.Now.Sub(c.LastTransitionTime.Time)
		if limit := in.patience(r, silent); lasts <= limit {
			v.suspect, v.next = true, sooner(v.next, limit-lasts+time.Second)
			continue
		}
		return verdict{silent: silent, cause: "condition " + string(r.Type) + " in state " + string(r.Status) + " longer than " + r.Timeout.String()}
	}
	v.healthy = !v.suspect && !t.Deleting && !t.Marked
	return v
}

// patience is how long a condition may last. Whether others fell silent with
// a Node is only known when the window is over.
func (in Input) patience(r Rule, silent bool) time.Duration {
	if silent && len(in.Targets) >= minGroup {
		return max(r.Timeout, Window)
	}
	return r.Timeout
}

// starting judges a Machine without a Node. Any change of its status starts
// the clock again.
func (in Input) starting(t *Target) verdict {
	limit := in.Check.StartupTimeout
	switch {
	case limit == 0:
		return verdict{}
	case t.Updated.IsZero():
		return verdict{next: limit}
	}
	lasts := in.Now.Sub(t.Updated)
	if lasts > limit {
		return verdict{cause: "machine has no node after " + limit.String()}
	}
	return verdict{next: limit - lasts + time.Second}
}

func conditionOf(n *Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range n.Conditions {
		if n.Conditions[i].Type == kind {
			return &n.Conditions[i]
		}
	}
	return nil
}

func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
