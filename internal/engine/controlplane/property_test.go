package controlplane_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"millwright.io/millwright/internal/engine/controlplane"
	"millwright.io/millwright/internal/engine/plan"
)

// draw makes any control plane, sound or not.
func draw(rt *rapid.T) controlplane.Input {
	bit := func(name string) bool { return rapid.Bool().Draw(rt, name) }
	replicas := rapid.SampledFrom([]int{3, 5}).Draw(rt, "replicas")
	in := controlplane.Input{Set: controlplane.Set{
		UID: "set", Generation: 1, Prefix: prefix, Active: bit("active"), Finalizer: bit("finalizer"), Deleting: rapid.IntRange(0, 9).Draw(rt, "deleting") == 0, Replicas: replicas,
		Strategy: rapid.SampledFrom([]controlplane.Strategy{"", controlplane.RollingUpdate, controlplane.OnDelete}).Draw(rt, "strategy"),
		Domains:  zones[:rapid.IntRange(0, 3).Draw(rt, "domains")],
	}}
	for k := range rapid.IntRange(0, 8).Draw(rt, "members") {
		at := func(s string) string { return fmt.Sprintf("%s %d", s, k) }
		i := rapid.IntRange(0, replicas-1).Draw(rt, at("index"))
		m := master(i, named(fmt.Sprintf("m%d", k)))
		m.Owner = rapid.SampledFrom([]controlplane.Owner{controlplane.OwnerOurs, controlplane.OwnerOurs, controlplane.OwnerOurs, controlplane.OwnerNone}).Draw(rt, at("owner"))
		m.Ready, m.Deleting, m.Failed = bit(at("ready")), bit(at("going")), bit(at("failed"))
		m.Domain = rapid.SampledFrom(append([]string{"9"}, zones...)).Draw(rt, at("domain"))
		if bit(at("outdated")) {
			m.Outdated = "providerSpec.vmSize"
		}
		in.Members = append(in.Members, m)
	}
	return in
}

// served counts the indexes with a ready machine that stays.
func served(ms []controlplane.Member) int {
	at := map[int]bool{}
	for _, m := range ms {
		if m.Ready && !m.Deleting {
			at[m.Index] = true
		}
	}
	return len(at)
}

func excess(ms []controlplane.Member) int {
	at, n := map[int]bool{}, 0
	for _, m := range ms {
		if at[m.Index] {
			n++
		}
		at[m.Index] = true
	}
	return n
}

// perform does what a decision says. New machines are not ready.
func perform(in controlplane.Input, d plan.Decision[controlplane.Status]) controlplane.Input {
	in.Members = slices.Clone(in.Members)
	by := func(name string) *controlplane.Member {
		i := slices.IndexFunc(in.Members, func(m controlplane.Member) bool { return m.Name == name })
		return &in.Members[i]
	}
	for _, a := range d.Actions {
		switch a := a.(type) {
		case plan.CreateMachine:
			in.Members = append(in.Members, controlplane.Member{Name: a.Name, UID: "uid-" + a.Name, Owner: controlplane.OwnerOurs,
				Index: controlplane.IndexOf(a.Name), Domain: d.Status.Placed[a.Name], Created: 2})
		case plan.DeleteMachine:
			by(a.Name).Deleting = true
		case plan.AdoptMachine:
			by(a.Name).Owner = controlplane.OwnerOurs
		case plan.ReleaseMachine:
			by(a.Name).Owner = controlplane.OwnerNone
		case plan.AddFinalizer:
			in.Set.Finalizer = true
		case plan.RemoveFinalizer:
			in.Set.Finalizer = false
		}
	}
	return in
}

func TestNoIndexLosesItsReadyMachine(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := draw(rt)
		d := controlplane.Decide(in)
		after := perform(in, d)
		if served(after.Members) < served(in.Members) {
			rt.Fatalf("%v leaves %d of %d indexes with a ready machine", d.Actions, served(after.Members), served(in.Members))
		}
	})
}

