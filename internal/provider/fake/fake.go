// Package fake is a cloud in memory: it keeps instances and their parts,
// lets time pass by the clock it is given, and can be scripted to fail, to be
// slow and to hang. Controllers are tested against it, and it passes the suite
// in cloudtest like every real provider.
//
// It touches nothing outside the process and must never be linked into a
// binary that runs in a cluster.
//
//	c := fake.New(clk, fake.WithBootDelay(30*time.Second))
//	c.FailNext("create vm", &cloud.Fault{Kind: cloud.Quota})
package fake

import (
	"context"
	"sort"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"millwright.io/millwright/internal/cloud"
)

// Operations that can be scripted and are counted. The first five are the
// methods of cloud.Cloud and fail before anything is done; the others are
// steps inside Create and Delete and fail after the steps before them.
const (
	OpOpen    = "open"
	OpObserve = "observe"
	OpCreate  = "create"
	OpUpdate  = "update"
	OpDelete  = "delete"
	OpList    = "list"
	OpRegions = "regions"
	OpSizes   = "sizes"
	OpRestart = "restart"

	OpCreateNIC  = "create nic"
	OpCreateDisk = "create disk"
	OpCreateVM   = "create vm"
	OpDeleteVM   = "delete vm"
	OpDeleteDisk = "delete disk"
	OpDeleteNIC  = "delete nic"
)

// Cloud implements cloud.Cloud, cloud.Catalog and cloud.PowerCycler.
type Cloud struct {
	clk         clock.PassiveClock
	region      string
	zones       []string
	sizes       []cloud.Size
	createCalls int

	mu     sync.Mutex
	parts  map[string]*part // by kind/scope/name
	next   map[string][]*cloud.Fault
	every  map[string]*cloud.Fault
	hang   map[string]bool
	delay  map[string]time.Duration
	calls  map[string]int
	step   map[string]int // Create calls so far, by UID
	serial int
}

var (
	_ cloud.Cloud       = (*Cloud)(nil)
	_ cloud.Catalog     = (*Cloud)(nil)
	_ cloud.PowerCycler = (*Cloud)(nil)
)

// Option changes a Cloud while it is built.
type Option func(*Cloud)

// WithBootDelay makes a new instance stay Creating for d.
func WithBootDelay(d time.Duration) Option { return func(c *Cloud) { c.delay[OpCreate] = d } }

// WithDeleteDelay makes an instance stay Deleting for d.
func WithDeleteDelay(d time.Duration) Option { return func(c *Cloud) { c.delay[OpDelete] = d } }

// WithCreateCalls makes Create need n calls: the network interface is made by
// the first, the disk by those between, the instance by the last.
func WithCreateCalls(n int) Option { return func(c *Cloud) { c.createCalls = max(1, n) } }

// WithRegion names the only region and its zones.
func WithRegion(name string, zones ...string) Option {
	return func(c *Cloud) { c.region, c.zones = name, zones }
}

// WithSizes replaces the catalogue.
func WithSizes(sizes ...cloud.Size) Option { return func(c *Cloud) { c.sizes = sizes } }

// New returns an empty cloud.
func New(clk clock.PassiveClock, opts ...Option) *Cloud {
	c := &Cloud{
		clk: clk, region: "nowhere", zones: []string{"1", "2", "3"}, createCalls: 1,
		parts: map[string]*part{}, next: map[string][]*cloud.Fault{}, every: map[string]*cloud.Fault{},
		hang: map[string]bool{}, delay: map[string]time.Duration{}, calls: map[string]int{}, step: map[string]int{},
	}
	for _, o := range opts {
		o(c)
	}
	if c.sizes == nil {
		c.sizes = []cloud.Size{
			{Name: "medium", Family: "plain", VCPUs: 4, MemoryMiB: 16384, Arch: "amd64", Zones: c.zones},
			{Name: "small", Family: "plain", VCPUs: 2, MemoryMiB: 8192, Arch: "amd64", Zones: c.zones},
		}
	}
	return c
}

