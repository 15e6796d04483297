// Package wire is the table of strings that Machine Config's users, alerts and
// scripts know: names, labels, annotations and the texts of conditions, events
// and log lines. It holds constants and the functions that fill their blanks;
// it decides nothing and touches nothing.
package wire

import (
	"fmt"

	"millwright.io/millwright/internal/version"
)

// Group is the API group of MachineConfigs and their pools.
const Group = "machineconfiguration.openshift.io"

// Namespace is where the components live.
const Namespace = "openshift-machine-config-operator"

// Names.
const (
	// Component is the process: user agent, field manager, Lease.
	Component = "machine-config-controller"
	// ControllerConfig is the name of the one object of its kind.
	ControllerConfig = "machine-config-controller"
	// MachineConfiguration is the name of the one object of its kind.
	MachineConfiguration = "cluster"
	// Cluster is the name of every config.openshift.io singleton.
	Cluster = "cluster"

	ControllerRender     = "machineconfigcontroller-rendercontroller"
	ControllerTemplate   = "machineconfigcontroller-templatecontroller"
	ControllerKubelet    = "machineconfigcontroller-kubeletconfigcontroller"
	ControllerRuntime    = "machineconfigcontroller-containerruntimeconfigcontroller"
	ControllerPoolConfig = "machineconfigcontroller-poolconfigcontroller"
	ControllerPinned     = "machineconfigcontroller-pinnedimagesetcontroller"
	ControllerOSConfig   = "machineconfigcontroller-machineosconfigcontroller"
	ControllerOSBuild    = "machineconfigcontroller-machineosbuildcontroller"
)

// Labels.
const (
	LabelRole    = Group + "/role"
	LabelBuiltIn = Group + "/mco-built-in"
	// LabelPoolPrefix and a pool's name are what KubeletConfigs select by.
	LabelPoolPrefix         = "pools.operator." + Group + "/"
	LabelRequiredForUpgrade = "operator." + Group + "/required-for-upgrade"
	NodeRolePrefix          = "node-role.kubernetes.io/"
)

// Annotations of MachineConfigs, of what they are made from, and of Nodes.
const (
	AnnotationGeneratedBy   = Group + "/generated-by-controller-version"
	AnnotationRelease       = Group + "/release-image-version"
	AnnotationImageOverride = Group + "/os-image-url-overridden"
	AnnotationNameSuffix    = Group + "/mc-name-suffix"

	AnnotationCurrentConfig    = Group + "/currentConfig"
	AnnotationDesiredConfig    = Group + "/desiredConfig"
	AnnotationFirstPivotConfig = Group + "/firstPivotConfig"
)

// Event reasons.
const (
	ReasonRenderedConfigGenerated = "RenderedConfigGenerated"
	ReasonOSImageURLOverridden    = "OSImageURLOverridden"
	ReasonSelectingAll            = "SelectingAll"
)

// Metrics that alerts and dashboards know.
const (
	MetricOSImageOverride = "os_image_url_override"
	MetricLabelPool       = "pool"
)

// Version is what this build writes as generated-by-controller-version: the
// source revision, or the release when that is not known.
func Version() string {
	if version.Commit != "" {
		return version.Commit
	}
	return version.Version
}

// Texts of a ControllerConfig's conditions.
func TextTemplateRunning(generation int64) string {
	return fmt.Sprintf("syncing towards (%d) generation using controller version %s", generation, Version())
}

// TextTemplateCompleted says that all base configs are as they should be.
func TextTemplateCompleted(generation int64) string {
	return fmt.Sprintf("sync completed towards (%d) generation using controller version %s", generation, Version())
}

// TextTemplateFailing says why they are not.
func TextTemplateFailing(generation int64, err error) string {
	return fmt.Sprintf("failed to syncing towards (%d) generation using controller version %s: %v", generation, Version(), err)
}

// TextSecretType refuses a pull secret.
func TextSecretType(want, got string) string {
	return fmt.Sprintf("expected secret type %s found %s", want, got)
}

// Texts of KubeletConfigs and ContainerRuntimeConfigs that select no pool.
const (
	TextNoPoolForKubelet = "could not find any MachineConfigPool set for KubeletConfig"
	TextNoPoolForRuntime = "could not find any MachineConfigPool set for ContainerRuntimeConfig"
)

// TextNotSelected is the log line about a MachineConfig that concerns nobody.
func TextNotSelected(name string, labels map[string]string) string {
	return fmt.Sprintf("could not find any MachineConfigPool set for MachineConfig %s with labels: %v", name, labels)
}

// TextGenerated is the event of a new rendered config.
func TextGenerated(name, release, controller string) string {
	return fmt.Sprintf("%s successfully generated (release version: %s, controller version: %s)", name, release, controller)
}

// TextOverridden is the event of a rendered config with another OS image.
func TextOverridden(name, was, is string) string {
	return fmt.Sprintf("OSImageURL was overridden via machineconfig in %s (was: %s is: %s)", name, was, is)
}

// TextNotSupported says that a kind is served but not acted on.
func TextNotSupported(kind string) string {
	return kind + " is not supported yet: the object is kept, nothing is done about it"
}

// ReasonNotSupported goes with it.
const ReasonNotSupported = "NotSupportedYet"
