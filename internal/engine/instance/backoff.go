package instance

import (
	"time"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/engine/plan"
)

// pollMoving is how often an instance in transition is looked at.
const pollMoving = 3 * time.Second

// pollMaking is how often a create is continued that shows nothing yet.
const pollMaking = time.Second

// pollDelete is how often the next step of a removal is tried.
const pollDelete = 2 * time.Second

// relook is how long a spec that the cloud called invalid rests.
const relook = 10 * time.Minute

// moving reports whether the instance will change by itself soon.
func moving(i cloud.Instance) bool {
	switch i.State {
	case cloud.StateCreating, cloud.StateUpdating, cloud.StateStarting, cloud.StateStopping, cloud.StateDeallocating, cloud.StateDeleting:
		return true
	case cloud.StateRunning, cloud.StateStopped, cloud.StateDeallocated, cloud.StateFailed, cloud.StateUnknown, cloud.StateLeftover:
		return i.Pending != nil
	}
	return i.Pending != nil
}

// Backoff is how long to wait after the given number of failures in a row
// (at least 1) of this kind. It is 0 for no fault.
func Backoff(f *cloud.Fault, attempts int) time.Duration {
	if f == nil {
		return 0
	}
	switch f.Kind {
	case cloud.Invalid:
		return relook
	case cloud.Quota: // freed or raised by people, who watch
		return 25 * time.Second
	case cloud.NoCapacity:
		return double(30*time.Second, attempts, 5*time.Minute)
	case cloud.Throttled:
		if f.RetryAfter > 0 {
			return f.RetryAfter
		}
		return double(20*time.Second, attempts, 5*time.Minute)
	case cloud.Credentials:
		return double(20*time.Second, attempts, time.Minute)
	case cloud.Denied, cloud.Conflict:
		return double(30*time.Second, attempts, 2*time.Minute)
	case cloud.NotFound, cloud.Transient:
	}
	if f.RetryAfter > 0 {
		return f.RetryAfter
	}
	return double(5*time.Second, attempts, time.Minute)
}

func double(first time.Duration, attempts int, limit time.Duration) time.Duration {
	for ; attempts > 1 && first < limit; attempts-- {
		first *= 2
	}
	return min(first, limit)
}

// pause returns how long the last failure of op still forbids the next try.
// A new spec ends the rest of an invalid one.
func (in Input) pause(op Op) time.Duration {
	l := in.Last
	if l.Op != op || l.Fault == nil || l.At.IsZero() {
		return 0
	}
	if l.Fault.Kind == cloud.Invalid && l.Digest != "" && l.Digest != in.Digest {
		return 0
	}
	wait := Backoff(l.Fault, l.Attempts)
	left := l.At.Add(wait).Sub(in.Now)
	if l.Fault.Kind != cloud.Throttled && left < wait/8 {
		return 0 // wakes are spread and may come a little early
	}
	return max(0, left)
}

func outlook(f *cloud.Fault) Outlook {
	if f.Kind == cloud.Invalid {
		return Failed
	}
	return Waiting
}

// waiting reports a fault that was met in this very decision.
func waiting(in Input, d plan.Decision[Status], f *cloud.Fault) plan.Decision[Status] {
	return shown(in, d, Backoff(f, in.Last.Attempts))
}

// shown reports the last fault and waits.
func shown(in Input, d plan.Decision[Status], wait time.Duration) plan.Decision[Status] {
	l := in.Last
	d.Status.Last = l
	d.Status.Outlook, d.Status.Fault, d.Status.Op = outlook(l.Fault), l.Fault, l.Op
	if l.Op == OpDelete || l.Op == OpObserve {
		d.Status.Outlook = Waiting
	}
	d.Status.Fresh = l.At.Equal(in.Now)
	d.Wake = wait
	return d
}
