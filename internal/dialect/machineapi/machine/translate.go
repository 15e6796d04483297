package machine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/engine/instance"
	engine "millwright.io/millwright/internal/engine/machine"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/kube"
)

// wakeInvalid is when an object that is no proper Machine is looked at again;
// its correction comes as an event.
const wakeInvalid = 10 * time.Minute

func errNotMachine(obj client.Object) error { return fmt.Errorf("change %T: not a Machine", obj) }
func errForeign(a plan.ObjectAction) error  { return fmt.Errorf("%s: not an action on a Machine", a) }
func stateOf(m *machinev1.Machine) string   { return m.Annotations[wire.AnnotationInstanceState] }
func finalized(m *machinev1.Machine) bool {
	return slices.Contains(m.Finalizers, wire.MachineFinalizer)
}
func phaseOf(m *machinev1.Machine) string    { return ptr.Deref(m.Status.Phase, "") }
func groupOf(m *machinev1.Machine) string    { return m.Labels[wire.LabelMachineSet] }
func providerID(m *machinev1.Machine) string { return ptr.Deref(m.Spec.ProviderID, "") }

// invalid says why the object cannot be worked on; empty: it can.
func invalid(m *machinev1.Machine) string {
	switch {
	case m.Labels[wire.LabelCluster] == "":
		return wire.TextNoClusterLabel(m.Labels)
	case m.Spec.ProviderSpec.Value == nil:
		return wire.TextNoProviderSpec
	}
	return ""
}

// facts returns what the Machine itself says.
func facts(m *machinev1.Machine, now time.Time) engine.Input {
	_, exclude := m.Annotations[wire.AnnotationExcludeDrain]
	in := engine.Input{
		Name:         m.Name,
		Phase:        engine.Phase(phaseOf(m)),
		ErrorReason:  string(ptr.Deref(m.Status.ErrorReason, "")),
		ErrorMessage: ptr.Deref(m.Status.ErrorMessage, ""),
		Deleting:     m.DeletionTimestamp != nil,
		Finalizer:    finalized(m),
		ExcludeDrain: exclude,
		PreDrain:     hooks(m.Spec.LifecycleHooks.PreDrain),
		PreTerminate: hooks(m.Spec.LifecycleHooks.PreTerminate),
		Now:          now,
	}
	if c := conditionOf(m, engine.Drained); c != nil && in.Deleting {
		if in.Drained = c.Status == corev1.ConditionTrue; !in.Drained {
			in.DrainTold, in.DrainSince = c.Message, c.LastTransitionTime.Time
		}
	}
	if r := m.Status.NodeRef; r != nil && r.Name != "" {
		in.NodeRef = &engine.NodeRef{Name: r.Name, UID: string(r.UID)}
	}
	return in
}

func hooks(in []machinev1.LifecycleHook) []engine.Hook {
	var out []engine.Hook
	for _, h := range in {
		out = append(out, engine.Hook{Name: h.Name, Owner: h.Owner})
	}
	return out
}

// owned returns what the Machine says about its instance.
func owned(m *machinev1.Machine, now time.Time) instance.Input {
	_, spot := m.Labels[wire.LabelInterruptible]
	in := instance.Input{
		Key: cloud.Key{UID: string(m.UID), Name: m.Name},
		Recorded: instance.Recorded{
			ProviderID: providerID(m), State: cloud.State(stateOf(m)), Region: m.Labels[wire.LabelRegion],
			Zone: m.Labels[wire.LabelZone], Size: m.Labels[wire.LabelInstanceType], Interruptible: spot,
		},
		HadAddresses: len(m.Status.Addresses) > 0,
		Now:          now,
	}
	if c := conditionOf(m, engine.InstanceExists); c != nil && c.Status == corev1.ConditionTrue {
		in.Since = c.LastTransitionTime.Time
	}
	return in
}

// lastOf returns the last failure as the status tells it; what it does not
// tell costs an early retry.
func lastOf(m *machinev1.Machine) instance.Last {
	c := conditionOf(m, engine.InstanceReconciled)
	if c == nil || c.Status != corev1.ConditionFalse {
		return instance.Last{}
	}
	op := instance.OpCreate
	if phaseOf(m) == wire.PhaseDeleting {
		op = instance.OpDelete
	}
	return instance.Last{
		Op: op, Fault: &cloud.Fault{Kind: cloud.Kind(c.Reason), Op: string(op) + " " + m.Name, Message: c.Message},
		At: c.LastTransitionTime.Time, Attempts: 1,
	}
}

func nodeFacts(n *corev1.Node) *engine.NodeFacts {
	return &engine.NodeFacts{
		Name: n.Name, UID: string(n.UID), Ready: kube.NodeReady(n), Unschedulable: n.Spec.Unschedulable, ControlPlane: controlPlane(n),
	}
}

func controlPlane(n *corev1.Node) bool {
	_, cp := n.Labels[wire.NodeRoleControlPlane]
	_, master := n.Labels[wire.NodeRoleMaster]
	return cp || master
}

// changed says whether an update of a Machine matters: not if only we write
// what differs.
func changed(a, b *machinev1.Machine) bool {
	sa, sb := a.Spec.DeepCopy(), b.Spec.DeepCopy()
	sa.ProviderID, sb.ProviderID = nil, nil
	switch {
	case a.UID != b.UID,
		!a.DeletionTimestamp.Equal(b.DeletionTimestamp),
		!slices.Equal(a.Finalizers, b.Finalizers),
		(phaseOf(a) == "") != (phaseOf(b) == ""),
		!equality.Semantic.DeepEqual(a.Status.NodeRef, b.Status.NodeRef),
		!equality.Semantic.DeepEqual(sa, sb):
		return true
	}
	return !maps.Equal(without(a.Labels), without(b.Labels)) || !maps.Equal(without(a.Annotations), without(b.Annotations))
}

func without(m map[string]string) map[string]string {
	out := maps.Clone(m)
	for _, k := range []string{wire.LabelRegion, wire.LabelZone, wire.LabelInstanceType, wire.LabelInterruptible, wire.AnnotationInstanceState} {
		delete(out, k)
	}
	return out
}

func nodeRefName(obj client.Object) []string {
	if m, ok := obj.(*machinev1.Machine); ok && m.Status.NodeRef != nil {
		return []string{m.Status.NodeRef.Name}
	}
	return nil
}

// machinesOfNode maps a Node to the Machines whose nodeRef names it.
func machinesOfNode(ctx context.Context, r client.Reader, obj client.Object) []types.NamespacedName {
	var list machinev1.MachineList
	if err := r.List(ctx, &list, client.MatchingFields{FieldNodeRef: obj.GetName()}); err != nil {
		return nil
	}
	var keys []types.NamespacedName
	for i := range list.Items {
		keys = append(keys, client.ObjectKeyFromObject(&list.Items[i]))
	}
	return keys
}

// nodeChanged says whether an update of a Node may mean something for its
// instance: a Node that falls silent may have lost it.
func nodeChanged(a, b *corev1.Node) bool {
	return a.UID != b.UID || kube.NodeReady(a) != kube.NodeReady(b) || !a.DeletionTimestamp.Equal(b.DeletionTimestamp)
}
