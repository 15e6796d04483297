package fleet

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"millwright.io/millwright/internal/engine/plan"
)

// Bands of the Random policy, higher goes first. A machine without a node is
// less of a loss than one that runs pods; among equals a hash decides, so that
// the choice is neither by name nor different each time.
const (
	bandAsked  = 50 // marked or failed
	bandNoNode = 40
	bandRest   = 20
	bandFirst  = 100 // marked or failed, under the policies by age
	bandByAge  = 50
)

// victim is a member with its place in the queue.
type victim struct {
	Member
	band int
	age  int64 // whole seconds, ≥ 0
	tie  uint64
}

// first returns the n members that go first under the set's policy, in that
// order.
func first(in Input, live []Member, n int) ([]Member, *plan.Condition) {
	band, byAge, ok := policy(in.Set.Policy)
	if !ok {
		c := invalid(ReasonUnknownPolicy, fmt.Sprintf("unsupported delete policy %s, must be one of 'Random', 'Newest', or 'Oldest'", in.Set.Policy))
		return nil, &c
	}
	queue := make([]victim, 0, len(live))
	for _, m := range live {
		queue = append(queue, victim{Member: m, band: band(m), age: ageOf(m, in.Now), tie: tie(in.Set.UID, m.UID)})
	}
	slices.SortFunc(queue, func(a, b victim) int {
		return cmp.Or(
			cmp.Compare(b.band, a.band),
			byAge(a, b),
			cmp.Compare(a.tie, b.tie),
			cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.UID, b.UID),
		)
	})
	out := make([]Member, 0, n)
	for _, v := range queue[:n] {
		out = append(out, v.Member)
	}
	return out, nil
}

// policy returns the bands and the order within a band.
func policy(p Policy) (band func(Member) int, byAge func(a, b victim) int, ok bool) {
	switch p {
	case Random, "":
		return randomBand, func(victim, victim) int { return 0 }, true
	case Newest:
		return ageBand, func(a, b victim) int { return youngerFirst(a, b) }, true
	case Oldest:
		return ageBand, func(a, b victim) int { return youngerFirst(b, a) }, true
	}
	return nil, nil, false
}

func randomBand(m Member) int {
	switch {
	case m.Marked || m.Failed:
		return bandAsked
	case !m.HasNode:
		return bandNoNode
	}
	return bandRest
}

func ageBand(m Member) int {
	if m.Marked || m.Failed {
		return bandFirst
	}
	return bandByAge
}

// youngerFirst orders within the band of the policies by age; those who were
// asked to go all rank the same.
func youngerFirst(a, b victim) int {
	if a.band == bandFirst && b.band == bandFirst {
		return 0
	}
	return cmp.Compare(a.age, b.age)
}

// ageOf counts whole seconds; unknown and future creation times are age 0.
func ageOf(m Member, now time.Time) int64 {
	if m.CreatedAt.IsZero() || m.CreatedAt.After(now) {
		return 0
	}
	return int64(now.Sub(m.CreatedAt) / time.Second)
}

// tie shuffles equals the same way each time, whatever they are called.
func tie(set, member string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(set))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(member))
	return h.Sum64()
}
