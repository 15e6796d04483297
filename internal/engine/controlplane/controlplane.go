// Package controlplane decides about the machines of a cluster's control
// plane: which index each one holds, in which failure domain it belongs, which
// one is replaced next and when the replaced one may go. It is more careful
// than a set of workers: a machine leaves only after the one that follows it at
// its index has a ready Node, one at a time, so that a quorum that was there
// stays there.
//
// It is pure: it never sees a client, a clock, chance or a logger, knows no
// cloud (a failure domain is a string that only has to be comparable), and
// never deletes a machine for any reason but a ready successor.
//
//	d := controlplane.Decide(controlplane.Input{Set: set, Members: members})
//	for _, a := range d.Actions { fmt.Println(a) } // create machine demo-master-x7k2p-0
package controlplane

import (
	"cmp"
	"slices"
	"strings"

	"millwright.io/millwright/internal/engine/plan"
)

// Strategy says who starts a replacement.
type Strategy string

// Strategies. The empty strategy behaves as RollingUpdate.
const (
	// RollingUpdate replaces outdated machines by itself.
	RollingUpdate Strategy = "RollingUpdate"
	// OnDelete replaces a machine when somebody deletes it.
	OnDelete Strategy = "OnDelete"
)

// Owner says who controls a machine.
type Owner int

// Owners.
const (
	OwnerNone  Owner = iota // nobody: may be adopted
	OwnerOurs               // the decided set
	OwnerOther              // somebody else: never ours to touch
)

// NoIndex is the index of a machine whose name shows none.
const NoIndex = -1

// Set is what the decided set wants.
type Set struct {
	UID        string
	Generation int64
	Prefix     string // machines are named <prefix>-xxxxx-<index>
	Active     bool   // an inactive set only counts
	Deleting   bool   // it lets its machines go, alive
	Finalizer  bool   // ours is on it
	Replicas   int    // ≥ 1
	Strategy   Strategy
	// Domains are the failure domains to spread over, in the order of
	// preference; empty: machines are not placed.
	Domains []string
	// Problems found in the set by its dialect. With any, nothing is done.
	Problems []string
}

// Member is one control plane machine.
type Member struct {
	Name, UID string
	Owner     Owner
	Index     int    // ≥ 0, or NoIndex
	Domain    string // where it is; compared with Set.Domains
	// Outdated names what differs from the template, failure domain apart;
	// empty: nothing does.
	Outdated string
	Deleting bool
	Failed   bool  // it carries an error and will not become ready
	Ready    bool  // its Node is ready
	Created  int64 // creation, in seconds of any one epoch
}

// Input is everything a decision depends on. The order of Members, Unmanaged
// and Taken does not matter.
type Input struct {
	Set       Set
	Members   []Member
	Unmanaged []string // control plane Nodes that belong to no machine
	Taken     []string // further names that are in use
}

// Status is what a set tells about itself, before this decision's actions.
type Status struct {
	Replicas    int   // machines, those that are going included
	Ready       int   // of these, with a ready Node
	Updated     int   // of these, as the template wants them
	Unavailable int   // indexes wanted without a ready machine
	Generation  int64 // what was acted upon

	// Placed is the failure domain of each machine to be created, by name;
	// "" without domains.
	Placed map[string]string
	// Outdated says what is outdated about machines, by name.
	Outdated map[string]string
	// Waits says in a sentence what the next step waits for; empty: nothing.
	Waits string
}

// Differs is what Status.Outdated says about a machine in the wrong failure
// domain.
const Differs = "failureDomain"

// Decide returns what to do now. Actions come in this order: the finalizer or
// adoptions, then at most one deletion, then creations. A set that is being
// deleted releases its machines and never deletes one.
func Decide(in Input) plan.Decision[Status] {
	w := look(in)
	d := plan.Decision[Status]{Status: w.status(in)}
	switch {
	case in.Set.Deleting:
		d.Actions = release(in, w)
	case in.Set.Active && w.fault() == nil:
		if d.Actions = hold(in, w); len(d.Actions) == 0 {
			d.Actions = w.move(in, &d.Status)
		}
	}
	d.Conditions = w.conditions(in)
	return d
}

// release lets every machine of the set go on without it: the garbage
// collector would take the control plane along otherwise.
func release(in Input, w world) []plan.Action {
	var acts []plan.Action
	for _, m := range w.members {
		if m.Owner == OwnerOurs {
			acts = append(acts, plan.ReleaseMachine{Name: m.Name, UID: m.UID})
		}
	}
	if in.Set.Finalizer {
		acts = append(acts, plan.RemoveFinalizer{})
	}
	return acts
}

// hold makes the set the keeper of its machines, its own finalizer first.
// Nothing else happens until that is seen.
func hold(in Input, w world) []plan.Action {
	var acts []plan.Action
	if !in.Set.Finalizer {
		acts = append(acts, plan.AddFinalizer{})
	}
	for _, m := range w.members {
		if m.Owner == OwnerNone && !m.Deleting {
			acts = append(acts, plan.AdoptMachine{Name: m.Name, UID: m.UID})
		}
	}
	return acts
}

// world is the input in order: members by name, grouped by index.
type world struct {
	members []Member
	set     Set
	groups  []group  // ascending
	stray   []Member // without an index
	foreign []Member // owned by others
	nodes   []string
}

// group is what holds one index.
type group struct {
	index  int
	domain string // where the index belongs
	all    []Member
}

// look puts the input in order. The indexes are those that machines hold, and
// the lowest free ones up to the wanted number.
func look(in Input) world {
	w := world{members: slices.Clone(in.Members), set: in.Set, nodes: slices.Sorted(slices.Values(in.Unmanaged))}
	slices.SortFunc(w.members, func(a, b Member) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.UID, b.UID))
	})
	held := map[int][]Member{}
	for _, m := range w.members {
		if m.Owner == OwnerOther {
			w.foreign = append(w.foreign, m)
		}
		if m.Index < 0 {
			w.stray = append(w.stray, m)
			continue
		}
		held[m.Index] = append(held[m.Index], m)
	}
	for i := 0; len(held) < in.Set.Replicas; i++ {
		if _, ok := held[i]; !ok {
			held[i] = nil
		}
	}
	for i, all := range held {
		w.groups = append(w.groups, group{index: i, all: all})
	}
	slices.SortFunc(w.groups, func(a, b group) int { return cmp.Compare(a.index, b.index) })
	place(w.groups, in.Set.Domains)
	return w
}

// why says what is outdated about a machine of this group; empty: nothing.
func (g group) why(m Member) string {
	if m.Outdated == "" && g.domain != "" && m.Domain != g.domain {
		return Differs
	}
	return m.Outdated
}

func (g group) count(is func(Member) bool) int {
	n := 0
	for _, m := range g.all {
		if is(m) {
			n++
		}
	}
	return n
}

func (g group) ready() int   { return g.count(func(m Member) bool { return m.Ready }) }
func (g group) going() int   { return g.count(func(m Member) bool { return m.Deleting }) }
func (g group) staying() int { return len(g.all) - g.going() }

// current counts the machines that stay and are as the template wants them.
func (g group) current() int {
	return g.count(func(m Member) bool { return !m.Deleting && g.why(m) == "" })
}

// settled counts those of them whose Node is ready.
func (g group) settled() int {
	return g.count(func(m Member) bool { return !m.Deleting && m.Ready && g.why(m) == "" })
}

// old returns the machines that stay and are outdated, by name.
func (g group) old() []Member {
	var out []Member
	for _, m := range g.all {
		if !m.Deleting && g.why(m) != "" {
			out = append(out, m)
		}
	}
	return out
}
