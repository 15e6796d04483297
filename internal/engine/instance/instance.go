// Package instance decides for whatever owns one cloud instance: create it,
// record it, wait, replace one that never came up, remove it. It is pure and
// knows no API kind: Machine API's Machine and the infrastructure machines of
// Cluster API use it alike.
//
// It must never decide to create before the owner's finalizer was seen in the
// API, never create in place of an instance that was recorded and is gone, and
// never touch an instance that carries another key.
//
// One reconcile may decide several times. After each action the caller folds
// the result in with After and decides again:
//
//	d := instance.Decide(in)           // [CreateInstance]
//	in = in.After(instance.Result{Op: instance.OpCreate, Instance: made})
//	d = instance.Decide(in)            // [RecordInstance]
package instance

import (
	"time"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/engine/plan"
)

// Goal is what the owner wants.
type Goal int

// Goals. Hold means: the owner is not ready for either, keep what there is.
const (
	Keep Goal = iota
	Hold
	Remove
)

// Op is what was tried.
type Op string

// Ops.
const (
	OpNone    Op = ""
	OpObserve Op = "observe"
	OpCreate  Op = "create"
	OpDelete  Op = "delete"
	OpRecord  Op = "record"
)

// Done is what has succeeded in one reconcile.
type Done struct{ Create, Record, Delete bool }

// Input is one owner and its instance.
type Input struct {
	Key       cloud.Key
	Goal      Goal
	Finalizer bool // the owner's finalizer was seen in the API
	// Joined: a Node has come out of the instance. Its failures are then the
	// Node's story and never terminal here.
	Joined bool
	// Buried is Lost or Broken when an earlier decision found that. It stays
	// so whatever the cloud says, until the owner is deleted.
	Buried Outlook

	Recorded Recorded // what the owner's record says
	// HadAddresses: addresses of an instance are recorded. Like a recorded
	// provider ID they prove that there was one.
	HadAddresses bool
	// Since is when the instance was first seen; zero: not yet.
	Since time.Time

	Seen Seen
	// Undecodable: the spec cannot be read, so the cloud cannot be asked.
	Undecodable bool
	// Blocked is what prevents a create before the cloud is asked: a wrong
	// spec, missing first-boot data. Nil: nothing.
	Blocked *cloud.Fault
	// Gone: Delete has reported in this reconcile that nothing is left.
	Gone bool

	Last   Last
	Digest string // of the spec as it is now
	Did    Done   // in this reconcile
	// Making: a create has begun in this reconcile that shows nothing yet.
	Making bool
	Now    time.Time // of this reconcile
}

// Seen is what Observe told: an instance or a fault. Both nil: not asked.
type Seen struct {
	Instance *cloud.Instance
	Fault    *cloud.Fault
}

// Recorded is what an owner keeps about its instance. The zero value: nothing.
type Recorded struct {
	ProviderID    string
	State         cloud.State
	Region        string
	Zone          string
	Size          string
	Interruptible bool
}

// RecordOf returns what there is to record about an instance.
func RecordOf(i cloud.Instance) Recorded {
	return Recorded{ProviderID: i.ProviderID, State: i.State, Region: i.Region, Zone: i.Zone, Size: i.Size, Interruptible: i.Interruptible}
}

func (r Recorded) instance(key cloud.Key) cloud.Instance {
	return cloud.Instance{Key: key, ProviderID: r.ProviderID, State: r.State, Region: r.Region, Zone: r.Zone, Size: r.Size, Interruptible: r.Interruptible}
}

// Last is the planner's memory of the last failure. It comes back in the next
// Input; losing it costs one early retry.
type Last struct {
	Op       Op
	Fault    *cloud.Fault
	At       time.Time // of the last attempt
	Attempts int       // in a row that failed with this kind
	Digest   string    // of the spec that failed; empty: unknown
	// Repeat: the same text was already known before the last attempt.
	Repeat bool
}

// Presence is whether there is an instance of ours.
type Presence int

// Presences.
const (
	Unknown Presence = iota
	Absent
	Present
)

// Outlook is what is to be expected.
type Outlook int

// Outlooks. Waiting ends by itself, Failed only with a new spec, Lost and
// Broken only with a new owner.
const (
	Fine    Outlook = iota
	Waiting         // Status.Fault says for what
	Failed          // Status.Fault can never succeed as written
	Lost            // it was recorded and is gone
	Broken          // it exists, never came up and the cloud does not say why
)

// Status is what is known and to be remembered about the instance.
type Status struct {
	Presence Presence
	Instance *cloud.Instance // as seen; nil when not Present
	Outlook  Outlook
	Fault    *cloud.Fault // with Waiting and Failed
	Op       Op           // what the fault belongs to
	Fresh    bool         // the fault came in this reconcile
	Gone     bool         // nothing is left in the cloud
	Did      Done         // in this reconcile
	Last     Last         // for the next Input
}