func TestOneSurgeAndOneRemoval(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := draw(rt)
		d := controlplane.Decide(in)
		after := perform(in, d)
		// A machine deleted by hand may be one in excess of its index; what we
		// add on top of that is one at most, and none while there is one.
		if got, had := excess(after.Members), excess(in.Members); in.Set.Strategy != controlplane.OnDelete && got > max(1, had) {
			rt.Fatalf("%v makes %d in excess of %d", d.Actions, got, had)
		}
		removals := 0
		for _, a := range d.Actions {
			if _, ok := a.(plan.DeleteMachine); ok {
				removals++
			}
		}
		if removals > 1 || removals > 0 && in.Set.Strategy == controlplane.OnDelete {
			rt.Fatalf("%d removals in %v", removals, d.Actions)
		}
	})
}

func TestDecideIgnoresInputOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := draw(rt)
		want := controlplane.Decide(in)
		shuffled := in
		shuffled.Members = slices.Clone(in.Members)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		r.Shuffle(len(shuffled.Members), func(i, j int) {
			shuffled.Members[i], shuffled.Members[j] = shuffled.Members[j], shuffled.Members[i]
		})
		if diff := cmp.Diff(want, controlplane.Decide(shuffled)); diff != "" {
			rt.Fatalf("order changed the decision\n%s", diff)
		}
	})
}

// With machines that come up and go away, every sound control plane ends as
// its template wants it, evenly spread, and is never below what it had.
func TestRollingConverges(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		replicas := rapid.SampledFrom([]int{3, 5}).Draw(rt, "replicas")
		in := controlplane.Input{Set: controlplane.Set{UID: "set", Prefix: prefix, Active: true, Replicas: replicas, Domains: zones[:rapid.IntRange(1, 3).Draw(rt, "domains")]}}
		for i := range replicas {
			m := master(i)
			m.Owner = controlplane.OwnerNone
			m.Domain = rapid.SampledFrom(append([]string{"9"}, zones...)).Draw(rt, fmt.Sprintf("domain %d", i))
			if rapid.Bool().Draw(rt, fmt.Sprintf("outdated %d", i)) {
				outdated(&m)
			}
			in.Members = append(in.Members, m)
		}
		for range 20 * replicas {
			d := controlplane.Decide(in)
			in = perform(in, d)
			if served(in.Members) < replicas {
				rt.Fatalf("only %d of %d indexes are served after %v", served(in.Members), replicas, d.Actions)
			}
			if len(in.Members) > replicas+1 {
				rt.Fatalf("%d machines of %d", len(in.Members), replicas)
			}
			// The world moves: machines come up, machines go.
			in.Members = slices.DeleteFunc(in.Members, func(m controlplane.Member) bool {
				return m.Deleting && rapid.Bool().Draw(rt, "gone")
			})
			for i := range in.Members {
				if !in.Members[i].Ready && rapid.Bool().Draw(rt, "up") {
					in.Members[i].Ready = true
				}
			}
		}
		// Let it come to rest.
		for range 10 * replicas {
			in = perform(in, controlplane.Decide(in))
			in.Members = slices.DeleteFunc(in.Members, func(m controlplane.Member) bool { return m.Deleting })
			for i := range in.Members {
				in.Members[i].Ready = true
			}
		}
		d := controlplane.Decide(in)
		if got := reasons(d); len(d.Actions) > 0 || got != allFine {
			rt.Fatalf("does not come to rest: %v, %s", d.Actions, got)
		}
		at := map[string]int{}
		for _, m := range in.Members {
			at[m.Domain]++
		}
		for _, z := range in.Set.Domains {
			if n := len(in.Set.Domains); at[z] < replicas/n || at[z] > (replicas+n-1)/n {
				rt.Fatalf("uneven: %v", at)
			}
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	in := active(master(0, outdated), master(1, outdated), master(2, outdated))
	b.ReportAllocs()
	for b.Loop() {
		controlplane.Decide(in)
	}
}
