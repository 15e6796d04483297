package rollout

import (
	corev1 "k8s.io/api/core/v1"
)

// NotReady says in the original's words why a Node is not ready, cordoned or
// not; empty: it is ready. A Node without conditions is.
func NotReady(n *corev1.Node) string {
	for _, c := range n.Status.Conditions {
		switch {
		case c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue:
			return "node " + n.Name + " is reporting NotReady=" + string(c.Status)
		case c.Type == corev1.NodeDiskPressure && c.Status != corev1.ConditionFalse:
			return "node " + n.Name + " is reporting OutOfDisk=" + string(c.Status)
		case c.Type == corev1.NodeNetworkUnavailable && c.Status != corev1.ConditionFalse:
			return "node " + n.Name + " is reporting NetworkUnavailable=" + string(c.Status)
		}
	}
	return ""
}

// Preview is the order of a rollout as it is known before it begins.
type Preview struct {
	// Groups says for each node in which group it goes, from 1; 0 for those
	// that stay. A group goes at the same time.
	Groups []int
	Number int // of groups
	// Waves is the number of waves that are tried one after the other, ≥ 1
	// when any node goes, and First the number of nodes of the first.
	Waves, First int
}

// Foresee returns the groups in which nodes go, in their order, when at most
// limit go at a time and the settings are s, nil for none.
func Foresee(s *Settings, nodes []Node, goes []bool, limit int) Preview {
	limit = max(1, limit)
	p := Preview{Groups: make([]int, len(nodes))}
	var rest, first []int
	for i := range nodes {
		switch {
		case !goes[i]:
		case s != nil && s.hasCanary() && len(first) < s.canarySize(len(nodes)) && s.selects(&nodes[i]) && !nodes[i].busy():
			first = append(first, i)
		default:
			rest = append(rest, i)
		}
	}
	p.First = len(first)
	wave := func(members []int) {
		if len(members) == 0 {
			return
		}
		p.Waves++
		for j, i := range members {
			p.Groups[i] = p.Number + j/limit + 1
		}
		p.Number += (len(members) + limit - 1) / limit
	}
	wave(first)
	for k := 1; len(rest) > 0; k++ {
		n := len(rest)
		if len(first) > 0 {
			n = min(n, s.size(k, len(first), len(nodes)))
		}
		wave(rest[:n])
		rest = rest[n:]
	}
	return p
}

// Order puts nodes into the order in which a preview shows them: those that are
// out of service first, since they cost nothing, then as Sort does. A control
// plane's operator node stays last.
func Order(nodes []Node) {
	Sort(nodes)
	down := func(n *Node) bool { return n.busy() }
	out := make([]Node, 0, len(nodes))
	for i := range nodes {
		if down(&nodes[i]) {
			out = append(out, nodes[i])
		}
	}
	for i := range nodes {
		if !down(&nodes[i]) {
			out = append(out, nodes[i])
		}
	}
	copy(nodes, out)
}
