// Package fleet decides about the members of one set of machines: how many are
// missing and what they are called, which ownerless ones to adopt, which to
// delete first, and what the counters say. It is one rule for every dialect.
//
// It is pure: it never sees a client, a clock, chance or a logger, and it
// knows no dialect's words. What people grep for in logs is built by the
// dialect from Status.Creating and Status.Deleting, and what is wrong is in
// the conditions.
//
//	d := fleet.Decide(fleet.Input{Set: set, Members: members, Now: now})
//	for _, a := range d.Actions { fmt.Println(a) } // create machine workers-x7k2p
package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"millwright.io/millwright/internal/engine/plan"
)

// Policy says which members go first when there are too many.
type Policy string

// Policies. The empty policy behaves as Random.
const (
	Random Policy = "Random"
	Newest Policy = "Newest"
	Oldest Policy = "Oldest"
)

// Owner says who controls a machine.
type Owner int

// Owners.
const (
	OwnerNone  Owner = iota // nobody: may be adopted
	OwnerOurs               // the decided set
	OwnerOther              // somebody else: never ours to touch
)

// Set is what the decided set wants.
type Set struct {
	UID        string
	Name       string
	Generation int64
	Replicas   *int32 // nil is a problem, not a default
	Policy     Policy
	MinReady   time.Duration // ≥ 0; how long a node must be ready to count as available
	// Problems found in the set by its dialect: selector syntax, a template
	// that its own selector does not match. With any, nothing is done.
	Problems []string
}

// Member is one machine that the set owns or might adopt.
type Member struct {
	Name, UID    string
	Owner        Owner
	Match        bool // its labels match the set's selector
	FullyLabeled bool // it carries every label of the template
	Deleting     bool
	CreatedAt    time.Time
	Marked       bool      // somebody asked for it to go first
	Failed       bool      // it carries an error
	HasNode      bool      // it became a node
	ReadySince   time.Time // since when that node is ready; zero: it is not
}

// Input is everything a decision depends on. The order of Members and Taken
// does not matter.
type Input struct {
	Set     Set
	Members []Member
	Taken   []string // further names that are in use
	Now     time.Time
}

// Status is what a set tells about itself. The counters describe what was
// there before this decision's actions.
type Status struct {
	Replicas     int32 // members that match and are not going
	FullyLabeled int32 // of these, carrying every label of the template
	Ready        int32 // of these, with a ready node
	Available    int32 // of these, ready for MinReady
	Generation   int64 // what was acted upon

	Want     int32 // replicas wanted; 0 when unknown
	Creating int   // create actions in this decision
	Deleting int   // delete actions in this decision
	Outside  int32 // owned, not going, but outside the selector
}

// Conditions that the planner owns.
const (
	// Valid is False when the set cannot be acted upon as written.
	Valid = "Valid"
	// MembersMatch is False when machines owned by the set are outside its
	// selector.
	MembersMatch = "MembersMatch"
)

// Reasons of these conditions.
const (
	ReasonInvalidSet    = "InvalidSet"    // the dialect found problems
	ReasonNoReplicas    = "NoReplicas"    // replicas is nil
	ReasonBadReplicas   = "BadReplicas"   // replicas is negative
	ReasonUnknownPolicy = "UnknownPolicy" // a delete policy nobody knows
	ReasonNameTooLong   = "NameTooLong"   // machine names would be too long
	ReasonSelectorDrift = "SelectorDrift" // members left the selector
)

const (
	// maxCreates bounds one decision, so that a slipped zero in a number of
	// replicas costs no memory; the rest follows once these are seen.
	maxCreates  = 512
	listedNames = 5 // names spelled out in a message
)

// Decide returns what to do now. Actions come in this order: adoptions, then
// either creations or deletions. It never deletes below the wanted number,
// never creates while machines owned by the set make up the number outside
// its selector, and never returns a name that is in use.
func Decide(in Input) plan.Decision[Status] {
	members := sorted(in.Members)
	var live, outside []Member
	for _, m := range members {
		switch {
		case m.Deleting || m.Owner == OwnerOther:
		case m.Match:
			live = append(live, m)
		case m.Owner == OwnerOurs:
			outside = append(outside, m)
		}
	}
	d := plan.Decision[Status]{Status: count(in, live)}
	d.Status.Outside = int32(len(outside))
	d.Wake = untilAvailable(in, live)

	valid := check(in.Set)
	if valid.Status == corev1.ConditionTrue {
		d.Status.Want = *in.Set.Replicas
		d.Actions = adoptions(live)
		acts, problem := scale(in, members, live, len(outside), &d.Status)
		if problem != nil {
			valid = *problem
		}
		d.Actions = append(d.Actions, acts...)
	}
	d.Conditions = []plan.Condition{valid, drift(d.Status, outside)}
	return d
}

