// Package agent is the machine-config-daemon of one node: it looks at the node, its
// disk and the configs of the cluster, lets engine/node decide, and does what was
// decided: it writes annotations, events and conditions, and hands steps to the
// journal, which performs them on the host. It decides nothing about configs itself
// and touches no file but through host.Host.
//
//	a := agent.New(agent.Config{Node: "worker-0", Host: h, Cluster: c, Clock: clk})
//	err := a.Run(ctx)
//
// Hollow nodes call Step themselves.
package agent
