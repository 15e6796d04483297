package fleet_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"millwright.io/millwright/internal/engine/fleet"
	"millwright.io/millwright/internal/engine/plan"
)

func TestDecide(t *testing.T) {
	rows := []struct {
		name, why string
		set       fleet.Set
		members   []fleet.Member
		creates   int
		deletes   []string
		adopts    []string
	}{
		{name: "nothing to do", why: "the number is right", set: setOf(1), members: []fleet.Member{machine("a")}},
		{name: "grows from nothing", why: "all are missing", set: setOf(3), creates: 3},
		{name: "replaces a deleting one", why: "a machine on its way out does not count", set: setOf(1), members: []fleet.Member{machine("a", deleting)}, creates: 1},
		{name: "keeps a failed one", why: "health checks replace, sets do not", set: setOf(1), members: []fleet.Member{machine("a", failed)}},
		{name: "adopts instead of creating", why: "an ownerless match is a member", set: setOf(1), members: []fleet.Member{machine("a", orphan)}, adopts: []string{"workers-a"}},
		{name: "leaves foreign machines alone", why: "somebody else owns it", set: setOf(1), members: []fleet.Member{machine("a", foreign)}, creates: 1},
		{name: "the copied machine goes", why: "it has no node yet", set: setOf(1), members: []fleet.Member{machine("a"), machine("copy", orphan, noNode)}, adopts: []string{"workers-copy"}, deletes: []string{"workers-copy"}},
		{name: "to zero", why: "all go", set: setOf(0), members: []fleet.Member{machine("a"), machine("b", noNode)}, deletes: []string{"workers-b", "workers-a"}},
		{name: "members outside count", why: "else it would create for ever", set: setOf(3), members: []fleet.Member{machine("a", outside), machine("b", outside), machine("c", outside), machine("d", outside), machine("e", outside)}},
		{name: "members outside count one by one", why: "only the rest is missing", set: setOf(3), members: []fleet.Member{machine("a", outside), machine("b")}, creates: 1},
		{name: "members outside are not deleted", why: "somebody took them out on purpose", set: setOf(1), members: []fleet.Member{machine("a", outside), machine("b")}},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			d := fleet.Decide(fleet.Input{Set: r.set, Members: r.members, Now: now})
			if got := len(created(d)); got != r.creates {
				t.Errorf("%s: got %d creates, want %d", r.why, got, r.creates)
			}
			if diff := cmp.Diff(r.deletes, deleted(d)); diff != "" {
				t.Errorf("%s: deletes (-want +got)\n%s", r.why, diff)
			}
			if diff := cmp.Diff(r.adopts, adopted(d)); diff != "" {
				t.Errorf("%s: adoptions (-want +got)\n%s", r.why, diff)
			}
			if d.Status.Creating != r.creates || d.Status.Deleting != len(r.deletes) {
				t.Errorf("status tells %d creates and %d deletes, want %d and %d", d.Status.Creating, d.Status.Deleting, r.creates, len(r.deletes))
			}
		})
	}
}

func TestDecideOrdersVictims(t *testing.T) {
	rows := []struct {
		name    string
		policy  fleet.Policy
		want    int32
		members []fleet.Member
		gone    []string
	}{
		{"random: marked before no node", fleet.Random, 2, []fleet.Member{machine("a"), machine("b", noNode), machine("c", marked)}, []string{"workers-c"}},
		{"random: failed before no node", fleet.Random, 1, []fleet.Member{machine("a"), machine("b", noNode), machine("c", failed)}, []string{"workers-c", "workers-b"}},
		{"empty policy is random", "", 1, []fleet.Member{machine("a"), machine("b", noNode)}, []string{"workers-b"}},
		{"random: readiness does not matter", "", 1, []fleet.Member{machine("a", notReady), machine("b", noNode)}, []string{"workers-b"}},
		{"newest goes", fleet.Newest, 2, []fleet.Member{machine("a", aged(time.Hour)), machine("b", aged(time.Minute)), machine("c", aged(2*time.Hour))}, []string{"workers-b"}},
		{"newest: marked before young", fleet.Newest, 1, []fleet.Member{machine("a", aged(0)), machine("b", aged(time.Hour), marked)}, []string{"workers-b"}},
		{"newest: no node does not matter", fleet.Newest, 1, []fleet.Member{machine("a", aged(time.Minute)), machine("b", aged(time.Hour), noNode)}, []string{"workers-a"}},
		{"oldest goes", fleet.Oldest, 1, []fleet.Member{machine("a", aged(time.Hour)), machine("b", aged(time.Minute)), machine("c", aged(2*time.Hour))}, []string{"workers-c", "workers-a"}},
		{"oldest: marked before old", fleet.Oldest, 1, []fleet.Member{machine("a", aged(0), marked), machine("b", aged(time.Hour))}, []string{"workers-a"}},
		{"oldest: a future birth is age zero", fleet.Oldest, 1, []fleet.Member{machine("a", aged(-time.Hour)), machine("b", aged(time.Second))}, []string{"workers-b"}},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			set := setOf(r.want)
			set.Policy = r.policy
			d := fleet.Decide(fleet.Input{Set: set, Members: r.members, Now: now})
			if diff := cmp.Diff(r.gone, deleted(d)); diff != "" {
				t.Errorf("deletes (-want +got)\n%s", diff)
			}
		})
	}
}

