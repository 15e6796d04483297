package render

import (
	"context"

	"github.com/go-logr/logr"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineconfig/fragment"
	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	"millwright.io/millwright/internal/engine/hostconf"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/kube"
)

// watches are what wakes a pool beside itself.
func watches(log logr.Logger) []kube.Watch {
	return []kube.Watch{
		{Object: &machineconfigv1.MachineConfig{}, Map: poolsOfConfig(log), Changed: fragment.Changed},
		{Object: &machineconfigv1.ControllerConfig{}, Map: allPools},
		{Object: &machineconfigv1.KubeletConfig{}, Map: poolsOfSelector},
		{Object: &machineconfigv1.ContainerRuntimeConfig{}, Map: poolsOfSelector},
		{Object: &machineconfigv1.PinnedImageSet{}, Map: allPools, Changed: fragment.Changed},
		{Object: &machineconfigv1.MachineConfigPool{}, Map: followers, Changed: kube.Typed(streamChanged)},
		{Object: &machineconfigv1.OSImageStream{}, Map: allPools},
		{Object: &operatorv1.MachineConfiguration{}, Map: allPools, Changed: fragment.Changed},
		{Object: &machineconfigv1.MachineConfigNode{}, Map: nobody},
		{Object: &corev1.Node{}, Map: nobody},
	}
}

// nobody: what a Node or its record says matters to collection only, which may
// wait for the next change: the end of a rollout is one. A rollout over
// thousands of Nodes must not wake every pool thousands of times.
func nobody(context.Context, client.Reader, client.Object) []types.NamespacedName { return nil }

// poolChanged lets the counters and conditions of others pass by, but sees
// which config they say the nodes run.
func poolChanged(a, b *machineconfigv1.MachineConfigPool) bool {
	return fragment.Changed(a, b) ||
		a.Status.Configuration.Name != b.Status.Configuration.Name
}

// followers maps the worker pool to the pools that follow its OS image stream.
func followers(ctx context.Context, r client.Reader, obj client.Object) []types.NamespacedName {
	if obj.GetName() != hostconf.RoleWorker {
		return nil
	}
	return poolsThat(ctx, r, func(p *machineconfigv1.MachineConfigPool) bool {
		return p.Name != hostconf.RoleWorker && p.Name != hostconf.RoleMaster && p.Spec.OSImageStream.Name == ""
	})
}

func streamChanged(a, b *machineconfigv1.MachineConfigPool) bool {
	return a.Spec.OSImageStream != b.Spec.OSImageStream
}

func allPools(ctx context.Context, r client.Reader, _ client.Object) []types.NamespacedName {
	return poolsThat(ctx, r, func(*machineconfigv1.MachineConfigPool) bool { return true })
}

func poolsThat(ctx context.Context, r client.Reader, fits func(*machineconfigv1.MachineConfigPool) bool) []types.NamespacedName {
	var pools machineconfigv1.MachineConfigPoolList
	if err := r.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache answers; it fails only while the process ends
	}
	var out []types.NamespacedName
	for i := range pools.Items {
		if fits(&pools.Items[i]) {
			out = append(out, client.ObjectKeyFromObject(&pools.Items[i]))
		}
	}
	return out
}

// poolsOfConfig maps a rendered config to its pool, and any other to the pools
// that select it.
func poolsOfConfig(log logr.Logger) func(context.Context, client.Reader, client.Object) []types.NamespacedName {
	return func(ctx context.Context, r client.Reader, obj client.Object) []types.NamespacedName {
		if c := metav1.GetControllerOfNoCopy(obj); c != nil && c.Kind == "MachineConfigPool" {
			return poolsThat(ctx, r, func(p *machineconfigv1.MachineConfigPool) bool { return p.Name == c.Name && p.UID == c.UID })
		}
		if hostconf.IsRendered(obj.GetName()) && len(obj.GetLabels()) == 0 {
			mc, ok := obj.(*machineconfigv1.MachineConfig)
			return poolsThat(ctx, r, func(p *machineconfigv1.MachineConfigPool) bool { return ok && ofPool(mc, p) })
		}
		out := poolsThat(ctx, r, func(p *machineconfigv1.MachineConfigPool) bool {
			return selects(p.Spec.MachineConfigSelector, obj.GetLabels())
		})
		if len(out) == 0 {
			kube.LogNotes(log, []plan.Note{{Message: wire.TextNotSelected(obj.GetName(), obj.GetLabels())}})
		}
		return out
	}
}

// poolsOfSelector maps a KubeletConfig or ContainerRuntimeConfig to the pools
// that it selects.
func poolsOfSelector(ctx context.Context, r client.Reader, obj client.Object) []types.NamespacedName {
	var s *metav1.LabelSelector
	switch o := obj.(type) {
	case *machineconfigv1.KubeletConfig:
		s = o.Spec.MachineConfigPoolSelector
	case *machineconfigv1.ContainerRuntimeConfig:
		s = o.Spec.MachineConfigPoolSelector
	}
	return poolsThat(ctx, r, func(p *machineconfigv1.MachineConfigPool) bool { return selects(s, p.Labels) })
}

func selects(s *metav1.LabelSelector, set map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(set))
}

// StripRendered is the transform of a cache of MachineConfigs: rendered ones
// are kept without their bodies, which are large and hardly read.
func StripRendered(v any) (any, error) {
	mc, ok := v.(*machineconfigv1.MachineConfig)
	if !ok {
		return cache.TransformStripManagedFields()(v)
	}
	mc.ManagedFields = nil
	if c := metav1.GetControllerOfNoCopy(mc); c != nil && c.Kind == "MachineConfigPool" {
		mc.Spec = machineconfigv1.MachineConfigSpec{}
	}
	return mc, nil
}
