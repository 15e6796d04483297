package manager

import (
	"slices"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineconfig/drain"
	"millwright.io/millwright/internal/dialect/machineconfig/generator"
	"millwright.io/millwright/internal/dialect/machineconfig/pool"
	"millwright.io/millwright/internal/dialect/machineconfig/poolconfig"
	"millwright.io/millwright/internal/dialect/machineconfig/render"
	"millwright.io/millwright/internal/dialect/machineconfig/template"
	"millwright.io/millwright/internal/dialect/machineconfig/unsupported"
	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	"millwright.io/millwright/internal/kube"
)

// namespaceConfig is where the pull secret is.
const namespaceConfig = "openshift-config"

// machineConfigCaches keeps rendered configs without their bodies, and Secrets
// of one namespace.
func machineConfigCaches(controllers []string, out map[client.Object]cache.ByObject) {
	if !slices.Contains(controllers, wire.Component) {
		return
	}
	out[&machineconfigv1.MachineConfig{}] = cache.ByObject{Transform: render.StripRendered}
	out[&corev1.Secret{}] = cache.ByObject{Namespaces: map[string]cache.Config{namespaceConfig: {}}}
}

// setupMachineConfig runs every controller of the process that its users know
// as machine-config-controller.
func setupMachineConfig(e env) error {
	c, live := e.mgr.GetClient(), e.mgr.GetAPIReader()
	recorder := func(name string) events.EventRecorder {
		return kube.LoggedEvents(e.mgr.GetEventRecorder(name), e.log, e.mgr.GetScheme())
	}
	all := []kube.Controller{
		template.New(template.Deps{Client: c, Live: live, Clock: e.clk, Log: e.log}),
		poolconfig.New(poolconfig.Deps{Client: c, Live: live, Clock: e.clk, Recorder: recorder(wire.ControllerPoolConfig), Log: e.log}),
		render.New(render.Deps{Client: c, Live: live, Clock: e.clk, Recorder: recorder(wire.ControllerRender), Log: e.log}),
	}
	// Both tell what happens under the one name that users know.
	moves := recorder(wire.ControllerNode)
	all = append(all,
		pool.New(pool.Deps{Client: c, Live: live, Clock: e.clk, Recorder: moves, Log: e.log}),
		drain.New(drain.Deps{Client: c, Live: live, Clock: e.clk, Recorder: moves, Log: e.log}),
	)
	all = append(all, generator.All(generator.Deps{Client: c, Live: live, Clock: e.clk, Log: e.log})...)
	all = append(all, unsupported.All(unsupported.Deps{Client: c, Clock: e.clk})...)
	for _, k := range all {
		if err := k.Setup(e.mgr); err != nil {
			return err
		}
	}
	return nil
}
