// Package kube is the plumbing of controllers: a controller as a value, its
// registration on a manager, back-off and jitter, patches that make no request
// when nothing changed, conditions, events and log lines. It knows
// controller-runtime's builder so that nobody else has to.
//
// It must never know a dialect, a provider or a rule of the domain.
//
// A controller:
//
//	c := kube.Controller{
//		Name: "machineset-controller",
//		For:  &machinev1beta1.MachineSet{},
//		Watches: []kube.Watch{{Object: &machinev1beta1.Machine{}, Map: ownersOf}},
//		Decide:    r.decide,
//		Reconcile: r.reconcile,
//	}
//	err := c.Setup(mgr)
package kube