// Observe implements cloud.Cloud.
func (c *Cloud) Observe(ctx context.Context, key cloud.Key) (cloud.Instance, error) {
	if err := c.enter(ctx, OpObserve, key.Name); err != nil {
		return cloud.Instance{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.observe(key)
}

func (c *Cloud) observe(key cloud.Key) (cloud.Instance, error) {
	vm := c.get(kindVM, key)
	switch {
	case vm == nil:
		return cloud.Instance{}, &cloud.Fault{Kind: cloud.NotFound, Op: "get vm " + key.Name, Reason: "ResourceNotFound"}
	case vm.key.UID != key.UID:
		return cloud.Instance{}, foreign("get vm "+key.Name, vm)
	}
	return c.instance(vm), nil
}

// Create implements cloud.Cloud.
func (c *Cloud) Create(ctx context.Context, in cloud.Intent) (cloud.Instance, error) {
	if err := c.enter(ctx, OpCreate, in.Key.Name); err != nil {
		return cloud.Instance{}, err
	}
	spec, ok := in.Spec.(*Spec)
	if !ok || in.Key.UID == "" || in.Key.Name == "" {
		return cloud.Instance{}, &cloud.Fault{Kind: cloud.Invalid, Op: "create vm " + in.Key.Name, Reason: "InvalidParameter",
			Message: "create vm " + in.Key.Name + ": the intent needs a key with name and UID and a " + Kind}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if vm := c.get(kindVM, in.Key); vm != nil {
		return c.observe(in.Key)
	}
	c.step[in.Key.UID]++
	n := c.step[in.Key.UID]
	for i, s := range []struct{ kind, op string }{{kindNIC, OpCreateNIC}, {kindDisk, OpCreateDisk}, {kindVM, OpCreateVM}} {
		if reached := c.createCalls == 1 || n >= c.createCalls || i < min(n, 2); !reached {
			return cloud.Instance{Key: in.Key, State: cloud.StateCreating, Region: spec.Region, Zone: spec.Zone, Size: spec.Size,
				Pending: &cloud.Pending{Op: "create"}}, nil
		}
		if err := c.make(s.kind, s.op, in, spec); err != nil {
			return cloud.Instance{}, err
		}
	}
	delete(c.step, in.Key.UID)
	return c.observe(in.Key)
}

// Update implements cloud.Cloud. It changes tags only.
func (c *Cloud) Update(ctx context.Context, key cloud.Key, in cloud.Intent) (cloud.Instance, error) {
	if err := c.enter(ctx, OpUpdate, key.Name); err != nil {
		return cloud.Instance{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	inst, err := c.observe(key)
	if err == nil {
		c.get(kindVM, key).tags = in.Tags
	}
	return inst, err
}

// Delete implements cloud.Cloud. Each call removes one part: the instance,
// then its disk, then its network interface.
func (c *Cloud) Delete(ctx context.Context, key cloud.Key) error {
	if err := c.enter(ctx, OpDelete, key.Name); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range []struct{ kind, op string }{{kindVM, OpDeleteVM}, {kindDisk, OpDeleteDisk}, {kindNIC, OpDeleteNIC}} {
		p := c.get(s.kind, key)
		if p == nil || p.key.UID != key.UID {
			continue
		}
		if !p.goneAt.IsZero() {
			return nil // still on its way
		}
		if f := c.fault(s.op); f != nil {
			return f
		}
		c.calls[s.op]++
		p.goneAt = c.clk.Now()
		if s.kind == kindVM {
			p.goneAt = p.goneAt.Add(c.delay[OpDelete])
		}
		return nil
	}
	delete(c.step, key.UID)
	return &cloud.Fault{Kind: cloud.NotFound, Op: "delete vm " + key.Name, Reason: "ResourceNotFound"}
}

// List implements cloud.Cloud.
func (c *Cloud) List(ctx context.Context, owner cloud.Owner) ([]cloud.Instance, error) {
	if err := c.enter(ctx, OpList, ""); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweep()
	byUID := map[string]cloud.Instance{}
	for _, p := range c.parts {
		if p.owner != owner {
			continue
		}
		if p.kind == kindVM {
			byUID[p.key.UID] = c.instance(p)
		} else if _, ok := byUID[p.key.UID]; !ok {
			byUID[p.key.UID] = cloud.Instance{Key: p.key, State: cloud.StateLeftover, Region: p.spec.Region, Zone: p.spec.Zone, Size: p.spec.Size}
		}
	}
	out := make([]cloud.Instance, 0, len(byUID))
	for _, i := range byUID {
		out = append(out, i)
	}
	sort.Slice(out, func(i, j int) bool {
		if a, b := out[i].Key, out[j].Key; a.Name != b.Name {
			return a.Name < b.Name
		}
		return out[i].Key.UID < out[j].Key.UID
	})
	return out, nil
}

// Regions implements cloud.Catalog.
func (c *Cloud) Regions(ctx context.Context) ([]string, error) {
	if err := c.enter(ctx, OpRegions, ""); err != nil {
		return nil, err
	}
	return []string{c.region}, nil
}

// Sizes implements cloud.Catalog.
func (c *Cloud) Sizes(ctx context.Context, region string) ([]cloud.Size, error) {
	if err := c.enter(ctx, OpSizes, ""); err != nil {
		return nil, err
	}
	if region != c.region {
		return nil, nil
	}
	out := append([]cloud.Size(nil), c.sizes...)
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}

// Restart implements cloud.PowerCycler: the instance starts again and runs
// after the boot delay.
func (c *Cloud) Restart(ctx context.Context, key cloud.Key) error {
	if err := c.enter(ctx, OpRestart, key.Name); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.observe(key); err != nil {
		return err
	}
	vm := c.get(kindVM, key)
	vm.power, vm.readyAt, vm.restarted = "", c.clk.Now().Add(c.delay[OpCreate]), true
	return nil
}

// addresses of an instance: what a kubelet on it would report, and the same
// for its whole life.
func addresses(vm *part) []corev1.NodeAddress {
	return []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: vm.key.Name},
		{Type: corev1.NodeInternalDNS, Address: vm.key.Name},
		{Type: corev1.NodeInternalIP, Address: vm.address},
	}
}
