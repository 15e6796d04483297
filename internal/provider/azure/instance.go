package azure

import (
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v8"
	corev1 "k8s.io/api/core/v1"

	"millwright.io/millwright/internal/cloud"
)

// instanceOf translates a VM, all but its addresses.
func instanceOf(key cloud.Key, vm *armcompute.VirtualMachine) (cloud.Instance, error) {
	p := vm.Properties
	if p == nil || value(p.ProvisioningState) == "" {
		return cloud.Instance{}, &cloud.Fault{Kind: cloud.Transient, Op: "get vm " + key.Name, Reason: "NoProvisioningState",
			Message: "vm for machine " + key.Name + " does not report ProvisioningState"}
	}
	inst := cloud.Instance{
		Key: key, ID: value(vm.ID), ProviderID: providerID(value(vm.ID), computerName(vm)),
		Region: value(vm.Location), Interruptible: value(p.Priority) == armcompute.VirtualMachinePriorityTypesSpot,
	}
	var zones []string
	for _, z := range vm.Zones {
		zones = append(zones, value(z))
	}
	inst.Zone = strings.Join(zones, ",")
	if p.HardwareProfile != nil {
		inst.Size = string(value(p.HardwareProfile.VMSize))
	}
	inst.State, inst.Pending = stateOf(p)
	if inst.State == cloud.StateFailed {
		inst.Fault = provisioningFault(key.Name, p.InstanceView)
	}
	return inst, nil
}

// stateOf follows the order in which users know it: a running operation, then
// the power state, then a failed provisioning.
func stateOf(p *armcompute.VirtualMachineProperties) (cloud.State, *cloud.Pending) {
	switch value(p.ProvisioningState) {
	case "Creating":
		return cloud.StateCreating, &cloud.Pending{Op: "create"}
	case "Updating":
		return cloud.StateUpdating, &cloud.Pending{Op: "update"}
	case "Deleting":
		return cloud.StateDeleting, &cloud.Pending{Op: "delete"}
	case "Migrating":
		return cloud.StateUnknown, &cloud.Pending{Op: "migrate"}
	}
	switch power := powerOf(p.InstanceView); power {
	case "running":
		return cloud.StateRunning, nil
	case "starting":
		return cloud.StateStarting, &cloud.Pending{Op: "start"}
	case "stopping":
		return cloud.StateStopping, &cloud.Pending{Op: "stop"}
	case "stopped":
		return cloud.StateStopped, nil
	case "deallocating":
		return cloud.StateDeallocating, &cloud.Pending{Op: "deallocate"}
	case "deallocated":
		return cloud.StateDeallocated, nil
	case "":
		if value(p.ProvisioningState) == "Failed" {
			return cloud.StateFailed, nil
		}
	}
	return cloud.StateUnknown, nil
}

func powerOf(view *armcompute.VirtualMachineInstanceView) string {
	if view == nil {
		return ""
	}
	for _, s := range view.Statuses {
		if power, ok := strings.CutPrefix(value(s.Code), "PowerState/"); ok {
			return strings.ToLower(power)
		}
	}
	return ""
}

// provisioningFault reads why provisioning failed: the instance view carries
// ProvisioningState/failed/<code> with a text.
func provisioningFault(name string, view *armcompute.VirtualMachineInstanceView) *cloud.Fault {
	f := &cloud.Fault{Kind: cloud.Transient, Op: "create vm " + name, Message: "vm has unexpected 'Failed' provisioning state"}
	if view == nil {
		return f
	}
	for _, s := range view.Statuses {
		code, ok := strings.CutPrefix(value(s.Code), "ProvisioningState/failed")
		if !ok {
			continue
		}
		f.Reason = strings.TrimPrefix(code, "/")
		text := value(s.Message)
		if f.Reason != "" {
			f.Kind, f.Quota = kindOfCode(f.Reason, text, 409)
			f.Message += ": " + f.Reason
		}
		if text != "" {
			f.Message += ": " + text
		}
	}
	return f
}

func computerName(vm *armcompute.VirtualMachine) string {
	if vm.Properties != nil && vm.Properties.OSProfile != nil {
		if n := value(vm.Properties.OSProfile.ComputerName); n != "" {
			return n
		}
	}
	return value(vm.Name)
}

func nicRefs(vm *armcompute.VirtualMachine) []ref {
	var out []ref
	for _, id := range vmNICs(vm) {
		if r := parseID(id); r.name != "" {
			out = append(out, r)
		}
	}
	return out
}

func ipConfigs(nic *armnetwork.Interface) []*armnetwork.InterfaceIPConfigurationPropertiesFormat {
	if nic.Properties == nil {
		return nil
	}
	var out []*armnetwork.InterfaceIPConfigurationPropertiesFormat
	for _, c := range nic.Properties.IPConfigurations {
		if c.Properties != nil {
			out = append(out, c.Properties)
		}
	}
	return out
}

// addresses lists what a Machine's status shows, in its order. The first
// InternalDNS is the computer name: the name that the Node will have.
func addresses(computer string, nics []*armnetwork.Interface, public map[string]*armnetwork.PublicIPAddress) []corev1.NodeAddress {
	out := []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: computer},
		{Type: corev1.NodeInternalDNS, Address: computer},
	}
	add := func(t corev1.NodeAddressType, a string) {
		if a != "" {
			out = append(out, corev1.NodeAddress{Type: t, Address: a})
		}
	}
	for _, nic := range nics {
		if nic.Properties != nil && nic.Properties.DNSSettings != nil {
			if suffix := value(nic.Properties.DNSSettings.InternalDomainNameSuffix); suffix != "" {
				add(corev1.NodeInternalDNS, computer+"."+suffix)
			}
		}
		for _, ip := range ipConfigs(nic) {
			add(corev1.NodeInternalIP, value(ip.PrivateIPAddress))
			if ip.PublicIPAddress == nil {
				continue
			}
			pub := public[strings.ToLower(value(ip.PublicIPAddress.ID))]
			if pub == nil || pub.Properties == nil {
				continue
			}
			add(corev1.NodeExternalIP, value(pub.Properties.IPAddress))
			if d := pub.Properties.DNSSettings; d != nil {
				add(corev1.NodeExternalDNS, value(d.Fqdn))
			}
		}
	}
	return out
}
