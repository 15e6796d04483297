// Package vrm is a stand-in for the management API of Huawei FusionCompute
// (VRM) over HTTPS: sessions, sites, clusters, hosts, datastores, switches,
// folders, templates, VMs, volumes, uploads and tasks, with the paths, inexact
// list filters, error codes and bodies of the real one. It keeps what it holds
// in a state file and can be made to fail, stall or expire. VMs that are
// powered on are handed to a Machines, which plays the hardware.
//
// It must never know who its callers are: no provider, no dialect and no
// Kubernetes object appears here. Where the real API is not published (upload,
// file deletion, datastore clusters, some codes) it answers as we assume.
//
//	srv, err := vrm.New(vrm.Config{StateFile: "dcs.json", User: "u", Password: "p"})
//	err = srv.Seed(vrm.DefaultSeed())
//	err = srv.Serve(ctx, listener)
package vrm
