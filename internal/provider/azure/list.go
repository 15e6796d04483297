package azure

import (
	"context"
	"sort"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v8"

	"millwright.io/millwright/internal/cloud"
)

func sameID(a, b string) bool { return a != "" && strings.EqualFold(a, b) }

// all reads every page of a list.
func all[P, T any](ctx context.Context, op string, pager *runtime.Pager[P], items func(P) []*T) ([]*T, error) {
	var out []*T
	for pager.More() {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, fault(op, "", err)
		}
		out = append(out, items(page)...)
	}
	return out, nil
}

// inventory is every VM and part of the subscription.
type inventory struct {
	vms   []*armcompute.VirtualMachine
	disks []*armcompute.Disk
	nics  []*armnetwork.Interface
	ips   []*armnetwork.PublicIPAddress
}

func (c *Cloud) inventory(ctx context.Context) (inv inventory, err error) {
	const op = "list instances"
	if inv.vms, err = all(ctx, op, c.vms.NewListAllPager(nil),
		func(p armcompute.VirtualMachinesClientListAllResponse) []*armcompute.VirtualMachine { return p.Value }); err != nil {
		return inv, err
	}
	if inv.nics, err = all(ctx, op, c.nics.NewListAllPager(nil),
		func(p armnetwork.InterfacesClientListAllResponse) []*armnetwork.Interface { return p.Value }); err != nil {
		return inv, err
	}
	if inv.disks, err = all(ctx, op, c.disks.NewListPager(nil),
		func(p armcompute.DisksClientListResponse) []*armcompute.Disk { return p.Value }); err != nil {
		return inv, err
	}
	inv.ips, err = all(ctx, op, c.ips.NewListAllPager(nil),
		func(p armnetwork.PublicIPAddressesClientListAllResponse) []*armnetwork.PublicIPAddress {
			return p.Value
		})
	return inv, err
}

// List implements cloud.Cloud. It looks at the whole subscription, since specs
// may name resource groups. The power state is not part of a list: an instance
// that is provisioned and has no view of it is Unknown.
func (c *Cloud) List(ctx context.Context, owner cloud.Owner) ([]cloud.Instance, error) {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	inv, err := c.inventory(ctx)
	if err != nil {
		return nil, err
	}
	nics, ips := map[string]*armnetwork.Interface{}, map[string]*armnetwork.PublicIPAddress{}
	for _, n := range inv.nics {
		nics[strings.ToLower(value(n.ID))] = n
	}
	for _, ip := range inv.ips {
		ips[strings.ToLower(value(ip.ID))] = ip
	}
	var out []cloud.Instance
	seen := map[string]bool{}
	for _, vm := range inv.vms {
		key, ours := keyOf(owner, vm.Tags, vm.ID, value(vm.Name))
		if !ours {
			continue
		}
		inst, err := instanceOf(key, vm)
		if err != nil {
			inst = cloud.Instance{Key: key, ID: value(vm.ID), State: cloud.StateUnknown, Region: value(vm.Location)}
		}
		var own []*armnetwork.Interface
		for _, r := range vmNICs(vm) {
			if n := nics[strings.ToLower(r)]; n != nil {
				own = append(own, n)
			}
		}
		inst.Addresses = addresses(computerName(vm), own, ips)
		out, seen[key.UID] = append(out, inst), true
	}
	for _, l := range leftovers(owner, inv) {
		if !seen[l.Key.UID] {
			out, seen[l.Key.UID] = append(out, l), true
		}
	}
	sort.Slice(out, func(i, j int) bool {
		if a, b := out[i].Key, out[j].Key; a.Name != b.Name {
			return a.Name < b.Name
		}
		return out[i].Key.UID < out[j].Key.UID
	})
	return out, nil
}

// leftovers lists the parts that Delete would remove. Data disks that outlive
// their VM on purpose are none.
func leftovers(owner cloud.Owner, inv inventory) []cloud.Instance {
	var out []cloud.Instance
	add := func(tags map[string]*string, id, location *string, machine string, named bool) {
		if key, ours := keyOf(owner, tags, id, machine); ours && named {
			out = append(out, cloud.Instance{Key: key, State: cloud.StateLeftover, Region: value(location)})
		}
	}
	for _, n := range inv.nics {
		machine, named := strings.CutSuffix(value(n.Name), nicName(""))
		add(n.Tags, n.ID, n.Location, machine, named)
	}
	for _, d := range inv.disks {
		machine, named := strings.CutSuffix(value(d.Name), diskName(""))
		add(d.Tags, d.ID, d.Location, machine, named)
	}
	for _, ip := range inv.ips {
		machine, named := strings.CutPrefix(value(ip.Name), string(owner)+"-")
		add(ip.Tags, ip.ID, ip.Location, machine, named)
	}
	return out
}

// keyOf reads the key off a resource's tags and id, and whether it belongs to
// the owner.
func keyOf(owner cloud.Owner, tags map[string]*string, id *string, name string) (cloud.Key, bool) {
	uid := tag(tags, cloud.TagKey)
	if uid == "" || tag(tags, ownerTag(owner)) != ownedValue {
		return cloud.Key{}, false
	}
	return cloud.Key{UID: uid, Name: name, Scope: parseID(value(id)).group}, true
}

func vmNICs(vm *armcompute.VirtualMachine) []string {
	if vm.Properties == nil || vm.Properties.NetworkProfile == nil {
		return nil
	}
	var out []string
	for _, n := range vm.Properties.NetworkProfile.NetworkInterfaces {
		out = append(out, value(n.ID))
	}
	return out
}
