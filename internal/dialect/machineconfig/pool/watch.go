package pool

import (
	"context"
	"maps"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineconfig/fragment"
	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	"millwright.io/millwright/internal/engine/rollout"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/telemetry"
)

// watches are what wakes a pool beside itself.
func watches() []kube.Watch {
	return []kube.Watch{
		{Object: &corev1.Node{}, Map: poolsOfNode, Changed: kube.Typed(nodeMatters)},
		{Object: &machineconfigv1.MachineConfigNode{}, Map: poolOfRecord, Changed: recordMatters},
		{Object: &machineconfigv1.ControllerConfig{}, Map: allPools},
		{Object: &machineconfigv1.MachineConfigPool{}, Map: allPools, Changed: kube.Typed(membersMayMove)},
	}
}

// membersMayMove says whether a change of one pool may matter to others: which
// nodes it selects, and, of the control plane, whether it comes first.
func membersMayMove(a, b *machineconfigv1.MachineConfigPool) bool {
	if !equality.Semantic.DeepEqual(a.Spec.NodeSelector, b.Spec.NodeSelector) {
		return true
	}
	return a.Name == wire.PoolMaster && (a.Spec.Paused != b.Spec.Paused || a.Spec.Configuration.Name != b.Spec.Configuration.Name)
}

// poolChanged lets our own status writes pass by, but sees when the renderer
// fails or recovers.
func poolChanged(a, b *machineconfigv1.MachineConfigPool) bool {
	return fragment.Changed(a, b) ||
		renderStatus(a) != renderStatus(b) || a.Status.Configuration.Name != b.Status.Configuration.Name
}

func renderStatus(p *machineconfigv1.MachineConfigPool) string {
	if c := fragment.PoolCondition(p, machineconfigv1.MachineConfigPoolRenderDegraded); c != nil {
		return string(c.Status) + c.Message
	}
	return ""
}

// nodeMatters says whether a rollout may depend on what changed about a Node.
func nodeMatters(a, b *corev1.Node) bool {
	if a.Spec.Unschedulable != b.Spec.Unschedulable || !maps.Equal(a.Labels, b.Labels) || rollout.NotReady(a) != rollout.NotReady(b) {
		return true
	}
	for _, k := range []string{
		wire.AnnotationCurrentConfig, wire.AnnotationDesiredConfig, wire.AnnotationState, wire.AnnotationReason,
		wire.AnnotationCurrentImage, wire.AnnotationDesiredImage, wire.AnnotationLastAppliedDrain, wire.AnnotationTopology, wire.AnnotationLabelsApplied, wire.AnnotationFirstPivotConfig,
		telemetry.AnnotationCordonedBy,
	} {
		if a.Annotations[k] != b.Annotations[k] {
			return true
		}
	}
	return false
}

// poolsOfNode are the pools that a Node counts in, and those that would have it
// if no other did. A member of the control plane concerns all of its pools.
func poolsOfNode(ctx context.Context, r client.Reader, obj client.Object) []types.NamespacedName {
	var pools machineconfigv1.MachineConfigPoolList
	if err := r.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache answers; it fails only while the process ends
	}
	members, matcher := membership(pools.Items)
	primary, err := members.Primary(obj.GetLabels())
	var names []string
	switch {
	case err != nil:
		names = matcher.custom(obj.GetLabels())
	case primary != "":
		names = []string{primary}
	}
	if primary == wire.PoolMaster {
		names = append(names, wire.PoolArbiter)
	}
	if primary == wire.PoolArbiter {
		names = append(names, wire.PoolMaster)
	}
	return keys(names)
}

func poolOfRecord(_ context.Context, _ client.Reader, obj client.Object) []types.NamespacedName {
	if m, ok := obj.(*machineconfigv1.MachineConfigNode); ok && m.Spec.Pool.Name != "" {
		return keys([]string{m.Spec.Pool.Name})
	}
	return nil
}

// recordMatters sees only what a pool repeats of a record.
func recordMatters(old, new client.Object) bool { return degradation(old) != degradation(new) }

func degradation(obj client.Object) string {
	if m, ok := obj.(*machineconfigv1.MachineConfigNode); ok {
		for _, c := range m.Status.Conditions {
			if c.Type == string(machineconfigv1.MachineConfigNodeNodeDegraded) {
				return string(c.Status) + c.Message
			}
		}
	}
	return ""
}

func allPools(ctx context.Context, r client.Reader, _ client.Object) []types.NamespacedName {
	var pools machineconfigv1.MachineConfigPoolList
	if err := r.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	var names []string
	for i := range pools.Items {
		names = append(names, pools.Items[i].Name)
	}
	return keys(names)
}

func keys(names []string) []types.NamespacedName {
	out := make([]types.NamespacedName, 0, len(names))
	for _, n := range names {
		out = append(out, types.NamespacedName{Name: n})
	}
	return out
}
