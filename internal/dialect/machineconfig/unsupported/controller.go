// Package unsupported tells users of MachineOSConfigs and MachineOSBuilds that
// nothing is done about them yet, in the object's own conditions instead of by
// silence. It writes one condition and touches nothing else.
//
// PinnedImageSets have no status; the pools that they select say it.
package unsupported

import (
	"context"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"millwright.io/millwright/internal/dialect/machineconfig/fragment"
	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/kube"
)

//+kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineosconfigs;machineosbuilds,verbs=get;list;watch
//+kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineosconfigs/status;machineosbuilds/status,verbs=get;patch;update

// conditionSupported is the one condition written.
const conditionSupported = "Supported"

// Deps are what the controllers need. All are required.
type Deps struct {
	Client client.Client
	Clock  clock.PassiveClock
}

type controller struct {
	Deps
	name       string
	object     func() client.Object
	conditions func(client.Object) *[]metav1.Condition
}

// All returns the controllers.
func All(d Deps) []kube.Controller {
	d.Client = client.WithFieldOwner(d.Client, wire.Component)
	configs := &controller{Deps: d, name: "MachineOSConfig",
		object: func() client.Object { return &machineconfigv1.MachineOSConfig{} },
		conditions: func(o client.Object) *[]metav1.Condition {
			return &o.(*machineconfigv1.MachineOSConfig).Status.Conditions
		},
	}
	builds := &controller{Deps: d, name: "MachineOSBuild",
		object: func() client.Object { return &machineconfigv1.MachineOSBuild{} },
		conditions: func(o client.Object) *[]metav1.Condition {
			return &o.(*machineconfigv1.MachineOSBuild).Status.Conditions
		},
	}
	return []kube.Controller{configs.value(wire.ControllerOSConfig), builds.value(wire.ControllerOSBuild)}
}

func (c *controller) value(name string) kube.Controller {
	return kube.Controller{
		Name: name, For: c.object(), Changed: fragment.Changed, Workers: 1,
		Decide: func(context.Context, client.Reader, types.NamespacedName) (plan.Erased, error) {
			return plan.Erased{Conditions: c.said()}, nil
		},
		Reconcile: c.reconcile,
	}
}

func (c *controller) said() []plan.Condition {
	return []plan.Condition{{Type: conditionSupported, Status: corev1.ConditionFalse, Reason: wire.ReasonNotSupported, Message: wire.TextNotSupported(c.name)}}
}

func (c *controller) reconcile(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	before := c.object()
	if err := c.Client.Get(ctx, key, before); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	after := before.DeepCopyObject().(client.Object)
	list := c.conditions(after)
	*list = kube.SetConditions(*list, c.said(), after.GetGeneration(), c.Clock.Now())
	return kube.Result(0, kube.PatchStatus(ctx, c.Client, before, after, kube.OptimisticLock()))
}
