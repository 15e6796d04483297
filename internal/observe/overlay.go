package observe

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Limits of an Overlay. A cache that lags longer than overlayTTL is broken; the
// same five minutes that the ReplicaSet controller waits for its expectations.
const (
	overlayTTL      = 5 * time.Minute
	overlayPerOwner = 4096
)

// Overlay remembers our own creations and deletions, per owner, until the
// cache shows them. Decisions made on Apply's result therefore never repeat a
// write that has happened already. It is safe for concurrent use.
//
// A creation is forgotten when the cache shows the object, when it shows
// another object of that name, when it shows any younger version of a sibling
// (the cache is past our write, so the object is gone again), or after five
// minutes. A deletion is forgotten when the cache shows it, or after five minutes.
type Overlay struct {
	clk    clock.PassiveClock
	mu     sync.Mutex
	owners map[types.UID]*pending
}

type pending struct {
	created map[types.UID]write
	deleted map[types.UID]write
}

type write struct {
	obj client.Object
	at  time.Time
}

// NewOverlay returns an empty overlay.
func NewOverlay(clk clock.PassiveClock) *Overlay {
	return &Overlay{clk: clk, owners: map[types.UID]*pending{}}
}

// Created remembers that obj, as the server returned it, was created for
// owner. obj is copied.
func (o *Overlay) Created(owner types.UID, obj client.Object) {
	if obj.GetUID() == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.of(owner)
	p.created[obj.GetUID()] = write{obj: obj.DeepCopyObject().(client.Object), at: o.clk.Now()}
	trim(p.created)
}

// Deleted remembers that the deletion of obj was accepted. obj is copied.
func (o *Overlay) Deleted(owner types.UID, obj client.Object) {
	if obj.GetUID() == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.of(owner)
	delete(p.created, obj.GetUID())
	p.deleted[obj.GetUID()] = write{obj: obj.DeepCopyObject().(client.Object), at: o.clk.Now()}
	trim(p.deleted)
}

// Apply returns cached as it will be once the cache has caught up: created
// objects are added at the end, deleted ones carry a deletionTimestamp. All
// objects must be of one kind and belong to owner. cached is not changed, nor
// are its objects; unaffected ones are returned as they are.
func (o *Overlay) Apply(owner types.UID, cached []client.Object) []client.Object {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.owners[owner]
	if p == nil {
		return cached
	}
	out := slices.Clone(cached)
	seen := map[types.UID]bool{}
	names := map[types.NamespacedName]bool{}
	newest := uint64(0)
	for i, obj := range cached {
		seen[obj.GetUID()] = true
		names[client.ObjectKeyFromObject(obj)] = true
		newest = max(newest, version(obj))
		w, gone := p.deleted[obj.GetUID()]
		if !gone {
			continue
		}
		if obj.GetDeletionTimestamp() != nil || o.expired(w) {
			delete(p.deleted, obj.GetUID())
			continue
		}
		marked := obj.DeepCopyObject().(client.Object)
		at := metav1.NewTime(w.at.Truncate(time.Second))
		marked.SetDeletionTimestamp(&at)
		out[i] = marked
	}
	maps.DeleteFunc(p.deleted, func(uid types.UID, w write) bool { return !seen[uid] && o.expired(w) })
	for _, w := range ordered(p.created) {
		uid := w.obj.GetUID()
		if seen[uid] || names[client.ObjectKeyFromObject(w.obj)] || passed(w.obj, newest) || o.expired(w) {
			delete(p.created, uid)
			continue
		}
		out = append(out, w.obj.DeepCopyObject().(client.Object))
	}
	if len(p.created)+len(p.deleted) == 0 {
		delete(o.owners, owner)
	}
	return out
}

// passed says whether the cache has gone beyond obj without showing it.
func passed(obj client.Object, newest uint64) bool {
	return version(obj) > 0 && newest > version(obj)
}

// Forget drops everything remembered for an owner that is gone.
func (o *Overlay) Forget(owner types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.owners, owner)
}

func (o *Overlay) of(owner types.UID) *pending {
	p := o.owners[owner]
	if p == nil {
		o.sweep()
		p = &pending{created: map[types.UID]write{}, deleted: map[types.UID]write{}}
		o.owners[owner] = p
	}
	return p
}

// sweep drops owners nobody asked about for longer than a write is kept.
func (o *Overlay) sweep() {
	for uid, p := range o.owners {
		live := false
		for _, m := range []map[types.UID]write{p.created, p.deleted} {
			for _, w := range m {
				live = live || !o.expired(w)
			}
		}
		if !live {
			delete(o.owners, uid)
		}
	}
}

func (o *Overlay) expired(w write) bool { return o.clk.Now().Sub(w.at) > overlayTTL }

// version returns the resourceVersion as a number, 0 when it is none.
func version(obj client.Object) uint64 {
	n, err := strconv.ParseUint(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func ordered(m map[types.UID]write) []write {
	var out []write
	for _, w := range m {
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b write) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return strings.Compare(a.obj.GetName(), b.obj.GetName())
	})
	return out
}

func trim(m map[types.UID]write) {
	if len(m) <= overlayPerOwner {
		return
	}
	for _, w := range ordered(m)[:len(m)-overlayPerOwner] {
		delete(m, w.obj.GetUID())
	}
}
