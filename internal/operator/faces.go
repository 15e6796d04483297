package operator

import configv1 "github.com/openshift/api/config/v1"

// Names under which the controllers of ClusterOperators run.
const (
	ControllerMachineAPI      = "machine-api-operator"
	ControllerCloudController = "cloud-controller-manager-operator"
	ControllerMachineConfig   = "machine-config-operator"
)

// Faces lists the ClusterOperators that a controller keeps.
func Faces(controller string) []Face {
	ref := func(group, resource, namespace, name string) configv1.ObjectReference {
		return configv1.ObjectReference{Group: group, Resource: resource, Namespace: namespace, Name: name}
	}
	machines := "machine.openshift.io"
	switch controller {
	case ControllerMachineAPI:
		return []Face{
			{
				Name: "machine-api", Namespace: NamespaceMachineAPI, Deployments: []string{"machine-api-controllers"},
				Available: "Cluster Machine API Operator is available at operator: %s",
				Towards:   "Progressing towards operator", Resync: "Failed to resync for operator",
				Related: []configv1.ObjectReference{
					ref("", "namespaces", "", NamespaceMachineAPI), ref(machines, "machines", NamespaceMachineAPI, ""),
					ref(machines, "machinesets", NamespaceMachineAPI, ""), ref(machines, "machinehealthchecks", NamespaceMachineAPI, ""),
					ref("rbac.authorization.k8s.io", "roles", NamespaceMachineAPI, ""), ref("rbac.authorization.k8s.io", "clusterroles", "", "machine-api-controllers"),
				},
			},
			{
				Name: "machine-approver", Namespace: NamespaceMachineApprover, Deployments: []string{"machine-approver"},
				Available: "Cluster Machine Approver is available at %s",
				Towards:   "Progressing towards operator", Resync: "Failed to resync for operator",
				Related: []configv1.ObjectReference{ref("", "namespaces", "", NamespaceMachineApprover), ref("certificates.k8s.io", "certificatesigningrequests", "", "")},
			},
		}
	case ControllerCloudController:
		return []Face{{
			Name: "cloud-controller-manager", Namespace: NamespaceCloudController,
			Deployments: []string{"azure-cloud-controller-manager"}, DaemonSets: []string{"azure-cloud-node-manager"},
			Available: "Cluster Cloud Controller Manager Operator is available at %s",
			Towards:   "Progressing towards operator", Resync: "Failed to resync for operator",
			Related: []configv1.ObjectReference{
				ref("", "namespaces", "", NamespaceCloudOperator), ref("", "namespaces", "", NamespaceCloudController),
				ref("config.openshift.io", "clusteroperators", "", "cloud-controller-manager"),
			},
		}}
	case ControllerMachineConfig:
		group := "machineconfiguration.openshift.io"
		return []Face{{
			Name: "machine-config", Namespace: NamespaceMachineConfig, Pools: true,
			Deployments: []string{"machine-config-controller"}, DaemonSets: []string{"machine-config-daemon", "machine-config-server"},
			Available: "Cluster has deployed [{operator %s}]",
			Towards:   "Working towards", Resync: "Failed to resync",
			Related: []configv1.ObjectReference{
				ref("", "namespaces", "", NamespaceMachineConfig), ref(group, "machineconfigpools", "", ""),
				ref(group, "controllerconfigs", "", ""), ref(group, "kubeletconfigs", "", ""),
				ref(group, "containerruntimeconfigs", "", ""), ref(group, "machineconfigs", "", ""), ref("", "nodes", "", ""),
			},
		}}
	default:
		return nil
	}
}
