// Package kubelet is the node side of the simulated world: it registers a
// Node under the node's own identity, renews its Lease, runs the pods bound
// to it and serves logs, exec, attach and port-forward to the API server.
//
// A Kubelet runs one rooted machine. Containers whose image starts with
// millwright/ are real child processes; every other image only pretends to
// run. A Pool runs thousands of hollow nodes in one process with one shared
// pod informer and no child processes. Both move pods by the same pure
// function, Step.
//
// An Egress answers HTTP CONNECT on a Unix socket and maps the simulated
// addresses of nodes and pods to loopback ones. Nothing in this package ever
// dials a simulated address, writes outside the directories it was given, or
// leaves a child process behind.
//
//	k, err := kubelet.New(kubelet.Config{NodeName: "worker-0", Rest: cfg, …})
//	if err != nil { … }
//	egress.AddNode("10.0.128.4", k)
//	err = k.Run(ctx) // until ctx ends; no child outlives it
package kubelet
