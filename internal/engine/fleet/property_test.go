package fleet_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"millwright.io/millwright/internal/engine/fleet"
)

func TestDecideNeverDropsBelowWant(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawFleet(rt)
		have, want := live(in.Members), int(*in.Set.Replicas)
		if left := have - len(deleted(fleet.Decide(in))); left < min(have, want) {
			rt.Fatalf("kept %d machines, want at least %d", left, min(have, want))
		}
	})
}

func TestDecideDeletesOnlyLiveMembersOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawFleet(rt)
		gone := deleted(fleet.Decide(in))
		for i, n := range gone {
			if slices.Contains(gone[:i], n) {
				rt.Fatalf("%s is deleted twice", n)
			}
			for _, m := range in.Members {
				if m.Name == n && (m.Deleting || !m.Match || m.Owner == fleet.OwnerOther) {
					rt.Fatalf("deletes %+v, which is not a live member", m)
				}
			}
		}
	})
}

func TestActingReachesTheEmptyPlan(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawFleet(rt)
		in = perform(in, fleet.Decide(in).Actions)
		if d := fleet.Decide(in); len(d.Actions) != 0 {
			rt.Fatalf("a second decision still wants %v", d.Actions)
		}
	})
}

func TestDecideIgnoresInputOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawFleet(rt)
		before := slices.Clone(in.Members)
		want := fleet.Decide(in)
		if diff := cmp.Diff(before, in.Members); diff != "" {
			rt.Fatalf("the input was changed\n%s", diff)
		}
		shuffled := in
		shuffled.Members = slices.Clone(in.Members)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		r.Shuffle(len(shuffled.Members), func(i, j int) {
			shuffled.Members[i], shuffled.Members[j] = shuffled.Members[j], shuffled.Members[i]
		})
		if diff := cmp.Diff(want, fleet.Decide(shuffled)); diff != "" {
			rt.Fatalf("order changed the decision\n%s", diff)
		}
	})
}

func TestNoNameTwice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawFleet(rt)
		used := map[string]bool{}
		for _, m := range in.Members {
			used[m.Name] = true
		}
		for _, n := range created(fleet.Decide(in)) {
			if used[n] {
				rt.Fatalf("name %s is in use", n)
			}
			used[n] = true
		}
	})
}

// Whatever happens to labels between two decisions, a set never owns more than
// it wants by its own doing.
func TestCreatesAreBounded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawFleet(rt)
		for step := range 20 {
			before := owned(in.Members)
			d := fleet.Decide(in)
			if n := len(created(d)); n > 0 && before+n > int(*in.Set.Replicas) {
				rt.Fatalf("step %d: owns %d and creates %d, wants %d", step, before, n, *in.Set.Replicas)
			}
			in = perform(in, d.Actions)
			for i := range in.Members {
				if rapid.Bool().Draw(rt, fmt.Sprintf("drift %d/%d", step, i)) {
					in.Members[i].Match = false
				}
			}
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{10, 1000, 5000} {
		for _, c := range []struct {
			name string
			want int
		}{{"steady", n}, {"shrink", n / 2}, {"grow", n + 100}} {
			b.Run(fmt.Sprintf("%s/%d", c.name, n), func(b *testing.B) {
				in := fleet.Input{Set: setOf(int32(c.want)), Members: fleetOf(n), Now: now}
				b.ReportAllocs()
				for b.Loop() {
					fleet.Decide(in)
				}
			})
		}
	}
}
