package controlplane

import (
	"context"
	"fmt"
	"maps"
	"slices"

	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/engine/controlplane"
	"millwright.io/millwright/internal/engine/fleet"
	"millwright.io/millwright/internal/kube"
)

// picture is what was seen: the planner's input and what is behind it. The
// Machines are shared with the cache; nobody changes them.
type picture struct {
	set      *machinev1.ControlPlaneMachineSet
	in       controlplane.Input
	machines map[string]*machinev1beta1.Machine
	template template
	codec    cloud.SpecCodec
}

// template is what the set wants of its Machines.
type template struct {
	spec    cloud.Spec // with its defaults; nil when it cannot be understood
	context cloud.SpecContext
	domains map[string]cloud.Domain // by the name that the planner knows
}

// observe reads the control plane's Machines and Nodes.
func (c *controller) observe(ctx context.Context, r client.Reader, set *machinev1.ControlPlaneMachineSet) (picture, error) {
	p := picture{set: set, machines: map[string]*machinev1beta1.Machine{}, codec: c.Codec}
	p.in.Set, p.template = setOf(set, c.Codec)
	selector, err := metav1.LabelSelectorAsSelector(&set.Spec.Selector)
	if err != nil || selector.Empty() {
		p.in.Set.Problems = append(p.in.Set.Problems, "spec.selector: Invalid value: want labels that only control plane Machines have")
		return p, nil
	}
	var list machinev1beta1.MachineList
	if err := r.List(ctx, &list, client.InNamespace(set.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return p, fmt.Errorf("list machines: %w", err)
	}
	var cached []client.Object
	for i := range list.Items {
		if selector.Matches(labels.Set(list.Items[i].Labels)) {
			cached = append(cached, &list.Items[i])
		}
	}
	for _, obj := range c.overlay.Apply(set.UID, cached) {
		m, ok := obj.(*machinev1beta1.Machine)
		if !ok {
			return p, fmt.Errorf("list machines: got a %T", obj)
		}
		p.machines[m.Name] = m
		member := memberOf(p, m)
		if member.Ready, err = nodeReady(ctx, r, m); err != nil {
			return p, err
		}
		p.in.Members = append(p.in.Members, member)
	}
	p.in.Unmanaged, err = unmanaged(ctx, r, p)
	return p, err
}

func nodeReady(ctx context.Context, r client.Reader, m *machinev1beta1.Machine) (bool, error) {
	if m.Status.NodeRef == nil {
		return false, nil
	}
	var n corev1.Node
	err := r.Get(ctx, client.ObjectKey{Name: m.Status.NodeRef.Name}, &n, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get node %s: %w", m.Status.NodeRef.Name, err)
	}
	return kube.NodeReady(&n) == corev1.ConditionTrue, nil
}

// unmanaged returns the control plane Nodes that no Machine refers to and that
// say of none that it is theirs.
func unmanaged(ctx context.Context, r client.Reader, p picture) ([]string, error) {
	known := map[string]bool{}
	for _, m := range p.machines {
		if m.Status.NodeRef != nil {
			known[m.Status.NodeRef.Name] = true
		}
	}
	var out []string
	for _, label := range []string{wire.NodeRoleMaster, wire.NodeRoleControlPlane} {
		var nodes corev1.NodeList
		if err := r.List(ctx, &nodes, client.HasLabels{label}, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list control plane nodes: %w", err)
		}
		for i := range nodes.Items {
			n := &nodes.Items[i]
			said := p.machines[machineSaid(n, p.set.Namespace)] != nil
			if !known[n.Name] && !said && !slices.Contains(out, n.Name) {
				out = append(out, n.Name)
			}
		}
	}
	return out, nil
}

// machineSaid returns the name of the Machine that a Node's annotation names.
func machineSaid(n *corev1.Node, namespace string) string {
	key := n.Annotations[wire.AnnotationNodeMachine]
	if prefix := namespace + "/"; len(key) > len(prefix) && key[:len(prefix)] == prefix {
		return key[len(prefix):]
	}
	return ""
}

// setOf translates the set.
func setOf(s *machinev1.ControlPlaneMachineSet, codec cloud.SpecCodec) (controlplane.Set, template) {
	out := controlplane.Set{
		UID: string(s.UID), Generation: s.Generation, Prefix: s.Spec.MachineNamePrefix,
		Active: s.Spec.State == machinev1.ControlPlaneMachineSetStateActive, Deleting: s.DeletionTimestamp != nil,
		Finalizer: controllerutil.ContainsFinalizer(s, Finalizer),
		Replicas:  int(ptr.Deref(s.Spec.Replicas, 0)), Strategy: controlplane.Strategy(s.Spec.Strategy.Type),
	}
	tmpl := s.Spec.Template.OpenShiftMachineV1Beta1Machine
	if tmpl == nil {
		out.Problems = append(out.Problems, "spec.template.machines_v1beta1_machine_openshift_io: Required value: want the template of a Machine")
		return out, template{}
	}
	infra := tmpl.ObjectMeta.Labels[wire.LabelCluster]
	if out.Prefix == "" {
		out.Prefix = infra + "-" + wire.RoleMaster
	}
	if p := fleet.NameProblem(out.Prefix + "-0"); p != "" {
		out.Problems = append(out.Problems, fmt.Sprintf("spec.machineNamePrefix: Invalid value: %q: machines are named <prefix>-xxxxx-<index>, at most %d characters", out.Prefix, fleet.MaxName))
	}
	if out.Replicas < 1 {
		out.Problems = append(out.Problems, "spec.replicas is unset: replicas is required")
	}
	t := template{context: cloud.SpecContext{InfraID: infra}}
	spec, err := decode(codec, tmpl.Spec.ProviderSpec.Value, t.context)
	if err != nil {
		out.Problems = append(out.Problems, fmt.Sprintf("%s: Invalid value: %v", pathSpec, err))
		return out, t
	}
	t.spec = spec
	out.Domains, t.domains = domainsOf(tmpl.FailureDomains, codec, spec)
	return out, t
}

const pathSpec = "spec.template.machines_v1beta1_machine_openshift_io.spec.providerSpec.value"

// domainsOf names the failure domains, each as the spec in it tells.
func domainsOf(f *machinev1.FailureDomains, codec cloud.SpecCodec, spec cloud.Spec) ([]string, map[string]cloud.Domain) {
	placer, ok := codec.(cloud.ControlPlaneCodec)
	if !ok || f == nil || f.Azure == nil {
		return nil, nil
	}
	var names []string
	byName := map[string]cloud.Domain{}
	for _, a := range *f.Azure {
		d := placer.Domain(placer.InDomain(spec, cloud.Domain{Zone: a.Zone, Subnet: a.Subnet}))
		names = append(names, d.String())
		byName[d.String()] = d
	}
	return names, byName
}

// decode reads a spec and fills in its defaults.
func decode(codec cloud.SpecCodec, raw *runtime.RawExtension, sc cloud.SpecContext) (cloud.Spec, error) {
	if raw == nil {
		return nil, fmt.Errorf("a value must be provided")
	}
	spec, _, err := codec.Decode(raw.Raw)
	if err != nil {
		return nil, fmt.Errorf("decode provider spec: %w", err)
	}
	return codec.Default(spec, sc), nil
}

// memberOf reduces a Machine to what is decided on, its Node apart.
func memberOf(p picture, m *machinev1beta1.Machine) controlplane.Member {
	out := controlplane.Member{
		Name: m.Name, UID: string(m.UID), Index: controlplane.IndexOf(m.Name), Deleting: m.DeletionTimestamp != nil,
		Failed: m.Status.ErrorReason != nil, Created: m.CreationTimestamp.Unix(),
	}
	switch c := metav1.GetControllerOfNoCopy(m); {
	case c == nil:
	case c.UID == p.set.UID:
		out.Owner = controlplane.OwnerOurs
	default:
		out.Owner = controlplane.OwnerOther
	}
	placer, ok := p.codec.(cloud.ControlPlaneCodec)
	if !ok || p.template.spec == nil {
		return out
	}
	spec, err := decode(p.codec, m.Spec.ProviderSpec.Value, p.template.context)
	if err != nil {
		out.Outdated = "providerSpec.value"
		return out
	}
	out.Domain = placer.Domain(spec).String()
	if field := placer.Differs(spec, p.template.spec); field != "" {
		out.Outdated = "providerSpec.value." + field
	}
	return out
}

// newMachine makes a member in a failure domain. Its finalizer is there from
// the start, so that nobody has to write it before the instance is made.
func newMachine(p picture, name, domain string) (*machinev1beta1.Machine, error) {
	t := p.set.Spec.Template.OpenShiftMachineV1Beta1Machine
	m := &machinev1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: p.set.Namespace, Labels: maps.Clone(t.ObjectMeta.Labels), Annotations: maps.Clone(t.ObjectMeta.Annotations),
			Finalizers: []string{wire.MachineFinalizer}, OwnerReferences: []metav1.OwnerReference{ownerReference(p.set)},
		},
		Spec: *t.Spec.DeepCopy(),
	}
	placer, ok := p.codec.(cloud.ControlPlaneCodec)
	d, known := p.template.domains[domain]
	if !ok || !known {
		return m, nil
	}
	// Only the place is put in: what the template leaves out stays for
	// admission and the Machine's controller to fill in.
	spec, _, err := p.codec.Decode(t.Spec.ProviderSpec.Value.Raw)
	if err != nil {
		return nil, fmt.Errorf("decode provider spec: %w", err)
	}
	raw, err := p.codec.Encode(placer.InDomain(spec, d))
	if err != nil {
		return nil, err
	}
	m.Spec.ProviderSpec.Value = &runtime.RawExtension{Raw: raw}
	return m, nil
}

