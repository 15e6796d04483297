// Package controlplane finds, builds, starts and supervises the development
// control plane: etcd, kube-apiserver and, on request,
// kube-controller-manager and kube-scheduler, each a child process of one
// millwright-devplane binary.
//
// It decides how the components are run (flags, certificates, ports, order,
// restarts) and touches one directory, loopback ports and its own children.
// It must never put anything into the cluster beyond what the components
// themselves create, and never leave a process behind: children die with the
// process that started them, however that one ends.
//
//	binary, err := controlplane.Ensure(ctx, "", os.Stderr)
//	plane, err := controlplane.Start(ctx, controlplane.Options{Dir: dir, Binary: binary})
//	defer plane.Stop(ctx)
package controlplane
