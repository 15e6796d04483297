package manager

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineconfig/firstboot"
	"millwright.io/millwright/internal/dialect/machineconfig/noderecord"
	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	"millwright.io/millwright/internal/operator"
)

// firstBootCaches keeps the Secrets and ConfigMaps of the two namespaces that first
// boots read from.
func firstBootCaches(controllers []string, out map[client.Object]cache.ByObject) {
	if !slices.Contains(controllers, operator.ControllerMachineConfig) {
		return
	}
	own := map[string]cache.Config{wire.Namespace: {}}
	out[&corev1.Secret{}] = cache.ByObject{Namespaces: map[string]cache.Config{wire.Namespace: {}, namespaceMachineAPI: {}}}
	out[&corev1.ConfigMap{}] = cache.ByObject{Namespaces: own}
}

// setupMachineConfigOperator keeps what first boots need, a record of
// each Node, and the ClusterOperator.
func setupMachineConfigOperator(e env) error {
	if err := firstboot.New(firstboot.Deps{Client: e.mgr.GetClient(), Clock: e.clk, Log: e.log}).Setup(e.mgr); err != nil {
		return err
	}
	if err := noderecord.New(noderecord.Deps{Client: e.mgr.GetClient()}).Setup(e.mgr); err != nil {
		return err
	}
	return operator.New(operator.ControllerMachineConfig, e.mgr.GetClient(), e.clk).Setup(e.mgr)
}
