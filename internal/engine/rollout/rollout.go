// Package rollout decides which nodes of a Machine Config pool take the pool's
// target now, and what the pool says about it: counters, conditions, events,
// waves and what they wait for.
//
// It is pure. It must never have more nodes out of service than the pool's
// budget allows, start a node that somebody else cordoned, undo such a cordon,
// keep a broken node from its way back, or start a node after the first wave
// of a change has failed.
//
//	d := rollout.Decide(rollout.Input{Pool: pool, Nodes: nodes, Claims: claims, Now: now})
package rollout

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"millwright.io/millwright/internal/engine/budget"
	"millwright.io/millwright/internal/engine/plan"
)

// Pool is a pool and what its users set about its pace.
type Pool struct {
	Name string
	// Target is spec.configuration.name, Settled status.configuration.name:
	// the config that all nodes had when they last agreed.
	Target, Settled string
	Paused          bool
	Deleting        bool
	// SelectsAll says that the node selector is empty, which no pool may have.
	SelectsAll bool
	// Original switches healing off: a broken node that is cordoned or not
	// ready keeps what it has until a person moves it.
	Original bool
	// Limit is how many nodes may be out of service, ≥ 1. LimitError says why
	// it could not be read; then no node starts.
	Limit      int
	LimitError string
	// ControlPlane pools move one node at a time, and none while a member of
	// the other control plane pool is out of service.
	ControlPlane bool
	// Peers are what Others' pools of the control plane keep out of service or
	// have still to do; each text names a node.
	Peers []string
	// Topology is what its nodes are told about the control plane; empty:
	// nothing.
	Topology string
	// RenderError is the message of RenderDegraded, when that is True.
	RenderDegraded bool
	RenderError    string

	Settings *Settings // nil: no waves
	Windows  Windows   // none: always open
	// SettingsError says why the settings or windows could not be read; then
	// no node starts.
	SettingsError string
	// Expires is when the first certificate that nodes trust ends; zero:
	// unknown.
	Expires time.Time
}

// Node is one node whose first pool this is.
type Node struct {
	Name    string
	Zone    string
	Created time.Time
	Labels  map[string]string
	// Down says in the original's words why it is not ready; empty: it is.
	Down     string
	Cordoned bool
	// Ours says that the cordon is one of our own.
	Ours             bool
	Current, Desired string // names of configs; empty: its agent has not told
	CurrentImage     string
	DesiredImage     string
	State, Reason    string
	// Detail is what its record says about the failure; may repeat Reason.
	Detail string
	// Pods is how many pods would have to move when it is drained.
	Pods int
	// Blockers name what would hold up its drain now.
	Blockers []string
	// Operator says that the machine-config-operator runs on it.
	Operator bool
	// Join are labels of the pool it first booted into that it lacks.
	Join map[string]string
	// Topology is what it was told about the control plane.
	Topology string
}

// States of a node, as its agent writes them.
const (
	StateDone           = "Done"
	StateWorking        = "Working"
	StateDegraded       = "Degraded"
	StateUnreconcilable = "Unreconcilable"
)

// Input is everything the decision depends on.
type Input struct {
	Now    time.Time
	Pool   Pool
	Nodes  []Node
	Claims []budget.Claim
	Record Record // as the last decision left it
	// Content maps names of configs to a key of their content: names with
	// equal keys hold the same, so that a move between them changes nothing.
	Content map[string]string
	// Workloads says of each workload that the settings name what is wrong
	// with it; empty: healthy. One that is missing here is not known yet.
	Workloads map[string]string
	// Strays are nodes that this pool selects and that nobody may touch.
	Strays []Stray
}

// Stray is a node in several custom pools: it is nobody's.
type Stray struct {
	Node  string
	Pools []string // names, sorted
}

// Status is what the pool is told.
type Status struct {
	Machines, Ready, Updated, Unavailable, Degraded int
	// Settled says that all nodes agree: status.configuration becomes
	// spec.configuration.
	Settled bool
	// Claims are the account's new claims, to be written before any node is
	// touched.
	Claims []budget.Claim
	Record Record
	// Goal is the config that nodes shall have: the target, or the last good
	// one while a stopped rollout goes back.
	Goal string
	// Started are the nodes that this decision moves, in order.
	Started []string
	// Out are the nodes that are out of service or about to be, sorted.
	Out   []string
	Limit int
	Waits []Wait
	// Invalid is an error of a setting that a person has to mend.
	Invalid string
}

// Wait is what keeps a rollout from going on.
type Wait struct {
	Reason string
	Text   string
	Until  time.Time // zero: until something changes
}

// By is who claims for a pool.
func By(pool string) string { return "machineconfigpool/" + pool }

// ownGrace is how long a claim of ours holds although its node looks untouched:
// our write may not be visible yet.
const ownGrace = time.Minute

// MaxClaims bounds how many nodes one pool works on at a time, so that the
// claims fit into an annotation.
const MaxClaims = 1500

// Decide returns what moves the pool a step towards its target. Acting on it
// and deciding again, with nothing else changed, moves no node.
func Decide(in Input) plan.Decision[Status] {
	v := look(in)
	v.settle()
	v.wave()
	v.join()
	v.start()
	v.report()
	if len(v.d.Status.Waits) > 0 {
		for _, w := range v.d.Status.Waits {
			v.wakeAt(w.Until)
		}
	}
	return v.d
}

