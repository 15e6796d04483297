package healthcheck

import (
	"context"
	"maps"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/kube"
)

// FieldNode finds Machines by the name of their Node.
const FieldNode = "status.nodeRef.name"

// Indexes returns the indexes this controller needs.
func Indexes() []kube.Index {
	return []kube.Index{{Object: &machinev1.Machine{}, Field: FieldNode, Extract: func(obj client.Object) []string {
		if m, ok := obj.(*machinev1.Machine); ok && m.Status.NodeRef != nil {
			return []string{m.Status.NodeRef.Name}
		}
		return nil
	}}}
}

// watches are what wakes a check beside itself.
func watches() []kube.Watch {
	return []kube.Watch{
		{Object: &machinev1.Machine{}, Map: checksOfMachine, Changed: kube.Typed(machineMatters)},
		{Object: &corev1.Node{}, Map: checksOfNode, Changed: kube.Typed(nodeMatters)},
	}
}

// checkChanged lets a check's own status writes pass by.
func checkChanged(old, new client.Object) bool {
	return old.GetGeneration() != new.GetGeneration() || !maps.Equal(old.GetAnnotations(), new.GetAnnotations()) ||
		!old.GetDeletionTimestamp().Equal(new.GetDeletionTimestamp())
}

// machineMatters says whether a check would see a Machine differently.
func machineMatters(a, b *machinev1.Machine) bool {
	if !maps.Equal(a.Labels, b.Labels) {
		return true
	}
	x, y := targetOf(a), targetOf(b)
	if x.NodeName != "" && y.NodeName != "" {
		x.Updated = y.Updated // only counts until there is a Node
	}
	return x != y
}

// nodeMatters ignores heartbeats.
func nodeMatters(a, b *corev1.Node) bool {
	if a.UID != b.UID || a.Labels[corev1.LabelTopologyZone] != b.Labels[corev1.LabelTopologyZone] || len(a.Status.Conditions) != len(b.Status.Conditions) {
		return true
	}
	for i := range a.Status.Conditions {
		x, y := a.Status.Conditions[i], b.Status.Conditions[i]
		if x.Type != y.Type || x.Status != y.Status || !equality.Semantic.DeepEqual(x.LastTransitionTime, y.LastTransitionTime) {
			return true
		}
	}
	return false
}

// checksOfMachine maps a Machine to the checks that select it.
func checksOfMachine(ctx context.Context, r client.Reader, obj client.Object) []types.NamespacedName {
	var checks machinev1.MachineHealthCheckList
	if err := r.List(ctx, &checks, client.InNamespace(obj.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache answers; it fails only while the process ends
	}
	var keys []types.NamespacedName
	for i := range checks.Items {
		s, err := metav1.LabelSelectorAsSelector(&checks.Items[i].Spec.Selector)
		if err == nil && s.Matches(labels.Set(obj.GetLabels())) {
			keys = append(keys, client.ObjectKeyFromObject(&checks.Items[i]))
		}
	}
	return keys
}

// checksOfNode maps a Node to the checks of the Machines that refer to it.
func checksOfNode(ctx context.Context, r client.Reader, obj client.Object) []types.NamespacedName {
	var machines machinev1.MachineList
	if err := r.List(ctx, &machines, client.InNamespace(wire.Namespace), client.MatchingFields{FieldNode: obj.GetName()}, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	var keys []types.NamespacedName
	for i := range machines.Items {
		keys = append(keys, checksOfMachine(ctx, r, &machines.Items[i])...)
	}
	return keys
}
