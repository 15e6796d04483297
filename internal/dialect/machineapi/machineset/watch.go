package machineset

import (
	"context"
	"maps"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/kube"
)

// Fields by which Machines are found in the cache.
const (
	// FieldController is the UID of a Machine's controller; noController for
	// those without.
	FieldController = "millwright.io/controller-uid"
	// FieldNode is the name of a Machine's node.
	FieldNode = "status.nodeRef.name"

	noController = "none"
	kind         = "MachineSet"
)

// Indexes returns the indexes this controller needs.
func Indexes() []kube.Index {
	return []kube.Index{
		{Object: &machinev1beta1.Machine{}, Field: FieldController, Extract: func(obj client.Object) []string {
			if c := metav1.GetControllerOfNoCopy(obj); c != nil {
				return []string{string(c.UID)}
			}
			return []string{noController}
		}},
		{Object: &machinev1beta1.Machine{}, Field: FieldNode, Extract: func(obj client.Object) []string {
			if m, ok := obj.(*machinev1beta1.Machine); ok && m.Status.NodeRef != nil {
				return []string{m.Status.NodeRef.Name}
			}
			return nil
		}},
	}
}

// watches are what wakes a set beside itself.
func watches() []kube.Watch {
	return []kube.Watch{
		{Object: &machinev1beta1.Machine{}, Map: setsOfMachine, Changed: kube.Typed(machineMatters)},
		{Object: &corev1.Node{}, Map: setsOfNode, Changed: kube.Typed(readinessFlips)},
	}
}

// setChanged lets a set's own status writes pass by: they change nothing that
// is decided on.
func setChanged(old, new client.Object) bool {
	return old.GetGeneration() != new.GetGeneration() ||
		(old.GetDeletionTimestamp() == nil) != (new.GetDeletionTimestamp() == nil)
}

// machineMatters says whether a set would see a Machine differently.
func machineMatters(a, b *machinev1beta1.Machine) bool {
	return (a.DeletionTimestamp == nil) != (b.DeletionTimestamp == nil) ||
		controllerUID(a) != controllerUID(b) ||
		!maps.Equal(a.Labels, b.Labels) ||
		marked(a) != marked(b) || failed(a) != failed(b) ||
		nodeName(a) != nodeName(b)
}

func readinessFlips(a, b *corev1.Node) bool {
	return kube.NodeReady(a) != kube.NodeReady(b)
}

// setsOfMachine maps a Machine to its controller, or, if it has none, to every
// set of its namespace that would adopt it.
func setsOfMachine(ctx context.Context, r client.Reader, obj client.Object) []types.NamespacedName {
	if c := metav1.GetControllerOfNoCopy(obj); c != nil {
		if !isMachineSet(c) {
			return nil
		}
		return []types.NamespacedName{{Namespace: obj.GetNamespace(), Name: c.Name}}
	}
	var sets machinev1beta1.MachineSetList
	if err := r.List(ctx, &sets, client.InNamespace(obj.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		// The cache answers; it fails only while the process ends.
		return nil
	}
	var keys []types.NamespacedName
	for i := range sets.Items {
		s := &sets.Items[i]
		if selector, err := metav1.LabelSelectorAsSelector(&s.Spec.Selector); err == nil && !selector.Empty() && selector.Matches(labels.Set(obj.GetLabels())) {
			keys = append(keys, client.ObjectKeyFromObject(s))
		}
	}
	return keys
}

// setsOfNode maps a Node to the sets of the Machines that refer to it.
func setsOfNode(ctx context.Context, r client.Reader, obj client.Object) []types.NamespacedName {
	var machines machinev1beta1.MachineList
	if err := r.List(ctx, &machines, client.MatchingFields{FieldNode: obj.GetName()}, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	var keys []types.NamespacedName
	for i := range machines.Items {
		m := &machines.Items[i]
		if c := metav1.GetControllerOfNoCopy(m); c != nil && isMachineSet(c) {
			keys = append(keys, types.NamespacedName{Namespace: m.Namespace, Name: c.Name})
		}
	}
	return keys
}

func isMachineSet(c *metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(c.APIVersion)
	return err == nil && gv.Group == machinev1beta1.GroupVersion.Group && c.Kind == kind
}

func controllerUID(m *machinev1beta1.Machine) types.UID {
	if c := metav1.GetControllerOfNoCopy(m); c != nil {
		return c.UID
	}
	return ""
}

func nodeName(m *machinev1beta1.Machine) string {
	if m.Status.NodeRef == nil {
		return ""
	}
	return m.Status.NodeRef.Name
}
