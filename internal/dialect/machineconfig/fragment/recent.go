package fragment

import (
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CacheLag is how soon an object is looked at again when the cache does not
// show our own write of it yet.
const CacheLag = 50 * time.Millisecond

// Recent remembers which version of an object we wrote last, until the cache
// shows it: a decision made on an older one would be refused. The zero value
// works; it is safe for concurrent use.
type Recent struct {
	mu    sync.Mutex
	wrote map[types.UID]uint64
}

// Wrote remembers obj as the server returned it.
func (r *Recent) Wrote(obj client.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v := version(obj); v > r.wrote[obj.GetUID()] {
		if r.wrote == nil {
			r.wrote = map[types.UID]uint64{}
		}
		r.wrote[obj.GetUID()] = v
	}
}

// Behind says whether obj, from the cache, is older than what we wrote.
func (r *Recent) Behind(obj client.Object) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.wrote[obj.GetUID()]
	if ok && version(obj) >= v {
		delete(r.wrote, obj.GetUID())
		return false
	}
	return ok
}

// Forget drops what is remembered of an object that is going.
func (r *Recent) Forget(obj client.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.wrote, obj.GetUID())
}

// version is 0 for a version that is no number.
func version(obj client.Object) uint64 {
	n, err := strconv.ParseUint(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
