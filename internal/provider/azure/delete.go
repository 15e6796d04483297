package azure

import (
	"context"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v8"

	"millwright.io/millwright/internal/cloud"
)

// Delete implements cloud.Cloud: the VM first, once it is gone its OS disk and
// network interface, then what they held. Data disks are Azure's to delete or
// keep, as the VM said when it was made.
func (c *Cloud) Delete(ctx context.Context, key cloud.Key) error {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	if err := checkKey("delete vm", key); err != nil {
		return err
	}
	left, err := c.deleteVM(ctx, key)
	if err != nil || left {
		return err
	}
	disk, err := c.deleteDisk(ctx, key)
	if err != nil {
		return err
	}
	nic, err := c.deleteNIC(ctx, key)
	if err != nil || disk || nic {
		return err
	}
	ips, err := c.deletePublicIPs(ctx, key)
	if err != nil || ips {
		return err
	}
	return &cloud.Fault{Kind: cloud.NotFound, Op: "delete vm " + key.Name, Reason: codeNotFound}
}

// gone says that an error means the resource cannot be there: it is missing,
// or its whole resource group is.
func gone(err error) bool {
	re := responseOf(err)
	return isNotFound(err) || re != nil && re.StatusCode == 404 && re.ErrorCode == "ResourceGroupNotFound"
}

// deleteVM starts the deletion of the VM and says whether it is still there.
func (c *Cloud) deleteVM(ctx context.Context, key cloud.Key) (bool, error) {
	group, op := c.groupOf(key), "delete vm "+key.Name
	got, err := c.vms.Get(ctx, group, key.Name, nil)
	switch {
	case gone(err):
		return false, nil
	case err != nil:
		return false, fault(op, "", err)
	case !owned(got.Tags, key):
		return false, nil // somebody else's; parts of ours may still exist
	case got.Properties != nil && value(got.Properties.ProvisioningState) == "Deleting":
		return true, nil
	}
	if err := c.claimDisk(ctx, key, &got.VirtualMachine); err != nil {
		return true, err
	}
	if _, err := c.vms.BeginDelete(ctx, group, key.Name, nil); err != nil && !gone(err) {
		return true, writeFault(op, fmt.Sprintf("failed to delete vm %s in resource group %s: ", key.Name, group), err)
	}
	return true, nil
}

// claimDisk makes sure that the OS disk carries our key while its VM still
// proves whose it is. Azure gives a new disk its VM's tags, but not the tags
// that a VM got later.
func (c *Cloud) claimDisk(ctx context.Context, key cloud.Key, vm *armcompute.VirtualMachine) error {
	group, name := c.groupOf(key), diskName(key.Name)
	got, err := c.disks.Get(ctx, group, name, nil)
	if gone(err) {
		return nil
	}
	if err != nil {
		return fault("get disk "+name, "", err)
	}
	if owned(got.Tags, key) || !sameID(value(got.ManagedBy), value(vm.ID)) {
		return nil
	}
	all := map[string]*string{}
	for k, v := range got.Tags {
		all[k] = v
	}
	for k, v := range vm.Tags {
		all[k] = v
	}
	if _, err := c.disks.BeginUpdate(ctx, group, name, armcompute.DiskUpdate{Tags: all}, nil); err != nil && !gone(err) {
		return writeFault("tag disk "+name, "", err)
	}
	return nil
}

func (c *Cloud) deleteDisk(ctx context.Context, key cloud.Key) (bool, error) {
	group, name := c.groupOf(key), diskName(key.Name)
	op := "delete disk " + name
	got, err := c.disks.Get(ctx, group, name, nil)
	switch {
	case gone(err):
		return false, nil
	case err != nil:
		return false, fault(op, "", err)
	case !owned(got.Tags, key):
		return false, nil
	case got.Properties != nil && value(got.Properties.ProvisioningState) == "Deleting":
		return true, nil
	}
	if _, err := c.disks.BeginDelete(ctx, group, name, nil); err != nil && !gone(err) {
		return true, writeFault(op, "failed to delete OS disk "+name+": ", err)
	}
	return true, nil
}

func (c *Cloud) deleteNIC(ctx context.Context, key cloud.Key) (bool, error) {
	group, name := c.groupOf(key), nicName(key.Name)
	op := "delete nic " + name
	got, err := c.nics.Get(ctx, group, name, nil)
	switch {
	case gone(err):
		return false, nil
	case err != nil:
		return false, fault(op, "", err)
	case !owned(got.Tags, key):
		return false, nil
	}
	if err := c.deleteEmptySet(ctx, group, tag(got.Tags, tagSet)); err != nil {
		return true, err
	}
	if got.Properties != nil && value(got.Properties.ProvisioningState) == armnetwork.ProvisioningStateDeleting {
		return true, nil
	}
	if _, err := c.nics.BeginDelete(ctx, group, name, nil); err != nil && !gone(err) {
		return true, networkFault(op, fmt.Sprintf("failed to delete nic %s for machine %s: ", name, key.Name), err)
	}
	return true, nil
}

// deleteEmptySet removes the availability set that Create made, when no VM is
// in it any more. One that is in use, or was put to use meanwhile, stays.
func (c *Cloud) deleteEmptySet(ctx context.Context, group, name string) error {
	if name == "" {
		return nil
	}
	op := "delete availability set " + name
	got, err := c.sets.Get(ctx, group, name, nil)
	if gone(err) {
		return nil
	}
	if err != nil {
		return fault(op, "", err)
	}
	if got.Properties != nil && len(got.Properties.VirtualMachines) > 0 {
		return nil
	}
	if _, err := c.sets.Delete(ctx, group, name, nil); err != nil && !gone(err) {
		if re := responseOf(err); re != nil && re.StatusCode == 409 {
			return nil
		}
		return writeFault(op, "", err)
	}
	return nil
}

// deletePublicIPs removes public addresses by their tag: their name holds the
// cluster's name, which a key does not know.
func (c *Cloud) deletePublicIPs(ctx context.Context, key cloud.Key) (bool, error) {
	group := c.groupOf(key)
	op := "delete public addresses of " + key.Name
	left := false
	for pager := c.ips.NewListPager(group, nil); pager.More(); {
		page, err := pager.NextPage(ctx)
		if gone(err) {
			return false, nil
		}
		if err != nil {
			return false, fault(op, "", err)
		}
		for _, ip := range page.Value {
			if !owned(ip.Tags, key) {
				continue
			}
			left = true
			if ip.Properties != nil && value(ip.Properties.ProvisioningState) == armnetwork.ProvisioningStateDeleting {
				continue
			}
			if _, err := c.ips.BeginDelete(ctx, group, value(ip.Name), nil); err != nil && !gone(err) {
				return true, networkFault(op, "unable to delete Public IP: ", err)
			}
		}
	}
	return left, nil
}
