package nodelink

import (
	"context"
	"maps"
	"slices"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/observe"
)

// Fields by which Machines and Nodes find each other.
const (
	FieldMachineProviderID = "spec.providerID"
	FieldMachineAddress    = "status.addresses.internalIP"
	FieldNodeAddress       = "status.addresses.firstInternalIP"
)

// Indexes returns what the controller needs on its cache.
func Indexes() []kube.Index {
	return append(observe.NodeIndexes(),
		kube.Index{Object: &machinev1.Machine{}, Field: FieldMachineProviderID, Extract: func(obj client.Object) []string {
			if m, ok := obj.(*machinev1.Machine); ok && ptr.Deref(m.Spec.ProviderID, "") != "" {
				return []string{*m.Spec.ProviderID}
			}
			return nil
		}},
		kube.Index{Object: &machinev1.Machine{}, Field: FieldMachineAddress, Extract: func(obj client.Object) []string {
			if m, ok := obj.(*machinev1.Machine); ok {
				return internalIPs(m.Status.Addresses)
			}
			return nil
		}},
		kube.Index{Object: &corev1.Node{}, Field: FieldNodeAddress, Extract: func(obj client.Object) []string {
			if n, ok := obj.(*corev1.Node); ok && firstInternalIP(n) != "" {
				return []string{firstInternalIP(n)}
			}
			return nil
		}},
	)
}

func internalIPs(addresses []corev1.NodeAddress) []string {
	var out []string
	for _, a := range addresses {
		if a.Type == corev1.NodeInternalIP && !slices.Contains(out, a.Address) {
			out = append(out, a.Address)
		}
	}
	return out
}

func firstInternalIP(n *corev1.Node) string {
	if ips := internalIPs(n.Status.Addresses); len(ips) > 0 {
		return ips[0]
	}
	return ""
}

// nodesOfMachine maps a Machine to the Nodes that may be its own. A Machine
// that is being deleted links nothing any more.
func nodesOfMachine(ctx context.Context, r client.Reader, obj client.Object) []types.NamespacedName {
	m, ok := obj.(*machinev1.Machine)
	if !ok || m.DeletionTimestamp != nil {
		return nil
	}
	wanted := map[string][]string{observe.FieldProviderID: {ptr.Deref(m.Spec.ProviderID, "")}, FieldNodeAddress: internalIPs(m.Status.Addresses)}
	var keys []types.NamespacedName
	for _, field := range slices.Sorted(maps.Keys(wanted)) {
		for _, value := range wanted[field] {
			if value == "" {
				continue
			}
			var nodes corev1.NodeList
			if err := r.List(ctx, &nodes, client.MatchingFields{field: value}); err != nil {
				continue // the next event asks again
			}
			for i := range nodes.Items {
				if key := client.ObjectKeyFromObject(&nodes.Items[i]); !slices.Contains(keys, key) {
					keys = append(keys, key)
				}
			}
		}
	}
	return keys
}

// nodeChanged lets everything pass that could change the link or what the
// Node must carry; heartbeats do not.
func nodeChanged(a, b *corev1.Node) bool {
	return a.UID != b.UID || a.Spec.ProviderID != b.Spec.ProviderID || firstInternalIP(a) != firstInternalIP(b) ||
		!maps.Equal(a.Labels, b.Labels) || !maps.Equal(a.Annotations, b.Annotations) ||
		!equality.Semantic.DeepEqual(a.Spec.Taints, b.Spec.Taints)
}

// machineChanged does the same for Machines.
func machineChanged(a, b *machinev1.Machine) bool {
	return a.UID != b.UID ||
		ptr.Deref(a.Spec.ProviderID, "") != ptr.Deref(b.Spec.ProviderID, "") ||
		a.Labels[wire.LabelMachineRole] != b.Labels[wire.LabelMachineRole] ||
		!equality.Semantic.DeepEqual(a.Spec.ObjectMeta, b.Spec.ObjectMeta) ||
		!equality.Semantic.DeepEqual(a.Spec.Taints, b.Spec.Taints) ||
		!equality.Semantic.DeepEqual(a.Status.NodeRef, b.Status.NodeRef) ||
		!equality.Semantic.DeepEqual(a.Status.Addresses, b.Status.Addresses)
}
