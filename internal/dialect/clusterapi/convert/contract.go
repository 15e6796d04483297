package convert

import (
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// Contracts remembers the contract labels of definitions; its Version is the
// Versions of a Converter. The zero value knows none. Safe for concurrent use.
type Contracts struct {
	mu     sync.RWMutex
	byName map[string]string // definition's name to version
}

// contractLabels are the labels that name the versions keeping a contract, the
// one to prefer first.
var contractLabels = []string{groupCore + "/" + newVersion, groupCore + "/" + oldVersion}

// Set learns the labels of the definition of that name (plural.group).
func (c *Contracts) Set(name string, labels map[string]string) {
	best := ""
	for _, label := range contractLabels {
		for _, v := range strings.Split(labels[label], "_") {
			if v != "" && (best == "" || version.CompareKubeAwareVersionStrings(v, best) > 0) {
				best = v
			}
		}
		if best != "" {
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if best == "" {
		delete(c.byName, name)
		return
	}
	if c.byName == nil {
		c.byName = map[string]string{}
	}
	c.byName[name] = best
}

// Forget drops a definition.
func (c *Contracts) Forget(name string) { c.Set(name, nil) }

// Version is the version of a kind that keeps the newest contract, "" when its
// definition is not known or has no contract label.
func (c *Contracts) Version(group, kind string) string {
	plural, _ := meta.UnsafeGuessKindToResource(apischema.GroupVersionKind{Group: group, Kind: kind})
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byName[plural.Resource+"."+group]
}
