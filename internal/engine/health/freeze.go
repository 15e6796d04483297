package health

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// Window is how close together Nodes must fall silent to count as one
	// failure: the node lifecycle controller marks everything it lost sight
	// of within a grace period and a scan or two.
	Window = time.Minute
	// minGroup is the least number of Nodes of which one can say that most
	// of them fell silent.
	minGroup = 3
)

// freezes returns the groups in which more than half of the Nodes fell silent
// within one Window: the whole fleet, or else single zones. It ends by itself
// when enough of them report again.
func freezes(in Input) []Group {
	var all sample
	zones := map[string]*sample{}
	for i := range in.Targets {
		t := &in.Targets[i]
		if t.Node == nil {
			continue
		}
		since := silentSince(t.Node)
		all.add(since)
		if z := zoneOf(t); z != "" {
			if zones[z] == nil {
				zones[z] = &sample{}
			}
			zones[z].add(since)
		}
	}
	if g, ok := all.frozen(""); ok {
		return []Group{g}
	}
	var out []Group
	if len(zones) < 2 {
		return nil
	}
	for _, z := range slices.Sorted(maps.Keys(zones)) {
		if g, ok := zones[z].frozen(z); ok {
			out = append(out, g)
		}
	}
	return out
}

// sample is the Nodes of one group.
type sample struct {
	nodes  int
	silent []time.Time // since when
}

func (s *sample) add(silentSince time.Time) {
	s.nodes++
	if !silentSince.IsZero() {
		s.silent = append(s.silent, silentSince)
	}
}

// frozen looks for the Window in which most Nodes fell silent.
func (s *sample) frozen(zone string) (Group, bool) {
	if s.nodes < minGroup {
		return Group{}, false
	}
	slices.SortFunc(s.silent, time.Time.Compare)
	g := Group{Zone: zone, Nodes: s.nodes}
	from := 0
	for to := range s.silent {
		for s.silent[to].Sub(s.silent[from]) > Window {
			from++
		}
		if n := to - from + 1; n > g.Silent {
			g.Silent, g.Since = n, s.silent[from]
		}
	}
	return g, 2*g.Silent > g.Nodes
}

// silentSince returns since when a Node does not report; zero: it does.
func silentSince(n *Node) time.Time {
	if c := conditionOf(n, corev1.NodeReady); c != nil && c.Status == corev1.ConditionUnknown {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

func zoneOf(t *Target) string {
	if t.Node != nil && t.Node.Zone != "" {
		return t.Node.Zone
	}
	return t.Zone
}

// whole returns the group of the whole fleet, nil when that is not frozen.
func whole(groups []Group) *Group {
	for i := range groups {
		if groups[i].Zone == "" {
			return &groups[i]
		}
	}
	return nil
}

func frozen(groups []Group, zone string) bool {
	return slices.ContainsFunc(groups, func(g Group) bool { return g.Zone == "" || g.Zone == zone })
}
