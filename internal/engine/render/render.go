// Package render merges MachineConfigs into the one config a pool's nodes run,
// and names it by its content. The name and the hashed bytes are those of
// OpenShift's machine config controller, so that taking over a cluster or
// leaving it changes no node. It decides order, merge and name; it never reads
// a clock or the cluster, and it never changes its input.
//
//	result, err := render.Render(pool, fragments, base)
//	// result.Name == "rendered-worker-d18dab2bd68627f4d84f92082bb637ef"
package render

import (
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Keys of the Machine Config API that matter for rendering.
const (
	RoleLabel                    = "machineconfiguration.openshift.io/role"
	GeneratedByControllerVersion = "machineconfiguration.openshift.io/generated-by-controller-version"
	ReleaseImageVersion          = "machineconfiguration.openshift.io/release-image-version"
	OSImageURLOverriddenKey      = "machineconfiguration.openshift.io/os-image-url-overridden"
	roleWorker                   = "worker"
	kernelTypeDefault            = "default"
	kernelTypeRealtime           = "realtime"
	kernelType64kPages           = "64k-pages"
	maxRenderedSize              = 1572864
)

// Fragment is one MachineConfig as input.
type Fragment struct {
	Name        string
	Labels      map[string]string
	Annotations map[string]string
	Spec        mcfgv1.MachineConfigSpec
}

// FromMachineConfig reads the object's parts that matter. It shares memory with
// the object.
func FromMachineConfig(mc *mcfgv1.MachineConfig) Fragment {
	return Fragment{Name: mc.Name, Labels: mc.Labels, Annotations: mc.Annotations, Spec: mc.Spec}
}

// Pool is a MachineConfigPool as far as it matters.
type Pool struct {
	Name     string
	Selector *metav1.LabelSelector
}

// Base is what the cluster supplies: the images of the ControllerConfig
// (baseOSContainerImage, baseOSExtensionsContainerImage), or of the pool's OS
// image stream.
type Base struct {
	OSImageURL                     string
	BaseOSExtensionsContainerImage string
	// Stream is the pool's OS image stream, "" if it names none. Then no
	// fragment may set another OS image.
	Stream string
	// ByName merges in the order of names alone, as controllers of releases
	// before 4.15 did: a worker's config may then beat a custom pool's own.
	ByName bool
}

// Result is a rendered config.
type Result struct {
	Name     string // rendered-<pool>-<32 hex digits>
	Spec     mcfgv1.MachineConfigSpec
	Hashed   []byte   // the YAML the name is the hash of
	Sources  []string // the fragments in the order they were merged
	Origins  []Origin // every item, in the order of the rendered config
	Problems []Problem
	// OSImageOverridden tells that a fragment set another OS image than Base.
	OSImageOverridden bool
}

// Kinds of items of a rendered config.
const (
	KindFile            = "file"
	KindDirectory       = "directory"
	KindLink            = "link"
	KindUnit            = "unit"
	KindDropin          = "dropin" // key <unit>/<drop-in>
	KindUser            = "user"
	KindGroup           = "group"
	KindSSHKey          = "sshKey" // key <user>/<the key's comment or number>
	KindDisk            = "disk"
	KindFilesystem      = "filesystem"
	KindRaid            = "raid"
	KindLuks            = "luks"
	KindIgnition        = "ignition" // merge, replace, certificate authorities, proxy, timeouts
	KindIgnitionKarg    = "ignitionKernelArgument"
	KindKernelArgument  = "kernelArgument" // key <number>: the argument
	KindExtension       = "extension"
	KindKernelType      = "kernelType"
	KindFIPS            = "fips"
	KindOSImage         = "osImageURL"
	KindExtensionsImage = "baseOSExtensionsContainerImage"
)

// Origin remembers who set an item and whom it overrode.
type Origin struct {
	Kind     string
	Key      string
	SetBy    string   // the fragment that spoke last; "" is Base
	Overrode []string // the fragments that spoke before, in order
}

// Problem is a fault or a warning about one fragment or, if Fragment is empty,
// about the rendered config.
type Problem struct {
	Fragment string
	Path     string // below spec, e.g. "config.storage.files.0.mode"
	Value    string
	Detail   string // what is wrong and what would be right
	Warning  bool
}

// String prints fragment, path, value and detail on one line.
func (p Problem) String() string {
	text := ""
	if p.Fragment != "" {
		text = p.Fragment + ": "
	}
	if p.Path != "" {
		text += p.Path + ": "
	}
	if p.Value != "" {
		text += `"` + p.Value + `": `
	}
	return text + p.Detail
}

// Error is a refusal to render. Its text is the original's; Problems say whose
// fault it is.
type Error struct {
	Wire     string
	Problems []Problem
}

// Error returns the original's words.
func (e *Error) Error() string { return e.Wire }
