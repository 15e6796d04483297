package arm

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// prepareNIC checks the references of an interface, gives it addresses and
// completes it.
func (s *Server) prepareNIC(_ *call, old *resource, doc object) (commit, *Error) {
	configs := objects(doc, "properties", "ipConfigurations")
	if len(configs) == 0 {
		return nil, missingField("properties.ipConfigurations")
	}
	if e := s.checkNICReferences(doc, configs); e != nil {
		return nil, e
	}
	owner := lower(str(doc, "id"))
	had := map[string]string{} // config name → address
	if old != nil {
		for _, ip := range objects(old.Doc, "properties", "ipConfigurations") {
			had[str(ip, "name")] = str(ip, "properties", "privateIPAddress")
		}
		for _, f := range []string{"virtualMachine", "macAddress", "resourceGuid", "primary"} {
			if v := dig(old.Doc, "properties", f); v != nil {
				put(doc, v, "properties", f)
			}
		}
	}
	s.freeAddresses(owner)
	for i, ip := range configs {
		if e := s.assign(doc, ip, had[str(ip, "name")], i == 0 && len(configs) == 1); e != nil {
			s.freeAddresses(owner)
			s.reindex()
			return nil, e
		}
	}
	if old == nil {
		s.serial++
		put(doc, fmt.Sprintf("00-0D-3A-%02X-%02X-%02X", byte(s.serial>>16), byte(s.serial>>8), byte(s.serial)), "properties", "macAddress")
		put(doc, s.uuid(), "properties", "resourceGuid")
		put(doc, true, "properties", "primary")
	}
	if sub(doc, "properties", "dnsSettings") == nil {
		put(doc, object{"dnsServers": []any{}, "appliedDnsServers": []any{}}, "properties", "dnsSettings")
	}
	put(doc, s.domainSuffix(configs[0], str(doc, "location")), "properties", "dnsSettings", "internalDomainNameSuffix")
	return nil, nil
}

// domainSuffix is the same for every interface of a virtual network.
func (s *Server) domainSuffix(ip object, location string) string {
	vnet := lower(parentID(str(ip, "properties", "subnet", "id")))
	sum := sha256.Sum256([]byte(vnet))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:26]) + "." + regionNamed(location).dns + ".internal.cloudapp.net"
}

func badReference(target, from string) *Error {
	return fail(http.StatusBadRequest, "InvalidResourceReference", "Resource "+target+" referenced by resource "+from+" was not found. Please make sure that the referenced resource exists, and that both resources are in the same region.")
}

// checkNICReferences looks for subnets, security groups, pools and public
// addresses.
func (s *Server) checkNICReferences(doc object, configs []object) *Error {
	if e := s.wantReference(doc, kindNSG, str(doc, "properties", "networkSecurityGroup", "id")); e != nil {
		return e
	}
	from := str(doc, "id")
	for i, ip := range configs {
		if str(ip, "name") == "" {
			return missingField(fmt.Sprintf("properties.ipConfigurations[%d].name", i))
		}
		ip["id"] = from + "/ipConfigurations/" + str(ip, "name")
		ip["type"] = "Microsoft.Network/networkInterfaces/ipConfigurations"
		subnet := str(ip, "properties", "subnet", "id")
		if subnet == "" {
			return fail(http.StatusBadRequest, "SubnetIsRequired", "The IP configuration "+str(ip, "id")+" must reference a subnet.")
		}
		if s.child(subnet) == nil {
			return badReference(subnet, from)
		}
		public := str(ip, "properties", "publicIPAddress", "id")
		if e := s.wantReference(doc, kindIP, public); e != nil {
			return e
		}
		if e := s.checkPublicFree(public, from); e != nil {
			return e
		}
		for _, pool := range objects(ip, "properties", "loadBalancerBackendAddressPools") {
			if s.child(str(pool, "id")) == nil {
				return badReference(str(pool, "id"), from)
			}
		}
		for _, asg := range objects(ip, "properties", "applicationSecurityGroups") {
			if e := s.wantReference(doc, kindASG, str(asg, "id")); e != nil {
				return e
			}
		}
	}
	return nil
}

// wantReference checks that what doc refers to exists, is of the kind and in
// the same region. An empty reference is fine.
func (s *Server) wantReference(doc object, kindName, id string) *Error {
	if id == "" {
		return nil
	}
	r := s.resources[lower(id)]
	if r == nil || r.Kind != kindName || r.location() != str(doc, "location") {
		return badReference(id, str(doc, "id"))
	}
	return nil
}

func (s *Server) checkPublicFree(public, nic string) *Error {
	if public == "" {
		return nil
	}
	for _, r := range s.resources {
		if r.Kind != kindNIC || lower(r.id()) == lower(nic) {
			continue
		}
		for _, ip := range objects(r.Doc, "properties", "ipConfigurations") {
			if lower(str(ip, "properties", "publicIPAddress", "id")) == lower(public) {
				return fail(http.StatusBadRequest, "PublicIPAddressInUse", "Resource "+str(ip, "id")+" is referencing public IP address "+public+" that is already allocated to resource "+str(ip, "id")+".")
			}
		}
	}
	return nil
}

