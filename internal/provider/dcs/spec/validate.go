package spec

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"millwright.io/millwright/internal/cloud"
)

// Rules implements cloud.RuleLister.
func (Codec) Rules() []cloud.Rule {
	return []cloud.Rule{{ID: "dcs-disk", Ours: true}, {ID: "dcs-location", Ours: true}, {ID: "dcs-network", Ours: true}, {ID: "dcs-pool"},
		{ID: "dcs-provider-id", Ours: true}, {ID: "dcs-size", Ours: true}, {ID: "dcs-template"}, {ID: "unknown-field"}, {ID: "unknown-field-near-miss", Ours: true}}
}

type problems []cloud.Problem

func (p *problems) add(rule string, t cloud.ProblemType, field, value, detail string) {
	*p = append(*p, cloud.Problem{Rule: rule, Type: t, Field: "spec." + field, Value: value, Detail: detail})
}

// Validate implements cloud.SpecCodec.
func (Codec) Validate(in cloud.Spec, ctx cloud.SpecContext) []cloud.Problem {
	var p problems
	s, ok := in.(*Spec)
	if !ok || s == nil {
		p.add("dcs-template", cloud.ProblemInvalid, "", fmt.Sprintf("%T", in), "want the spec of a "+Kind)
		return p
	}
	if s.VMTemplateName == "" {
		p.add("dcs-template", cloud.ProblemRequired, "vmTemplateName", "", "the name of a VM template of the site")
	}
	if s.IPHostPoolRef.Name == "" {
		p.add("dcs-pool", cloud.ProblemRequired, "ipHostPoolRef.name", "", "the name of a DCSIpHostnamePool in the same namespace")
	}
	if ctx.MachineName == "" && s.ProviderID != "" {
		p.add("dcs-provider-id", cloud.ProblemForbidden, "providerID", "", "a template has none; the controller sets it on each machine")
	}
	p.place("location", s.Location, "folder", "cluster")
	p.place("resource", s.Resource, "cluster", "host")
	p.config(s.VMConfig)
	return p
}

func (p *problems) place(field string, l *Place, types ...string) {
	if l == nil {
		return
	}
	if !slices.Contains(types, l.Type) {
		p.add("dcs-location", cloud.ProblemUnsupported, field+".type", strconv.Quote(l.Type), "supported are "+strings.Join(types, " and "))
	}
	if (l.Name == "") == (l.URN == "") {
		p.add("dcs-location", cloud.ProblemInvalid, field, fmt.Sprintf("name %q, urn %q", l.Name, l.URN), "exactly one of name and urn")
	}
}

func (p *problems) config(v *VMConfig) {
	if v == nil {
		p.add("dcs-size", cloud.ProblemRequired, "vmConfig", "", "vCPUs, memory in MB and disks of the VM")
		return
	}
	for _, q := range []struct {
		field string
		n     int
	}{{"vmConfig.dcsMachineCpuSpec.quantity", v.CPU.Quantity}, {"vmConfig.dcsMachineMemorySpec.quantity", v.Memory.Quantity}} {
		if q.n < 1 {
			p.add("dcs-size", cloud.ProblemInvalid, q.field, strconv.Itoa(q.n), "must be at least 1")
		}
	}
	if v.PortGroupURN != "" && v.PortGroupName != "" {
		p.add("dcs-network", cloud.ProblemForbidden, "vmConfig.portGroupName", "", "portGroupUrn says which port group already")
	}
	if v.PortGroupName != "" && v.DVSwitchName == "" {
		p.add("dcs-network", cloud.ProblemRequired, "vmConfig.dvSwitchName", "", "port groups of several switches may have one name")
	}
	if v.CDROMDatastore != "" && v.CDROMDatastoreGroup != "" {
		p.add("dcs-disk", cloud.ProblemForbidden, "vmConfig.cdRomDatastoreClusterName", "", "cdRomDatastoreName says which datastore already")
	}
	systems, paths := 0, map[string]bool{}
	for i, d := range v.Disks {
		p.disk(fmt.Sprintf("vmConfig.dcsMachineDiskSpec[%d]", i), d)
		if d.SystemVolume {
			systems++
		}
		if d.Path != "" && paths[d.Path] {
			p.add("dcs-disk", cloud.ProblemInvalid, fmt.Sprintf("vmConfig.dcsMachineDiskSpec[%d].path", i), strconv.Quote(d.Path), "another disk has this path")
		}
		paths[d.Path] = true
	}
	if systems > 1 {
		p.add("dcs-disk", cloud.ProblemInvalid, "vmConfig.dcsMachineDiskSpec", fmt.Sprintf("%d system volumes", systems), "at most one disk has systemVolume")
	}
}

func (p *problems) disk(at string, d Disk) {
	if d.Quantity < 0 || (d.Quantity == 0 && !d.SystemVolume) {
		p.add("dcs-disk", cloud.ProblemInvalid, at+".quantity", strconv.Itoa(d.Quantity), "GB, at least 1; only the system volume may say 0 for the template's size")
	}
	n := 0
	for _, ref := range []string{d.Datastore, d.DatastoreGroup, d.DatastoreURN} {
		if ref != "" {
			n++
		}
	}
	if n > 1 || (n == 0 && !d.SystemVolume) {
		p.add("dcs-disk", cloud.ProblemInvalid, at, fmt.Sprintf("%d datastore references", n), "exactly one of datastoreName, datastoreClusterName and datastoreUrn")
	}
}

// unknownFields says of each field that a DCSMachine does not have what becomes
// of it: a slip is refused with the field that was meant, a foreign one ignored.
func unknownFields(tree any) []cloud.Problem {
	var out []cloud.Problem
	t := reflect.TypeFor[Spec]()
	for _, u := range cloud.UnknownFields(t, tree, t.PkgPath()) {
		p := cloud.Problem{Rule: "unknown-field", Type: cloud.ProblemUnsupported, Field: "spec." + u.Path(), Value: strconv.Quote(u.Name), Detail: "unknown field, it is ignored", Warning: true}
		if u.Near != "" {
			p.Rule, p.Warning, p.Detail = "unknown-field-near-miss", false, fmt.Sprintf("unknown field, did you mean %q?", u.Near)
		}
		out = append(out, p)
	}
	return out
}
