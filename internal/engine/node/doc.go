// Package node decides what the agent of one node does next: wait, compare its disk
// with a config, take another config, say that it is done or that a person is needed.
// It speaks OpenShift's protocol of annotations with the machine-config-controller,
// in its words. It never looks at a disk or a cluster, and it never plans steps:
// package transition does.
//
//	d := node.Decide(in)
//	for d.Check != "" {          // it has to know how the disk differs from a config
//	    in.Checked[d.Check] = differences(d.Check)
//	    d = node.Decide(in)
//	}
package node
