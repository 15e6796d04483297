package controlplane

import (
	"context"
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/engine/plan"
)

// previewGeneration tells that a set would be made.
func (c *controller) previewGeneration(ctx context.Context, r client.Reader, key types.NamespacedName) (plan.Erased, error) {
	set, err := c.generated(ctx, r, key)
	if set == nil || err != nil {
		return plan.Erased{}, err
	}
	return plan.Erased{Notes: []plan.Note{{Message: textGenerated}}}, nil
}

// generate makes an inactive set of what the control plane's Machines are.
func (c *controller) generate(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	set, err := c.generated(ctx, c.Client, key)
	if set == nil || err != nil {
		return reconcile.Result{}, err
	}
	if err := c.Client.Create(ctx, set); err != nil && !apierrors.IsAlreadyExists(err) {
		return reconcile.Result{}, fmt.Errorf("create control plane machine set: %w", err)
	}
	c.Log.Info(textGenerated, "name", set.Name, "namespace", set.Namespace)
	return reconcile.Result{}, nil
}

// generated returns the set to be made; nil when there is one, or no whole
// control plane to make it of.
func (c *controller) generated(ctx context.Context, r client.Reader, key types.NamespacedName) (*machinev1.ControlPlaneMachineSet, error) {
	if key != theSet[0] {
		return nil, nil
	}
	have, err := c.get(ctx, r, key)
	if have != nil || err != nil {
		return nil, err
	}
	var list machinev1beta1.MachineList
	if err := r.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingLabels{wire.LabelMachineRole: wire.RoleMaster, wire.LabelMachineType: wire.RoleMaster}); err != nil {
		return nil, fmt.Errorf("list control plane machines: %w", err)
	}
	var nodes int
	for i := range list.Items {
		ready, err := nodeReady(ctx, r, &list.Items[i])
		if err != nil {
			return nil, err
		}
		if ready {
			nodes++
		}
	}
	// A control plane that is being built shows too few, and the number of a
	// set can never be changed.
	if n := len(list.Items); nodes != n || n != 3 && n != 5 {
		return nil, nil
	}
	return setFrom(list.Items, c.Codec)
}

// setFrom makes an inactive set that wants just these Machines: as the
// youngest of them is, where all of them are.
func setFrom(machines []machinev1beta1.Machine, codec cloud.SpecCodec) (*machinev1.ControlPlaneMachineSet, error) {
	slices.SortFunc(machines, func(a, b machinev1beta1.Machine) int {
		if c := b.CreationTimestamp.Compare(a.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	placer, ok := codec.(cloud.ControlPlaneCodec)
	if !ok {
		return nil, nil // a platform whose Machines cannot be compared
	}
	like := &machines[0]
	spec, domains, err := specFrom(machines, codec, placer)
	if err != nil {
		return nil, err
	}
	role := map[string]string{wire.LabelMachineRole: wire.RoleMaster, wire.LabelMachineType: wire.RoleMaster}
	labels := map[string]string{wire.LabelCluster: like.Labels[wire.LabelCluster], wire.LabelMachineRole: wire.RoleMaster, wire.LabelMachineType: wire.RoleMaster}
	out := &machinev1.ControlPlaneMachineSet{
		ObjectMeta: metaOf(wire.Namespace, Name),
		Spec: machinev1.ControlPlaneMachineSetSpec{
			State: machinev1.ControlPlaneMachineSetStateInactive, Replicas: ptr.To(int32(len(machines))),
			Strategy: machinev1.ControlPlaneMachineSetStrategy{Type: machinev1.RollingUpdate},
			Selector: metav1.LabelSelector{MatchLabels: role},
			Template: machinev1.ControlPlaneMachineSetTemplate{
				MachineType: machinev1.OpenShiftMachineV1Beta1MachineType,
				OpenShiftMachineV1Beta1Machine: &machinev1.OpenShiftMachineV1Beta1MachineTemplate{
					FailureDomains: domains,
					ObjectMeta:     machinev1.ControlPlaneMachineSetTemplateObjectMeta{Labels: labels},
					Spec: machinev1beta1.MachineSpec{
						ObjectMeta: like.Spec.ObjectMeta, LifecycleHooks: like.Spec.LifecycleHooks, Taints: like.Spec.Taints,
						ProviderSpec: machinev1beta1.ProviderSpec{Value: spec},
					},
				},
			},
		},
	}
	return out, nil
}

// specFrom returns the youngest Machine's spec without its place, and the
// places of all of them; nil when none has a zone.
func specFrom(machines []machinev1beta1.Machine, codec cloud.SpecCodec, placer cloud.ControlPlaneCodec) (*runtime.RawExtension, *machinev1.FailureDomains, error) {
	var at []machinev1.AzureFailureDomain
	for i := range machines {
		m := &machines[i]
		if m.Spec.ProviderSpec.Value == nil {
			return nil, nil, fmt.Errorf("machine %s: providerSpec.value: a value must be provided", m.Name)
		}
		spec, _, err := codec.Decode(m.Spec.ProviderSpec.Value.Raw)
		if err != nil {
			return nil, nil, fmt.Errorf("decode provider spec of machine %s: %w", m.Name, err)
		}
		d := placer.Domain(spec)
		if f := (machinev1.AzureFailureDomain{Zone: d.Zone, Subnet: d.Subnet}); d.Zone != "" && !slices.Contains(at, f) {
			at = append(at, f)
		}
	}
	slices.SortFunc(at, func(a, b machinev1.AzureFailureDomain) int {
		return strings.Compare(a.Zone+"/"+a.Subnet, b.Zone+"/"+b.Subnet)
	})
	raw := machines[0].Spec.ProviderSpec.Value
	if len(at) == 0 {
		return raw, nil, nil
	}
	return raw, &machinev1.FailureDomains{Platform: configv1.AzurePlatformType, Azure: &at}, nil
}
