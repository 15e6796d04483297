package generator

import (
	"time"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	"millwright.io/millwright/internal/engine/hostconf"
)

// kind is what the two kinds differ in. obj is always of the kind's own type.
type kind struct {
	controller string
	name       string
	generator  hostconf.Generator
	noPool     string
	object     func() client.Object
	list       func() (client.ObjectList, func() []client.Object)
	selector   func(obj client.Object) *metav1.LabelSelector
	check      func(obj client.Object) error
	fragment   func(obj client.Object, p hostconf.PoolFacts, name string) (hostconf.Fragment, error)
	// verdict writes the status; nil is success.
	verdict func(obj client.Object, err error, now time.Time)
}

func kubeletConfigs() kind {
	of := func(obj client.Object) *machineconfigv1.KubeletConfig { return obj.(*machineconfigv1.KubeletConfig) }
	return kind{
		controller: wire.ControllerKubelet, name: "KubeletConfig", generator: hostconf.GeneratorKubelet, noPool: wire.TextNoPoolForKubelet,
		object: func() client.Object { return &machineconfigv1.KubeletConfig{} },
		list: func() (client.ObjectList, func() []client.Object) {
			l := &machineconfigv1.KubeletConfigList{}
			return l, func() []client.Object { return pointers(l.Items) }
		},
		selector: func(obj client.Object) *metav1.LabelSelector { return of(obj).Spec.MachineConfigPoolSelector },
		check:    func(obj client.Object) error { return hostconf.CheckKubelet(of(obj), "", false) },
		fragment: func(obj client.Object, p hostconf.PoolFacts, name string) (hostconf.Fragment, error) {
			return hostconf.Kubelet(p, name, of(obj))
		},
		verdict: func(obj client.Object, err error, now time.Time) {
			k := of(obj)
			k.Status.Conditions = hostconf.KubeletConditions(k.Status.Conditions, err, now)
			k.Status.ObservedGeneration = k.Generation
		},
	}
}

func runtimeConfigs() kind {
	of := func(obj client.Object) *machineconfigv1.ContainerRuntimeConfig {
		return obj.(*machineconfigv1.ContainerRuntimeConfig)
	}
	return kind{
		controller: wire.ControllerRuntime, name: "ContainerRuntimeConfig", generator: hostconf.GeneratorRuntime, noPool: wire.TextNoPoolForRuntime,
		object: func() client.Object { return &machineconfigv1.ContainerRuntimeConfig{} },
		list: func() (client.ObjectList, func() []client.Object) {
			l := &machineconfigv1.ContainerRuntimeConfigList{}
			return l, func() []client.Object { return pointers(l.Items) }
		},
		selector: func(obj client.Object) *metav1.LabelSelector { return of(obj).Spec.MachineConfigPoolSelector },
		check:    func(obj client.Object) error { return hostconf.CheckRuntime(of(obj)) },
		fragment: func(obj client.Object, p hostconf.PoolFacts, name string) (hostconf.Fragment, error) {
			return hostconf.Runtime(p.Role, name, of(obj))
		},
		verdict: func(obj client.Object, err error, now time.Time) {
			k := of(obj)
			k.Status.Conditions = hostconf.RuntimeConditions(k.Status.Conditions, err, now)
			k.Status.ObservedGeneration = k.Generation
		},
	}
}

// pointers returns the items of a list as objects.
func pointers[T any, P interface {
	*T
	client.Object
}](items []T) []client.Object {
	out := make([]client.Object, 0, len(items))
	for i := range items {
		out = append(out, P(&items[i]))
	}
	return out
}
