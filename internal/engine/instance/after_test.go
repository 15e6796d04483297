package instance_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/engine/instance"
)

func TestCreateThatShowsNothingYetIsContinued(t *testing.T) {
	in := wanted(nil).After(instance.Result{Op: instance.OpCreate, Instance: &cloud.Instance{Key: key, State: cloud.StateCreating}})
	d := instance.Decide(in)
	if len(d.Actions) != 0 || d.Wake != time.Second || d.Status.Presence != instance.Absent || d.Status.Did.Create {
		t.Errorf("actions %v, wake %s, status %+v", texts(d.Actions), d.Wake, d.Status)
	}
	if got := texts(instance.Decide(wanted(nil)).Actions); len(got) != 1 || got[0] != "create instance w-1" {
		t.Errorf("next reconcile: %v", got)
	}
}

// An instance that found no room after it was accepted: its record goes, then
// it, then it is made again. One step for each reconcile.
func TestInstanceWithoutRoomIsMadeAgain(t *testing.T) {
	failed := vm(cloud.StateFailed)
	failed.Fault = fault(cloud.NoCapacity)
	in := wanted(func(in *instance.Input) {
		in.Seen, in.Recorded, in.HadAddresses = instance.Seen{Instance: failed}, instance.RecordOf(*failed), true
	})
	d := instance.Decide(in)
	if diff := cmp.Diff(texts(d.Actions), []string{"record instance w-1"}); diff != "" {
		t.Fatalf("first (-got +want):\n%s", diff)
	}
	in = in.After(instance.Result{Op: instance.OpRecord, Instance: &cloud.Instance{Key: key}})
	if d = instance.Decide(in); len(d.Actions) != 0 || d.Status.Outlook != instance.Waiting {
		t.Fatalf("same reconcile: %v, outlook %d", texts(d.Actions), d.Status.Outlook)
	}
	in.Did, in.HadAddresses, in.Last, in.Now = instance.Done{}, false, d.Status.Last, now.Add(3*time.Second)
	if d = instance.Decide(in); len(d.Actions) != 1 || d.Actions[0].String() != "delete instance w-1" {
		t.Fatalf("second: %v", texts(d.Actions))
	}
	in.Last = d.Status.Last
	in = in.After(instance.Result{Op: instance.OpDelete, Gone: true})
	in.Did, in.Gone, in.Now = instance.Done{}, false, now.Add(6*time.Second)
	if d = instance.Decide(in); len(d.Actions) != 0 || d.Wake == 0 || d.Status.Fault == nil {
		t.Fatalf("pause: %v, wake %s, fault %v", texts(d.Actions), d.Wake, d.Status.Fault)
	}
	in.Now = now.Add(time.Minute)
	if d = instance.Decide(in); len(d.Actions) != 1 || d.Actions[0].String() != "create instance w-1" {
		t.Fatalf("third: %v", texts(d.Actions))
	}
}

func TestRemovalIsOverOnlyWhenTheCloudSaysSo(t *testing.T) {
	in := wanted(func(in *instance.Input) {
		in.Goal, in.Seen = instance.Remove, instance.Seen{Instance: vm(cloud.StateDeleting)}
	})
	d := instance.Decide(in)
	if diff := cmp.Diff(texts(d.Actions), []string{"record instance w-1", "delete instance w-1"}); diff != "" {
		t.Fatalf("first (-got +want):\n%s", diff)
	}
	in = in.After(instance.Result{Op: instance.OpRecord, Instance: in.Seen.Instance}).After(instance.Result{Op: instance.OpDelete})
	if d = instance.Decide(in); len(d.Actions) != 0 || d.Status.Gone || d.Wake != 2*time.Second {
		t.Fatalf("running: %v, gone %t, wake %s", texts(d.Actions), d.Status.Gone, d.Wake)
	}
	refused := in.After(instance.Result{Op: instance.OpDelete, Fault: fault(cloud.Denied)})
	if d = instance.Decide(refused); d.Status.Outlook != instance.Waiting || !d.Status.Fresh || d.Wake != 30*time.Second {
		t.Fatalf("refused: outlook %d, fresh %t, wake %s", d.Status.Outlook, d.Status.Fresh, d.Wake)
	}
	if in = in.After(instance.Result{Op: instance.OpDelete, Gone: true}); !instance.Decide(in).Status.Gone {
		t.Fatal("not gone")
	}
}

func TestBuriedStaysBuried(t *testing.T) {
	for buried, presence := range map[instance.Outlook]instance.Presence{instance.Lost: instance.Absent, instance.Broken: instance.Present} {
		in := wanted(func(in *instance.Input) { in.Buried, in.Seen = buried, instance.Seen{Instance: vm(cloud.StateRunning)} })
		d := instance.Decide(in)
		if len(d.Actions) != 0 || d.Status.Outlook != buried || d.Status.Presence != presence || in.Asks() {
			t.Errorf("buried %d: %v, outlook %d, presence %d, asks %t", buried, texts(d.Actions), d.Status.Outlook, d.Status.Presence, in.Asks())
		}
	}
}

func TestUnreadableSpecOfALivingInstanceOnlyWaits(t *testing.T) {
	in := wanted(func(in *instance.Input) {
		in.Undecodable, in.Blocked, in.Seen, in.HadAddresses = true, fault(cloud.Invalid), instance.Seen{}, true
	})
	if d := instance.Decide(in); d.Status.Outlook != instance.Waiting || len(d.Actions) != 0 {
		t.Errorf("outlook %d, actions %v", d.Status.Outlook, texts(d.Actions))
	}
	in.Goal = instance.Remove
	if d := instance.Decide(in); d.Status.Outlook != instance.Waiting || d.Status.Gone || len(d.Actions) != 0 {
		t.Errorf("removing: outlook %d, gone %t, actions %v", d.Status.Outlook, d.Status.Gone, texts(d.Actions))
	}
}

func TestBackoff(t *testing.T) {
	throttled := fault(cloud.Throttled)
	throttled.RetryAfter = 120 * time.Second
	slow := fault(cloud.Transient)
	slow.RetryAfter = 7 * time.Second
	for _, r := range []struct {
		why      string
		f        *cloud.Fault
		attempts int
		want     time.Duration
	}{
		{"no fault", nil, 1, 0},
		{"people free or raise it", fault(cloud.Quota), 9, 25 * time.Second},
		{"the cloud says when", throttled, 1, 120 * time.Second},
		{"it does not say", fault(cloud.Throttled), 2, 40 * time.Second},
		{"room comes back slowly", fault(cloud.NoCapacity), 9, 5 * time.Minute},
		{"a Secret is being repaired", fault(cloud.Credentials), 1, 20 * time.Second},
		{"a role is being given", fault(cloud.Denied), 3, 2 * time.Minute},
		{"a stranger may go", fault(cloud.Conflict), 1, 30 * time.Second},
		{"only a new spec helps", fault(cloud.Invalid), 1, 10 * time.Minute},
		{"soon", fault(cloud.Transient), 2, 10 * time.Second},
		{"as told", slow, 2, 7 * time.Second},
	} {
		if got := instance.Backoff(r.f, r.attempts); got != r.want {
			t.Errorf("%s: %s, want %s", r.why, got, r.want)
		}
	}
}
