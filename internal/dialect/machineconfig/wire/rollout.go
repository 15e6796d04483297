package wire

import (
	"fmt"
	"time"
)

// Names of the controllers that move nodes. Both tell events as the first.
const (
	ControllerNode  = "machineconfigcontroller-nodecontroller"
	ControllerDrain = "machineconfigcontroller-draincontroller"
)

// Annotations of Nodes that a rollout reads and writes.
const (
	AnnotationCurrentImage     = Group + "/currentImage"
	AnnotationDesiredImage     = Group + "/desiredImage"
	AnnotationState            = Group + "/state"
	AnnotationReason           = Group + "/reason"
	AnnotationDesiredDrain     = Group + "/desiredDrain"
	AnnotationLastAppliedDrain = Group + "/lastAppliedDrain"
	AnnotationPostConfigAction = Group + "/post-config-action"
	AnnotationTopology         = Group + "/controlPlaneTopology"
	AnnotationLabelsApplied    = Group + "/customPoolLabelsApplied"
	AnnotationTheirsPrefix     = Group + "/"
)

// Annotations of ours on pools and Nodes.
const (
	// AnnotationRollout asks for waves; engine/rollout says how it is written.
	AnnotationRollout = "millwright.io/rollout"
	// AnnotationRolloutState is where the waves stand.
	AnnotationRolloutState = "millwright.io/rollout-state"
	// AnnotationWindows are the maintenance windows.
	AnnotationWindows = "millwright.io/windows"
	// AnnotationSelfHeal with SelfHealDisabled leaves broken nodes to people.
	AnnotationSelfHeal = "millwright.io/self-heal"
	SelfHealDisabled   = "Disabled"
	// AnnotationDrainStarted is when the drain of a Node began, RFC 3339.
	AnnotationDrainStarted = "millwright.io/drain-started"
	// AnnotationDrainBlocked names what the drain of a Node waits for.
	AnnotationDrainBlocked = "millwright.io/drain-blocked"
)

// TaintUpdateInProgress is what the original puts on nodes that wait.
const TaintUpdateInProgress = "UpdateInProgress"

// PoolMaster and others are the pools that have a meaning beyond their nodes.
const (
	PoolMaster  = "master"
	PoolWorker  = "worker"
	PoolArbiter = "arbiter"
)

// LabelOperatorPod and its value find the operator's pod.
const (
	LabelOperatorPod   = "k8s-app"
	LabelOperatorValue = "machine-config-operator"
)

// Event reasons and texts of Nodes.
const (
	ReasonDrainThresholdExceeded = "DrainThresholdExceeded"
	ReasonDrainFailed            = "DrainFailed"
	ReasonDrainBlocked           = "DrainBlocked"
	ReasonDrainForecast          = "DrainForecast"
	ReasonAnnotationChange       = "AnnotationChange"
)

// Metrics that alerts and dashboards know.
const (
	MetricDrainErr    = "mcc_drain_err"
	MetricPoolAlert   = "mcc_pool_alert"
	MetricMachines    = "mco_machine_count"
	MetricUpdated     = "mco_updated_machine_count"
	MetricDegraded    = "mco_degraded_machine_count"
	MetricUnavailable = "mco_unavailable_machine_count"
	MetricLabelNode   = "node"
)

// BundleKubeAPIServer is the bundle whose certificates pools speak of.
const BundleKubeAPIServer = "KubeAPIServerServingCAData"

// TextDrainSlow is the event of a drain that has been failing for a while.
func TextDrainSlow(why string) string {
	return "Drain failed. Drain has been failing for more than 10 minutes. Waiting 5 minutes then retrying. Error message from drain: " + why
}

// TextDrainLate is the event of one that alerts speak of.
func TextDrainLate(node string, limit time.Duration) string {
	return fmt.Sprintf("node %s: drain exceeded timeout: %v. Will continue to retry.", node, limit)
}

// TextAnnotation is the event of a control plane Node's annotation.
func TextAnnotation(node, key, value string, there bool) string {
	if !there {
		return fmt.Sprintf("Node %s no longer has %s", node, key)
	}
	return fmt.Sprintf("Node %s now has %s=%s", node, key, value)
}

// Reasons of a MachineConfigNode's conditions about cordon and drain.
const (
	ReasonCordoned   = "Cordoned"
	ReasonDrained    = "Drained"
	ReasonUncordoned = "Uncordoned"

	ReasonExecutedCordoned   = "UpdateExecutedCordoned"
	ReasonExecutedDrained    = "UpdateExecutedDrained"
	ReasonCompleteUncordoned = "UpdateCompleteUncordoned"
)
