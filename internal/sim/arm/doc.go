// Package arm is a stand-in for the Azure Resource Manager and its token
// endpoint, over HTTPS: what the official SDK's clients talk to, with the same
// paths, long operations, error codes and texts. It keeps its resources in a
// state file, checks what the real cloud checks (quota, zones, sizes,
// references, required fields) and can be made to fail or to be slow. Virtual
// machines are handed to a Machines, which plays the hardware.
//
// It must never know who its callers are: no provider, no dialect and no
// Kubernetes object appears here.
//
//	srv, err := arm.New(arm.Config{StateFile: "azure.json", SubscriptionID: sub, …})
//	err = srv.Seed(arm.Seed{InfraID: "demo-x7k2p"})
//	err = srv.Serve(ctx, listener)
package arm

//go:generate go run ../../../hack/armfields -out zz_generated_fields.go
