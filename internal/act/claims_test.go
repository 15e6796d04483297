package act_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	machinev1 "github.com/openshift/api/machine/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/act"
	"millwright.io/millwright/internal/engine/budget"
	"millwright.io/millwright/internal/telemetry"
)

func members(names ...string) []budget.Member {
	var out []budget.Member
	for _, n := range names {
		out = append(out, budget.Member{Node: n, Ready: true})
	}
	return out
}

// claims are the nodes that the bench's set has claims on, and their claimers.
func (b *bench) claims() map[string]string {
	b.t.Helper()
	b.get(b.owner)
	claims, err := budget.Decode(b.owner.Annotations[telemetry.AnnotationClaims])
	if err != nil {
		b.t.Fatal(err)
	}
	out := map[string]string{}
	for _, c := range claims {
		out[c.Node] = c.By
	}
	return out
}

func TestClaimIsKeptOnceAndReleasedByItsOwner(t *testing.T) {
	b := newBench(t)
	r := act.New(b.api)
	a := act.Account{Object: b.owner, Limit: budget.Of(1), Members: members("n1", "n2")}
	for range 2 {
		if err := r.Claim(t.Context(), a, "n1", "machinehealthcheck/check", start); err != nil {
			t.Fatal(err)
		}
	}
	if b.api.Writes() != 1 {
		t.Errorf("claiming twice made %d writes, want 1", b.api.Writes())
	}
	err := r.Claim(t.Context(), a, "n2", "machineconfigpool/worker", start)
	if spent, ok := act.IsSpent(err); !ok || spent.Limit != 1 {
		t.Fatalf("second node: %v, want a spent budget", err)
	}
	if err := r.Release(t.Context(), a, "n1", "machineconfigpool/worker"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"n1": "machinehealthcheck/check"}, b.claims()); diff != "" {
		t.Errorf("a stranger released a claim (-want +got):\n%s", diff)
	}
	if err := r.Release(t.Context(), a, "n1", "machinehealthcheck/check"); err != nil {
		t.Fatal(err)
	}
	if _, there := b.owner.Annotations[telemetry.AnnotationClaims]; len(b.claims()) != 0 || there && b.owner.Annotations[telemetry.AnnotationClaims] != "" {
		t.Errorf("claims left: %v", b.owner.Annotations)
	}
}

func TestStaleAndUnreadableClaimsAreRecomputed(t *testing.T) {
	for name, value := range map[string]string{
		"stale":      budget.Encode([]budget.Claim{{Node: "n1", By: "x/y", Since: start.Add(-time.Hour)}}),
		"unreadable": "not claims",
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.owner.Annotations = map[string]string{telemetry.AnnotationClaims: value}
			if err := b.api.Update(t.Context(), b.owner); err != nil {
				t.Fatal(err)
			}
			a := act.Account{Object: b.owner, Limit: budget.Of(1), Members: members("n1", "n2")}
			if err := act.New(b.api).Claim(t.Context(), a, "n2", "x/z", start); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]string{"n2": "x/z"}, b.claims()); diff != "" {
				t.Errorf("claims (-want +got):\n%s", diff)
			}
		})
	}
}

// Two claimers want the last free place of an account at the same time: one
// gets it, the other learns who has it.
func TestRacingClaimersShareOneBudget(t *testing.T) {
	b := newBench(t)
	a := act.Account{Object: b.owner, Limit: budget.Of(1), Members: members("n1", "n2")}
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i, node := range []string{"n1", "n2"} {
		mine := a
		mine.Object = b.owner.DeepCopy()
		wg.Go(func() { errs[i] = act.New(b.api).Claim(t.Context(), mine, node, "claimer/"+node, start) })
	}
	wg.Wait()
	if _, ok := act.IsSpent(errors.Join(errs...)); !ok || (errs[0] == nil) == (errs[1] == nil) {
		t.Fatalf("claims answered %v, want one of two refused", errs)
	}
	if got := b.claims(); len(got) != 1 {
		t.Errorf("claims %v, want one", got)
	}
}

// racing lets something happen right after each read.
type racing struct {
	client.Reader
	after func()
}

func (r racing) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	err := r.Reader.Get(ctx, key, obj, opts...)
	r.after()
	return err
}

// A write between a claim's read and its patch makes it judge again.
func TestLostRaceIsJudgedAgain(t *testing.T) {
	b := newBench(t)
	a := act.Account{Object: b.owner.DeepCopy(), Limit: budget.Of(1), Members: members("n1", "n2")}
	first := true
	live := racing{b.api, func() {
		if first {
			first = false
			if err := act.New(b.api).Claim(t.Context(), a, "n1", "x/first", start); err != nil {
				t.Error(err)
			}
		}
	}}
	err := act.New(b.api, act.WithLiveReader(live)).Claim(t.Context(), a, "n2", "x/second", start)
	if _, ok := act.IsSpent(err); !ok {
		t.Fatalf("claim after a lost race: %v, want a spent budget", err)
	}
	if diff := cmp.Diff(map[string]string{"n1": "x/first"}, b.claims()); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
}

func TestReleaseOfAGoneAccount(t *testing.T) {
	b := newBench(t)
	gone := &machinev1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gone"}}
	if err := act.New(b.api).Release(t.Context(), act.Account{Object: gone}, "n1", "x/y"); err != nil {
		t.Fatal(err)
	}
	if err := act.New(b.api).Claim(t.Context(), act.Account{Object: gone}, "n1", "x/y", start); err == nil {
		t.Error("a claim on a missing account was granted")
	}
}
