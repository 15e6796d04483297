// Package disruption decides what taking a config costs a node: nothing, a
// reload or restart of services, a drain or a reboot, and which item and rule
// force it. The rules are those of OpenShift's node disruption policies, the
// defaults and what the cluster's admin adds. It never acts, and it never
// decides whether a change may be made at all.
//
//	d := disruption.Decide(changes.Changes, disruption.Defaults())
//	fmt.Println(d) // reboot, forced by kernel argument nosmt: …
package disruption

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"millwright.io/millwright/internal/engine/diff"
	"millwright.io/millwright/internal/engine/render"
)

// Kind is what is done. The numbers order by how much a node's work notices.
type Kind int

// Kinds of actions.
const (
	None Kind = iota
	DaemonReload
	Reload
	Restart
	Drain
	Reboot
)

var kindNames = [...]string{"none", "daemon-reload", "reload", "restart", "drain", "reboot"}

// String is the word people read.
func (k Kind) String() string {
	if k < 0 || int(k) >= len(kindNames) {
		return fmt.Sprintf("Kind(%d)", int(k))
	}
	return kindNames[k]
}

// MarshalText prints the kind as its word.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Action is one thing to do. Service is set for Reload and Restart only.
type Action struct {
	Kind    Kind   `json:"kind"`
	Service string `json:"service,omitempty"`
	// special stands for the registries configuration: a reload of the
	// container runtime, with a drain unless the change is a safe one.
	special bool
}

// String is e.g. "reload crio.service".
func (a Action) String() string { return strings.TrimSpace(a.Kind.String() + " " + a.Service) }

// Cause is one change with what it asks for and the rule that says so.
type Cause struct {
	Kind    string   `json:"kind"`
	Key     string   `json:"key"`
	Op      diff.Op  `json:"op"`
	Rule    string   `json:"rule"`
	Actions []Action `json:"actions"`
}

// String is item, then rule.
func (c Cause) String() string { return diff.Label(c.Kind, c.Key) + ": " + c.Rule }

// Strongest is the strongest action the change asks for.
func (c Cause) Strongest() Kind { return strongest(c.Actions) }

// Decision is the smallest set of actions that suffices for all changes.
type Decision struct {
	// Actions stand in the order in which they are done: the drain, then the
	// manager's reload, then services as their rules list them. A reboot stands
	// alone and does everything but the drain, which Drain asks for. Never empty.
	Actions   []Action `json:"actions"`
	Strongest Kind     `json:"strongest"`
	Drain     bool     `json:"drain"`
	// ForcedBy are the changes that ask for the strongest action; none if there
	// are no changes.
	ForcedBy []Cause `json:"forcedBy,omitempty"`
	// Causes are all changes.
	Causes []Cause `json:"causes,omitempty"`
}

// String is the answer in one line.
func (d Decision) String() string {
	words := make([]string, len(d.Actions))
	for i, a := range d.Actions {
		words[i] = a.String()
	}
	s := strings.Join(words, ", ")
	if len(d.ForcedBy) > 0 {
		s += ", forced by " + d.ForcedBy[0].String()
	}
	if more := len(d.ForcedBy) - 1; more > 0 {
		s += fmt.Sprintf(" (and %d more)", more)
	}
	return s
}

// Decide returns what changes ask for under a policy. The order of changes does
// not matter.
func Decide(changes []diff.Change, p Policy) Decision {
	d := Decision{}
	for i := range changes {
		rule, actions := p.judge(&changes[i])
		c := &changes[i]
		d.Causes = append(d.Causes, Cause{Kind: c.Kind, Key: c.Key, Op: c.Op, Rule: rule, Actions: actions})
	}
	slices.SortStableFunc(d.Causes, compareCauses)
	for _, c := range d.Causes {
		d.Strongest = max(d.Strongest, c.Strongest())
	}
	for _, c := range d.Causes {
		if c.Strongest() == d.Strongest {
			d.ForcedBy = append(d.ForcedBy, c)
		}
	}
	d.Actions = combine(d.Causes, d.Strongest)
	d.Drain = d.Strongest >= Drain
	return d
}

// order of kinds where several force the same: what is about the whole system
// comes first.
var order = []string{
	render.KindOSImage, render.KindKernelType, render.KindFIPS, render.KindKernelArgument, render.KindExtension,
	render.KindFile, render.KindUnit, render.KindDropin,
}

func rank(kind string) int {
	if i := slices.Index(order, kind); i >= 0 {
		return i
	}
	return len(order)
}

func compareCauses(a, b Cause) int {
	return cmp.Or(cmp.Compare(rank(a.Kind), rank(b.Kind)), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Key, b.Key),
		cmp.Compare(a.Op, b.Op), cmp.Compare(fmt.Sprint(a.Actions), fmt.Sprint(b.Actions)), cmp.Compare(a.Rule, b.Rule))
}

func strongest(actions []Action) Kind {
	k := None
	for _, a := range actions {
		k = max(k, a.Kind)
	}
	return k
}

// combine merges the actions of all causes, each once. A restart of a service
// makes its reload needless.
func combine(causes []Cause, top Kind) []Action {
	if top == None || top == Reboot {
		return []Action{{Kind: top}}
	}
	var services []Action
	restarted := map[string]bool{}
	seen := map[Action]bool{}
	for _, c := range causes {
		for _, a := range c.Actions {
			if a.Kind == Restart {
				restarted[a.Service] = true
			}
		}
	}
	for _, c := range causes {
		for _, a := range c.Actions {
			needless := a.Kind == None || (a.Kind == Reload && restarted[a.Service])
			if !needless && !seen[a] {
				seen[a] = true
				services = append(services, a)
			}
		}
	}
	// Drain and manager come first, whatever the rules' order.
	slices.SortStableFunc(services, func(a, b Action) int { return cmp.Compare(phase(a.Kind), phase(b.Kind)) })
	return services
}

func phase(k Kind) int {
	switch k {
	case Drain:
		return 0
	case DaemonReload:
		return 1
	default:
		return 2
	}
}