// view is the input in the order in which it is looked at, and the decision as
// far as it has come.
type view struct {
	in     Input
	nodes  []Node // in rollout order
	claims map[string]budget.Claim
	goal   string
	limit  int
	gated  bool // waves are on and have not let everything go
	left   int  // nodes that the present wave may still start
	d      plan.Decision[Status]
}

func look(in Input) *view {
	v := &view{in: in, nodes: slices.Clone(in.Nodes), claims: make(map[string]budget.Claim, len(in.Claims)), goal: in.Record.goal(&in.Pool)}
	Sort(v.nodes)
	v.limit = max(1, in.Pool.Limit)
	if in.Pool.ControlPlane {
		v.limit = 1
	}
	v.limit = min(v.limit, MaxClaims)
	return v
}

// Sort puts nodes into the order in which they start. Zone by zone, those
// without one last, so that what is bound to a zone moves once; within a zone
// the emptiest first: what little runs there moves away, and the fuller nodes'
// pods find room on nodes that need not be emptied again. Then the oldest. The
// operator's own node is the last.
func Sort(nodes []Node) {
	slices.SortFunc(nodes, func(a, b Node) int {
		return cmp.Or(
			boolCompare(a.Operator, b.Operator),
			boolCompare(a.Zone == "", b.Zone == ""),
			strings.Compare(a.Zone, b.Zone),
			cmp.Compare(a.Pods, b.Pods),
			a.Created.Compare(b.Created),
			strings.Compare(a.Name, b.Name),
		)
	})
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// done: the node has what it was asked for.
func (n *Node) done() bool {
	return n.Current != "" && n.Current == n.Desired && n.CurrentImage == n.DesiredImage && n.State == StateDone
}

func (n *Node) degraded() bool { return n.State == StateDegraded || n.State == StateUnreconcilable }

// failing: it tries to get somewhere and cannot.
func (n *Node) failing() bool { return n.Current != n.Desired && n.degraded() }

// serving: pods may be placed on it.
func (n *Node) serving() bool { return n.Down == "" && !n.Cordoned }

// aims: it was asked for this config, without an image of its own.
func (n *Node) aims(config string) bool { return n.Desired == config && n.DesiredImage == "" }

func (n *Node) updated(target string) bool { return n.done() && n.aims(target) }

// unavailable is the original's counter: a broken node that takes pods is not.
func (n *Node) unavailable() bool { return !n.serving() || !n.done() && !n.failing() }

// busy: it uses a unit of the budget whatever claims say. A broken node keeps
// its unit although it may take pods.
func (n *Node) busy() bool { return !n.serving() || !n.done() }

// foreign: somebody else took it out of service while it had nothing to do
// for us.
func (n *Node) foreign() bool { return n.Cordoned && !n.Ours && n.done() }

// same: a move to config changes the node's name of it only.
func (v *view) same(n *Node, config string) bool {
	key := v.in.Content[config]
	return key != "" && n.done() && v.in.Content[n.Current] == key && n.DesiredImage == ""
}

// settle drops the claims that mean nothing any more.
func (v *view) settle() {
	member := make(map[string]*Node, len(v.nodes))
	for i := range v.nodes {
		member[v.nodes[i].Name] = &v.nodes[i]
	}
	for _, c := range v.in.Claims {
		n := member[c.Node]
		if n == nil {
			continue
		}
		age, grace := v.in.Now.Sub(c.Since), budget.Grace
		own := c.By == By(v.in.Pool.Name)
		if own {
			grace = ownGrace
		}
		// Once our work has begun, the node speaks for itself.
		young := age >= 0 && age < grace && !(own && n.aims(v.goal))
		if n.busy() || young {
			v.claims[c.Node] = c
			if !n.busy() {
				v.wakeAt(c.Since.Add(grace))
			}
		}
	}
}

func (v *view) claimed(n *Node) bool { _, ok := v.claims[n.Name]; return ok }

func (v *view) mine(n *Node) bool { return v.claims[n.Name].By == By(v.in.Pool.Name) }

// join brings onto nodes what they have to know before anything else. Labels
// make a node another pool's; it is looked at again then.
func (v *view) join() {
	if v.in.Pool.Deleting || v.in.Pool.SelectsAll {
		return
	}
	for i := range v.nodes {
		n := &v.nodes[i]
		a := plan.LinkNode{Node: n.Name, Labels: n.Join, Annotations: map[string]string{}}
		if t := v.in.Pool.Topology; t != "" && n.Topology != t {
			a.Annotations[AnnotationTopology] = t
		}
		if len(n.Join) > 0 {
			a.Annotations[AnnotationLabelsApplied] = ""
		}
		if len(a.Annotations) > 0 {
			v.d.Actions = append(v.d.Actions, a)
		}
	}
}

func (v *view) wakeAt(at time.Time) {
	if at.IsZero() {
		return
	}
	d := max(at.Sub(v.in.Now), time.Second)
	if v.d.Wake == 0 || d < v.d.Wake {
		v.d.Wake = d
	}
}

func (v *view) wait(reason, text string, until time.Time) {
	v.d.Status.Waits = append(v.d.Status.Waits, Wait{reason, text, until})
}

func (v *view) tell(kind plan.EventType, reason, message string) {
	v.d.Events = append(v.d.Events, plan.Event{Type: kind, Reason: reason, Message: message})
}
