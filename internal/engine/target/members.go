package target

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// The two pools that every cluster has. Every other one is custom.
const (
	poolMaster = "master"
	poolWorker = "worker"

	labelOS = "kubernetes.io/os"
)

// Members says to which pools nodes belong.
type Members struct {
	pools []member
}

type member struct {
	name     string
	selector labels.Selector
}

// NewMembers returns the membership of pools, by name and node selector. A
// pool without a selector, or with an empty or broken one, has no nodes.
func NewMembers(pools map[string]*metav1.LabelSelector) Members {
	var m Members
	for _, name := range sortedNames(pools) {
		s := pools[name]
		if s == nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil || selector.Empty() {
			continue
		}
		m.pools = append(m.pools, member{name, selector})
	}
	return m
}

// Primary returns the pool that a node with these labels belongs to first of
// all; empty when to none. A custom pool comes before worker, master
// before a custom one.
func (m Members) Primary(node map[string]string) (string, error) {
	if node[labelOS] == "windows" {
		return "", nil
	}
	var custom []string
	master, worker := false, false
	for _, p := range m.pools {
		if !p.selector.Matches(labels.Set(node)) {
			continue
		}
		switch p.name {
		case poolMaster:
			master = true
		case poolWorker:
			worker = true
		default:
			custom = append(custom, p.name)
		}
	}
	switch {
	case len(custom) > 1:
		return "", fmt.Errorf("node belongs to %d custom roles, cannot proceed with this Node", len(custom))
	case master:
		return poolMaster, nil
	case len(custom) == 1:
		return custom[0], nil
	case worker:
		return poolWorker, nil
	}
	return "", nil
}

func sortedNames[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
