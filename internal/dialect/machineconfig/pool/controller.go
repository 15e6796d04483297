// Package pool moves the nodes of every MachineConfigPool to the pool's
// rendered config, and tells the pool's counters and conditions. It translates
// pools, Nodes and what stands on them for engine/rollout and back.
//
// It writes annotations of Nodes (desiredConfig above all), a pool's claims and
// the state of its waves, and its status. It must never touch a Node before the
// claim on it is written, spec.configuration, or a Node's cordon.
package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/go-logr/logr"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"millwright.io/millwright/internal/act"
	"millwright.io/millwright/internal/dialect/machineconfig/fragment"
	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/engine/rollout"
	"millwright.io/millwright/internal/kube"
)

//+kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfigpools,verbs=get;list;watch;patch
//+kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfigpools/status,verbs=get;patch
//+kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=controllerconfigs;machineconfignodes,verbs=get;list;watch
//+kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
//+kubebuilder:rbac:groups="",resources=pods,verbs=list
//+kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=list
//+kubebuilder:rbac:groups=apps,resources=deployments;statefulsets;daemonsets,verbs=get
//+kubebuilder:rbac:groups="",resources=events,verbs=create;patch;update
//+kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch;update

// Deps are what the controller needs. All are required.
type Deps struct {
	Client   client.Client // writes; reads come from its cache
	Live     client.Reader // asks the server itself: pods, budgets, workloads
	Clock    clock.PassiveClock
	Recorder events.EventRecorder
	Log      logr.Logger
}

type controller struct {
	Deps
	act    *act.Runner
	recent fragment.Recent

	mu    sync.Mutex
	pools map[string]*memory
}

// New returns the controller.
func New(d Deps) kube.Controller {
	d.Client = client.WithFieldOwner(d.Client, wire.Component)
	c := &controller{Deps: d, act: act.New(d.Client, act.WithLiveReader(d.Live)), pools: map[string]*memory{}}
	return kube.Controller{
		Name:      wire.ControllerNode,
		For:       &machineconfigv1.MachineConfigPool{},
		Changed:   kube.Typed(poolChanged),
		Watches:   watches(),
		Workers:   2,
		Decide:    c.preview,
		Reconcile: c.reconcile,
	}
}

// preview observes and decides.
func (c *controller) preview(ctx context.Context, r client.Reader, key types.NamespacedName) (plan.Erased, error) {
	p, err := c.observe(ctx, r, r, key, newMemory())
	if p == nil || err != nil {
		return plan.Erased{}, err
	}
	return plan.Erase(rollout.Decide(p.in)), nil
}

// pace is how soon a large pool is looked at again after a look that wrote
// something: what happens in between is done together, with one write to the
// pool instead of one for each node. Small pools do not wait.
const (
	pace  = time.Second
	small = 20
)

// reconcile moves one pool a step towards its target.
func (c *controller) reconcile(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	m := c.memory(key.Name)
	m.Lock()
	defer m.Unlock()
	if left := m.wrote.Add(pace).Sub(c.Clock.Now()); m.large && left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	p, err := c.observe(ctx, c.Client, c.Live, key, m)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("observe pool %s: %w", key.Name, err)
	}
	if p == nil {
		c.forget(key.Name)
		return reconcile.Result{}, nil
	}
	if c.recent.Behind(p.pool) {
		return kube.Result(fragment.CacheLag)
	}
	m.large = len(p.in.Nodes) > small
	return c.move(ctx, p, m)
}

// move decides, claims, acts and reports, in this order.
func (c *controller) move(ctx context.Context, p *picture, m *memory) (reconcile.Result, error) {
	d := rollout.Decide(p.in)
	pool, err := c.claim(ctx, p, d)
	if apierrors.IsConflict(err) {
		return kube.Result(fragment.CacheLag) // somebody else claims, or the cache is behind
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	out, actErr := c.act.Run(ctx, pool, p.binding(m), nil, d.Actions)
	if len(out.Done) > 0 {
		m.wrote = c.Clock.Now()
	}
	if actErr == nil {
		c.tell(p, m, d)
	}
	again, repErr := c.report(ctx, pool, p, m, d)
	return kube.Result(soonest(again, d.Wake, p.recheck), actErr, repErr)
}

// soonest returns the shortest wait that is none; 0 without any.
func soonest(waits ...time.Duration) time.Duration {
	out := time.Duration(0)
	for _, w := range waits {
		if w > 0 && (out == 0 || w < out) {
			out = w
		}
	}
	return out
}

// claim writes the account and the state of the waves before any Node is
// touched. The lock makes sure that they are what was decided on. It returns
// the pool as it is then.
func (c *controller) claim(ctx context.Context, p *picture, d plan.Decision[rollout.Status]) (*machineconfigv1.MachineConfigPool, error) {
	after := p.pool.DeepCopy()
	annotate(after, d.Status)
	if maps.Equal(p.pool.Annotations, after.Annotations) {
		return p.pool, nil
	}
	if err := kube.Patch(ctx, c.Client, p.pool, after, kube.OptimisticLock()); err != nil {
		if apierrors.IsConflict(err) {
			return nil, err
		}
		return nil, fmt.Errorf("write claims: %w", err)
	}
	c.recent.Wrote(after)
	return after, nil
}

func (c *controller) memory(pool string) *memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.pools[pool]
	if m == nil {
		m = newMemory()
		c.pools[pool] = m
	}
	return m
}

func (c *controller) forget(pool string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pools, pool)
	unmeasure(pool)
}

var errNoNode = errors.New("there is no such node any more")
