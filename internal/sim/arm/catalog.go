package arm

import (
	"net/http"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
)

// region is a place where things can be made.
type region struct {
	name, display string
	zones         []string
	dns           string // the second label of internal domain suffixes
}

func regions() []region {
	three := []string{"1", "2", "3"}
	return []region{
		{"eastus", "East US", three, "bx"},
		{"francecentral", "France Central", three, "parx"},
		{"francesouth", "France South", nil, "mrsx"},
		{"northeurope", "North Europe", three, "fx"},
		{"westeurope", "West Europe", three, "ax"},
	}
}

func regionNamed(name string) *region {
	for _, r := range regions() {
		if strings.EqualFold(r.name, name) {
			return &r
		}
	}
	return nil
}

func regionNames() []string {
	var out []string
	for _, r := range regions() {
		out = append(out, r.name)
	}
	return out
}

// size is one VM size.
type size struct {
	name, family  string
	vcpus         int
	memoryMiB     int64
	gpus          int
	arch          string // x64 or Arm64, as the capability says
	accelerated   bool
	premium       bool
	maxDataDisks  int
	ephemeral     bool
	skipRegions   []string            // where it is not sold
	zonesByRegion map[string][]string // where it is sold in some zones only
}

func (z *size) goArch() string {
	if z.arch == "Arm64" {
		return "arm64"
	}
	return "amd64"
}

// row is a family: every size of it differs by the number of vCPUs.
type row struct {
	pattern, family string // pattern holds * for the vCPUs
	vcpus           []int
	gibPerVCPU      int64
	arch            string
	gpuPer          int // vCPUs per GPU, 0: none
	old             bool
	skip            []string
	zones           map[string][]string
}

func rows() []row {
	return []row{
		{pattern: "Standard_D*s_v3", family: "standardDSv3Family", vcpus: []int{2, 4, 8, 16, 32, 48, 64}, gibPerVCPU: 4},
		{pattern: "Standard_D*s_v4", family: "standardDSv4Family", vcpus: []int{2, 4, 8, 16, 32}, gibPerVCPU: 4},
		{pattern: "Standard_D*s_v5", family: "standardDSv5Family", vcpus: []int{2, 4, 8, 16, 32, 48, 64, 96}, gibPerVCPU: 4},
		{pattern: "Standard_D*as_v5", family: "standardDASv5Family", vcpus: []int{2, 4, 8, 16, 32}, gibPerVCPU: 4},
		{pattern: "Standard_D*ps_v5", family: "standardDPSv5Family", vcpus: []int{2, 4, 8, 16, 32, 48, 64}, gibPerVCPU: 4, arch: "Arm64", skip: []string{"francesouth"}, zones: map[string][]string{"francecentral": {"1", "2"}}},
		{pattern: "Standard_E*s_v3", family: "standardESv3Family", vcpus: []int{2, 4, 8, 16, 32}, gibPerVCPU: 8},
		{pattern: "Standard_E*s_v5", family: "standardESv5Family", vcpus: []int{2, 4, 8, 16, 32, 48, 64}, gibPerVCPU: 8},
		{pattern: "Standard_F*s_v2", family: "standardFSv2Family", vcpus: []int{2, 4, 8, 16, 32, 48, 64, 72}, gibPerVCPU: 2},
		{pattern: "Standard_B*ms", family: "standardBSFamily", vcpus: []int{2, 4, 8, 12, 16}, gibPerVCPU: 4, old: true},
		{pattern: "Standard_NC*s_v3", family: "standardNCSv3Family", vcpus: []int{6, 12, 24}, gibPerVCPU: 18, gpuPer: 6, old: true, skip: []string{"francesouth", "francecentral"}},
		{pattern: "Standard_NC*as_T4_v3", family: "standardNCASv3_T4Family", vcpus: []int{4, 8, 16}, gibPerVCPU: 7, gpuPer: 4, skip: []string{"francesouth"}, zones: map[string][]string{"francecentral": {"1", "3"}}},
	}
}