// Result is what an action brought.
type Result struct {
	Op       Op
	Instance *cloud.Instance // made, or recorded
	Gone     bool            // of a delete: nothing is left
	Fault    *cloud.Fault    // nil: success
}

// After returns the input as it is after an action.
func (in Input) After(r Result) Input {
	if r.Fault != nil {
		in.Last = in.failed(r.Op, r.Fault)
		return in
	}
	switch r.Op {
	case OpCreate:
		in.Last = Last{}
		if i := r.Instance; i != nil && i.ProviderID == "" && len(i.Addresses) == 0 {
			in.Making = true
			return in
		}
		in.Did.Create, in.Seen = true, Seen{Instance: r.Instance}
	case OpRecord:
		in.Did.Record = true
		if r.Instance != nil {
			in.Recorded = RecordOf(*r.Instance)
		}
	case OpDelete:
		in.Did.Delete = true
		if in.Last.Op == OpDelete {
			in.Last = Last{}
		}
		if r.Gone {
			in.Gone = true
			in.Seen = Seen{Fault: &cloud.Fault{Kind: cloud.NotFound, Op: "observe " + in.Key.Name}}
		}
	case OpNone, OpObserve:
	}
	return in
}

func (in Input) failed(op Op, f *cloud.Fault) Last {
	n := 1
	repeat := false
	if old := in.Last; old.Fault != nil && old.Op == op && old.Fault.Kind == f.Kind {
		n = old.Attempts + 1
		repeat = old.Fault.Error() == f.Error()
	}
	return Last{Op: op, Fault: f, At: in.Now, Attempts: n, Digest: in.Digest, Repeat: repeat}
}

func (in Input) had() bool { return in.Recorded.ProviderID != "" || in.HadAddresses }

// Asks reports whether Decide needs to know what the cloud has. An owner
// whose instance was buried is not worth a call.
func (in Input) Asks() bool { return in.Goal == Remove || in.Buried == Fine }

// Decide returns the next step towards the goal.
func Decide(in Input) plan.Decision[Status] {
	switch in.Goal {
	case Remove:
		return remove(in)
	default:
		return keep(in)
	}
}

func keep(in Input) plan.Decision[Status] {
	d := plan.Decision[Status]{Status: Status{Did: in.Did, Last: in.Last}}
	if in.Buried != Fine {
		d.Status.Presence, d.Status.Outlook = Absent, in.Buried
		if in.Buried == Broken {
			d.Status.Presence = Present
		}
		return d
	}
	if i := in.Seen.Instance; i != nil && i.State != cloud.StateLeftover {
		return present(in, d, *i)
	}
	if f := in.Seen.Fault; f != nil && f.Kind != cloud.NotFound && (f.Kind != cloud.Conflict || !in.had()) {
		return unseen(in, d, f)
	}
	if in.Seen == (Seen{}) {
		return unasked(in, d)
	}
	d.Status.Presence = Absent
	if in.had() {
		d.Status.Outlook = Lost
		d.Actions = buryRecord(in)
		return d
	}
	return absent(in, d)
}

// unseen is for a cloud that does not say whether there is an instance, and
// for somebody else's instance under our name: reported, never touched.
func unseen(in Input, d plan.Decision[Status], f *cloud.Fault) plan.Decision[Status] {
	op := OpObserve
	if f.Kind == cloud.Conflict {
		op, d.Status.Presence = OpCreate, Absent
	}
	in.Last = in.failed(op, f)
	return waiting(in, d, f)
}

// unasked is for a spec that cannot be read. An existing instance goes on.
func unasked(in Input, d plan.Decision[Status]) plan.Decision[Status] {
	if in.Blocked == nil {
		return d
	}
	if in.had() {
		d.Status.Outlook, d.Status.Fault, d.Status.Op = Waiting, in.Blocked, OpObserve
		d.Wake = Backoff(in.Blocked, 1)
		return d
	}
	d.Status.Presence = Absent
	return absent(in, d)
}

// absent creates, unless something stands against it.
func absent(in Input, d plan.Decision[Status]) plan.Decision[Status] {
	if in.Goal != Keep || !in.Finalizer {
		return d
	}
	if in.Making {
		d.Wake = pollMaking
		return d
	}
	last := in.Last
	if last.Op == OpObserve {
		d.Status.Last, last = Last{}, Last{}
		in.Last = last
	}
	if wait := in.pause(OpCreate); wait > 0 {
		return shown(in, d, wait)
	}
	if in.Blocked != nil {
		in.Last = in.failed(OpCreate, in.Blocked)
		return waiting(in, d, in.Blocked)
	}
	d.Actions = []plan.Action{plan.CreateInstance{Key: in.Key}}
	if last.Fault != nil { // still true until the cloud says otherwise
		d.Status.Outlook, d.Status.Fault, d.Status.Op = outlook(last.Fault), last.Fault, last.Op
	}
	return d
}