// assign gives one configuration its address.
func (s *Server) assign(doc, ip object, had string, only bool) *Error {
	subnetID := str(ip, "properties", "subnet", "id")
	v6 := strings.EqualFold(str(ip, "properties", "privateIPAddressVersion"), "IPv6")
	prefix, ok := prefixOf(s.child(subnetID), v6)
	if !ok {
		return fail(http.StatusBadRequest, "SubnetDoesNotHaveAddressPrefixOfVersion", "Subnet "+subnetID+" has no address prefix of the version that "+str(ip, "id")+" asks for.")
	}
	used := s.addressesOf(subnetID)
	owner := lower(str(doc, "id"))
	wanted := had
	static := strings.EqualFold(str(ip, "properties", "privateIPAllocationMethod"), "Static")
	if static {
		wanted = str(ip, "properties", "privateIPAddress")
	}
	addr, err := netip.ParseAddr(wanted)
	switch {
	case static && err != nil:
		return fail(http.StatusBadRequest, "PrivateIPAddressMissing", "IP configuration "+str(ip, "id")+" has allocation method Static and no valid private address.")
	case static && !prefix.Contains(addr):
		return fail(http.StatusBadRequest, "PrivateIPAddressNotInSubnet", "Private static IP address "+wanted+" does not belong to the range of subnet prefix "+prefix.String()+".")
	case static && used[addr] != "" && used[addr] != owner:
		return fail(http.StatusBadRequest, "PrivateIPAddressInUse", "IP configuration "+str(ip, "id")+" is using the private IP address "+wanted+" which is already allocated to resource "+used[addr]+".")
	case err != nil || !prefix.Contains(addr) || used[addr] != "":
		addr, ok = firstFree(prefix, used)
		if !ok {
			return fail(http.StatusBadRequest, "SubnetIsFull", "Subnet "+lastSegment(subnetID)+" with address prefix "+prefix.String()+" does not have enough capacity for 1 IP addresses.")
		}
	}
	used[addr] = owner
	recordAddress(ip, addr, static, only)
	return nil
}

// recordAddress writes what an assigned IP configuration shows.
func recordAddress(ip object, addr netip.Addr, static, only bool) {
	put(ip, addr.String(), "properties", "privateIPAddress")
	if !static {
		put(ip, "Dynamic", "properties", "privateIPAllocationMethod")
	}
	if str(ip, "properties", "privateIPAddressVersion") == "" {
		put(ip, "IPv4", "properties", "privateIPAddressVersion")
	}
	if only {
		put(ip, true, "properties", "primary")
	}
	put(ip, stateSucceeded, "properties", "provisioningState")
}

// prefixOf returns a subnet's prefix of one IP version.
func prefixOf(subnet object, v6 bool) (netip.Prefix, bool) {
	all := texts(subnet, "properties", "addressPrefixes")
	if p := str(subnet, "properties", "addressPrefix"); p != "" {
		all = append([]string{p}, all...)
	}
	for _, p := range all {
		if pre, err := netip.ParsePrefix(p); err == nil && pre.Addr().Is6() == v6 {
			return pre.Masked(), true
		}
	}
	return netip.Prefix{}, false
}

// firstFree skips the network address, the three that the cloud keeps and, in
// IPv4, the broadcast address.
func firstFree(p netip.Prefix, used map[netip.Addr]string) (netip.Addr, bool) {
	a := p.Addr()
	for range 4 {
		a = a.Next()
	}
	for ; a.IsValid() && p.Contains(a); a = a.Next() {
		if a.Is4() && !p.Contains(a.Next()) {
			break
		}
		if used[a] == "" {
			return a, true
		}
	}
	return netip.Addr{}, false
}

func (s *Server) addressesOf(subnetID string) map[netip.Addr]string {
	key := lower(subnetID)
	if s.addresses[key] == nil {
		s.addresses[key] = map[netip.Addr]string{}
	}
	return s.addresses[key]
}

func (s *Server) freeAddresses(owner string) {
	for _, used := range s.addresses {
		for a, o := range used {
			if o == owner {
				delete(used, a)
			}
		}
	}
}

// reindex rebuilds what is derived from the resources.
func (s *Server) reindex() {
	clear(s.addresses)
	for id, r := range s.resources {
		field := map[string]string{kindNIC: "ipConfigurations", kindLB: "frontendIPConfigurations"}[r.Kind]
		if field == "" {
			continue
		}
		for _, ip := range objects(r.Doc, "properties", field) {
			if a, err := netip.ParseAddr(str(ip, "properties", "privateIPAddress")); err == nil {
				s.addressesOf(str(ip, "properties", "subnet", "id"))[a] = id
			}
		}
	}
}

func (s *Server) nicHeld(r *resource) *Error {
	vm := str(r.Doc, "properties", "virtualMachine", "id")
	if vm == "" {
		return nil
	}
	return fail(http.StatusBadRequest, "NicInUse", "Network Interface "+r.id()+" is used by existing resource "+vm+". In order to delete the network interface, it must be dissociated from the resource. To learn more, see aka.ms/deletenic.")
}

// nicsIn returns the interfaces whose configurations hold a reference, with
// the configurations' ids.
func (s *Server) nicsIn(match func(ip object) bool) []string {
	var out []string
	for _, r := range s.resources {
		if r.Kind != kindNIC {
			continue
		}
		for _, ip := range objects(r.Doc, "properties", "ipConfigurations") {
			if match(ip) {
				out = append(out, str(ip, "id"))
			}
		}
	}
	slices.Sort(out)
	return out
}
