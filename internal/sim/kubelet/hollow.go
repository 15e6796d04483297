package kubelet

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// PoolConfig is what all hollow nodes of one Pool share.
type PoolConfig struct {
	Rest          *rest.Config  // reads all pods and nodes; may impersonate nodes
	Impersonate   bool          // write as system:node:<name>, under the node's own restrictions
	Workers       int           // 0 → 16
	LeaseInterval time.Duration // 0 → 10 s; each node starts at its own point of it
	Log           logr.Logger
	Clock         clock.WithTicker
}

// HollowNode is one node of a Pool. Of its Config only what the API shows
// counts: names, labels, taints, addresses, capacity, versions and PodCIDR.
type HollowNode struct {
	NodeName         string
	NodeLabels       map[string]string
	Taints           []corev1.Taint
	Addresses        []corev1.NodeAddress
	ProviderID       string
	PodCIDR          string
	ProviderExternal bool
	Capacity         corev1.ResourceList

	OSImage, BootID, MachineID, KubeletVersion, KernelVersion string
	StatusInterval                                            time.Duration
}

// Pool runs many nodes in memory: one watch of pods and one of nodes for all
// of them, a few workers, no child processes and no server.
type Pool struct {
	cfg   PoolConfig
	core  coreclient.CoreV1Interface
	pods  cache.SharedIndexInformer
	nodes cache.SharedIndexInformer
	queue workqueue.TypedRateLimitingInterface[string]

	mu      sync.Mutex
	members map[string]*hollow
}

// hollow is one node of a Pool. Its agent is used by one worker at a time;
// mu guards the rest.
type hollow struct {
	agent      *nodeAgent
	cidr       string
	registered bool // by the worker that has the node's key

	mu   sync.Mutex
	ips  *addresses
	pods map[types.UID]*hollowPod
}

type hollowPod struct {
	sb      Sandbox
	patched *corev1.Pod
	deleted bool
}

const (
	podsByNode  = "node"
	nodeKind    = "node/"
	leaseKind   = "lease/"
	podKind     = "pod/"
	poolWorkers = 16
)

// NewHollow makes a Pool without nodes, which works once Run is called.
func NewHollow(cfg PoolConfig) (*Pool, error) {
	if cfg.Rest == nil {
		return nil, errors.New("hollow pool: no API server configuration")
	}
	setDefault(&cfg.Workers, poolWorkers)
	setDefault(&cfg.LeaseInterval, 10*time.Second)
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Log.GetSink() == nil {
		cfg.Log = logr.Discard()
	}
	agent, err := newNodeAgent(cfg.Rest, nodeFacts{Name: "hollow pool"}, cfg.Clock)
	if err != nil {
		return nil, err
	}
	p := &Pool{
		cfg: cfg, core: agent.core, members: map[string]*hollow{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](200*time.Millisecond, 15*time.Second)),
	}
	client := agent.core.RESTClient()
	p.pods = cache.NewSharedIndexInformer(
		cache.NewListWatchFromClient(client, "pods", corev1.NamespaceAll, fields.OneTermNotEqualSelector("spec.nodeName", "")),
		&corev1.Pod{}, 0, cache.Indexers{podsByNode: func(obj any) ([]string, error) {
			return []string{obj.(*corev1.Pod).Spec.NodeName}, nil
		}})
	p.nodes = cache.NewSharedIndexInformer(
		cache.NewListWatchFromClient(client, "nodes", corev1.NamespaceAll, fields.Everything()),
		&corev1.Node{}, 0, cache.Indexers{})
	return p, p.watch()
}

// AddNode registers a node and keeps it alive. It returns at once; the pool's
// workers do the rest.
func (p *Pool) AddNode(n HollowNode) error {
	if err := allowedLabels(n.NodeLabels); err != nil {
		return fmt.Errorf("hollow node %s: %w", n.NodeName, err)
	}
	cfg := p.cfg.Rest
	if p.cfg.Impersonate {
		cfg = rest.CopyConfig(cfg)
		cfg.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + n.NodeName, Groups: []string{"system:nodes", "system:authenticated"}}
	}
	c := Config{
		NodeName: n.NodeName, NodeLabels: n.NodeLabels, Taints: n.Taints, Addresses: n.Addresses, ProviderID: n.ProviderID,
		ProviderExternal: n.ProviderExternal, Capacity: n.Capacity, Rest: cfg, OSImage: n.OSImage, BootID: n.BootID, Version: "hollow",
		MachineID: n.MachineID, KubeletVersion: n.KubeletVersion, KernelVersion: n.KernelVersion, StatusInterval: n.StatusInterval,
	}
	c.defaults()
	agent, err := newNodeAgent(cfg, c.facts(), p.cfg.Clock)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.members[n.NodeName]; ok {
		return fmt.Errorf("hollow node %s: it is in the pool already", n.NodeName)
	}
	p.members[n.NodeName] = &hollow{agent: agent, cidr: n.PodCIDR, pods: map[types.UID]*hollowPod{}}
	p.queue.Add(nodeKind + n.NodeName)
	return nil
}

