package instance_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/engine/instance"
	"millwright.io/millwright/internal/engine/plan"
)

var (
	now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	key = cloud.Key{UID: "u1", Name: "w-1"}
)

func fault(k cloud.Kind) *cloud.Fault {
	return &cloud.Fault{Kind: k, Op: "test", Message: "the cloud says " + string(k)}
}

func wanted(change func(*instance.Input)) instance.Input {
	in := instance.Input{Key: key, Goal: instance.Keep, Finalizer: true, Digest: "d1", Now: now,
		Seen: instance.Seen{Fault: fault(cloud.NotFound)}}
	if change != nil {
		change(&in)
	}
	return in
}

func vm(s cloud.State) *cloud.Instance {
	return &cloud.Instance{Key: key, ProviderID: "azure:///w-1", State: s, Region: "r", Zone: "1", Size: "s"}
}

func texts(as []plan.Action) []string {
	var out []string
	for _, a := range as {
		out = append(out, a.String())
	}
	return out
}

func TestDecide(t *testing.T) {
	rows := []struct {
		name, why string
		in        instance.Input
		actions   []string
		outlook   instance.Outlook
		wake      time.Duration
	}{
		{name: "creates", why: "nothing there, finalizer seen", in: wanted(nil), actions: []string{"create instance w-1"}},
		{name: "finalizer first", why: "an instance without finalizer may leak", in: wanted(func(in *instance.Input) { in.Finalizer = false })},
		{name: "never a second one", why: "it was recorded and is gone", outlook: instance.Lost,
			in:      wanted(func(in *instance.Input) { in.Recorded.ProviderID = "azure:///w-1" }),
			actions: []string{"record instance w-1"}},
		{name: "addresses are proof too", why: "they are recorded before the provider ID", outlook: instance.Lost,
			in:      wanted(func(in *instance.Input) { in.HadAddresses = true }),
			actions: []string{"record instance w-1"}},
		{name: "lost but replaced by a stranger", why: "the name was taken over", outlook: instance.Lost,
			in: wanted(func(in *instance.Input) {
				in.HadAddresses, in.Recorded.State = true, cloud.StateUnknown
				in.Seen.Fault = fault(cloud.Conflict)
			})},
		{name: "a stranger has our name", why: "reported, never touched", outlook: instance.Waiting, wake: 30 * time.Second,
			in: wanted(func(in *instance.Input) { in.Seen.Fault = fault(cloud.Conflict) })},
		{name: "credentials", why: "nothing is known without them", outlook: instance.Waiting, wake: 20 * time.Second,
			in: wanted(func(in *instance.Input) { in.Seen.Fault = fault(cloud.Credentials) })},
		{name: "quota pause", why: "ten seconds ago it was full", outlook: instance.Waiting, wake: 15 * time.Second,
			in: wanted(func(in *instance.Input) {
				in.Last = instance.Last{Op: instance.OpCreate, Fault: fault(cloud.Quota), At: now.Add(-10 * time.Second), Attempts: 3}
			})},
		{name: "quota again", why: "the pause is over", outlook: instance.Waiting, actions: []string{"create instance w-1"},
			in: wanted(func(in *instance.Input) {
				in.Last = instance.Last{Op: instance.OpCreate, Fault: fault(cloud.Quota), At: now.Add(-25 * time.Second), Attempts: 3}
			})},
		{name: "invalid rests", why: "it cannot succeed as written", outlook: instance.Failed, wake: 9 * time.Minute,
			in: wanted(func(in *instance.Input) {
				in.Last = instance.Last{Op: instance.OpCreate, Fault: fault(cloud.Invalid), At: now.Add(-time.Minute), Attempts: 1, Digest: "d1"}
			})},
		{name: "invalid, new spec", why: "somebody repaired it", outlook: instance.Failed, actions: []string{"create instance w-1"},
			in: wanted(func(in *instance.Input) {
				in.Last = instance.Last{Op: instance.OpCreate, Fault: fault(cloud.Invalid), At: now.Add(-time.Minute), Attempts: 1, Digest: "d0"}
			})},
		{name: "blocked", why: "no user data yet", outlook: instance.Waiting, wake: 5 * time.Second,
			in: wanted(func(in *instance.Input) { in.Blocked = fault(cloud.Transient) })},
		{name: "creating is not recorded at once", why: "most are running in seconds", wake: 3 * time.Second,
			in: wanted(func(in *instance.Input) { in.Seen = instance.Seen{Instance: vm(cloud.StateCreating)} })},
		{name: "slow creation is recorded", why: "columns shall fill", wake: 3 * time.Second, actions: []string{"record instance w-1"},
			in: wanted(func(in *instance.Input) {
				in.Seen, in.Since = instance.Seen{Instance: vm(cloud.StateCreating)}, now.Add(-20*time.Second)
			})},
		{name: "running", why: "record what is new", actions: []string{"record instance w-1"},
			in: wanted(func(in *instance.Input) { in.Seen = instance.Seen{Instance: vm(cloud.StateRunning)} })},
		{name: "running and recorded", why: "nothing to do",
			in: wanted(func(in *instance.Input) {
				in.Seen, in.Recorded = instance.Seen{Instance: vm(cloud.StateRunning)}, instance.RecordOf(*vm(cloud.StateRunning))
			})},
		{name: "leftovers of a failed create", why: "create continues", actions: []string{"create instance w-1"},
			in: wanted(func(in *instance.Input) { in.Seen = instance.Seen{Instance: vm(cloud.StateLeftover)} })},
		{name: "broken", why: "failed without a reason", outlook: instance.Broken, actions: []string{"record instance w-1"},
			in: wanted(func(in *instance.Input) { in.Seen = instance.Seen{Instance: vm(cloud.StateFailed)} })},
		{name: "no room, found out later", why: "removed, to be made again", outlook: instance.Waiting, wake: 3 * time.Second,
			actions: []string{"delete instance w-1"},
			in: wanted(func(in *instance.Input) {
				i := vm(cloud.StateFailed)
				i.Fault, in.Seen = fault(cloud.NoCapacity), instance.Seen{Instance: i}
			})},
		{name: "no room, recorded", why: "the record goes first", outlook: instance.Waiting, wake: 3 * time.Second,
			actions: []string{"record instance w-1"},
			in: wanted(func(in *instance.Input) {
				i := vm(cloud.StateFailed)
				i.Fault, in.Seen, in.HadAddresses = fault(cloud.NoCapacity), instance.Seen{Instance: i}, true
			})},
		{name: "failed after it joined", why: "then the Node tells", actions: []string{"record instance w-1"},
			in: wanted(func(in *instance.Input) {
				in.Seen, in.Joined = instance.Seen{Instance: vm(cloud.StateFailed)}, true
			})},
		{name: "removes what may be left", why: "the VM is gone, its parts may not be", wake: 2 * time.Second,
			actions: []string{"delete instance w-1"}, in: wanted(func(in *instance.Input) { in.Goal = instance.Remove })},
		{name: "hold", why: "the drain is on", in: wanted(func(in *instance.Input) { in.Goal = instance.Hold })},
		{name: "remove, no credentials", why: "waits for them", outlook: instance.Waiting, wake: 20 * time.Second,
			in: wanted(func(in *instance.Input) {
				in.Goal, in.Seen.Fault = instance.Remove, fault(cloud.Credentials)
			})},
		{name: "remove, unreadable spec, never made", why: "nothing can be there",
			in: wanted(func(in *instance.Input) {
				in.Goal, in.Undecodable, in.Blocked, in.Seen = instance.Remove, true, fault(cloud.Invalid), instance.Seen{}
			})},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			d := instance.Decide(r.in)
			if diff := cmp.Diff(texts(d.Actions), r.actions); diff != "" {
				t.Errorf("%s: actions (-got +want):\n%s", r.why, diff)
			}
			if d.Status.Outlook != r.outlook || d.Wake != r.wake {
				t.Errorf("%s: outlook %d, wake %s; want %d, %s", r.why, d.Status.Outlook, d.Wake, r.outlook, r.wake)
			}
		})
	}
}

