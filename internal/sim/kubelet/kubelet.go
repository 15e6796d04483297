package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// Kubelet runs the pods of one rooted machine.
type Kubelet struct {
	cfg    Config
	agent  *nodeAgent
	core   coreclient.CoreV1Interface
	source source
	pods   cache.SharedIndexInformer
	nodes  cache.SharedIndexInformer
	queue  workqueue.TypedRateLimitingInterface[string]
	spawn  *spawner

	nodeChanged chan struct{} // holds one token
	startedAt   time.Time

	mu       sync.Mutex
	stopping bool
	runs     map[string]*podRun // by namespace/name
	ips      *addresses         // nil until the prefix is known
	loops    *addresses
	podIPs   map[string]string // pod address → loopback address
	watchers []addressWatcher
}

// addressWatcher is told which simulated pod address is where on loopback; an
// empty loopback address takes one away.
type addressWatcher func(podIP, loopback string)

const workers = 8

// New checks cfg and makes a Kubelet that does nothing until Run.
func New(cfg Config) (*Kubelet, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	if cfg.ServingCert == nil {
		return nil, fmt.Errorf("kubelet %s: no serving certificate", cfg.NodeName)
	}
	agent, err := newNodeAgent(cfg.Rest, cfg.facts(), cfg.Clock)
	if err != nil {
		return nil, err
	}
	k := &Kubelet{
		cfg: cfg, agent: agent, core: agent.core, source: source{core: agent.core},
		nodeChanged: make(chan struct{}, 1),
		runs:        map[string]*podRun{}, podIPs: map[string]string{},
		loops: newAddresses(loopbackPrefix(cfg.BindIP)),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](200*time.Millisecond, 15*time.Second)),
	}
	client := agent.core.RESTClient()
	k.pods = cache.NewSharedIndexInformer(
		cache.NewListWatchFromClient(client, "pods", corev1.NamespaceAll, fields.OneTermEqualSelector("spec.nodeName", cfg.NodeName)),
		&corev1.Pod{}, 0, cache.Indexers{})
	k.nodes = cache.NewSharedIndexInformer(
		cache.NewListWatchFromClient(client, "nodes", corev1.NamespaceAll, fields.OneTermEqualSelector("metadata.name", cfg.NodeName)),
		&corev1.Node{}, 0, cache.Indexers{})
	return k, nil
}

// Run registers the Node and serves it until ctx ends, then kills its
// children. It may be called once. An error means it never got to work.
func (k *Kubelet) Run(ctx context.Context) error {
	lis, err := net.Listen("tcp", net.JoinHostPort(k.cfg.BindIP, fmt.Sprint(k.cfg.Port)))
	if err != nil {
		return fmt.Errorf("listen for kubelet %s: %w", k.cfg.NodeName, err)
	}
	defer lis.Close()
	k.spawn = newSpawner()
	defer k.spawn.stop()
	srv, err := k.newServer()
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() {
		if err := srv.serve(ctx, lis); err != nil {
			k.cfg.Log.Error(err, "Serving")
			cancel()
		}
	})
	if !k.registerUntilDone(ctx) {
		return nil
	}
	k.startedAt = k.cfg.Clock.Now()
	if err := k.watch(); err != nil {
		return err
	}
	wg.Go(func() { k.nodes.RunWithContext(ctx) })
	wg.Go(func() { k.pods.RunWithContext(ctx) })
	wg.Go(func() { k.leaseLoop(ctx) })
	wg.Go(func() { k.statusLoop(ctx) })
	wg.Go(func() { k.staticAfterSync(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), k.pods.HasSynced, k.nodes.HasSynced) {
		return nil
	}
	k.sweep()
	for range workers {
		wg.Go(func() { k.work(ctx) })
	}
	<-ctx.Done()
	k.queue.ShutDown()
	k.shutdown()
	return nil
}

func (k *Kubelet) registerUntilDone(ctx context.Context) bool {
	wait := 200 * time.Millisecond
	for {
		err := k.bounded(ctx, k.agent.register)
		if err == nil {
			return true
		}
		if ctx.Err() == nil {
			k.cfg.Log.Error(err, "Registering node", "Node", k.cfg.NodeName)
		}
		timer := k.cfg.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C():
		}
		wait = min(2*wait, 7*time.Second)
	}
}

func (k *Kubelet) watch() error {
	if _, err := k.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { k.enqueue(obj) },
		UpdateFunc: func(_, obj any) { k.enqueue(obj) },
		DeleteFunc: func(obj any) { k.enqueue(obj) },
	}); err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	poke := func() {
		select {
		case k.nodeChanged <- struct{}{}:
		default:
		}
	}
	if _, err := k.nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { poke() },
		UpdateFunc: func(_, _ any) { poke() },
	}); err != nil {
		return fmt.Errorf("watch node: %w", err)
	}
	return nil
}

