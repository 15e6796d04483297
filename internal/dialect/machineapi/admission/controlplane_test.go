package admission_test

import (
	"fmt"
	"strings"
	"testing"

	mapiv1 "github.com/openshift/api/machine/v1"
	machinev1 "github.com/openshift/api/machine/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineapi/admission"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
)

func controlPlane(changes ...func(s *mapiv1.ControlPlaneMachineSet)) *mapiv1.ControlPlaneMachineSet {
	role := map[string]string{wire.LabelMachineRole: "master", wire.LabelMachineType: "master"}
	s := &mapiv1.ControlPlaneMachineSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "machine.openshift.io/v1", Kind: "ControlPlaneMachineSet"},
		ObjectMeta: metav1.ObjectMeta{Namespace: wire.Namespace, Name: "cluster"},
		Spec: mapiv1.ControlPlaneMachineSetSpec{
			Replicas: ptr.To[int32](3), Selector: metav1.LabelSelector{MatchLabels: role},
			Template: mapiv1.ControlPlaneMachineSetTemplate{OpenShiftMachineV1Beta1Machine: &mapiv1.OpenShiftMachineV1Beta1MachineTemplate{
				FailureDomains: &mapiv1.FailureDomains{Platform: "Azure", Azure: &[]mapiv1.AzureFailureDomain{{Zone: "1"}, {Zone: "2"}, {Zone: "3"}}},
				ObjectMeta:     mapiv1.ControlPlaneMachineSetTemplateObjectMeta{Labels: role},
				Spec:           machinev1.MachineSpec{ProviderSpec: machinev1.ProviderSpec{Value: value(with("internalLoadBalancer", "lb"))}},
			}},
		},
	}
	for _, c := range changes {
		c(s)
	}
	return s
}

func TestRulesOfControlPlaneMachineSets(t *testing.T) {
	var masters []client.Object
	for i := range 3 {
		m := machine(fmt.Sprintf("demo-master-%d", i), value(with("zone", fmt.Sprint(i+1))))
		m.Labels = map[string]string{wire.LabelMachineRole: "master", wire.LabelMachineType: "master"}
		masters = append(masters, m)
	}
	template := func(s *mapiv1.ControlPlaneMachineSet) *mapiv1.OpenShiftMachineV1Beta1MachineTemplate {
		return s.Spec.Template.OpenShiftMachineV1Beta1Machine
	}
	for _, tc := range []struct {
		name, want string // want: part of the refusal; empty: admitted
		change     func(s *mapiv1.ControlPlaneMachineSet)
	}{
		{name: "as generated", change: func(*mapiv1.ControlPlaneMachineSet) {}},
		{name: "name", change: func(s *mapiv1.ControlPlaneMachineSet) { s.Name = "other" },
			want: `metadata.name: Invalid value: "other": control plane machine set name must be cluster`},
		{name: "selector", change: func(s *mapiv1.ControlPlaneMachineSet) { template(s).ObjectMeta.Labels = map[string]string{"a": "b"} },
			want: `spec.template.machines_v1beta1_machine_openshift_io.metadata.labels: Invalid value: {"a":"b"}: selector does not match template labels`},
		{name: "load balancer", change: func(s *mapiv1.ControlPlaneMachineSet) { template(s).Spec.ProviderSpec.Value = value() },
			want: "internalLoadBalancer is required for control plane machines"},
		{name: "replicas", change: func(s *mapiv1.ControlPlaneMachineSet) { s.Spec.Replicas = ptr.To[int32](5) },
			want: "control plane machine set replicas (5) does not match the current number of control plane machines (3)"},
		{name: "domains", change: func(s *mapiv1.ControlPlaneMachineSet) {
			template(s).FailureDomains.Azure = &[]mapiv1.AzureFailureDomain{{Zone: "1"}, {Zone: "2"}}
		}, want: "control plane machines are using unspecified failure domain(s) [zone 3, subnet s]"},
		{name: "the spec itself", change: func(s *mapiv1.ControlPlaneMachineSet) {
			template(s).Spec.ProviderSpec.Value = value(with("internalLoadBalancer", "lb"), with("osDisk", map[string]any{"diskSizeGB": 0}))
		}, want: "providerSpec.osDisk.diskSizeGB"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDoor(t, &shop{}, nil, masters...)
			got := d.knock(admission.PathValidateControlPlane, controlPlane(tc.change), nil)
			switch {
			case tc.want == "" && !got.Allowed:
				t.Errorf("refused: %s", got.Result.Message)
			case tc.want != "" && (got.Allowed || !strings.Contains(got.Result.Message, tc.want)):
				t.Errorf("got %+v, want a refusal with %q", got.Result, tc.want)
			}
		})
	}
	d := newDoor(t, &shop{}, nil, masters...)
	bad := controlPlane(func(s *mapiv1.ControlPlaneMachineSet) { template(s).Spec.ProviderSpec.Value = value() })
	active := bad.DeepCopy()
	active.Spec.State = mapiv1.ControlPlaneMachineSetStateActive
	if got := d.knock(admission.PathValidateControlPlane, active, bad); !got.Allowed {
		t.Errorf("a change that makes nothing worse is refused: %s", got.Result.Message)
	}
}
