package arm

import (
	"strings"
	"sync"
)

// Kinds that code asks for by name. The name is also the first half of an
// operation's name.
const (
	kindVM      = "vm"
	kindNIC     = "nic"
	kindDisk    = "disk"
	kindSubnet  = "subnet"
	kindVNet    = "vnet"
	kindNSG     = "nsg"
	kindLB      = "lb"
	kindIP      = "publicip"
	kindSet     = "availabilityset"
	kindVersion = "imageversion"
	kindImage   = "image"
	kindGroup   = "resourcegroup"
	kindID      = "identity"
	kindASG     = "asg"
)

// commit does what a PUT does to other resources, once it is accepted.
type commit func(r *resource)

// kind is one resource type.
type kind struct {
	name   string
	typ    string // as ARM spells it
	fields string // its rules in the generated table; empty: none
	// embedded is the list property of the parent that holds the resource.
	embedded string
	// slow kinds take time to make and to remove.
	slow bool
	// untracked kinds have no location of their own.
	untracked bool
}

// hooks are what a kind does beyond being stored. They are apart from the
// table because they look kinds up.
type hooks struct {
	// prepare checks a PUT and completes doc. old is nil on create.
	prepare func(c *call, old *resource, doc object) (commit, *Error)
	// held says why the resource cannot be deleted now.
	held func(r *resource) *Error
}

func (s *Server) hooks(k *kind) hooks {
	switch k.name {
	case kindVM:
		return hooks{prepare: s.prepareVM}
	case kindDisk:
		return hooks{s.prepareDisk, s.diskHeld}
	case kindSet:
		return hooks{s.prepareSet, s.setHeld}
	case kindNIC:
		return hooks{s.prepareNIC, s.nicHeld}
	case kindVNet:
		return hooks{s.prepareVNet, s.vnetHeld}
	case kindNSG:
		return hooks{s.prepareChildren, s.referenced}
	case kindLB:
		return hooks{s.prepareLB, s.lbHeld}
	case kindIP:
		return hooks{s.prepareIP, s.ipHeld}
	case kindID:
		return hooks{prepare: s.prepareIdentity}
	case kindASG:
		return hooks{held: s.referenced}
	case "gallery", "galleryimage":
		return hooks{held: s.hasChildren}
	}
	return hooks{}
}

func kinds() []kind {
	return []kind{
		{name: kindVM, typ: "Microsoft.Compute/virtualMachines", fields: "compute.VirtualMachine", slow: true},
		{name: kindDisk, typ: "Microsoft.Compute/disks", fields: "compute.Disk", slow: true},
		{name: kindSet, typ: "Microsoft.Compute/availabilitySets", fields: "compute.AvailabilitySet"},
		{name: "gallery", typ: "Microsoft.Compute/galleries", fields: "compute.Gallery"},
		{name: "galleryimage", typ: "Microsoft.Compute/galleries/images", fields: "compute.GalleryImage"},
		{name: kindVersion, typ: "Microsoft.Compute/galleries/images/versions", fields: "compute.GalleryImageVersion"},
		{name: kindImage, typ: "Microsoft.Compute/images", fields: "compute.Image"},
		{name: kindNIC, typ: "Microsoft.Network/networkInterfaces", fields: "network.Interface", slow: true},
		{name: kindVNet, typ: "Microsoft.Network/virtualNetworks", fields: "network.VirtualNetwork"},
		{name: kindSubnet, typ: "Microsoft.Network/virtualNetworks/subnets", fields: "network.Subnet", embedded: "subnets", untracked: true},
		{name: kindNSG, typ: "Microsoft.Network/networkSecurityGroups", fields: "network.SecurityGroup"},
		{name: "securityrule", typ: "Microsoft.Network/networkSecurityGroups/securityRules", fields: "network.SecurityRule", embedded: "securityRules", untracked: true},
		{name: kindLB, typ: "Microsoft.Network/loadBalancers", fields: "network.LoadBalancer"},
		{name: "backendpool", typ: "Microsoft.Network/loadBalancers/backendAddressPools", fields: "network.BackendAddressPool", embedded: "backendAddressPools", untracked: true},
		{name: kindIP, typ: "Microsoft.Network/publicIPAddresses", fields: "network.PublicIPAddress"},
		{name: kindASG, typ: "Microsoft.Network/applicationSecurityGroups", fields: "network.ApplicationSecurityGroup"},
		{name: kindID, typ: "Microsoft.ManagedIdentity/userAssignedIdentities"},
		{name: kindGroup, typ: "Microsoft.Resources/resourceGroups"},
	}
}

// kindTable indexes kinds once, at first use.
var kindTable = sync.OnceValue(func() kindIndex {
	x := kindIndex{byName: map[string]*kind{}, byType: map[string]*kind{}}
	for _, k := range kinds() {
		x.byName[k.name], x.byType[strings.ToLower(k.typ)] = &k, &k
	}
	return x
})

type kindIndex struct{ byName, byType map[string]*kind }

func kindNamed(name string) *kind { return kindTable().byName[name] }

func kindOfType(typ string) *kind { return kindTable().byType[strings.ToLower(typ)] }

// Ops lists every operation that Fail, Slow and Requests know.
func Ops() []string {
	ops := []string{"token", "operation.get", "sku.list", "usage.list", "subscription.get"}
	for _, k := range kinds() {
		for _, v := range []string{"get", "list", "put", "patch", "delete"} {
			ops = append(ops, k.name+"."+v)
		}
	}
	return append(ops, "vm.start", "vm.poweroff", "vm.deallocate", "vm.restart", "vm.redeploy")
}