var sizes = sync.OnceValue(func() []*size {
	var out []*size
	for _, r := range rows() {
		for _, n := range r.vcpus {
			z := &size{
				name: strings.Replace(r.pattern, "*", strconv.Itoa(n), 1), family: r.family, vcpus: n, memoryMiB: int64(n) * r.gibPerVCPU * 1024,
				arch: r.arch, accelerated: !r.old && (n >= 4 || strings.HasSuffix(r.pattern, "v5")), premium: true, maxDataDisks: min(n*2, 32), ephemeral: strings.HasSuffix(r.pattern, "s_v3"),
				skipRegions: r.skip, zonesByRegion: r.zones,
			}
			if z.arch == "" {
				z.arch = "x64"
			}
			if r.gpuPer > 0 {
				z.gpus = max(n/r.gpuPer, 1)
			}
			out = append(out, z)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].name < out[j].name })
	return out
})

// sizeIn returns a size sold in a region, whatever the case of its name, and
// the zones that sell it there.
func sizeIn(reg *region, name string) (*size, []string) {
	for _, z := range sizes() {
		if strings.EqualFold(z.name, name) && !slices.Contains(z.skipRegions, reg.name) {
			return z, z.zonesIn(reg)
		}
	}
	return nil, nil
}

func (z *size) zonesIn(reg *region) []string {
	if len(reg.zones) == 0 {
		return nil
	}
	if some := z.zonesByRegion[reg.name]; some != nil {
		return some
	}
	return reg.zones
}

func sizesIn(reg *region) []string {
	var out []string
	for _, z := range sizes() {
		if !slices.Contains(z.skipRegions, reg.name) {
			out = append(out, z.name)
		}
	}
	return out
}

var locationFilter = regexp.MustCompile(`(?i)^\s*location\s+eq\s+'([^']*)'\s*$`)

// listSKUs serves the SKU list; $filter may name one location.
func (s *Server) listSKUs(c *call) {
	if c.r.Method != http.MethodGet {
		c.fail(methodNotAllowed(c))
		return
	}
	only := ""
	if f := c.query.Get("$filter"); f != "" {
		m := locationFilter.FindStringSubmatch(f)
		if m == nil {
			c.fail(invalidParameter("$filter", "The filter '"+f+"' is not supported. Only the location filter is supported currently."))
			return
		}
		only = m[1]
	}
	value := []any{}
	for _, reg := range regions() {
		if only != "" && !strings.EqualFold(reg.name, only) {
			continue
		}
		for _, z := range sizes() {
			if !slices.Contains(z.skipRegions, reg.name) {
				value = append(value, z.sku(&reg))
			}
		}
		value = append(value, alignedSKU(reg.name))
	}
	c.answer(http.StatusOK, object{"value": value})
}

func capability(name, value string) any { return object{"name": name, "value": value} }

func (z *size) sku(reg *region) object {
	info := object{"location": reg.name, "zones": anys(z.zonesIn(reg)), "zoneDetails": []any{}}
	caps := []any{
		capability("vCPUs", strconv.Itoa(z.vcpus)), capability("vCPUsAvailable", strconv.Itoa(z.vcpus)),
		capability("MemoryGB", strconv.FormatInt(z.memoryMiB/1024, 10)),
		capability("CpuArchitectureType", z.arch),
		capability("AcceleratedNetworkingEnabled", title(z.accelerated)),
		capability("PremiumIO", title(z.premium)),
		capability("EphemeralOSDiskSupported", title(z.ephemeral)),
		capability("HyperVGenerations", "V1,V2"),
		capability("LowPriorityCapable", "True"),
		capability("MaxDataDiskCount", strconv.Itoa(z.maxDataDisks)),
		capability("OSVhdSizeMB", "1047552"),
	}
	if z.gpus > 0 {
		caps = append(caps, capability("GPUs", strconv.Itoa(z.gpus)))
	}
	return object{
		"resourceType": "virtualMachines", "name": z.name, "tier": "Standard", "size": strings.TrimPrefix(z.name, "Standard_"), "family": z.family,
		"locations": []any{reg.name}, "locationInfo": []any{info}, "capabilities": caps, "restrictions": []any{},
	}
}

func alignedSKU(location string) object {
	return object{
		"resourceType": "availabilitySets", "name": "Aligned", "locations": []any{location},
		"locationInfo": []any{object{"location": location, "zones": []any{}, "zoneDetails": []any{}}},
		"capabilities": []any{capability("MaximumPlatformFaultDomainCount", "2")}, "restrictions": []any{},
	}
}

func title(b bool) string {
	if b {
		return "True"
	}
	return "False"
}
