// Package hostconf turns what a cluster is told about its hosts, in kinds
// other than MachineConfig, into fragments: input configs that render merges
// with those of administrators. Base configs of every role, KubeletConfig,
// ContainerRuntimeConfig, cluster-wide node, feature and registry settings.
//
// It decides what a fragment contains, what its name is, which settings are
// refused and with which words, and which fragments are to be made, changed or
// removed. It reads no cluster and writes no file; the content of the base
// configs stands in content/.
//
//	fragments, err := hostconf.Base(hostconf.Facts{Role: "worker", …})
//	actions := hostconf.Plan(fragments, existing)
package hostconf
