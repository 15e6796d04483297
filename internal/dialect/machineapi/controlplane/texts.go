package controlplane

import "millwright.io/millwright/internal/engine/controlplane"

// Names and texts that users of the ControlPlaneMachineSet know. This is the
// table; nothing else in the package spells them.
const (
	// Controller is the name of the process, its container and its Deployment.
	Controller = "control-plane-machine-set-operator"
	// ClusterOperator is the name of its ClusterOperator.
	ClusterOperator = "control-plane-machine-set"
	// Name is that of the only ControlPlaneMachineSet.
	Name = "cluster"
	// Finalizer keeps a set until it has let its Machines go.
	Finalizer = "controlplanemachineset.machine.openshift.io"

	nameSets      = "controlplanemachineset"
	nameGenerator = "controlplanemachinesetgenerator"

	textOperatorFine       = "cluster operator is available"
	textOperatorUpgradable = "cluster operator is upgradable"
	textCreated            = "Created replacement machine"
	textRemoving           = "Removing old machine"
	textGenerated          = "Created updated control plane machine set"

	reasonAsExpected = controlplane.ReasonAsExpected
)
