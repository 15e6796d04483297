// Package cloudtest is the suite that every cloud.Cloud passes: the fake and
// each real provider against its simulator. It states the contract of package
// cloud as tests and knows no cloud.
//
// It must never be linked into a binary.
//
//	func TestConformance(t *testing.T) {
//		cloudtest.Run(t, func(t *testing.T) *cloudtest.Harness { … })
//	}
package cloudtest

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"millwright.io/millwright/internal/cloud"
)

// Owner is the owner of every instance that the suite's intents name.
const Owner cloud.Owner = "suite-x7k2p"

// Step is a place where a harness can make a cloud fail.
type Step string

// Steps. A harness that cannot fail one returns false from Fail.
const (
	FailObserve    Step = "observe"     // the first request of Observe
	FailCreate     Step = "create"      // Create after some parts were made, before the instance is
	FailDelete     Step = "delete"      // Delete before anything is removed
	FailDeletePart Step = "delete part" // Delete after the instance is gone
	FailList       Step = "list"
)

// Harness is one fresh, empty cloud and the handles to disturb it.
type Harness struct {
	Cloud cloud.Cloud
	// Intent describes a valid instance of Owner. The suite changes the owner
	// where it needs another one.
	Intent func(name, uid string) cloud.Intent
	// Fail makes the next call that reaches step fail with a fault of this
	// kind, once. It returns false when the cloud cannot do that.
	Fail func(step Step, kind cloud.Kind) bool
	// Settle lets long operations end.
	Settle func()
	// Hang makes every call wait until its context ends; nil: cannot.
	Hang func()
	// Vanish removes an instance without its parts, as an admin does in the
	// cloud's console; nil: cannot.
	Vanish func(name string)
	// Leaks names everything that is left in the cloud.
	Leaks func() []string
}

// rounds bounds how many calls a create or a delete may need.
const rounds = 60

// deadline is what the suite allows for one call.
const deadline = 20 * time.Second

// Run runs the suite. fresh is called once for each of its tests.
func Run(t *testing.T, fresh func(t *testing.T) *Harness) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(*testing.T, *Harness)
	}{
		{"ObserveReportsNotFound", testNotFound},
		{"CreateIsIdempotentOnKey", testIdempotent},
		{"CreateReachesRunningWithStableIdentity", testIdentity},
		{"ForeignInstanceIsNeverTouched", testForeign},
		{"DeleteEndsInNotFound", testDelete},
		{"DeleteOfNothingIsNotFound", testDeleteNothing},
		{"CreateContinuesAfterPartialFailure", testPartialCreate},
		{"DeleteRemovesPartsOfFailedCreate", testPartialDelete},
		{"DeleteContinuesAfterFailure", testDeleteFails},
		{"LeftoversAreListedAndDeleted", testLeftovers},
		{"ListKnowsOwners", testList},
		{"UpdateChangesNoIdentity", testUpdate},
		{"FaultsAreClassified", testFaults},
		{"ContextIsHonoured", testContext},
		{"ConcurrentCreatesMakeOne", testConcurrentSame},
		{"ConcurrentInstancesDoNotMix", testConcurrentMany},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, fresh(t)) })
	}
}

func callContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	return ctx
}

// running creates an instance and waits until it runs.
func (h *Harness) running(t *testing.T, in cloud.Intent) cloud.Instance {
	t.Helper()
	var last cloud.Instance
	for range rounds {
		i, err := h.Cloud.Create(callContext(t), in)
		if err != nil {
			t.Fatalf("create %s: %v", in.Key.Name, err)
		}
		if last = i; i.State == cloud.StateRunning {
			return i
		}
		h.Settle()
	}
	t.Fatalf("%s is %s after %d calls, want Running", in.Key.Name, last.State, rounds)
	return last
}

// gone deletes an instance until nothing is left of it. Faults are counted,
// not fatal, when tolerate is set.
func (h *Harness) gone(t *testing.T, key cloud.Key, tolerate int) {
	t.Helper()
	for range rounds {
		err := h.Cloud.Delete(callContext(t), key)
		switch {
		case cloud.KindOf(err) == cloud.NotFound:
			return
		case err != nil && tolerate == 0:
			t.Fatalf("delete %s: %v", key.Name, err)
		case err != nil:
			tolerate--
		}
		h.Settle()
	}
	t.Fatalf("%s is not gone after %d calls of Delete", key.Name, rounds)
}

func (h *Harness) clean(t *testing.T) {
	t.Helper()
	if h.Leaks == nil {
		return
	}
	if left := h.Leaks(); len(left) != 0 {
		t.Errorf("left in the cloud: %v, want nothing", left)
	}
}

func wantKind(t *testing.T, err error, want cloud.Kind) {
	t.Helper()
	if got := cloud.KindOf(err); got != want {
		t.Fatalf("kind of %v: got %q, want %q", err, got, want)
	}
	if err != nil && cloud.FaultOf(err) == nil {
		t.Fatalf("%v carries no *cloud.Fault", err)
	}
}

func (h *Harness) names(t *testing.T, owner cloud.Owner) []string {
	t.Helper()
	list, err := h.Cloud.List(callContext(t), owner)
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	out := []string{}
	for _, i := range list {
		out = append(out, i.Key.Name)
	}
	return out
}

func wantNames(t *testing.T, got []string, want ...string) {
	t.Helper()
	if want == nil {
		want = []string{}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("listed names (-want +got):\n%s", d)
	}
}
