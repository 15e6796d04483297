package azure

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v8"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/provider/azure/spec"
)

// job is one Create on its way: the intent with everything that is derived
// from it once.
type job struct {
	in      cloud.Intent
	spec    *spec.Spec
	op      string
	group   string // of the VM
	network string // resource group of the network
	region  string
	tags    map[string]*string
	sku     *armcompute.ResourceSKU
	set     string // availability set; empty: none
}

// Create implements cloud.Cloud: public address, network interface,
// availability set, VM. What a call finds done it does not do again; what is
// still being made is waited for by coming back.
func (c *Cloud) Create(ctx context.Context, in cloud.Intent) (cloud.Instance, error) {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	if err := checkKey("create vm", in.Key); err != nil {
		return cloud.Instance{}, err
	}
	inst, err := c.observe(ctx, in.Key)
	if err == nil || cloud.KindOf(err) != cloud.NotFound {
		return inst, err
	}
	j, err := c.prepare(ctx, in)
	if err != nil {
		return cloud.Instance{}, err
	}
	pip, ready, err := c.ensurePublicIP(ctx, j)
	if err != nil || !ready {
		return j.pending(), err
	}
	nic, ready, err := c.ensureNIC(ctx, j, pip)
	if err != nil || !ready {
		return j.pending(), err
	}
	return c.createVM(ctx, j, nic)
}

// createVM makes the VM, and before it the availability set that it belongs
// to; its other parts exist.
func (c *Cloud) createVM(ctx context.Context, j *job, nic string) (cloud.Instance, error) {
	if j.set != "" && j.spec.AvailabilitySet == "" {
		if err := c.ensureSet(ctx, j); err != nil {
			return cloud.Instance{}, err
		}
	}
	vm, err := c.virtualMachine(j, nic)
	if err != nil {
		return cloud.Instance{}, err
	}
	// Nobody else's VM of this name may be overwritten, not even one that
	// appeared since we looked.
	_, err = c.vms.BeginCreateOrUpdate(ctx, j.group, j.in.Key.Name, vm, &armcompute.VirtualMachinesClientBeginCreateOrUpdateOptions{IfNoneMatch: to.Ptr("*")})
	if re := responseOf(err); err != nil && (re == nil || re.StatusCode != http.StatusPreconditionFailed) {
		return cloud.Instance{}, writeFault(j.op, fmt.Sprintf("failed to create vm %s: failed to create VM: cannot create vm: ", j.in.Key.Name), err)
	}
	inst, err := c.observe(ctx, j.in.Key)
	if cloud.KindOf(err) == cloud.NotFound {
		return j.pending(), nil // accepted, but not to be seen yet
	}
	return inst, err
}

func (j *job) pending() cloud.Instance {
	return cloud.Instance{Key: j.in.Key, State: cloud.StateCreating, Region: j.region, Zone: j.spec.Zone, Size: j.spec.VMSize,
		Pending: &cloud.Pending{Op: "create"}}
}

func (j *job) invalid(reason, text string) error {
	return &cloud.Fault{Kind: cloud.Invalid, Op: j.op, Reason: reason, Message: text}
}

// unusable says what keeps the spec from ever becoming a VM.
func unusable(s *spec.Spec, in cloud.Intent) string {
	switch {
	case s.Vnet == "":
		return "MachineConfig vnet is missing on machine " + in.Key.Name
	case s.Subnet == "":
		return "MachineConfig subnet is missing on machine " + in.Key.Name + ", skipping machine creation"
	case s.PublicIP && len(in.Owner)+1+len(in.Key.Name) > maxPublicIPName:
		return "unable to create Public IP: machine public IP name is longer than 63 characters"
	default:
		return ""
	}
}

func (c *Cloud) prepare(ctx context.Context, in cloud.Intent) (*job, error) {
	j := &job{in: in, op: "create vm " + in.Key.Name, group: c.groupOf(in.Key)}
	s, ok := in.Spec.(*spec.Spec)
	if !ok || s == nil {
		return nil, j.invalid("InvalidSpec", fmt.Sprintf("create vm %s: the spec is a %T, not an %s", in.Key.Name, in.Spec, spec.Kind))
	}
	j.spec, j.network, j.region = s, s.NetworkResourceGroup, s.Location
	if j.network == "" {
		j.network = c.group
	}
	if j.region == "" {
		j.region = c.region
	}
	if text := unusable(s, in); text != "" {
		return nil, j.invalid("InvalidConfiguration", text)
	}
	var err error
	if j.tags, err = tags(in, s.Tags); err != nil {
		return nil, err
	}
	if j.sku, err = c.sku(ctx, j.region, s.VMSize, j.op); err != nil {
		return nil, err
	}
	if s.AcceleratedNetworking && capability(j.sku, "AcceleratedNetworkingEnabled") != "True" {
		return nil, j.invalid("InvalidConfiguration", "accelerated networking not supported on instance type: "+s.VMSize)
	}
	switch {
	case s.AvailabilitySet != "":
		j.set = s.AvailabilitySet
	case len(zonesOf(j.sku)) > 0, in.Group == "", s.SpotVMOptions != nil:
	default:
		j.set = setName(in.Owner, in.Group)
	}
	return j, nil
}

