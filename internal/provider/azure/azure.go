// Package azure runs instances on Azure through the official SDK. It knows
// ARM's paths, tags, long operations and error codes, and turns them into the
// values of package cloud; it decides nothing about Machines.
//
// An instance is a VM, its network interface, its OS disk and, on request, a
// public address and an availability set. Each carries the owner's UID as a
// tag, and only what carries it is ever changed or deleted: a name says where
// to look, never whose it is. Long operations are started and left alone; the
// next call sees how they ended.
//
//	opener := azure.NewOpener(azure.WithCloud(endpoint, authority), azure.WithCA(pem))
//	cl, err := opener.Open(ctx, account)
package azure

import (
	"context"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v8"
	"k8s.io/utils/clock"

	"millwright.io/millwright/internal/cloud"
)

// Cloud is one subscription with one default resource group and region. It
// implements cloud.Cloud, cloud.Catalog and cloud.PowerCycler.
type Cloud struct {
	subscription string
	group        string
	region       string
	timeout      time.Duration
	clk          clock.PassiveClock

	vms     *armcompute.VirtualMachinesClient
	disks   *armcompute.DisksClient
	sets    *armcompute.AvailabilitySetsClient
	skus    *armcompute.ResourceSKUsClient
	nics    *armnetwork.InterfacesClient
	ips     *armnetwork.PublicIPAddressesClient
	subnets *armnetwork.SubnetsClient
	lbs     *armnetwork.LoadBalancersClient
	regions regionLister

	market market
}

var (
	_ cloud.Cloud       = (*Cloud)(nil)
	_ cloud.Catalog     = (*Cloud)(nil)
	_ cloud.PowerCycler = (*Cloud)(nil)
)

// limit gives a method its deadline.
func (c *Cloud) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.timeout)
}

func (c *Cloud) groupOf(key cloud.Key) string {
	if key.Scope != "" {
		return key.Scope
	}
	return c.group
}

// Observe implements cloud.Cloud.
func (c *Cloud) Observe(ctx context.Context, key cloud.Key) (cloud.Instance, error) {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	if err := checkKey("get vm", key); err != nil {
		return cloud.Instance{}, err
	}
	return c.observe(ctx, key)
}

func (c *Cloud) observe(ctx context.Context, key cloud.Key) (cloud.Instance, error) {
	op := "get vm " + key.Name
	vm, err := c.ownVM(ctx, key)
	if err != nil {
		return cloud.Instance{}, err
	}
	inst, err := instanceOf(key, vm)
	if err != nil {
		return cloud.Instance{}, err
	}
	var nics []*armnetwork.Interface
	for _, ref := range nicRefs(vm) {
		nic, err := c.nics.Get(ctx, ref.group, ref.name, nil)
		if isNotFound(err) {
			continue
		}
		if err != nil {
			return cloud.Instance{}, fault(op, "", err)
		}
		nics = append(nics, &nic.Interface)
	}
	public, err := c.publicAddresses(ctx, op, nics)
	if err != nil {
		return cloud.Instance{}, err
	}
	inst.Addresses = addresses(computerName(vm), nics, public)
	return inst, nil
}

// ownVM reads the VM of that name: a NotFound fault when there is none, a
// Conflict when it carries another key.
func (c *Cloud) ownVM(ctx context.Context, key cloud.Key) (*armcompute.VirtualMachine, error) {
	op := "get vm " + key.Name
	view := armcompute.InstanceViewTypesInstanceView
	got, err := c.vms.Get(ctx, c.groupOf(key), key.Name, &armcompute.VirtualMachinesClientGetOptions{Expand: &view})
	if err != nil {
		return nil, fault(op, "", err)
	}
	if !owned(got.Tags, key) {
		return nil, foreign(op, "virtual machine", key.Name, got.Tags)
	}
	return &got.VirtualMachine, nil
}

// publicAddresses reads the public addresses that interfaces refer to, by
// lower-cased id.
func (c *Cloud) publicAddresses(ctx context.Context, op string, nics []*armnetwork.Interface) (map[string]*armnetwork.PublicIPAddress, error) {
	out := map[string]*armnetwork.PublicIPAddress{}
	for _, nic := range nics {
		for _, ip := range ipConfigs(nic) {
			if ip.PublicIPAddress == nil || ip.PublicIPAddress.ID == nil {
				continue
			}
			ref := parseID(*ip.PublicIPAddress.ID)
			got, err := c.ips.Get(ctx, ref.group, ref.name, nil)
			if isNotFound(err) {
				continue
			}
			if err != nil {
				return nil, fault(op, "", err)
			}
			out[strings.ToLower(*ip.PublicIPAddress.ID)] = &got.PublicIPAddress
		}
	}
	return out, nil
}

// Update implements cloud.Cloud. Nothing of a VM is changed in place, as its
// users are used to; the instance is returned as it is.
func (c *Cloud) Update(ctx context.Context, key cloud.Key, _ cloud.Intent) (cloud.Instance, error) {
	return c.Observe(ctx, key)
}

// Restart implements cloud.PowerCycler.
func (c *Cloud) Restart(ctx context.Context, key cloud.Key) error {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	if err := checkKey("restart vm", key); err != nil {
		return err
	}
	if _, err := c.ownVM(ctx, key); err != nil {
		return err
	}
	if _, err := c.vms.BeginRestart(ctx, c.groupOf(key), key.Name, nil); err != nil {
		return fault("restart vm "+key.Name, "", err)
	}
	return nil
}

func checkKey(op string, key cloud.Key) error {
	if key.UID == "" || key.Name == "" {
		return &cloud.Fault{Kind: cloud.Invalid, Op: op + " " + key.Name, Reason: "InvalidKey",
			Message: op + " " + key.Name + ": the key needs a name and a UID"}
	}
	return nil
}
