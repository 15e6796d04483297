package machine

import (
	"strconv"
	"sync"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	"k8s.io/apimachinery/pkg/types"

	"millwright.io/millwright/internal/engine/instance"
)

// memory is what the controller knows better than its cache: the last failure
// of each Machine, and its own last write while the cache has not shown it.
// Losing it costs early retries and repeated writes, nothing else.
type memory struct {
	mu sync.Mutex
	of map[types.NamespacedName]*remembered
}

type remembered struct {
	uid     types.UID
	last    instance.Last
	written *machinev1.Machine
	gone    bool // its finalizer is off; only the cache still shows it
}

func newMemory() *memory { return &memory{of: map[types.NamespacedName]*remembered{}} }

func (x *memory) forget(key types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.of, key)
}

// bury remembers that a Machine is no more until the cache shows it too: a
// stale copy looks like one that still wants its instance.
func (x *memory) bury(key types.NamespacedName, uid types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.entry(key, uid).gone = true
}

// buried reports that the cached Machine is no more.
func (x *memory) buried(key types.NamespacedName, uid types.UID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.of[key]
	return e != nil && e.uid == uid && e.gone
}

func (x *memory) entry(key types.NamespacedName, uid types.UID) *remembered {
	e := x.of[key]
	if e == nil || e.uid != uid {
		e = &remembered{uid: uid}
		x.of[key] = e
	}
	return e
}

func (x *memory) keep(key types.NamespacedName, uid types.UID, l instance.Last) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.entry(key, uid).last = l
}

func (x *memory) wrote(key types.NamespacedName, m *machinev1.Machine) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.entry(key, m.UID).written = m
}

// newest returns the younger of the cached Machine and our own last write, as
// a copy, and whether the Machine was met before.
func (x *memory) newest(key types.NamespacedName, cached *machinev1.Machine) (*machinev1.Machine, instance.Last, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.of[key]
	if e == nil || e.uid != cached.UID {
		return cached.DeepCopy(), instance.Last{}, false
	}
	if e.written != nil && version(e.written.ResourceVersion) > version(cached.ResourceVersion) {
		return e.written.DeepCopy(), e.last, true
	}
	e.written = nil
	return cached.DeepCopy(), e.last, true
}

func version(rv string) uint64 {
	n, err := strconv.ParseUint(rv, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
