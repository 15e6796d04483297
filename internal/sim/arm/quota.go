package arm

import (
	"fmt"
	"net/http"
	"sort"
	"strings"
)

// Quota scopes that are no family.
const (
	scopeCores = "cores"
	scopeSpot  = "lowPriorityCores"
)

// defaultQuota is the limit of every scope until SetQuota says otherwise.
const defaultQuota = 350

func (s *Server) limit(scope string) int {
	for name, n := range s.quotas {
		if strings.EqualFold(name, scope) {
			return n
		}
	}
	return defaultQuota
}

// used counts vCPUs by lower-cased scope in a region, all VMs that exist,
// stopped ones too.
func (s *Server) used(reg string) map[string]int {
	out := map[string]int{}
	for _, r := range s.resources {
		if r.Kind != kindVM || r.location() != reg {
			continue
		}
		z, _ := sizeIn(regionNamed(reg), str(r.Doc, "properties", "hardwareProfile", "vmSize"))
		if z == nil {
			continue
		}
		if isSpot(r.Doc) {
			out[strings.ToLower(scopeSpot)] += z.vcpus
			continue
		}
		out[scopeCores] += z.vcpus
		out[strings.ToLower(z.family)] += z.vcpus
	}
	return out
}

func isSpot(doc object) bool {
	p := str(doc, "properties", "priority")
	return strings.EqualFold(p, "Spot") || strings.EqualFold(p, "Low")
}

// checkQuota refuses a VM whose vCPUs exceed the region's or the family's
// limit. before is the size that the VM has now, nil for a new one.
func (s *Server) checkQuota(reg *region, z, before *size, spot bool) *Error {
	used := s.used(reg.name)
	checks := []struct{ scope, label string }{{scopeCores, "Total Regional"}, {z.family, z.family}}
	if spot {
		checks = checks[:1]
		checks[0].scope, checks[0].label = scopeSpot, "LowPriorityCores"
	}
	for _, q := range checks {
		need := z.vcpus
		if before != nil && (q.scope != z.family || before.family == z.family) {
			need -= before.vcpus
		}
		limit, have := s.limit(q.scope), used[strings.ToLower(q.scope)]
		if need > 0 && have+need > limit {
			return quotaExceeded(q.label, reg.name, limit, have, need)
		}
	}
	return nil
}

func quotaExceeded(label, location string, limit, have, need int) *Error {
	if label != "LowPriorityCores" {
		label += " Cores"
	}
	return fail(http.StatusConflict, "OperationNotAllowed", fmt.Sprintf(
		"Operation could not be completed as it results in exceeding approved %s quota. Additional details - Deployment Model: Resource Manager, Location: %s, Current Limit: %d, Current Usage: %d, Additional Required: %d, (Minimum) New Limit Required: %d. "+
			"Submit a request for Quota increase at https://aka.ms/ProdportalCRP/#blade/Microsoft_Azure_Capacity/UsageAndQuota.ReactView by specifying parameters listed in the ‘Details’ section for deployment to succeed. Please read more about quota limits at https://docs.microsoft.com/en-us/azure/azure-supportability/regional-quota-requests",
		label, location, limit, have, need, have+need))
}

// scopes lists every quota scope, sorted, cores first.
func scopes() []string {
	seen := map[string]bool{}
	var families []string
	for _, z := range sizes() {
		if !seen[z.family] {
			seen[z.family] = true
			families = append(families, z.family)
		}
	}
	sort.Strings(families)
	return append([]string{scopeCores, scopeSpot}, families...)
}

func scopeLabel(scope string) string {
	switch scope {
	case scopeCores:
		return "Total Regional vCPUs"
	case scopeSpot:
		return "Total Regional Low-priority vCPUs"
	}
	return scope + " vCPUs"
}

// listUsages serves the compute usages of a location.
func (s *Server) listUsages(c *call) {
	reg := regionNamed(c.route.parts[1])
	if reg == nil {
		c.fail(fail(http.StatusBadRequest, "NoRegisteredProviderFound", "No registered resource provider found for location '"+c.route.parts[1]+"' and API version '"+c.apiVersion+"' for type 'locations/usages'. The supported locations are '"+strings.Join(regionNames(), ", ")+"'."))
		return
	}
	used := s.used(reg.name)
	vms, sets := 0, 0
	for _, r := range s.resources {
		if r.location() == reg.name {
			switch r.Kind {
			case kindVM:
				vms++
			case kindSet:
				sets++
			}
		}
	}
	value := []any{
		usage("availabilitySets", "Availability Sets", sets, 2500),
		usage("virtualMachines", "Virtual Machines", vms, 25000),
	}
	for _, scope := range scopes() {
		value = append(value, usage(scope, scopeLabel(scope), used[strings.ToLower(scope)], s.limit(scope)))
	}
	c.answer(http.StatusOK, object{"value": value})
}

func usage(name, label string, now, limit int) any {
	return object{"unit": "Count", "currentValue": now, "limit": limit, "name": object{"value": name, "localizedValue": label}}
}
