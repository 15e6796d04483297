package fake

import (
	"context"
	"fmt"
	"sort"
	"time"

	"millwright.io/millwright/internal/cloud"
)

const (
	kindVM   = "vm"
	kindDisk = "disk"
	kindNIC  = "nic"
)

// part is one resource. goneAt is when a running deletion ends.
type part struct {
	kind      string
	key       cloud.Key
	owner     cloud.Owner
	spec      Spec
	tags      map[string]string
	userData  cloud.Secret
	address   string
	readyAt   time.Time
	goneAt    time.Time
	restarted bool
	power     cloud.State  // forced state; "" follows the clock
	fault     *cloud.Fault // with power Failed
}

// Part is one resource as a test sees it.
type Part struct {
	Kind  string // vm, disk or nic
	Key   cloud.Key
	Owner cloud.Owner
}

// enter counts a call and plays what is scripted for it.
func (c *Cloud) enter(ctx context.Context, op, name string) error {
	what := op
	if name != "" {
		what += " " + name
	}
	c.mu.Lock()
	c.calls[op]++
	hang, f := c.hang[op], c.fault(op)
	c.mu.Unlock()
	if hang {
		<-ctx.Done()
	}
	if err := ctx.Err(); err != nil {
		return &cloud.Fault{Kind: cloud.Transient, Op: what, Reason: "Timeout", Cause: err}
	}
	if f != nil {
		return f
	}
	return nil
}

// fault takes the next scripted fault of op, or a copy of the standing one.
func (c *Cloud) fault(op string) *cloud.Fault {
	f := c.every[op]
	if q := c.next[op]; len(q) > 0 {
		f, c.next[op] = q[0], q[1:]
	}
	if f == nil {
		return nil
	}
	cp := *f
	if cp.Op == "" {
		cp.Op = op
	}
	return &cp
}

func address(kind string, key cloud.Key) string { return kind + "/" + key.Scope + "/" + key.Name }

// sweep drops what has finished going away.
func (c *Cloud) sweep() {
	now := c.clk.Now()
	for k, p := range c.parts {
		if !p.goneAt.IsZero() && !now.Before(p.goneAt) {
			delete(c.parts, k)
		}
	}
}

func (c *Cloud) get(kind string, key cloud.Key) *part {
	c.sweep()
	return c.parts[address(kind, key)]
}

func foreign(op string, p *part) *cloud.Fault {
	return &cloud.Fault{Kind: cloud.Conflict, Op: op, Reason: "ForeignResource",
		Message: fmt.Sprintf("%s: %s %s exists and belongs to %q; it is left alone", op, p.kind, p.key.Name, p.key.UID)}
}

// make creates one part unless it is there already.
func (c *Cloud) make(kind, op string, in cloud.Intent, spec *Spec) error {
	if p := c.get(kind, in.Key); p != nil {
		if p.key.UID != in.Key.UID {
			return foreign(op+" "+in.Key.Name, p)
		}
		return nil
	}
	if f := c.fault(op); f != nil {
		return f
	}
	c.calls[op]++
	p := &part{kind: kind, key: in.Key, owner: in.Owner, spec: *spec, tags: in.Tags}
	if kind == kindVM {
		c.serial++
		p.address = fmt.Sprintf("10.%d.%d.%d", 200+c.serial>>16&0x1f, c.serial>>8&0xff, c.serial&0xff)
		p.readyAt = c.clk.Now().Add(c.delay[OpCreate])
		p.userData = append(cloud.Secret(nil), in.UserData...)
	}
	c.parts[address(kind, in.Key)] = p
	return nil
}

func (c *Cloud) instance(vm *part) cloud.Instance {
	i := cloud.Instance{
		Key: vm.key, ID: "/fake/" + vm.spec.Region + "/vms/" + vm.key.Name,
		ProviderID: ProviderID(vm.spec.Region, vm.key.Name), State: cloud.StateRunning,
		Addresses: addresses(vm), Region: vm.spec.Region, Zone: vm.spec.Zone, Size: vm.spec.Size,
	}
	switch now := c.clk.Now(); {
	case !vm.goneAt.IsZero():
		i.State, i.Pending = cloud.StateDeleting, &cloud.Pending{Op: "delete"}
	case vm.power != "":
		i.State, i.Fault = vm.power, vm.fault
	case now.Before(vm.readyAt) && vm.restarted:
		i.State, i.Pending = cloud.StateStarting, &cloud.Pending{Op: "start"}
	case now.Before(vm.readyAt):
		i.State, i.Pending = cloud.StateCreating, &cloud.Pending{Op: "create"}
	}
	return i
}

// ProviderID is what a Node on a fake instance carries.
func ProviderID(region, name string) string { return "fake:///" + region + "/" + name }

// FailNext makes the next call of op fail with f; calls queue up.
func (c *Cloud) FailNext(op string, f *cloud.Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next[op] = append(c.next[op], f)
}

// FailEvery makes each call of op fail with f until it is called with nil,
// which also forgets what FailNext queued.
func (c *Cloud) FailEvery(op string, f *cloud.Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f == nil {
		delete(c.every, op)
		delete(c.next, op)
		return
	}
	c.every[op] = f
}

// Slow makes long operations started from now on take d by the cloud's clock.
// op is OpCreate (boot and restart) or OpDelete.
func (c *Cloud) Slow(op string, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delay[op] = d
}

// Hang makes calls of op answer only when their context ends; Unhang ends it
// for calls to come.
func (c *Cloud) Hang(op string) { c.setHang(op, true) }

// Unhang undoes Hang.
func (c *Cloud) Unhang(op string) { c.setHang(op, false) }

func (c *Cloud) setHang(op string, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hang[op] = on
}

// Calls returns how often op was called; the steps inside Create and Delete
// count only when they did something.
func (c *Cloud) Calls(op string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[op]
}

// Parts returns everything that exists, sorted by name and kind.
func (c *Cloud) Parts() []Part {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweep()
	out := make([]Part, 0, len(c.parts))
	for _, p := range c.parts {
		out = append(out, Part{Kind: p.kind, Key: p.key, Owner: p.owner})
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].Key.Name != out[j].Key.Name {
			return out[i].Key.Name < out[j].Key.Name
		}
		return out[i].Kind < out[j].Kind
	})
	return out
}

// Instances returns every instance, sorted by name, whoever owns it.
func (c *Cloud) Instances() []cloud.Instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweep()
	var out []cloud.Instance
	for _, p := range c.parts {
		if p.kind == kindVM {
			out = append(out, c.instance(p))
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Key.Name < out[j].Key.Name })
	return out
}

// UserData returns what an instance was given for its first boot.
func (c *Cloud) UserData(name string) cloud.Secret {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.parts {
		if p.kind == kindVM && p.key.Name == name {
			return p.userData
		}
	}
	return nil
}

// Vanish removes an instance behind everybody's back; its disk and network
// interface stay. It says whether there was one.
func (c *Cloud) Vanish(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, p := range c.parts {
		if p.kind == kindVM && p.key.Name == name {
			delete(c.parts, k)
			return true
		}
	}
	return false
}

// SetState forces an instance into a state, with a fault for StateFailed; the
// empty state lets the clock decide again. It says whether there was one.
func (c *Cloud) SetState(name string, s cloud.State, f *cloud.Fault) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.parts {
		if p.kind == kindVM && p.key.Name == name {
			p.power, p.fault = s, f
			return true
		}
	}
	return false
}
