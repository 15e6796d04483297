// Package memapi is an API server in memory, on top of controller-runtime's
// fake client: conflicts, watches, status subresources, finalizers, UIDs and
// preconditions, deletion of dependents, evictions, approvals and a clock that
// somebody else moves. Cache is a reader that lags behind it on purpose;
// Reader reads manifests and must-gather trees through the same interface.
//
// It serves simulations and previews. Manager, agent and config server never
// contain it.
//
//	api := memapi.New(scheme, clk, set, secret)
//	api.FailNext("patch", "Machine/status", errors.New("connection reset"))
//	_, err := controller.Step(ctx, key)
//
// What differs from a real API server: nothing is validated or defaulted;
// server-side apply takes lists as a whole; a pod without finalizers vanishes
// at once instead of waiting for its kubelet; foreground deletion is background
// deletion; dependents of an owner that never existed stay.
package memapi