// scale returns the creations or deletions and counts them in st. A problem
// means that the set cannot be brought to its number as written.
func scale(in Input, all, live []Member, outside int, st *Status) ([]plan.Action, *plan.Condition) {
	want := int(*in.Set.Replicas)
	switch missing, surplus := want-len(live)-outside, len(live)-want; {
	case missing > 0:
		if p := checkName(in.Set.Name); p != nil {
			return nil, p
		}
		acts := creations(in, all, min(missing, maxCreates))
		st.Creating = len(acts)
		return acts, nil
	case surplus > 0:
		victims, problem := first(in, live, surplus)
		if problem != nil {
			return nil, problem
		}
		acts := make([]plan.Action, 0, len(victims))
		for _, m := range victims {
			acts = append(acts, plan.DeleteMachine{Name: m.Name, UID: m.UID})
		}
		st.Deleting = len(acts)
		return acts, nil
	}
	return nil, nil
}

func adoptions(live []Member) []plan.Action {
	var acts []plan.Action
	for _, m := range live {
		if m.Owner == OwnerNone {
			acts = append(acts, plan.AdoptMachine{Name: m.Name, UID: m.UID})
		}
	}
	return acts
}

// check returns the Valid condition as far as it does not depend on members.
func check(s Set) plan.Condition {
	switch {
	case len(s.Problems) > 0:
		return invalid(ReasonInvalidSet, strings.Join(s.Problems, "; "))
	case s.Replicas == nil:
		return invalid(ReasonNoReplicas, fmt.Sprintf("the Replicas field in Spec for machineset %s is nil, this should not be allowed", s.Name))
	case *s.Replicas < 0:
		return invalid(ReasonBadReplicas, fmt.Sprintf("spec.replicas: Invalid value: %d: must be 0 or more", *s.Replicas))
	}
	return plan.Condition{Type: Valid, Status: corev1.ConditionTrue}
}

func invalid(reason, message string) plan.Condition {
	return plan.Condition{Type: Valid, Status: corev1.ConditionFalse, Reason: reason, Message: message, Severity: plan.SeverityError}
}

// drift returns the MembersMatch condition.
func drift(st Status, outside []Member) plan.Condition {
	if len(outside) == 0 {
		return plan.Condition{Type: MembersMatch, Status: corev1.ConditionTrue}
	}
	names := make([]string, 0, listedNames+1)
	for i, m := range outside {
		if i == listedNames {
			names = append(names, fmt.Sprintf("and %d more", len(outside)-i))
			break
		}
		names = append(names, m.Name)
	}
	return plan.Condition{
		Type: MembersMatch, Status: corev1.ConditionFalse, Reason: ReasonSelectorDrift, Severity: plan.SeverityWarning,
		Message: fmt.Sprintf("owned %d of %d wanted, %d outside the selector: %s; they count, so nothing is created in their place; give them the selector's labels back or delete them",
			int(st.Replicas)+len(outside), st.Want, len(outside), strings.Join(names, ", ")),
	}
}

// count fills the counters that users see.
func count(in Input, live []Member) Status {
	st := Status{Replicas: int32(len(live)), Generation: in.Set.Generation}
	for _, m := range live {
		if m.FullyLabeled {
			st.FullyLabeled++
		}
		if !m.HasNode || m.ReadySince.IsZero() {
			continue
		}
		st.Ready++
		if in.Now.Sub(m.ReadySince) >= in.Set.MinReady {
			st.Available++
		}
	}
	return st
}

// untilAvailable returns how long until the next ready member becomes
// available; 0 when none is on its way.
func untilAvailable(in Input, live []Member) time.Duration {
	var wake time.Duration
	for _, m := range live {
		if !m.HasNode || m.ReadySince.IsZero() {
			continue
		}
		if left := in.Set.MinReady - in.Now.Sub(m.ReadySince); left > 0 && (wake == 0 || left < wake) {
			wake = left
		}
	}
	return wake
}

// sorted returns a copy in order of name, then UID.
func sorted(members []Member) []Member {
	out := slices.Clone(members)
	slices.SortFunc(out, func(a, b Member) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.UID, b.UID))
	})
	return out
}
