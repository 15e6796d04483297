package act

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/engine/budget"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/telemetry"
)

// maxClaimTries bounds how often a lost race for an account is run again.
const maxClaimTries = 5

// Account is where claims are kept and what they are judged by.
type Account struct {
	// Object names the pool or set that carries the claims; its content is
	// not used, since only the server knows the present claims.
	Object client.Object
	// Limit is how many members may be unavailable; nil: claims are only
	// recorded.
	Limit budget.Limit
	// Members are the account's nodes as they are now.
	Members []budget.Member
}

// Claim records on the account that by, a kind/name, is taking node out of
// service. It must succeed before the node is cordoned or its machine deleted.
// Claims that mean nothing any more are dropped on the way. A refusal is a
// *budget.Spent; after a lost race the account is read and judged again.
// Claiming twice changes nothing.
func (r *Runner) Claim(ctx context.Context, a Account, node, by string, now time.Time) error {
	err := r.changeClaims(ctx, a, func(b budget.Account) ([]budget.Claim, error) {
		b.Claims = b.Settle(now)
		return b.Claim(node, by, now)
	})
	if err != nil {
		return fmt.Errorf("claim node %s for %s: %w", node, by, err)
	}
	return nil
}

// Release drops by's claim on node; somebody else's stays. A missing claim or
// account is no error.
func (r *Runner) Release(ctx context.Context, a Account, node, by string) error {
	err := r.changeClaims(ctx, a, func(b budget.Account) ([]budget.Claim, error) {
		return b.Release(node, by), nil
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("release node %s of %s: %w", node, by, err)
	}
	return nil
}

// changeClaims reads an account's claims from the server and writes what
// change makes of them, on condition that nobody wrote in between. Claims that
// nobody can read are dropped: what they stood for shows in the members as
// soon as the work has begun.
func (r *Runner) changeClaims(ctx context.Context, a Account, change func(budget.Account) ([]budget.Claim, error)) error {
	var err error
	for range maxClaimTries {
		before, ok := a.Object.DeepCopyObject().(client.Object)
		if !ok {
			return fmt.Errorf("%T is no object", a.Object)
		}
		if err = r.live.Get(ctx, client.ObjectKeyFromObject(a.Object), before); err != nil {
			return fmt.Errorf("get account %s: %w", a.Object.GetName(), err)
		}
		value := before.GetAnnotations()[telemetry.AnnotationClaims]
		have, _ := budget.Decode(value)
		want, refused := change(budget.Account{Limit: a.Limit, Members: a.Members, Claims: have})
		if refused != nil {
			return refused
		}
		if err = r.writeClaims(ctx, before, value, budget.Encode(want)); !apierrors.IsConflict(err) {
			return err
		}
	}
	return err
}

// writeClaims patches the annotation, or nothing when it says so already.
func (r *Runner) writeClaims(ctx context.Context, before client.Object, have, want string) error {
	if have == want {
		return nil
	}
	after, ok := before.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%T is no object", before)
	}
	annotations := after.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[telemetry.AnnotationClaims] = want
	if want == "" {
		delete(annotations, telemetry.AnnotationClaims)
	}
	after.SetAnnotations(annotations)
	if err := kube.Patch(ctx, r.c, before, after, kube.OptimisticLock()); err != nil {
		return fmt.Errorf("patch claims of %s: %w", before.GetName(), err)
	}
	return nil
}

// IsSpent says whether a claim was refused because the account is used up, and
// by whom.
func IsSpent(err error) (*budget.Spent, bool) {
	var s *budget.Spent
	ok := errors.As(err, &s)
	return s, ok
}