// settle is how long a creating instance may go unrecorded: most are running
// by then, which saves a write. Its addresses are known at once.
const settle = 15 * time.Second

func present(in Input, d plan.Decision[Status], i cloud.Instance) plan.Decision[Status] {
	d.Status.Presence, d.Status.Instance = Present, &i
	if in.Last.Op != OpNone {
		d.Status.Last = Last{}
	}
	if i.State == cloud.StateFailed && !in.Joined && in.Goal == Keep {
		return stillborn(in, d, i)
	}
	young := !in.Joined && i.State == cloud.StateCreating &&
		(in.Since.IsZero() || in.Now.Sub(in.Since) < settle)
	if RecordOf(i) != in.Recorded && !young {
		d.Actions = []plan.Action{plan.RecordInstance{Instance: i}}
	}
	if moving(i) {
		d.Wake = pollMoving
	}
	return d
}

// stillborn is for an instance that failed before it became a Node. Where the
// cloud lacked room it is removed and made again; the record goes first, so
// that a crash in between does not look like a lost instance.
func stillborn(in Input, d plan.Decision[Status], i cloud.Instance) plan.Decision[Status] {
	f := i.Fault
	switch {
	case f == nil:
		d.Status.Outlook = Broken
		d.Actions = buryRecord(in)
		return d
	case f.Kind == cloud.Invalid:
		in.Last = in.failed(OpCreate, f)
		d = waiting(in, d, f)
		d.Actions = buryRecord(in)
		return d
	case f.Kind != cloud.Quota && f.Kind != cloud.NoCapacity:
		if RecordOf(i) != in.Recorded {
			d.Actions = []plan.Action{plan.RecordInstance{Instance: i}}
		}
		in.Last = in.failed(OpCreate, f)
		return waiting(in, d, f)
	}
	d.Status.Presence, d.Status.Instance = Absent, nil
	switch {
	case in.Did != (Done{}) || in.pause(OpDelete) > 0: // one step a time
	case in.had():
		d.Actions = append(d.Actions, plan.RecordInstance{Instance: cloud.Instance{Key: in.Key}})
	case in.Finalizer:
		d.Actions = append(d.Actions, plan.DeleteInstance{Key: in.Key})
	}
	if in.Last.Op == OpNone || in.Last.Op == OpObserve {
		in.Last = in.failed(OpCreate, f)
	}
	d = waiting(in, d, f)
	d.Wake = pollMoving
	return d
}

func buryRecord(in Input) []plan.Action {
	want := in.Recorded
	want.State = cloud.StateUnknown
	if in.Goal != Keep || want == in.Recorded {
		return nil
	}
	return []plan.Action{plan.RecordInstance{Instance: want.instance(in.Key)}}
}

func remove(in Input) plan.Decision[Status] {
	d := plan.Decision[Status]{Status: Status{Did: in.Did, Last: in.Last}}
	if !in.Finalizer {
		return d
	}
	if in.Gone || in.Undecodable && !in.had() {
		d.Status.Presence, d.Status.Gone = Absent, true
		return d
	}
	d = going(in, d)
	if in.Undecodable {
		in.Last = in.failed(OpDelete, in.Blocked)
		return waiting(in, d, in.Blocked)
	}
	if f := in.Seen.Fault; f != nil && f.Kind != cloud.NotFound && f.Kind != cloud.Conflict {
		in.Last = in.failed(OpObserve, f)
		return waiting(in, d, f)
	}
	if wait := in.pause(OpDelete); wait > 0 {
		return shown(in, d, wait)
	}
	if in.Did.Delete {
		d.Wake = pollDelete
		return d
	}
	if in.Last.Op != OpDelete {
		d.Status.Last = Last{}
	}
	d.Actions = append(d.Actions, plan.DeleteInstance{Key: in.Key})
	d.Wake = pollDelete
	return d
}

// going tells what is still seen of an instance that is to be removed.
func going(in Input, d plan.Decision[Status]) plan.Decision[Status] {
	i, f := in.Seen.Instance, in.Seen.Fault
	switch {
	case i != nil && i.State != cloud.StateLeftover:
		d.Status.Presence, d.Status.Instance = Present, i
		if i.State == cloud.StateDeleting && in.Recorded.State != i.State {
			d.Actions = append(d.Actions, plan.RecordInstance{Instance: *i})
		}
	case i != nil, f != nil && (f.Kind == cloud.NotFound || f.Kind == cloud.Conflict):
		d.Status.Presence = Absent
	}
	return d
}
