package operator

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Ports of machine-config-controller.
const (
	machineConfigHealth  = 8798
	machineConfigMetrics = 9001
)

// MachineConfigComponents is the table of what needs the definitions of the
// Machine Config API to be served before it starts.
func MachineConfigComponents(p Params) []Component {
	return []Component{
		{"machine-config-controller", NamespaceMachineConfig, "machine-config-controller", []client.Object{machineConfigController(p)}},
	}
}

// MachineConfigObjects is Objects for MachineConfigComponents.
func MachineConfigObjects(p Params) ([]client.Object, error) {
	return install(MachineConfigComponents(p))
}

func machineConfigController(p Params) *appsv1.Deployment {
	return deployment(NamespaceMachineConfig, "machine-config-controller", 1, map[string]string{"k8s-app": "machine-config-controller"},
		onControlPlane("machine-config-controller", []container{
			{name: "machine-config-controller", image: real("manager", p.Version), port: machineConfigHealth, health: machineConfigHealth, args: []string{
				"--controllers=machine-config-controller", "--namespace=" + NamespaceMachineConfig, "--leader-elect=true",
				"--health-addr=$(MILLWRIGHT_BIND_IP):" + strconv.Itoa(machineConfigHealth), "--v=3"}},
			{name: "kube-rbac-proxy", image: pretend + "kube-rbac-proxy:" + p.Version, port: machineConfigMetrics},
		}))
}
