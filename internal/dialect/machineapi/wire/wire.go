// Package wire is the table of strings that the Machine API's users, alerts
// and scripts know: labels, annotations, finalizers, phases, reasons and the
// texts of conditions, events and log lines. It holds constants and the
// functions that fill their blanks; it decides nothing and touches nothing.
package wire

// Group is the API group of Machine, MachineSet and MachineHealthCheck.
const Group = "machine.openshift.io"

// Namespace is where an installer puts Machines and their Secrets.
const Namespace = "openshift-machine-api"

// Labels of Machines and MachineSets.
const (
	LabelCluster       = "machine.openshift.io/cluster-api-cluster"
	LabelMachineRole   = "machine.openshift.io/cluster-api-machine-role"
	LabelMachineType   = "machine.openshift.io/cluster-api-machine-type"
	LabelMachineSet    = "machine.openshift.io/cluster-api-machineset"
	LabelRegion        = "machine.openshift.io/region"
	LabelZone          = "machine.openshift.io/zone"
	LabelInstanceType  = "machine.openshift.io/instance-type"
	LabelInterruptible = "machine.openshift.io/interruptible-instance"
)

// Values of LabelMachineRole and LabelMachineType.
const (
	RoleMaster = "master"
	RoleWorker = "worker"
)

// Role labels of Nodes. Their value is empty.
const (
	NodeRoleWorker       = "node-role.kubernetes.io/worker"
	NodeRoleControlPlane = "node-role.kubernetes.io/control-plane"
	NodeRoleMaster       = "node-role.kubernetes.io/master"
)

// Annotations.
const (
	// AnnotationNodeMachine is on Nodes: <namespace>/<machine name>.
	AnnotationNodeMachine = "machine.openshift.io/machine"
	// AnnotationInstanceState is on Machines: the cloud's state word.
	AnnotationInstanceState = "machine.openshift.io/instance-state"
	// AnnotationExcludeDrain on a Machine skips the drain; its value is ignored.
	AnnotationExcludeDrain = "machine.openshift.io/exclude-node-draining"
	// AnnotationDelete prefers a Machine when its set shrinks, if not empty.
	AnnotationDelete = "machine.openshift.io/delete-machine"
	// AnnotationDeleteLegacy is the older spelling of AnnotationDelete.
	AnnotationDeleteLegacy = "machine.openshift.io/cluster-api-delete-machine"
	// AnnotationPaused stops our controllers from touching an object.
	AnnotationPaused = "cluster.x-k8s.io/paused"
)

// Hints on MachineSets for scaling from zero.
const (
	AnnotationVCPU     = "machine.openshift.io/vCPU"
	AnnotationMemoryMb = "machine.openshift.io/memoryMb"
	AnnotationGPU      = "machine.openshift.io/GPU"
	AnnotationMaxPods  = "machine.openshift.io/maxPods"
	AnnotationLabels   = "capacity.cluster-autoscaler.kubernetes.io/labels"
)

// MachineFinalizer keeps a Machine until its instance is gone.
const MachineFinalizer = "machine.machine.openshift.io"

// Phases of a Machine. A Machine that was never looked at has none.
const (
	PhaseProvisioning = "Provisioning"
	PhaseProvisioned  = "Provisioned"
	PhaseRunning      = "Running"
	PhaseDeleting     = "Deleting"
	PhaseFailed       = "Failed"
)

// Names of controllers: log names, reporting controllers of events.
const (
	ControllerMachineSet  = "machineset-controller"
	ControllerMachine     = "machine-controller"
	ControllerNodeLink    = "nodelink-controller"
	ControllerHealthCheck = "machine-healthcheck-controller"
)

// UserDataKey is the key of a user-data Secret.
const UserDataKey = "userData"
