package azure

import (
	"fmt"
	"sort"
	"strings"

	"millwright.io/millwright/internal/cloud"
)

const (
	ipConfigName   = "pipConfig"
	ipConfigNameV6 = "pipConfig-v6"
	// tagSet names the availability set of an instance on its network
	// interface, which outlives the VM, so that an empty set can be found.
	tagSet = "millwright.io_availability-set"

	maxPublicIPName = 63
	maxUserTags     = 45
)

func nicName(machine string) string  { return machine + "-nic" }
func diskName(machine string) string { return machine + "_OSDisk" }

// ownerTag is the tag that says which cluster a resource belongs to; its
// value is owned.
func ownerTag(owner cloud.Owner) string { return "kubernetes.io_cluster." + string(owner) }

const ownedValue = "owned"

// setName is the availability set of a group: the group's name, or
// <owner>_<group> when it does not begin with the owner.
func setName(owner cloud.Owner, group string) string {
	name := group
	if !strings.HasPrefix(group, string(owner)) {
		name = string(owner) + "_" + group
	}
	if len(name) > 77 {
		name = name[:77]
	}
	return name + "-as"
}

// ref is the address of a resource.
type ref struct{ group, name string }

// parseID takes an ARM id apart; its parts are empty when it is none.
func parseID(id string) ref {
	var r ref
	parts := strings.Split(strings.Trim(id, "/"), "/")
	for i := 0; i+1 < len(parts); i += 2 {
		if strings.EqualFold(parts[i], "resourceGroups") {
			r.group = parts[i+1]
		}
	}
	if len(parts) > 1 {
		r.name = parts[len(parts)-1]
	}
	return r
}

func (c *Cloud) id(group, provider, kind, name string) string {
	return fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/%s/%s/%s", c.subscription, group, provider, kind, name)
}

// providerID is what the Node of a VM carries, byte for byte.
func providerID(vmID, computer string) string {
	parts := strings.Split(strings.Trim(vmID, "/"), "/")
	if len(parts) < 4 {
		return ""
	}
	return fmt.Sprintf("azure:///subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute/virtualMachines/%s",
		strings.ToLower(parts[1]), strings.ToLower(parts[3]), computer)
}

// tags merges the tags of an intent: the cluster's, then the spec's, then
// those that say whose it is.
func tags(in cloud.Intent, specTags map[string]string) (map[string]*string, error) {
	merged := map[string]string{}
	for k, v := range in.Tags {
		merged[k] = v
	}
	for k, v := range specTags {
		merged[k] = v
	}
	invalid := func(text string) error {
		return &cloud.Fault{Kind: cloud.Invalid, Op: "create vm " + in.Key.Name, Reason: "InvalidTags",
			Message: "Machine.Spec.ProviderSpec.Tags validation failed: " + text}
	}
	seen := map[string]int{}
	for k := range merged {
		seen[strings.ToUpper(k)]++
	}
	upper := make([]string, 0, len(seen))
	for k := range seen {
		upper = append(upper, k)
	}
	sort.Strings(upper)
	for _, k := range upper {
		if seen[k] > 1 {
			return nil, invalid(fmt.Sprintf("found duplicate tag keys: %q matches %d keys", k, seen[k]))
		}
	}
	if len(merged) > maxUserTags {
		return nil, invalid(fmt.Sprintf("ocp can define upto 5 tags and user can define upto 45 tags, found %d", len(merged)))
	}
	merged[ownerTag(in.Owner)] = ownedValue
	merged[cloud.TagKey] = in.Key.UID
	out := make(map[string]*string, len(merged))
	for k, v := range merged {
		out[k] = &v
	}
	return out, nil
}

// tag reads one tag. Azure keeps the case of tag names but compares them
// without it.
func tag(all map[string]*string, name string) string {
	for k, v := range all {
		if v != nil && strings.EqualFold(k, name) {
			return *v
		}
	}
	return ""
}

func owned(all map[string]*string, key cloud.Key) bool { return tag(all, cloud.TagKey) == key.UID }

func foreign(op, kind, name string, all map[string]*string) *cloud.Fault {
	whose := "carries no " + cloud.TagKey + " tag"
	if uid := tag(all, cloud.TagKey); uid != "" {
		whose = "belongs to " + uid
	}
	return &cloud.Fault{Kind: cloud.Conflict, Op: op, Reason: "ForeignResource",
		Message: fmt.Sprintf("%s: %s %s exists and %s; it is left alone", op, kind, name, whose)}
}

func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// set returns a pointer to v, nil for the zero value: what is not said is not
// sent.
func set[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
