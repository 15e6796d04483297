package spec

import "millwright.io/millwright/internal/cloud"

var _ cloud.RuleLister = Codec{}

// Rules implements cloud.RuleLister.
func (Codec) Rules() []cloud.Rule {
	return []cloud.Rule{
		{ID: "azure-capacity-reservation"},
		{ID: "azure-confidential-vm"},
		{ID: RuleInternalLoadBalancer},
		{ID: "azure-credentials"},
		{ID: "azure-data-disk-caching"},
		{ID: "azure-data-disk-deletion"},
		{ID: "azure-data-disk-lun"},
		{ID: "azure-data-disk-name"},
		{ID: "azure-data-disk-size"},
		{ID: "azure-diagnostics"},
		{ID: "azure-disk-caching"},
		{ID: "azure-disk-size"},
		{ID: "azure-ephemeral-disk"},
		{ID: "azure-image"},
		{ID: "azure-machine-name", Ours: true},
		{ID: "azure-public-ip"},
		{ID: "azure-public-ip-name"},
		{ID: "azure-region", Ours: true},
		{ID: "azure-security-profile"},
		{ID: "azure-security-type"},
		{ID: "azure-size", Ours: true},
		{ID: "azure-size-zone", Ours: true},
		{ID: "azure-spot-cloud"},
		{ID: "azure-subnet"},
		{ID: "azure-trusted-launch"},
		{ID: "azure-ultra-ssd"},
		{ID: "azure-user-data"},
		{ID: "azure-vm-size"},
		{ID: "azure-vnet"},
		{ID: "azure-zone", Ours: true},
		{ID: "provider-gvk"},
		{ID: "provider-kind", Ours: true},
		{ID: RuleUnknown},
		{ID: RuleNearMiss, Ours: true},
	}
}
