package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"millwright.io/millwright/internal/host"
)

// poolWorkers is how many agents of a Pool step at the same time by default.
const poolWorkers = 16

// poolConfigs bounds the configs that a Pool keeps: those of a few pools in a rollout.
const poolConfigs = 16

// PoolConfig is what the agents of a Pool share.
type PoolConfig struct {
	Rest    *rest.Config // reads and writes everything, also the Nodes
	Clock   clock.WithTicker
	Log     Log
	Workers int // 0: 16
	// Reboot is called once when a machine was asked to restart. Whoever restarts it
	// hands it over again with Put.
	Reboot func(name string)
}

// Pool runs the agents of thousands of hollow nodes with one watch of Nodes and a few
// workers. Safe for concurrent use.
type Pool struct {
	cfg    PoolConfig
	shared *REST
	mcps   cache.SharedIndexInformer
	opers  cache.SharedIndexInformer
	queue  workqueue.TypedRateLimitingInterface[string]

	mu        sync.Mutex
	members   map[string]*Agent
	published map[string]bool // ConfigMaps that are there, by name
}

// NewPool returns a Pool without nodes.
func NewPool(c PoolConfig) (*Pool, error) {
	shared, err := NewREST("", c.Rest, c.Rest, c.Clock, c.Log)
	if err != nil {
		return nil, err
	}
	shared.kept = poolConfigs
	if c.Workers == 0 {
		c.Workers = poolWorkers
	}
	every := func(client rest.Interface, resource string, kind runtime.Object) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformer(cache.NewListWatchFromClient(client, resource, "", fields.Everything()), kind, 0, nil)
	}
	shared.nodes = every(shared.core, "nodes", &corev1.Node{})
	return &Pool{
		cfg: c, shared: shared, members: map[string]*Agent{}, published: map[string]bool{},
		mcps:  every(shared.config, "machineconfigpools", &mcfgv1.MachineConfigPool{}),
		opers: every(shared.oper, "machineconfigurations", &operatorv1.MachineConfiguration{}),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstPause, longestPause),
			workqueue.TypedRateLimitingQueueConfig[string]{Clock: c.Clock}),
	}, nil
}

// Put gives a node its machine, or the one that it has after a restart.
func (p *Pool) Put(name string, h host.Host) {
	a := New(Config{Node: name, Host: h, Cluster: &poolCluster{REST: p.shared.of(name), pool: p}, Clock: p.cfg.Clock, Log: p.cfg.Log})
	a.poke = func() { p.queue.Add(name) }
	p.mu.Lock()
	p.members[name] = a
	p.mu.Unlock()
	p.queue.Add(name)
}

// Remove forgets a node.
func (p *Pool) Remove(name string) {
	p.mu.Lock()
	delete(p.members, name)
	p.mu.Unlock()
}

func (p *Pool) member(name string) *Agent {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.members[name]
}

// Run steps the agents until ctx ends.
func (p *Pool) Run(ctx context.Context) error {
	if err := p.watch(ctx); err != nil {
		return err
	}
	var workers sync.WaitGroup
	for range p.cfg.Workers {
		workers.Go(func() {
			for p.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	p.queue.ShutDown()
	workers.Wait()
	return nil
}

// watch starts the shared caches and returns once they are filled.
func (p *Pool) watch(ctx context.Context) error {
	one := cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { p.changed(obj) },
		UpdateFunc: func(old, fresh any) {
			p.shared.compare(old, fresh, func() { p.changed(fresh) })
		},
	}
	all := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { p.all() },
		UpdateFunc: func(any, any) { p.all() },
	}
	var synced []cache.InformerSynced
	for _, w := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{{p.shared.nodes, one}, {p.shared.ccs, all}, {p.mcps, nil}, {p.opers, nil}} {
		if err := w.informer.SetTransform(slim); err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		if w.handler != nil {
			if _, err := w.informer.AddEventHandler(w.handler); err != nil {
				return fmt.Errorf("watch: %w", err)
			}
		}
		go w.informer.RunWithContext(ctx)
		synced = append(synced, w.informer.HasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return fmt.Errorf("watch nodes: %w", ctx.Err())
	}
	return nil
}

func (p *Pool) changed(obj any) {
	if n, ok := obj.(*corev1.Node); ok && p.member(n.Name) != nil {
		p.queue.Add(n.Name)
	}
}

func (p *Pool) all() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.members {
		p.queue.Add(name)
	}
}

// next steps one agent; false: the pool ends.
func (p *Pool) next(ctx context.Context) bool {
	name, end := p.queue.Get()
	if end {
		return false
	}
	defer p.queue.Done(name)
	a := p.member(name)
	if a == nil {
		return true
	}
	before := a.rebooting
	wake, err := a.Step(ctx)
	switch {
	case ctx.Err() != nil:
		return true
	case err != nil:
		p.cfg.Log.Errorf("Syncing node %s: %v", name, err)
		p.queue.AddRateLimited(name)
		return true
	case a.rebooting && !before && p.cfg.Reboot != nil:
		p.cfg.Reboot(name)
	case wake > 0:
		p.queue.AddAfter(name, wake)
	}
	p.queue.Forget(name)
	return true
}

// poolCluster answers from what a Pool shares.
type poolCluster struct {
	*REST // the node's own
	pool  *Pool
}

// Start hides REST's: the Pool has started its caches.
func (c *poolCluster) Start(context.Context, func()) error {
	return errors.New("an agent of a pool is stepped by the pool")
}

// Config implements Cluster.
func (c *poolCluster) Config(ctx context.Context, name string) (*mcfgv1.MachineConfig, error) {
	return c.pool.shared.Config(ctx, name)
}

// Pools implements Cluster.
func (c *poolCluster) Pools(context.Context) ([]mcfgv1.MachineConfigPool, error) {
	var out []mcfgv1.MachineConfigPool
	for _, obj := range c.pool.mcps.GetStore().List() {
		out = append(out, *obj.(*mcfgv1.MachineConfigPool))
	}
	return out, nil
}

// Settings implements Cluster.
func (c *poolCluster) Settings(context.Context) (*operatorv1.MachineConfiguration, error) {
	obj, ok, err := c.pool.opers.GetStore().GetByKey(settingsName)
	if err != nil || !ok {
		return nil, err
	}
	return obj.(*operatorv1.MachineConfiguration), nil
}

// Publish implements Cluster. What one agent has published serves all: hollow
// machines have the same units, and the server need not refuse each of them.
func (c *poolCluster) Publish(ctx context.Context, cm *corev1.ConfigMap) error {
	p := c.pool
	p.mu.Lock()
	known := p.published[cm.Name]
	p.mu.Unlock()
	if known {
		return nil
	}
	if err := c.REST.Publish(ctx, cm); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.published[cm.Name] = true
	return nil
}