// ensurePublicIP returns the id of the public address, empty when none is
// wanted, and whether it is ready.
func (c *Cloud) ensurePublicIP(ctx context.Context, j *job) (string, bool, error) {
	if !j.spec.PublicIP {
		return "", true, nil
	}
	name := string(j.in.Owner) + "-" + j.in.Key.Name
	prefix := fmt.Sprintf("failed to create public ip %s for machine %s: ", name, j.in.Key.Name)
	got, err := c.ips.Get(ctx, j.group, name, nil)
	switch {
	case isNotFound(err):
	case err != nil:
		return "", false, networkFault(j.op, prefix, err)
	case !owned(got.Tags, j.in.Key):
		return "", false, foreign(j.op, "public IP address", name, got.Tags)
	case got.Properties != nil && value(got.Properties.ProvisioningState) == armnetwork.ProvisioningStateSucceeded:
		return value(got.ID), true, nil
	case got.Properties != nil && value(got.Properties.ProvisioningState) != armnetwork.ProvisioningStateFailed:
		return "", false, nil
	}
	poller, err := c.ips.BeginCreateOrUpdate(ctx, j.group, name, armnetwork.PublicIPAddress{
		Location: &j.region, Tags: j.tags,
		SKU: &armnetwork.PublicIPAddressSKU{Name: to.Ptr(armnetwork.PublicIPAddressSKUNameStandard)},
		Properties: &armnetwork.PublicIPAddressPropertiesFormat{
			PublicIPAddressVersion: to.Ptr(armnetwork.IPVersionIPv4), PublicIPAllocationMethod: to.Ptr(armnetwork.IPAllocationMethodStatic),
			DNSSettings: &armnetwork.PublicIPAddressDNSSettings{DomainNameLabel: to.Ptr(strings.ToLower(name))},
		},
	}, nil)
	if err != nil {
		return "", false, networkFault(j.op, prefix, err)
	}
	return c.id(j.group, "Microsoft.Network", "publicIPAddresses", name), poller.Done(), nil
}

// ensureNIC returns the id of the network interface and whether it is ready.
// One that failed to provision is written again, and the failure is told.
func (c *Cloud) ensureNIC(ctx context.Context, j *job, publicIP string) (string, bool, error) {
	name := nicName(j.in.Key.Name)
	prefix := fmt.Sprintf("failed to create nic %s for machine %s: ", name, j.in.Key.Name)
	got, err := c.nics.Get(ctx, j.group, name, nil)
	switch {
	case isNotFound(err):
	case err != nil:
		return "", false, networkFault(j.op, prefix, err)
	case !owned(got.Tags, j.in.Key):
		return "", false, foreign(j.op, "network interface", name, got.Tags)
	case got.Properties != nil && value(got.Properties.ProvisioningState) == armnetwork.ProvisioningStateSucceeded:
		return value(got.ID), true, nil
	case got.Properties != nil && value(got.Properties.ProvisioningState) != armnetwork.ProvisioningStateFailed:
		return "", false, nil // being made, changed or deleted
	}
	broken := err == nil
	nic, err := c.networkInterface(ctx, j, publicIP)
	if err != nil {
		return "", false, networkFault(j.op, prefix, err)
	}
	poller, err := c.nics.BeginCreateOrUpdate(ctx, j.group, name, nic, nil)
	if err != nil {
		return "", false, networkFault(j.op, prefix, err)
	}
	if broken {
		return "", false, &cloud.Fault{Kind: cloud.Transient, Op: j.op, Reason: "ProvisioningFailed", Message: prefix + "network interface " + name + " failed to provision"}
	}
	return c.id(j.group, "Microsoft.Network", "networkInterfaces", name), poller.Done(), nil
}

