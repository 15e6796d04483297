package spec

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"millwright.io/millwright/internal/cloud"
)

var _ cloud.ControlPlaneCodec = Codec{}

// RuleInternalLoadBalancer asks for what the API server of a control plane is
// reached by.
const RuleInternalLoadBalancer = "azure-control-plane-load-balancer"

// Domain implements cloud.ControlPlaneCodec.
func (Codec) Domain(s cloud.Spec) cloud.Domain {
	as, err := of(s)
	if err != nil {
		return cloud.Domain{}
	}
	return cloud.Domain{Zone: as.Zone, Subnet: as.Subnet}
}

// InDomain implements cloud.ControlPlaneCodec. An empty zone or subnet keeps
// the spec's own.
func (Codec) InDomain(s cloud.Spec, d cloud.Domain) cloud.Spec {
	as, err := of(s)
	if err != nil {
		return s
	}
	out := &Spec{AzureMachineProviderSpec: *as.DeepCopy()}
	if d.Zone != "" {
		out.Zone = d.Zone
	}
	if d.Subnet != "" {
		out.Subnet = d.Subnet
	}
	return out
}

// Differs implements cloud.ControlPlaneCodec. The image does not count, as it
// never did; nor does what a machine's controller fills in when the spec
// leaves it out, nor the case of a size.
func (Codec) Differs(have, want cloud.Spec) string {
	h, err := of(have)
	if err != nil {
		return "kind"
	}
	w, err := of(want)
	if err != nil {
		return "kind"
	}
	a, b := comparison(h), comparison(w)
	for _, key := range []string{"resourceGroup", "networkResourceGroup", "location", "internalLoadBalancer"} {
		if _, asked := b[key]; !asked {
			delete(a, key)
		}
	}
	keys := slices.Sorted(maps.Keys(a))
	keys = append(keys, slices.Sorted(maps.Keys(b))...)
	for _, key := range keys {
		if !reflect.DeepEqual(a[key], b[key]) {
			return key
		}
	}
	return ""
}

// comparison returns the fields that make one machine another.
func comparison(s *Spec) map[string]any {
	c := s.DeepCopy()
	c.VMSize = strings.ToLower(c.VMSize)
	raw, err := json.Marshal(c)
	if err != nil {
		return nil
	}
	var out map[string]any
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil
	}
	for _, key := range []string{"kind", "apiVersion", "metadata", "image", "zone", "subnet"} {
		delete(out, key)
	}
	return out
}

// ValidateControlPlane implements cloud.ControlPlaneCodec.
func (Codec) ValidateControlPlane(s cloud.Spec) []cloud.Problem {
	as, err := of(s)
	if err != nil || as.InternalLoadBalancer != "" {
		return nil
	}
	return []cloud.Problem{{Rule: RuleInternalLoadBalancer, Type: cloud.ProblemRequired, Field: "providerSpec.internalLoadBalancer",
		Detail: "internalLoadBalancer is required for control plane machines"}}
}
