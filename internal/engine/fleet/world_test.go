package fleet_test

import (
	"fmt"
	"time"

	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"millwright.io/millwright/internal/engine/fleet"
	"millwright.io/millwright/internal/engine/plan"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// setOf wants n machines; its machines are called workers-xxxxx.
func setOf(n int32) fleet.Set {
	return fleet.Set{UID: "set-uid", Name: "workers", Generation: 1, Replicas: ptr.To(n)}
}

// machine is a running member called workers-<name>, an hour old.
func machine(name string, with ...func(*fleet.Member)) fleet.Member {
	m := fleet.Member{
		Name: "workers-" + name, UID: "uid-" + name, Owner: fleet.OwnerOurs, Match: true, FullyLabeled: true,
		CreatedAt: now.Add(-time.Hour), HasNode: true, ReadySince: now.Add(-50 * time.Minute),
	}
	for _, f := range with {
		f(&m)
	}
	return m
}

func aged(d time.Duration) func(*fleet.Member) {
	return func(m *fleet.Member) { m.CreatedAt = now.Add(-d) }
}
func readyFor(d time.Duration) func(*fleet.Member) {
	return func(m *fleet.Member) { m.ReadySince = now.Add(-d) }
}
func noNode(m *fleet.Member)   { m.HasNode, m.ReadySince = false, time.Time{} }
func notReady(m *fleet.Member) { m.ReadySince = time.Time{} }
func marked(m *fleet.Member)   { m.Marked = true }
func failed(m *fleet.Member)   { m.Failed = true }
func deleting(m *fleet.Member) { m.Deleting = true }
func outside(m *fleet.Member)  { m.Match, m.FullyLabeled = false, false }
func orphan(m *fleet.Member)   { m.Owner = fleet.OwnerNone }
func foreign(m *fleet.Member)  { m.Owner = fleet.OwnerOther }

// fleetOf returns n members that differ in everything that matters.
func fleetOf(n int) []fleet.Member {
	out := make([]fleet.Member, 0, n)
	for i := range n {
		m := machine(fmt.Sprintf("m%04d", i), aged(time.Duration(i)*time.Minute))
		m.Failed = i%17 == 0
		m.HasNode = i%5 != 0
		out = append(out, m)
	}
	return out
}

// drawFleet draws a set and machines around it, in any state.
func drawFleet(t *rapid.T) fleet.Input {
	n := rapid.IntRange(0, 12).Draw(t, "machines")
	in := fleet.Input{Now: now, Set: setOf(int32(rapid.IntRange(0, 12).Draw(t, "want")))}
	in.Set.Policy = rapid.SampledFrom([]fleet.Policy{"", fleet.Random, fleet.Newest, fleet.Oldest}).Draw(t, "policy")
	in.Set.Generation = rapid.Int64Range(1, 3).Draw(t, "generation")
	in.Set.MinReady = time.Duration(rapid.IntRange(0, 2).Draw(t, "minReady")) * 30 * time.Minute
	for i := range n {
		in.Members = append(in.Members, fleet.Member{
			Name:      fmt.Sprintf("workers-m%d", i),
			UID:       fmt.Sprintf("uid-%d", i),
			Owner:     rapid.SampledFrom([]fleet.Owner{fleet.OwnerNone, fleet.OwnerOurs, fleet.OwnerOurs, fleet.OwnerOther}).Draw(t, "owner"),
			Match:     rapid.IntRange(0, 5).Draw(t, "match") > 0,
			Deleting:  rapid.IntRange(0, 4).Draw(t, "deleting") == 0,
			CreatedAt: now.Add(-time.Duration(rapid.IntRange(-1, 4).Draw(t, "age")) * time.Hour),
			Marked:    rapid.IntRange(0, 4).Draw(t, "marked") == 0,
			Failed:    rapid.IntRange(0, 4).Draw(t, "failed") == 0,
			HasNode:   rapid.Bool().Draw(t, "node"),
		})
		if m := &in.Members[i]; m.HasNode && rapid.Bool().Draw(t, "ready") {
			m.ReadySince = now.Add(-time.Duration(rapid.IntRange(0, 90).Draw(t, "readyMinutes")) * time.Minute)
		}
	}
	return in
}

// live counts what the set can keep: matching, not going, not somebody else's.
func live(members []fleet.Member) int {
	n := 0
	for _, m := range members {
		if m.Match && !m.Deleting && m.Owner != fleet.OwnerOther {
			n++
		}
	}
	return n
}

// owned counts everything alive under the set's ownership, matching or not.
func owned(members []fleet.Member) int {
	n := 0
	for _, m := range members {
		if !m.Deleting && (m.Owner == fleet.OwnerOurs || m.Owner == fleet.OwnerNone && m.Match) {
			n++
		}
	}
	return n
}

// perform does to the world what the actions say.
func perform(in fleet.Input, actions []plan.Action) fleet.Input {
	members := append([]fleet.Member(nil), in.Members...)
	for i, a := range actions {
		switch a := a.(type) {
		case plan.CreateMachine:
			members = append(members, fleet.Member{
				Name: a.Name, UID: fmt.Sprintf("new-%s-%d", a.Name, i), Owner: fleet.OwnerOurs, Match: true, CreatedAt: in.Now,
			})
		case plan.DeleteMachine:
			for k := range members {
				if members[k].UID == a.UID {
					members[k].Deleting = true
				}
			}
		case plan.AdoptMachine:
			for k := range members {
				if members[k].UID == a.UID {
					members[k].Owner = fleet.OwnerOurs
				}
			}
		}
	}
	in.Members = members
	return in
}

func names[A plan.Action](actions []plan.Action, name func(A) string) []string {
	var out []string
	for _, a := range actions {
		if a, ok := a.(A); ok {
			out = append(out, name(a))
		}
	}
	return out
}

func created(d plan.Decision[fleet.Status]) []string {
	return names(d.Actions, func(a plan.CreateMachine) string { return a.Name })
}
func deleted(d plan.Decision[fleet.Status]) []string {
	return names(d.Actions, func(a plan.DeleteMachine) string { return a.Name })
}
func adopted(d plan.Decision[fleet.Status]) []string {
	return names(d.Actions, func(a plan.AdoptMachine) string { return a.Name })
}
