package memapi

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cache is a reader that lags behind an API, as an informer's cache does: each
// kind shows a prefix of that kind's history. It moves only when told to.
type Cache struct {
	*Store
	api *API
	pos map[schema.GroupVersionKind]int
}

// NewCache returns a cache that has seen everything so far.
func (a *API) NewCache() *Cache {
	c := &Cache{Store: newStore(a.scheme), api: a, pos: map[schema.GroupVersionKind]int{}}
	c.Sync()
	return c
}

// Behind returns the kinds whose history is not fully shown, sorted.
func (c *Cache) Behind() []schema.GroupVersionKind {
	c.api.mu.Lock()
	defer c.api.mu.Unlock()
	var out []schema.GroupVersionKind
	for gvk, j := range c.api.t.journal {
		if c.pos[gvk] < len(j) {
			out = append(out, gvk)
		}
	}
	slices.SortFunc(out, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// Event is one change that a cache showed: Old is nil for a creation, New for
// a removal.
type Event struct {
	Key      client.ObjectKey
	Old, New client.Object
}

// Length returns how long the history of a kind is.
func (a *API) Length(gvk schema.GroupVersionKind) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.t.journal[gvk])
}

// Position returns how much of a kind's history is shown.
func (c *Cache) Position(gvk schema.GroupVersionKind) int { return c.pos[gvk] }

// Next shows the next change of a kind and returns it, false at the end.
func (c *Cache) Next(gvk schema.GroupVersionKind) (Event, bool) {
	c.api.mu.Lock()
	j := c.api.t.journal[gvk]
	if c.pos[gvk] >= len(j) {
		c.api.mu.Unlock()
		return Event{}, false
	}
	ch := j[c.pos[gvk]]
	c.pos[gvk]++
	c.api.mu.Unlock()
	c.mu.RLock()
	e := Event{Key: ch.key, Old: c.objects[gvk][ch.key], New: ch.obj}
	c.mu.RUnlock()
	if ch.obj == nil {
		c.drop(gvk, ch.key)
		return e, true
	}
	// The journal holds typed copies that nobody changes; readers copy.
	if err := c.put(gvk, ch.obj); err != nil {
		panic(err) // what was stored typed converts to itself
	}
	return e, true
}

// Advance shows up to n more changes of a kind and returns the keys of the
// objects that changed, in order.
func (c *Cache) Advance(gvk schema.GroupVersionKind, n int) []client.ObjectKey {
	var keys []client.ObjectKey
	for range n {
		e, ok := c.Next(gvk)
		if !ok {
			break
		}
		keys = append(keys, e.Key)
	}
	return keys
}

// Sync shows everything and returns what changed, by kind.
func (c *Cache) Sync() map[schema.GroupVersionKind][]client.ObjectKey {
	out := map[schema.GroupVersionKind][]client.ObjectKey{}
	for _, gvk := range c.Behind() {
		for {
			keys := c.Advance(gvk, 1<<20)
			if len(keys) == 0 {
				break
			}
			out[gvk] = append(out[gvk], keys...)
		}
	}
	return out
}

// Client returns a client that reads this cache and writes to the API, as a
// manager's client does.
func (c *Cache) Client() client.Client { return cachedClient{WithWatch: c.api.WithWatch, cache: c} }

type cachedClient struct {
	client.WithWatch
	cache *Cache
}

// Get reads the cache.
func (c cachedClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.cache.Get(ctx, key, obj, opts...)
}

// List reads the cache.
func (c cachedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.cache.List(ctx, list, opts...)
}