// One error code, three meanings: none of them is terminal.
func TestFaultsThatPassAreNeverTerminal(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := draw(rt)
		for _, f := range []*cloud.Fault{in.Seen.Fault, in.Last.Fault, in.Blocked} {
			if f != nil && f.Kind == cloud.Invalid {
				f.Kind = cloud.Quota
			}
		}
		if i := in.Seen.Instance; i != nil {
			i.Fault = fault(cloud.Quota)
		}
		if d := instance.Decide(in); d.Status.Outlook == instance.Failed || d.Status.Outlook == instance.Broken {
			rt.Fatalf("outlook %d for %+v", d.Status.Outlook, in)
		}
	})
}

func draw(rt *rapid.T) instance.Input {
	kinds := []cloud.Kind{cloud.NotFound, cloud.Conflict, cloud.Throttled, cloud.Quota, cloud.NoCapacity, cloud.Credentials, cloud.Denied, cloud.Invalid, cloud.Transient}
	maybe := func(label string) *cloud.Fault {
		if rapid.Bool().Draw(rt, label) {
			return fault(rapid.SampledFrom(kinds).Draw(rt, label+" kind"))
		}
		return nil
	}
	in := instance.Input{
		Key: key, Now: now, Digest: "d1",
		Goal:         rapid.SampledFrom([]instance.Goal{instance.Keep, instance.Hold, instance.Remove}).Draw(rt, "goal"),
		Finalizer:    rapid.Bool().Draw(rt, "finalizer"),
		Joined:       rapid.Bool().Draw(rt, "joined"),
		HadAddresses: rapid.Bool().Draw(rt, "had"),
		Blocked:      maybe("blocked"),
	}
	states := []cloud.State{cloud.StateCreating, cloud.StateRunning, cloud.StateFailed, cloud.StateDeleting, cloud.StateLeftover, cloud.StateStopped}
	if rapid.Bool().Draw(rt, "there") {
		i := vm(rapid.SampledFrom(states).Draw(rt, "state"))
		i.Fault = maybe("instance fault")
		in.Seen.Instance = i
	} else {
		in.Seen.Fault = maybe("seen")
	}
	if f := maybe("last"); f != nil {
		in.Last = instance.Last{
			Op:    rapid.SampledFrom([]instance.Op{instance.OpObserve, instance.OpCreate, instance.OpDelete}).Draw(rt, "last op"),
			Fault: f, At: now.Add(-time.Duration(rapid.IntRange(0, 900).Draw(rt, "ago")) * time.Second), Attempts: rapid.IntRange(1, 9).Draw(rt, "attempts"),
		}
	}
	return in
}

func TestDecideNeverCreatesWithoutFinalizerNorBesideDelete(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := draw(rt)
		creates, deletes := 0, 0
		for _, a := range instance.Decide(in).Actions {
			switch a.(type) {
			case plan.CreateInstance:
				creates++
			case plan.DeleteInstance:
				deletes++
			}
		}
		switch {
		case creates+deletes > 1:
			rt.Fatalf("%d creates and %d deletes at once for %+v", creates, deletes, in)
		case creates > 0 && (!in.Finalizer || in.Goal != instance.Keep || in.HadAddresses || in.Recorded.ProviderID != ""):
			rt.Fatalf("create for %+v", in)
		case deletes > 0 && !in.Finalizer:
			rt.Fatalf("delete without finalizer for %+v", in)
		}
	})
}
