package pool

import (
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// memory is what is remembered of one pool between two looks. A new process
// looks again and tells lasting things once more; nothing is lost.
type memory struct {
	sync.Mutex

	wrote time.Time // when the pool was last moved
	large bool

	sending sync.Mutex                   // guards sent while Nodes are written side by side
	sent    map[string]sent              // Nodes whose new target the cache may not show yet
	told    map[string]bool              // lasting events
	seen    map[string]map[string]string // annotations of control plane Nodes
	survey  survey
}

// sent is a target that was written to a Node. The Node is as the server
// returned it, or as it was when nothing came back.
type sent struct {
	config string
	node   *corev1.Node
}

func newMemory() *memory {
	return &memory{sent: map[string]sent{}, told: map[string]bool{}, seen: map[string]map[string]string{}}
}

// desired returns the target of a Node as the server has it: what was written
// counts until the cache has caught up.
func (m *memory) desired(n *corev1.Node, cached string) string {
	s, ok := m.sent[n.Name]
	if !ok {
		return cached
	}
	if version(n) >= version(s.node) {
		delete(m.sent, n.Name)
		return cached
	}
	return s.config
}

func version(n *corev1.Node) uint64 {
	v, err := strconv.ParseUint(n.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return v
}

// once says whether a lasting thing has to be told now.
func (m *memory) once(key string, on bool) bool {
	if !on {
		delete(m.told, key)
		return false
	}
	if m.told[key] {
		return false
	}
	m.told[key] = true
	return true
}
