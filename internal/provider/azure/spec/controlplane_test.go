package spec_test

import (
	"testing"

	machinev1 "github.com/openshift/api/machine/v1beta1"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/provider/azure/spec"
)

func TestDiffersNamesTheField(t *testing.T) {
	base := func(change func(*machinev1.AzureMachineProviderSpec)) *spec.Spec {
		s := &spec.Spec{AzureMachineProviderSpec: machinev1.AzureMachineProviderSpec{VMSize: "Standard_D4s_v3", Zone: "1", Subnet: "a", OSDisk: machinev1.OSDisk{DiskSizeGB: 128}}}
		if change != nil {
			change(&s.AzureMachineProviderSpec)
		}
		return s
	}
	for _, tc := range []struct {
		name       string
		have, want func(*machinev1.AzureMachineProviderSpec)
		field      string
	}{
		{name: "same"},
		{name: "size", want: func(s *machinev1.AzureMachineProviderSpec) { s.VMSize = "Standard_D8s_v3" }, field: "vmSize"},
		{name: "case of a size", want: func(s *machinev1.AzureMachineProviderSpec) { s.VMSize = "Standard_D4s_V3" }},
		{name: "image", want: func(s *machinev1.AzureMachineProviderSpec) { s.Image.ResourceID = "/other" }},
		{name: "domain", want: func(s *machinev1.AzureMachineProviderSpec) { s.Zone, s.Subnet = "2", "b" }},
		{name: "disk", want: func(s *machinev1.AzureMachineProviderSpec) { s.OSDisk.DiskSizeGB = 256 }, field: "osDisk"},
		{name: "filled in", have: func(s *machinev1.AzureMachineProviderSpec) { s.ResourceGroup, s.Location = "rg", "francecentral" }},
		{name: "asked for", have: func(s *machinev1.AzureMachineProviderSpec) { s.ResourceGroup = "rg" },
			want: func(s *machinev1.AzureMachineProviderSpec) { s.ResourceGroup = "other" }, field: "resourceGroup"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := (spec.Codec{}).Differs(base(tc.have), base(tc.want)); got != tc.field {
				t.Errorf("differs in %q, want %q", got, tc.field)
			}
		})
	}
}

func TestInDomain(t *testing.T) {
	s := &spec.Spec{AzureMachineProviderSpec: machinev1.AzureMachineProviderSpec{Zone: "1", Subnet: "a"}}
	got := spec.Codec{}.Domain(spec.Codec{}.InDomain(s, cloud.Domain{Zone: "2"}))
	if want := (cloud.Domain{Zone: "2", Subnet: "a"}); got != want {
		t.Errorf("in %v, want %v", got, want)
	}
	if s.Zone != "1" {
		t.Error("the spec was changed")
	}
	if got := (cloud.Domain{Zone: "2", Subnet: "a"}).String(); got != "zone 2, subnet a" {
		t.Errorf("prints %q", got)
	}
}

func TestControlPlaneNeedsItsLoadBalancer(t *testing.T) {
	got := spec.Codec{}.ValidateControlPlane(&spec.Spec{})
	if len(got) != 1 || got[0].String() != "providerSpec.internalLoadBalancer: Required value: internalLoadBalancer is required for control plane machines" {
		t.Errorf("got %v", got)
	}
}