// RemoveNode stops keeping a node alive, as if it lost its power. The Node
// object stays.
func (p *Pool) RemoveNode(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.members, name)
}

func (p *Pool) member(name string) *hollow {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.members[name]
}

func (p *Pool) watch() error {
	pod := func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			p.queue.Add(podKind + key)
		}
	}
	if _, err := p.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: pod, UpdateFunc: func(_, obj any) { pod(obj) },
		DeleteFunc: func(obj any) { p.forget(obj) },
	}); err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	node := func(obj any) {
		if n, ok := obj.(*corev1.Node); ok && p.member(n.Name) != nil {
			p.queue.Add(nodeKind + n.Name)
		}
	}
	if _, err := p.nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: node, UpdateFunc: func(_, obj any) { node(obj) },
	}); err != nil {
		return fmt.Errorf("watch nodes: %w", err)
	}
	return nil
}

// forget frees what a pod had after its object went away.
func (p *Pool) forget(obj any) {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = d.Obj
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	h := p.member(pod.Spec.NodeName)
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.pods, pod.UID)
	if h.ips != nil {
		h.ips.free(pod.UID)
	}
}

// Run keeps all nodes alive until ctx ends.
func (p *Pool) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer p.queue.ShutDown()
	wg.Go(func() { p.pods.RunWithContext(ctx) })
	wg.Go(func() { p.nodes.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), p.pods.HasSynced, p.nodes.HasSynced) {
		return nil
	}
	for range p.cfg.Workers {
		wg.Go(func() { p.work(ctx) })
	}
	<-ctx.Done()
	return nil
}

func (p *Pool) work(ctx context.Context) {
	for {
		key, quit := p.queue.Get()
		if quit {
			return
		}
		callCtx, cancel := context.WithTimeout(ctx, callTimeout)
		err := p.do(callCtx, key)
		cancel()
		switch {
		case err == nil:
			p.queue.Forget(key)
		case ctx.Err() == nil:
			p.cfg.Log.Error(err, "Running hollow node", "action", key)
			p.queue.AddRateLimited(key)
		}
		p.queue.Done(key)
	}
}

func (p *Pool) do(ctx context.Context, key string) error {
	if name, ok := strings.CutPrefix(key, nodeKind); ok {
		return p.doNode(ctx, name)
	}
	if name, ok := strings.CutPrefix(key, leaseKind); ok {
		return p.doLease(ctx, name)
	}
	return p.doPod(ctx, strings.TrimPrefix(key, podKind))
}

// doNode registers a node the first time and reports its status when due.
func (p *Pool) doNode(ctx context.Context, name string) error {
	h := p.member(name)
	if h == nil {
		return nil
	}
	if !h.registered {
		if err := h.agent.register(ctx); err != nil {
			return err
		}
		h.registered = true
		p.queue.AddAfter(leaseKind+name, spread(name, p.cfg.LeaseInterval))
		pods, err := p.pods.GetIndexer().ByIndex(podsByNode, name)
		if err != nil {
			return fmt.Errorf("list pods of node %s: %w", name, err)
		}
		for _, obj := range pods {
			pod := obj.(*corev1.Pod)
			p.queue.Add(podKind + pod.Namespace + "/" + pod.Name)
		}
	}
	every := h.agent.facts.HeartbeatAtMost
	defer p.queue.AddAfter(nodeKind+name, every+spread(name, every/10))
	obj, ok, err := p.nodes.GetStore().GetByKey(name)
	if err != nil || !ok {
		return err
	}
	return h.agent.report(ctx, obj.(*corev1.Node))
}

