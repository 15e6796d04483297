// Package plan is the vocabulary of decisions: what a planner returns. It
// holds values only. Planners in internal/engine fill them, internal/act
// performs the actions, internal/kube reports the rest, and the command line
// prints them.
//
// A planner is a function from one value to one Decision. It sees no client,
// context, clock, chance, flag or logger.
package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Decision is what to do now. The zero Decision means: nothing until
// something changes.
type Decision[S any] struct {
	Status     S             // the whole owned status, each time
	Actions    []Action      // performed in order; the first failure stops the rest
	Conditions []Condition   // every condition the planner owns, each time
	Events     []Event       // what users see happen without an action
	Notes      []Note        // log lines that people grep for, word for word
	Wake       time.Duration // look again after this long; 0 waits for a watch event
}

// Erased is a Decision whose status type does not matter any more: what
// previews print and what crosses the kube seam.
type Erased = Decision[any]

// Erase drops the static type of the status.
func Erase[S any](d Decision[S]) Erased {
	return Erased{Status: d.Status, Actions: d.Actions, Conditions: d.Conditions, Events: d.Events, Notes: d.Notes, Wake: d.Wake}
}

// Action is an ObjectAction, a NodeAction or a CloudAction; sealed.
type Action interface {
	isAction()
	// String prints the action for previews and logs, e.g.
	// "create machine trainee-x7k2p".
	String() string
}

// Condition is one observed truth in positive polarity.
type Condition struct {
	Type     string
	Status   corev1.ConditionStatus
	Reason   string // CamelCase constant; may be empty when Status is True
	Message  string
	Severity Severity // only for dialects that have it, and only when Status is False
}

// Severity of a False condition, for the dialects that know it.
type Severity string

// Severities.
const (
	SeverityNone    Severity = ""
	SeverityError   Severity = "Error"
	SeverityWarning Severity = "Warning"
	SeverityInfo    Severity = "Info"
)

// EventType is Normal or Warning.
type EventType string

// Event types.
const (
	Normal  EventType = "Normal"
	Warning EventType = "Warning"
)

// Event is one thing users see happen, attached to the decided object or, of
// a decision about several Machines, to the one it names.
type Event struct {
	Machine string // name of the Machine it is about; empty: the decided object
	Type    EventType
	Reason  string
	Action  string // the events API's action; empty: same as Reason
	Message string
}

// Note is one log line, printed word for word.
type Note struct{ Message string }