func (k *Kubelet) enqueue(obj any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
		k.queue.Add(key)
	}
}

func (k *Kubelet) leaseLoop(ctx context.Context) {
	tick := k.cfg.Clock.NewTicker(k.cfg.LeaseInterval)
	defer tick.Stop()
	for {
		if err := k.bounded(ctx, k.agent.renew); err != nil && ctx.Err() == nil {
			k.cfg.Log.Error(err, "Renewing lease", "Node", k.cfg.NodeName)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
	}
}

// statusLoop writes the Node's status when the Node changed or it is due.
func (k *Kubelet) statusLoop(ctx context.Context) {
	tick := k.cfg.Clock.NewTicker(min(k.cfg.StatusInterval, 10*time.Second))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.nodeChanged:
		case <-tick.C():
		}
		node := k.node()
		if node == nil {
			continue // not seen yet, or taken away: a kubelet does not register twice
		}
		if err := k.bounded(ctx, func(ctx context.Context) error { return k.agent.report(ctx, node) }); err != nil && ctx.Err() == nil {
			k.cfg.Log.Error(err, "Reporting node status", "Node", k.cfg.NodeName)
		}
	}
}

func (k *Kubelet) node() *corev1.Node {
	obj, ok, err := k.nodes.GetStore().GetByKey(k.cfg.NodeName)
	if err != nil || !ok {
		return nil
	}
	return obj.(*corev1.Node)
}

func (k *Kubelet) podCIDR() string {
	if n := k.node(); n != nil {
		return n.Spec.PodCIDR
	}
	return ""
}

func (k *Kubelet) work(ctx context.Context) {
	for {
		key, quit := k.queue.Get()
		if quit {
			return
		}
		err := k.sync(ctx, key)
		switch {
		case err == nil:
			k.queue.Forget(key)
		case ctx.Err() == nil:
			k.cfg.Log.Error(err, "Running pod", "Pod", key)
			k.queue.AddRateLimited(key)
		}
		k.queue.Done(key)
	}
}

// sweep removes directories of pods that are gone, left by an earlier run.
func (k *Kubelet) sweep() {
	known := map[string]bool{}
	for _, obj := range k.pods.GetStore().List() {
		p := obj.(*corev1.Pod)
		known[string(p.UID)], known[p.Namespace+"_"+p.Name+"_"+string(p.UID)] = true, true
	}
	for _, dir := range []string{k.cfg.PodDir, k.cfg.LogDir} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			k.cfg.Log.Error(err, "Listing directories of pods")
		}
		for _, e := range entries {
			if e.IsDir() && !known[e.Name()] {
				if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
					k.cfg.Log.Error(err, "Removing old directory of a pod")
				}
			}
		}
	}
}

// shutdown ends every child: SIGTERM, a short grace, SIGKILL.
func (k *Kubelet) shutdown() {
	k.mu.Lock()
	k.stopping = true
	runs := make([]*podRun, 0, len(k.runs))
	for _, r := range k.runs {
		runs = append(runs, r)
	}
	k.mu.Unlock()
	for _, r := range runs {
		r.killAndWait(syscall.SIGTERM)
	}
	timer := k.cfg.Clock.NewTimer(k.cfg.StopGrace)
	defer timer.Stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, r := range runs {
			r.mu.Lock()
			procs := make([]*process, 0, len(r.procs))
			for _, p := range r.procs {
				procs = append(procs, p)
			}
			r.mu.Unlock()
			for _, p := range procs {
				<-p.done
			}
		}
	}()
	select {
	case <-ended:
	case <-timer.C():
	}
	for _, r := range runs {
		r.cancel()
		r.killAndWait(syscall.SIGKILL)
		r.mu.Lock()
		for _, l := range r.logs {
			l.close()
		}
		r.mu.Unlock()
	}
}

// PodLoopback is where on loopback a pod of this machine listens.
func (k *Kubelet) PodLoopback(podIP string) (string, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	loop, ok := k.podIPs[podIP]
	return loop, ok
}

func (k *Kubelet) publishLocked(ip, loopback string) {
	k.podIPs[ip] = loopback
	for _, w := range k.watchers {
		w(ip, loopback)
	}
}

func (k *Kubelet) withdrawLocked(ip string) {
	delete(k.podIPs, ip)
	for _, w := range k.watchers {
		w(ip, "")
	}
}

// watchAddresses tells w all pod addresses there are and will be.
func (k *Kubelet) watchAddresses(w addressWatcher) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watchers = append(k.watchers, w)
	for ip, loop := range k.podIPs {
		w(ip, loop)
	}
}
