// Package act performs the actions of a decision: three exhaustive switches
// over the sums of engine/plan, against the API server and a cloud. Every
// action may be repeated and every sequence may be abandoned half-way; running
// the next decision's actions then continues.
//
// It decides nothing and knows no dialect: a Binding of pure functions says
// how the objects look.
package act

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/telemetry"
)

// Limits of a Runner.
const (
	// MaxParallel is the most actions performed at the same time.
	MaxParallel = 16
	// DefaultTimeout ends one action.
	DefaultTimeout = 30 * time.Second
)

// Binding gives object actions their meaning in one dialect. All functions
// are pure.
type Binding struct {
	// Make returns the objects a CreateMachine means, complete with owner
	// references, in the order in which they are created.
	Make func(plan.ObjectAction) ([]client.Object, error)
	// Target returns the object an action means: name, namespace and, if at
	// hand, the current copy from the cache. Nil, or a nil result, means the
	// decided object itself.
	Target func(plan.ObjectAction) client.Object
	// Apply changes obj, a copy, as the action says; the difference is sent
	// as a merge patch.
	Apply func(obj client.Object, a plan.ObjectAction) error
	// Intent returns what CreateInstance asks the cloud for.
	Intent func(plan.CreateInstance) (cloud.Intent, error)
}

// Memory is told of creations and deletions before the cache shows them; an
// observe.Overlay is one.
type Memory interface {
	Created(owner types.UID, obj client.Object)
	Deleted(owner types.UID, obj client.Object)
}

// Runner performs actions. It is safe for concurrent use.
type Runner struct {
	c        client.Client
	live     client.Reader
	memory   Memory
	parallel int
	timeout  time.Duration
}

// Option changes a Runner.
type Option func(*Runner)

// WithLiveReader gives the runner a reader that asks the server, for the one
// case in which the cache cannot know: an object that exists already. Default:
// the client itself.
func WithLiveReader(r client.Reader) Option { return func(x *Runner) { x.live = r } }

// WithMemory makes the runner remember its own writes.
func WithMemory(m Memory) Option { return func(x *Runner) { x.memory = m } }

// WithParallel limits how many actions run at the same time; 1 makes a run
// deterministic. Default: MaxParallel.
func WithParallel(n int) Option { return func(x *Runner) { x.parallel = max(1, n) } }

// WithTimeout ends each action after d. Default: DefaultTimeout.
func WithTimeout(d time.Duration) Option { return func(x *Runner) { x.timeout = d } }

// New returns a runner that writes through c.
func New(c client.Client, opts ...Option) *Runner {
	r := &Runner{c: c, live: c, parallel: MaxParallel, timeout: DefaultTimeout}
	for _, o := range opts {
		o(r)
	}
	return r
}

// Outcome is what a run did. It is valid beside an error, too.
type Outcome struct {
	// Object is the decided object after the run: a copy, with what the
	// server made of our patches.
	Object client.Object
	// Instance is what the cloud returned to CreateInstance.
	Instance *cloud.Instance
	// InstanceGone says that DeleteInstance found nothing left.
	InstanceGone bool
	// Created, Deleted and Adopted are names of machines, sorted within one
	// batch. An object that was there already counts.
	Created, Deleted, Adopted []string
	// Blocked are evictions that a disruption budget holds back, or that the
	// server put off. They are no error: look again later.
	Blocked []Blocked
	// Done are the actions that were performed, in order.
	Done []plan.Action
}

// Blocked is an eviction that has to wait, with the server's reason.
type Blocked struct {
	Action  plan.EvictPod
	Message string
}

// Run performs actions in order; the first failure stops the rest.
// Consecutive CreateMachine actions run side by side in batches of 1, 2, 4, …
// 16; consecutive DeleteMachine, EvictPod, DeletePod or SetDesiredConfig
// actions in batches of 16. A batch
// in which something failed is finished and is the last one; its errors come
// joined. cl may be nil when no action needs a cloud. owner is not changed.
func (r *Runner) Run(ctx context.Context, owner client.Object, b Binding, cl cloud.Cloud, actions []plan.Action) (Outcome, error) {
	run := &run{Runner: r, owner: owner, b: b, cl: cl}
	run.out.Object = owner.DeepCopyObject().(client.Object)
	for len(actions) > 0 {
		n := run.next(actions)
		if err := run.batch(ctx, actions[:n]); err != nil {
			return run.out, err
		}
		actions = actions[n:]
	}
	return run.out, nil
}

