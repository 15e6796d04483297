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

// Groups returns for each node, in order, the group in which it goes when at
// most limit go at a time, from 1; 0 for those that stay. It also returns the
// number of groups. It is how a preview numbers the nodes of a rollout.
func Groups(goes []bool, limit int) (groups []int, number int) {
	limit = max(1, limit)
	groups = make([]int, len(goes))
	next := 0
	for i, g := range goes {
		if g {
			groups[i] = next/limit + 1
			next++
		}
	}
	return groups, (next + limit - 1) / limit
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