func (p *Pool) doLease(ctx context.Context, name string) error {
	h := p.member(name)
	if h == nil {
		return nil
	}
	defer p.queue.AddAfter(leaseKind+name, p.cfg.LeaseInterval)
	return h.agent.renew(ctx)
}

func (p *Pool) doPod(ctx context.Context, key string) error {
	obj, ok, err := p.pods.GetStore().GetByKey(key)
	if err != nil || !ok {
		return err
	}
	pod := obj.(*corev1.Pod)
	h := p.member(pod.Spec.NodeName)
	if h == nil {
		return nil
	}
	hp, cidrKnown := p.place(h, pod)
	if hp == nil || hp.deleted {
		return nil
	}
	pod = newest(pod, hp.patched)
	if !hp.sb.Ready && pod.DeletionTimestamp == nil {
		if err := p.openSandbox(h, hp, pod, cidrKnown); err != nil {
			return err
		}
	}
	now := p.cfg.Clock.Now()
	out := Step(pod, hp.sb, now)
	if len(out.Start) > 0 || out.Stop {
		hp.sb = pretend(pod, hp.sb, out, now)
		out = Step(pod, hp.sb, now)
	}
	patched, gone, err := reportPod(ctx, h.agent.core, pod, out)
	if patched != nil {
		hp.patched = patched
	}
	hp.deleted = hp.deleted || gone
	if out.Wake > 0 {
		p.queue.AddAfter(podKind+key, out.Wake)
	}
	return err
}

// place finds or makes the pod's record. Records are changed only by the
// worker that has the pod's key.
// openSandbox gives the pod its addresses, later if the node's range is not
// known yet.
func (p *Pool) openSandbox(h *hollow, hp *hollowPod, pod *corev1.Pod, cidrKnown bool) error {
	if !cidrKnown && !pod.Spec.HostNetwork {
		p.queue.AddAfter(podKind+pod.Namespace+"/"+pod.Name, sandboxRetry)
		return nil
	}
	return h.sandbox(hp, pod, p.cfg.Clock.Now())
}

func (p *Pool) place(h *hollow, pod *corev1.Pod) (*hollowPod, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ips == nil {
		cidr := h.cidr
		if obj, ok, err := p.nodes.GetStore().GetByKey(pod.Spec.NodeName); err == nil && ok {
			if c := obj.(*corev1.Node).Spec.PodCIDR; c != "" {
				cidr = c
			}
		}
		if prefix, err := netip.ParsePrefix(cidr); err == nil {
			h.ips = newAddresses(prefix)
		}
	}
	hp := h.pods[pod.UID]
	if hp == nil {
		if terminal(pod.Status.Phase) && pod.DeletionTimestamp == nil {
			return nil, false
		}
		hp = &hollowPod{sb: restore(pod, p.cfg.Clock.Now(), true)}
		h.pods[pod.UID] = hp
	}
	return hp, h.ips != nil
}

func (h *hollow) sandbox(hp *hollowPod, pod *corev1.Pod, now time.Time) error {
	host := internalIP(h.agent.facts.Addresses)
	ip := host
	if !pod.Spec.HostNetwork {
		h.mu.Lock()
		defer h.mu.Unlock()
		var err error
		if ip, err = h.ips.take(pod.UID, pod.Status.PodIP); err != nil {
			return fmt.Errorf("give pod %s/%s an address: %w", pod.Namespace, pod.Name, err)
		}
	}
	hp.sb.Ready, hp.sb.IP, hp.sb.HostIP = true, ip, host
	if hp.sb.Started.IsZero() {
		hp.sb.Started = now
	}
	return nil
}

// pretend is the sandbox after an Outcome was obeyed without any process.
func pretend(pod *corev1.Pod, sb Sandbox, out Outcome, now time.Time) Sandbox {
	sb.Containers = maps.Clone(sb.Containers)
	for _, name := range out.Start {
		c := sb.Containers[name]
		c = c.Begin(fmt.Sprintf("%s-%s-%d", pod.UID, name, c.Restarts), now)
		c.Ready = true
		sb.Containers[name] = c
	}
	if out.Stop {
		for name, c := range sb.Containers {
			if c.Phase == Running {
				sb.Containers[name] = c.Exit(0, 0, now)
			}
		}
	}
	return sb
}

// spread is a node's own point within d, so that thousands do not write at
// the same moment.
func spread(name string, d time.Duration) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(name))
	return time.Duration(int64(d) / 1000 * int64(h.Sum32()%1000))
}