// run is one call of Run.
type run struct {
	*Runner
	owner client.Object
	b     Binding
	cl    cloud.Cloud

	size int // next batch of the present streak

	mu  sync.Mutex // guards out
	out Outcome
}

// next returns how many of the leading actions form the next batch, ≥ 1.
func (r *run) next(actions []plan.Action) int {
	var limit int
	var same func(plan.Action) bool
	switch actions[0].(type) {
	case plan.CreateMachine:
		if r.size = min(r.size*2, MaxParallel); r.size == 0 {
			r.size = 1
		}
		limit, same = r.size, is[plan.CreateMachine]
	case plan.DeleteMachine:
		r.size, limit, same = 0, MaxParallel, is[plan.DeleteMachine]
	case plan.EvictPod:
		r.size, limit, same = 0, MaxParallel, is[plan.EvictPod]
	case plan.DeletePod:
		r.size, limit, same = 0, MaxParallel, is[plan.DeletePod]
	case plan.SetDesiredConfig:
		r.size, limit, same = 0, MaxParallel, is[plan.SetDesiredConfig]
	default:
		r.size = 0
		return 1
	}
	n := 1
	for n < len(actions) && n < limit && same(actions[n]) {
		n++
	}
	return n
}

func is[A plan.Action](a plan.Action) bool {
	_, ok := a.(A)
	return ok
}

// batch performs actions side by side and waits for all of them.
func (r *run) batch(ctx context.Context, actions []plan.Action) error {
	errs := make([]error, len(actions))
	if len(actions) == 1 || r.parallel == 1 {
		for i, a := range actions {
			errs[i] = r.one(ctx, a)
		}
	} else {
		var wg sync.WaitGroup
		slots := make(chan struct{}, r.parallel)
		for i, a := range actions {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				errs[i] = r.one(ctx, a)
			})
		}
		wg.Wait()
	}
	for i, a := range actions {
		if errs[i] == nil {
			r.out.Done = append(r.out.Done, a)
		}
	}
	slices.Sort(r.out.Created)
	slices.Sort(r.out.Deleted)
	return join(errs)
}

// join returns the only error as it is, several joined, nil for none.
func join(errs []error) error {
	errs = slices.DeleteFunc(slices.Clone(errs), func(e error) bool { return e == nil })
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// one performs a single action under its own deadline. A panic of a binding
// or of a provider becomes an error.
func (r *run) one(ctx context.Context, a plan.Action) (err error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	defer func() { count(a, r.isBlocked(a), err) }()
	log := logf.FromContext(ctx)
	defer func() {
		if p := recover(); p != nil {
			log.Info("Recovering from panic", telemetry.KeyAction, a.String(), telemetry.KeyPanic, fmt.Sprint(p), telemetry.KeyStack, string(debug.Stack()))
			err = fmt.Errorf("%s: panic: %v", a, p)
		}
	}()
	log.V(1).Info("Performing action", telemetry.KeyAction, a.String())
	switch a := a.(type) {
	case plan.ObjectAction:
		err = r.object(ctx, a)
	case plan.NodeAction:
		err = r.node(ctx, a)
	case plan.CloudAction:
		err = r.cloud(ctx, a)
	default:
		err = fmt.Errorf("no sum holds %T", a)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", a, err)
	}
	return nil
}

// isBlocked says whether an eviction of this run has to wait.
func (r *run) isBlocked(a plan.Action) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.out.Blocked, func(b Blocked) bool { return plan.Action(b.Action) == a })
}

// note changes the outcome under its lock.
func (r *run) note(f func(*Outcome)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.out)
}

// taintsWith returns have and those of want whose key and effect it lacks.
func taintsWith(have, want []corev1.Taint) []corev1.Taint {
	out := slices.Clone(have)
	for _, w := range want {
		if !slices.ContainsFunc(out, func(t corev1.Taint) bool { return t.Key == w.Key && t.Effect == w.Effect }) {
			out = append(out, w)
		}
	}
	return out
}

func nodeKey(name string) client.ObjectKey { return client.ObjectKey{Name: name} }
