package spec

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"millwright.io/millwright/internal/cloud"
)

// maxNodeName is the longest name that fits a hostname and a label value.
const maxNodeName = 63

// names checks what the Machine's name becomes in Azure.
func (f *findings) names(s *Spec, c cloud.SpecContext) {
	if n := len(c.MachineName); n > maxNodeName {
		f.text("azure-machine-name", "metadata.name", c.MachineName,
			fmt.Sprintf("has %d characters, must have at most %d: it becomes the host name of the VM and the name of its Node", n, maxNodeName))
	}
	if s.PublicIP && c.MachineName != "" && len(c.InfraID)+1+len(c.MachineName) > maxNodeName {
		f.text("azure-public-ip-name", "metadata.name", c.MachineName,
			"unable to create Public IP: machine public IP name is longer than 63 characters")
	}
}

// market compares the spec with what the region sells. What is not known is
// not checked.
func (f *findings) market(s *Spec, c cloud.SpecContext) {
	region := s.Location
	if region == "" {
		region = c.Region
	}
	if c.Regions != nil && s.Location != "" && !slices.ContainsFunc(c.Regions, func(r string) bool { return r == plain(s.Location) }) {
		detail := "no such region for this subscription"
		if near := closest(plain(s.Location), c.Regions); near != "" {
			detail += fmt.Sprintf(", did you mean %q?", near)
		}
		f.text("azure-region", "providerSpec.location", s.Location, detail)
		return
	}
	if len(c.Sizes) == 0 {
		return
	}
	zones := map[string]bool{}
	for _, z := range c.Sizes {
		for _, zone := range z.Zones {
			zones[zone] = true
		}
	}
	if s.Zone != "" && !zones[s.Zone] {
		detail := fmt.Sprintf("region %s has no zones, leave zone empty", region)
		if len(zones) > 0 {
			detail = fmt.Sprintf("region %s has the zones %s", region, strings.Join(sorted(zones), ", "))
		}
		f.text("azure-zone", "providerSpec.zone", s.Zone, detail)
		return
	}
	f.size(s, region, c.Sizes)
}

func (f *findings) size(s *Spec, region string, sizes []cloud.Size) {
	if s.VMSize == "" {
		return
	}
	i := slices.IndexFunc(sizes, func(z cloud.Size) bool { return strings.EqualFold(z.Name, s.VMSize) })
	if i < 0 {
		f.text("azure-size", "providerSpec.vmSize", s.VMSize,
			fmt.Sprintf("not sold in %s; sizes near it: %s", region, strings.Join(near(s.VMSize, sizes), ", ")))
		return
	}
	if z := sizes[i]; s.Zone != "" && !slices.Contains(z.Zones, s.Zone) {
		where := "outside of zones only"
		if len(z.Zones) > 0 {
			where = "in the zones " + strings.Join(z.Zones, ", ")
		}
		var others []cloud.Size
		for _, o := range sizes {
			if slices.Contains(o.Zones, s.Zone) {
				others = append(others, o)
			}
		}
		f.text("azure-size-zone", "providerSpec.vmSize", s.VMSize, fmt.Sprintf("not sold in zone %s of %s, but %s; sizes near it in zone %s: %s",
			s.Zone, region, where, s.Zone, strings.Join(near(s.VMSize, others), ", ")))
	}
}

// near returns up to three sizes whose names are closest to name, each with
// the zones that sell it.
func near(name string, sizes []cloud.Size) []string {
	type ranked struct {
		text string
		d    int
	}
	all := make([]ranked, 0, len(sizes))
	for _, z := range sizes {
		text := z.Name
		if len(z.Zones) > 0 {
			text += " (zones " + strings.Join(z.Zones, ", ") + ")"
		}
		all = append(all, ranked{text, cloud.Distance(strings.ToLower(name), strings.ToLower(z.Name), 64)})
	}
	sort.SliceStable(all, func(i, j int) bool {
		if all[i].d != all[j].d {
			return all[i].d < all[j].d
		}
		return all[i].text < all[j].text
	})
	out := []string{}
	for _, r := range all[:min(3, len(all))] {
		out = append(out, r.text)
	}
	if len(out) == 0 {
		return []string{"none"}
	}
	return out
}

// plain is a region as ARM compares it: "France Central" is francecentral.
func plain(region string) string { return strings.ToLower(strings.ReplaceAll(region, " ", "")) }

// closest returns the region nearest to word, "" when it resembles none.
func closest(word string, regions []string) string {
	best, found := max(3, len(word)/2), ""
	for _, r := range regions {
		if d := cloud.Distance(word, r, best); d < best {
			best, found = d, r
		}
	}
	return found
}

func sorted(set map[string]bool) []string {
	out := make([]string, 0, len(set))
	for k := range set {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