// networkInterface builds the interface: it reads the subnet (an IPv6 prefix
// asks for a second configuration) and the load balancers whose pools the
// interface joins.
func (c *Cloud) networkInterface(ctx context.Context, j *job, publicIP string) (armnetwork.Interface, error) {
	s := j.spec
	subnet, err := c.subnets.Get(ctx, j.network, s.Vnet, s.Subnet, nil)
	if err != nil {
		return armnetwork.Interface{}, fmt.Errorf("get subnet %s of %s: %w", s.Subnet, s.Vnet, err)
	}
	v4 := &armnetwork.InterfaceIPConfigurationPropertiesFormat{
		Subnet: &armnetwork.Subnet{ID: subnet.ID}, PrivateIPAllocationMethod: to.Ptr(armnetwork.IPAllocationMethodDynamic), Primary: to.Ptr(true),
	}
	v6 := &armnetwork.InterfaceIPConfigurationPropertiesFormat{
		Subnet: &armnetwork.Subnet{ID: subnet.ID}, PrivateIPAddressVersion: to.Ptr(armnetwork.IPVersionIPv6),
		PrivateIPAllocationMethod: to.Ptr(armnetwork.IPAllocationMethodDynamic),
	}
	if publicIP != "" {
		v4.PublicIPAddress = &armnetwork.PublicIPAddress{ID: &publicIP}
	}
	for _, name := range []string{s.PublicLoadBalancer, s.InternalLoadBalancer} {
		if name == "" {
			continue
		}
		lb, err := c.lbs.Get(ctx, j.network, name, nil)
		if err != nil {
			return armnetwork.Interface{}, fmt.Errorf("get load balancer %s: %w", name, err)
		}
		if err := join(v4, v6, &lb.LoadBalancer); err != nil {
			return armnetwork.Interface{}, err
		}
		if name == s.PublicLoadBalancer && s.NatRule != nil {
			rules := lb.Properties.InboundNatRules
			if n := *s.NatRule; n < 0 || n >= int64(len(rules)) {
				return armnetwork.Interface{}, fmt.Errorf("load balancer %s has %d inbound NAT rules, natRule is %d", name, len(rules), n)
			}
			v4.LoadBalancerInboundNatRules = []*armnetwork.InboundNatRule{{ID: rules[*s.NatRule].ID}}
		}
	}
	for _, asg := range s.ApplicationSecurityGroups {
		id := c.id(j.network, "Microsoft.Network", "applicationSecurityGroups", asg)
		v4.ApplicationSecurityGroups = append(v4.ApplicationSecurityGroups, &armnetwork.ApplicationSecurityGroup{ID: &id})
	}
	nic := armnetwork.Interface{Location: &j.region, Tags: j.tagsWithSet(), Properties: &armnetwork.InterfacePropertiesFormat{
		EnableAcceleratedNetworking: &s.AcceleratedNetworking,
		IPConfigurations:            []*armnetwork.InterfaceIPConfiguration{{Name: to.Ptr(ipConfigName), Properties: v4}},
	}}
	if hasIPv6(&subnet.Subnet) {
		nic.Properties.IPConfigurations = append(nic.Properties.IPConfigurations, &armnetwork.InterfaceIPConfiguration{Name: to.Ptr(ipConfigNameV6), Properties: v6})
	}
	if s.SecurityGroup != "" {
		id := c.id(j.network, "Microsoft.Network", "networkSecurityGroups", s.SecurityGroup)
		nic.Properties.NetworkSecurityGroup = &armnetwork.SecurityGroup{ID: &id}
	}
	return nic, nil
}

// join adds the pools of a load balancer; those named -v6 take IPv6.
func join(v4, v6 *armnetwork.InterfaceIPConfigurationPropertiesFormat, lb *armnetwork.LoadBalancer) error {
	if lb.Properties == nil {
		return fmt.Errorf("load balancer %s has no properties", value(lb.Name))
	}
	for _, pool := range lb.Properties.BackendAddressPools {
		to := v4
		if strings.HasSuffix(value(pool.Name), "-v6") {
			to = v6
		}
		to.LoadBalancerBackendAddressPools = append(to.LoadBalancerBackendAddressPools, &armnetwork.BackendAddressPool{ID: pool.ID})
	}
	return nil
}

func hasIPv6(s *armnetwork.Subnet) bool {
	if s.Properties == nil {
		return false
	}
	prefixes := append([]*string{s.Properties.AddressPrefix}, s.Properties.AddressPrefixes...)
	for _, p := range prefixes {
		if strings.Contains(value(p), ":") {
			return true
		}
	}
	return false
}

// tagsWithSet adds the availability set that Create makes, so that Delete
// finds it when the VM is gone.
func (j *job) tagsWithSet() map[string]*string {
	if j.set == "" || j.spec.AvailabilitySet != "" {
		return j.tags
	}
	out := map[string]*string{tagSet: &j.set}
	for k, v := range j.tags {
		out[k] = v
	}
	return out
}

// ensureSet makes the availability set of the group. It belongs to the
// cluster, not to one instance, so it carries no key.
func (c *Cloud) ensureSet(ctx context.Context, j *job) error {
	prefix := fmt.Sprintf("failed to create availability set %s for machine %s: ", j.set, j.in.Key.Name)
	got, err := c.sets.Get(ctx, j.group, j.set, nil)
	switch {
	case err == nil && tag(got.Tags, ownerTag(j.in.Owner)) == "":
		return foreign(j.op, "availability set", j.set, got.Tags)
	case err == nil:
		return nil
	case !isNotFound(err):
		return writeFault(j.op, prefix, err)
	}
	stock, err := c.shelfOf(ctx, j.region)
	if err != nil {
		return err
	}
	domains := int32(max(1, stock.faultDomains))
	updates := int32(5)
	if domains == 1 {
		updates = 1
	}
	shared := map[string]*string{}
	for k, v := range j.tags {
		if k != cloud.TagKey {
			shared[k] = v
		}
	}
	_, err = c.sets.CreateOrUpdate(ctx, j.group, j.set, armcompute.AvailabilitySet{
		Location: &j.region, Tags: shared, SKU: &armcompute.SKU{Name: to.Ptr(alignedSet)},
		Properties: &armcompute.AvailabilitySetProperties{PlatformFaultDomainCount: &domains, PlatformUpdateDomainCount: &updates},
	}, nil)
	if err != nil {
		return writeFault(j.op, prefix, err)
	}
	return nil
}