func ownerReference(set *machinev1.ControlPlaneMachineSet) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: machinev1.GroupVersion.String(), Kind: "ControlPlaneMachineSet", Name: set.Name, UID: set.UID,
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}
}

func without(refs []metav1.OwnerReference, uid types.UID) []metav1.OwnerReference {
	return slices.DeleteFunc(slices.Clone(refs), func(r metav1.OwnerReference) bool { return r.UID == uid })
}

func metaOf(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// setChanged lets the set's own status writes pass by.
func setChanged(old, new client.Object) bool {
	return old.GetGeneration() != new.GetGeneration() || !slices.Equal(old.GetFinalizers(), new.GetFinalizers()) ||
		(old.GetDeletionTimestamp() == nil) != (new.GetDeletionTimestamp() == nil)
}

// machineMatters says whether a control plane Machine looks different now.
func machineMatters(a, b *machinev1beta1.Machine) bool {
	return a.Generation != b.Generation || (a.DeletionTimestamp == nil) != (b.DeletionTimestamp == nil) ||
		!maps.Equal(a.Labels, b.Labels) || (a.Status.ErrorReason == nil) != (b.Status.ErrorReason == nil) ||
		(a.Status.NodeRef == nil) != (b.Status.NodeRef == nil) || len(a.OwnerReferences) != len(b.OwnerReferences)
}

func nodeMatters(a, b *corev1.Node) bool {
	return kube.NodeReady(a) != kube.NodeReady(b) || isControlPlane(a) != isControlPlane(b) ||
		a.Annotations[wire.AnnotationNodeMachine] != b.Annotations[wire.AnnotationNodeMachine]
}