func TestDecideCounts(t *testing.T) {
	set := setOf(4)
	set.MinReady = 10 * time.Minute
	members := []fleet.Member{
		machine("a"),
		machine("b", readyFor(4*time.Minute)),
		machine("c", readyFor(7*time.Minute), func(m *fleet.Member) { m.FullyLabeled = false }),
		machine("d", noNode),
		machine("e", deleting),
		machine("f", outside),
	}
	d := fleet.Decide(fleet.Input{Set: set, Members: members, Now: now})
	want := fleet.Status{Replicas: 4, FullyLabeled: 3, Ready: 3, Available: 1, Generation: 1, Want: 4, Outside: 1}
	if diff := cmp.Diff(want, d.Status); diff != "" {
		t.Errorf("status (-want +got)\n%s", diff)
	}
	if d.Wake != 3*time.Minute {
		t.Errorf("wakes after %v, want 3m0s: the next member becomes available then", d.Wake)
	}
	later := fleet.Decide(fleet.Input{Set: set, Members: members, Now: now.Add(d.Wake)})
	if later.Status.Available != 2 {
		t.Errorf("available after the wake: %d, want 2", later.Status.Available)
	}
}

func TestDecideRefusesWhatCannotWork(t *testing.T) {
	long := setOf(1)
	long.Name = strings.Repeat("x", 70)
	mismatch := setOf(1)
	mismatch.Problems = []string{"`selector` does not match template `labels`"}
	unknown := setOf(0)
	unknown.Policy = "Eldest"
	empty := setOf(1)
	empty.Replicas = nil
	rows := []struct {
		name, reason string
		set          fleet.Set
		members      []fleet.Member
		says         []string
	}{
		{"name too long", fleet.ReasonNameTooLong, long, nil, []string{"metadata.name", long.Name, "76", "63", "57"}},
		{"template outside selector", fleet.ReasonInvalidSet, mismatch, nil, []string{"`selector` does not match template `labels`"}},
		{"unknown policy", fleet.ReasonUnknownPolicy, unknown, []fleet.Member{machine("a")}, []string{"unsupported delete policy Eldest, must be one of 'Random', 'Newest', or 'Oldest'"}},
		{"no replicas", fleet.ReasonNoReplicas, empty, []fleet.Member{machine("a")}, []string{"the Replicas field in Spec for machineset workers is nil, this should not be allowed"}},
		{"negative", fleet.ReasonBadReplicas, setOf(-1), []fleet.Member{machine("a")}, []string{"spec.replicas", "-1"}},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			d := fleet.Decide(fleet.Input{Set: r.set, Members: r.members, Now: now})
			if len(d.Actions) != 0 {
				t.Errorf("got actions %v, want none", d.Actions)
			}
			c := condition(d, fleet.Valid)
			if c.Status != corev1.ConditionFalse || c.Reason != r.reason {
				t.Errorf("got Valid=%s %s, want False %s", c.Status, c.Reason, r.reason)
			}
			for _, s := range r.says {
				if !strings.Contains(c.Message, s) {
					t.Errorf("message %q does not say %q", c.Message, s)
				}
			}
			if d.Status.Replicas != int32(len(r.members)) {
				t.Errorf("counts %d, want %d: a broken set still tells what it has", d.Status.Replicas, len(r.members))
			}
		})
	}
}

func TestDecideTellsSelectorDrift(t *testing.T) {
	var members []fleet.Member
	for _, n := range []string{"m1", "m2", "m3", "m4", "m5"} {
		members = append(members, machine(n, outside))
	}
	d := fleet.Decide(fleet.Input{Set: setOf(3), Members: members, Now: now})
	c := condition(d, fleet.MembersMatch)
	if c.Reason != fleet.ReasonSelectorDrift || !strings.HasPrefix(c.Message, "owned 5 of 3 wanted, 5 outside the selector: workers-m1, workers-m2") {
		t.Errorf("got %+v, want the drift with numbers and names", c)
	}
}

func TestNamesAreStableAndNew(t *testing.T) {
	in := fleet.Input{Set: setOf(3), Members: []fleet.Member{machine("a")}, Now: now}
	first := created(fleet.Decide(in))
	if diff := cmp.Diff(first, created(fleet.Decide(in))); diff != "" {
		t.Fatalf("one picture gave two sets of names\n%s", diff)
	}
	form := regexp.MustCompile(`^workers-[bcdfghjklmnpqrstvwxz2456789]{5}$`)
	for _, n := range first {
		if !form.MatchString(n) {
			t.Errorf("name %q is not of the generateName form", n)
		}
	}
	next := in
	next.Set.Generation = 2
	gone := in
	gone.Members = []fleet.Member{machine("a"), machine("b", deleting)}
	for why, other := range map[string]fleet.Input{"a new generation": next, "another member, though deleting": gone} {
		if diff := cmp.Diff(first, created(fleet.Decide(other))); diff == "" {
			t.Errorf("%s must give new names, got %v again", why, first)
		}
	}
	taken := in
	taken.Taken = first[:1]
	if got := created(fleet.Decide(taken)); got[0] != first[1] || len(got) != 2 {
		t.Errorf("with %v taken got %v, want the next names", first[:1], got)
	}
}

func TestDecideBoundsOneStep(t *testing.T) {
	in := fleet.Input{Set: setOf(2_000_000_000), Now: now}
	if got := len(created(fleet.Decide(in))); got > 1000 {
		t.Errorf("one decision creates %d machines, want a bounded step", got)
	}
}

func condition(d plan.Decision[fleet.Status], name string) plan.Condition {
	for _, c := range d.Conditions {
		if c.Type == name {
			return c
		}
	}
	return plan.Condition{}
}
