package ostree

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// deployment is what matters here of a deployment in rpm-ostree status --json.
type deployment struct {
	Image             string   `json:"container-image-reference"`
	CustomOrigin      []string `json:"custom-origin"`
	Booted            bool     `json:"booted"`
	Staged            bool     `json:"staged"`
	RequestedPackages []string `json:"requested-packages"`
	RequestedRemovals []string `json:"requested-base-removals"`
}

// status is what rpm-ostree status --json prints: what boots next comes first.
type status struct {
	Deployments []deployment `json:"deployments"`
}

func parseStatus(raw []byte) (status, error) {
	var s status
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, fmt.Errorf("read rpm-ostree status: %w", err)
	}
	if len(s.Deployments) == 0 {
		return s, fmt.Errorf("read rpm-ostree status: no deployments; want one at least")
	}
	return s, nil
}

// booted is the deployment that runs.
func (s status) booted() (deployment, int) {
	if i := slices.IndexFunc(s.Deployments, func(d deployment) bool { return d.Booted }); i >= 0 {
		return s.Deployments[i], i
	}
	return deployment{}, -1
}

// next is the deployment that boots next.
func (s status) next() deployment { return s.Deployments[0] }

// image is what podman would call the deployment's image, "" if it has none.
func (d deployment) image() string {
	if len(d.CustomOrigin) > 0 {
		if image, ok := strings.CutPrefix(d.CustomOrigin[0], "pivot://"); ok {
			return image
		}
	}
	return bare(d.Image)
}

// bare takes trust and transport off an image reference of ostree.
func bare(ref string) string {
	scheme, rest, ok := strings.Cut(ref, ":")
	if !ok {
		return ""
	}
	switch scheme {
	case "ostree-remote-registry", "ostree-remote-image":
		_, rest, _ = strings.Cut(rest, ":") // the remote whose keys count
	case "ostree-unverified-registry", "ostree-unverified-image", "ostree-image-signed":
	default:
		return ""
	}
	for _, transport := range []string{"docker://", "registry:", "containers-storage:", "oci:", "oci-archive:"} {
		if image, ok := strings.CutPrefix(rest, transport); ok {
			return image
		}
	}
	return rest
}

// Kernel types and the packages that make them.
const (
	kernelDefault  = "default"
	kernelRealtime = "realtime"
	kernel64k      = "64k-pages"
)

// baseKernel is what makes room for another kernel.
var baseKernel = []string{"kernel", "kernel-core", "kernel-modules", "kernel-modules-core", "kernel-modules-extra"}

var kernels = map[string][]string{
	kernelRealtime: {"kernel-rt-core", "kernel-rt-modules", "kernel-rt-modules-extra"},
	kernel64k:      {"kernel-64k-core", "kernel-64k-modules", "kernel-64k-modules-core", "kernel-64k-modules-extra"},
}

// extensions are the packages of each extension.
var extensions = map[string][]string{
	"ipsec":                {"NetworkManager-libreswan", "libreswan"},
	"kerberos":             {"krb5-workstation", "libkadm5"},
	"kernel-devel":         {"kernel-devel", "kernel-headers"},
	"sandboxed-containers": {"kata-containers"},
	"sysstat":              {"sysstat"},
	"two-node-ha":          {"pacemaker", "pcs", "fence-agents-all"},
	"usbguard":             {"usbguard"},
}

// Layers returns the packages that a kernel type and extensions put on top of an image
// and those that they take out of it, both sorted. What is unknown has none.
func Layers(kernelType string, names []string) (layered, removed []string) {
	if list, ok := kernels[kernelType]; ok {
		layered, removed = slices.Clone(list), slices.Clone(baseKernel)
	}
	for _, n := range names {
		layered = append(layered, extensions[n]...)
	}
	slices.Sort(layered)
	slices.Sort(removed)
	return slices.Compact(layered), removed
}

// kernelType is the kernel of a deployment.
func (d deployment) kernelType() string {
	for _, t := range []string{kernelRealtime, kernel64k} {
		if slices.Contains(d.RequestedPackages, kernels[t][0]) {
			return t
		}
	}
	return kernelDefault
}

// extensions are those of which a deployment has all packages, sorted.
func (d deployment) extensions() []string {
	out := []string{}
	for name, packages := range extensions {
		if !slices.ContainsFunc(packages, func(p string) bool { return !slices.Contains(d.RequestedPackages, p) }) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// same tells that two deployments hold the same system.
func (d deployment) same(o deployment) bool {
	return d.image() == o.image() && sameSet(d.RequestedPackages, o.RequestedPackages) && sameSet(d.RequestedRemovals, o.RequestedRemovals)
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
