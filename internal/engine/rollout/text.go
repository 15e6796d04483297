package rollout

// Names that the engine and its dialect agree on, and the texts that pools'
// users know.
const (
	AnnotationTopology      = "machineconfiguration.openshift.io/controlPlaneTopology"
	AnnotationLabelsApplied = "machineconfiguration.openshift.io/customPoolLabelsApplied"
)

// Conditions of a pool.
const (
	ConditionUpdated        = "Updated"
	ConditionUpdating       = "Updating"
	ConditionNodeDegraded   = "NodeDegraded"
	ConditionDegraded       = "Degraded"
	ConditionRenderDegraded = "RenderDegraded"
	// ConditionWaiting says what keeps the rollout from going on.
	ConditionWaiting = "Waiting"
	// ConditionNodesUnassigned names nodes in several custom pools.
	ConditionNodesUnassigned = "NodesUnassigned"
	// ConditionDrainBlocked forecasts what drains would wait for.
	ConditionDrainBlocked = "DrainBlocked"
)

// Event reasons.
const (
	ReasonSelectingAll      = "SelectingAll"
	ReasonSetDesiredConfig  = "SetDesiredConfig"
	ReasonCompleted         = "Completed"
	ReasonDeferringOperator = "DeferringOperatorNodeUpdate"
	ReasonRolloutStopped    = "RolloutStopped"
	ReasonRolloutResumed    = "RolloutResumed"
	ReasonNextWave          = "RolloutWave"
	ReasonCordonKept        = "CordonKept"
)

// Reasons of the condition Waiting.
const (
	WaitPaused       = "Paused"
	WaitInvalid      = "InvalidSetting"
	WaitWindow       = "MaintenanceWindow"
	WaitBudget       = "Budget"
	WaitControlPlane = "ControlPlane"
	WaitCanary       = "Canary"
	WaitWave         = "Wave"
	WaitGate         = "Workloads"
	WaitSoak         = "Soak"
	WaitStopped      = "Stopped"
	WaitRolledBack   = "RolledBack"
)

const textSelectingAll = "This machineconfigpool is selecting all nodes. A non-empty selector is required."
