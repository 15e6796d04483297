package arm

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// childLists are the lists inside a parent whose elements have identifiers.
var childLists = []string{"subnets", "securityRules", "backendAddressPools", "frontendIPConfigurations", "loadBalancingRules", "probes", "inboundNatRules", "outboundRules"}

// child finds an embedded resource by its identifier.
func (s *Server) child(id string) object {
	parent := s.resources[lower(parentID(id))]
	if parent == nil {
		return nil
	}
	for _, list := range childLists {
		for _, ch := range objects(parent.Doc, "properties", list) {
			if lower(str(ch, "id")) == lower(id) {
				return ch
			}
		}
	}
	return nil
}

// prepareChildren gives the embedded resources their identity. A list that the
// body leaves out is kept.
func (s *Server) prepareChildren(_ *call, old *resource, doc object) (commit, *Error) {
	for _, list := range childLists {
		if old != nil && dig(doc, "properties", list) == nil {
			if v := dig(old.Doc, "properties", list); v != nil {
				put(doc, cloneValue(v), "properties", list)
			}
		}
		seen := map[string]bool{}
		for i, ch := range objects(doc, "properties", list) {
			name := str(ch, "name")
			if name == "" {
				return nil, missingField(fmt.Sprintf("properties.%s[%d].name", list, i))
			}
			if seen[strings.ToLower(name)] {
				return nil, fail(http.StatusBadRequest, "DuplicateResourceName", "Resource "+str(doc, "id")+" has two child resources with the same name ("+name+").")
			}
			seen[strings.ToLower(name)] = true
			ch["id"] = str(doc, "id") + "/" + list + "/" + name
			ch["type"] = str(doc, "type") + "/" + list
			put(ch, stateSucceeded, "properties", "provisioningState")
		}
	}
	return nil, nil
}

func (s *Server) prepareVNet(c *call, old *resource, doc object) (commit, *Error) {
	spaces := texts(doc, "properties", "addressSpace", "addressPrefixes")
	if len(spaces) == 0 {
		return nil, missingField("properties.addressSpace.addressPrefixes")
	}
	for _, sn := range objects(doc, "properties", "subnets") {
		if e := checkSubnet(sn, spaces); e != nil {
			return nil, e
		}
	}
	return s.prepareChildren(c, old, doc)
}

// checkSubnet wants a prefix inside the network's address space.
func checkSubnet(sn object, spaces []string) *Error {
	name := str(sn, "name")
	all := texts(sn, "properties", "addressPrefixes")
	if p := str(sn, "properties", "addressPrefix"); p != "" {
		all = append(all, p)
	}
	if len(all) == 0 {
		return missingField("properties.addressPrefix")
	}
	for _, text := range all {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return fail(http.StatusBadRequest, "InvalidAddressPrefixFormat", "Address prefix "+text+" of resource "+name+" is not formatted correctly. It should follow CIDR notation, for example 10.0.0.0/24.")
		}
		if !slices.ContainsFunc(spaces, func(space string) bool {
			sp, err := netip.ParsePrefix(space)
			return err == nil && sp.Contains(p.Addr()) && sp.Bits() <= p.Bits()
		}) {
			return fail(http.StatusBadRequest, "NetcfgInvalidSubnet", "Subnet '"+name+"' is not valid in its virtual network: "+text+" is outside of its address space.")
		}
	}
	return nil
}

func (s *Server) vnetHeld(r *resource) *Error {
	prefix := lower(r.id()) + "/subnets/"
	users := s.nicsIn(func(ip object) bool { return strings.HasPrefix(lower(str(ip, "properties", "subnet", "id")), prefix) })
	if len(users) == 0 {
		return nil
	}
	return fail(http.StatusBadRequest, "InUseSubnetCannotBeDeleted", "Subnet of "+r.name()+" is in use by "+users[0]+" and cannot be deleted. In order to delete the subnet, delete all the resources within the subnet. See aka.ms/deletesubnet.")
}

// referenced refuses to delete what an interface refers to.
func (s *Server) referenced(r *resource) *Error {
	id := lower(r.id())
	for _, n := range s.sorted(kindNIC) {
		if lower(str(n.Doc, "properties", "networkSecurityGroup", "id")) == id {
			return fail(http.StatusBadRequest, "InUseNetworkSecurityGroupCannotBeDeleted", "Network security group "+r.id()+" cannot be deleted because it is in use by the following resources: "+n.id()+".")
		}
		for _, ip := range objects(n.Doc, "properties", "ipConfigurations") {
			for _, g := range objects(ip, "properties", "applicationSecurityGroups") {
				if lower(str(g, "id")) == id {
					return fail(http.StatusBadRequest, "InUseApplicationSecurityGroupCannotBeDeleted", "Application security group "+r.id()+" is in use by "+n.id()+".")
				}
			}
		}
	}
	return nil
}

// prepareLB gives frontends their private addresses.
func (s *Server) prepareLB(c *call, old *resource, doc object) (commit, *Error) {
	if _, e := s.prepareChildren(c, old, doc); e != nil {
		return nil, e
	}
	owner := lower(str(doc, "id"))
	had := map[string]string{}
	if old != nil {
		for _, f := range objects(old.Doc, "properties", "frontendIPConfigurations") {
			had[str(f, "name")] = str(f, "properties", "privateIPAddress")
		}
	}
	s.freeAddresses(owner)
	for _, f := range objects(doc, "properties", "frontendIPConfigurations") {
		subnet, public := str(f, "properties", "subnet", "id"), str(f, "properties", "publicIPAddress", "id")
		var e *Error
		switch {
		case subnet != "" && s.child(subnet) == nil:
			e = badReference(subnet, str(doc, "id"))
		case subnet != "":
			e = s.assign(doc, f, had[str(f, "name")], false)
		case public != "" && s.resources[lower(public)] == nil:
			e = badReference(public, str(doc, "id"))
		}
		if e != nil {
			s.reindex()
			return nil, e
		}
	}
	return nil, nil
}

func inPool(ip object, poolID string) bool {
	return slices.ContainsFunc(objects(ip, "properties", "loadBalancerBackendAddressPools"), func(p object) bool { return lower(str(p, "id")) == lower(poolID) })
}

// renderLB shows who is in which pool.
func (s *Server) renderLB(r *resource) object {
	d := clone(r.Doc)
	for _, pool := range objects(d, "properties", "backendAddressPools") {
		s.fillPool(pool)
	}
	return d
}

func (s *Server) fillPool(pool object) {
	id, members := str(pool, "id"), []any{}
	for _, m := range s.nicsIn(func(ip object) bool { return inPool(ip, id) }) {
		members = append(members, object{"id": m})
	}
	put(pool, members, "properties", "backendIPConfigurations")
}

func (s *Server) lbHeld(r *resource) *Error {
	prefix := lower(r.id()) + "/backendaddresspools/"
	users := s.nicsIn(func(ip object) bool {
		return slices.ContainsFunc(objects(ip, "properties", "loadBalancerBackendAddressPools"), func(p object) bool { return strings.HasPrefix(lower(str(p, "id")), prefix) })
	})
	if len(users) == 0 {
		return nil
	}
	return fail(http.StatusBadRequest, "LoadBalancerInUseByNetworkInterface", "Cannot delete load balancer "+r.id()+" since its child resources are in use by "+users[0]+".")
}

// prepareIP allocates a public address from the documentation range.
func (s *Server) prepareIP(_ *call, old *resource, doc object) (commit, *Error) {
	if doc["sku"] == nil {
		doc["sku"] = object{"name": "Basic", "tier": "Regional"}
	}
	if str(doc, "properties", "publicIPAddressVersion") == "" {
		put(doc, "IPv4", "properties", "publicIPAddressVersion")
	}
	if str(doc, "properties", "publicIPAllocationMethod") == "" {
		put(doc, "Dynamic", "properties", "publicIPAllocationMethod")
	}
	if label := str(doc, "properties", "dnsSettings", "domainNameLabel"); label != "" {
		put(doc, label+"."+str(doc, "location")+".cloudapp.azure.com", "properties", "dnsSettings", "fqdn")
	}
	if old != nil && str(old.Doc, "properties", "ipAddress") != "" {
		put(doc, str(old.Doc, "properties", "ipAddress"), "properties", "ipAddress")
		return nil, nil
	}
	s.serial++
	put(doc, fmt.Sprintf("203.0.%d.%d", 113+s.serial/250%100, 1+s.serial%250), "properties", "ipAddress")
	return nil, nil
}

func (s *Server) ipHeld(r *resource) *Error {
	id := lower(r.id())
	users := s.nicsIn(func(ip object) bool { return lower(str(ip, "properties", "publicIPAddress", "id")) == id })
	for _, lb := range s.sorted(kindLB) {
		for _, f := range objects(lb.Doc, "properties", "frontendIPConfigurations") {
			if lower(str(f, "properties", "publicIPAddress", "id")) == id {
				users = append(users, str(f, "id"))
			}
		}
	}
	if len(users) == 0 {
		return nil
	}
	return fail(http.StatusBadRequest, "PublicIPAddressCannotBeDeleted", "Public IP address "+r.id()+" can not be deleted since it is still allocated to resource "+users[0]+". In order to delete the public IP, disassociate/detach the Public IP address from the resource. To learn how to do this, see aka.ms/deletepublicip.")
}

func (s *Server) prepareIdentity(_ *call, old *resource, doc object) (commit, *Error) {
	for _, f := range []string{"principalId", "clientId"} {
		id := s.uuid()
		if old != nil {
			id = str(old.Doc, "properties", f)
		}
		put(doc, id, "properties", f)
	}
	put(doc, s.cfg.TenantID, "properties", "tenantId")
	return nil, nil
}

// parentOf finds the parent that a call on embedded resources addresses.
func (s *Server) parentOf(c *call) (*resource, *Error) {
	n := len(c.route.parts) / 2 * 2
	if len(c.route.parts)%2 == 0 {
		n -= 2
	}
	types := strings.Split(c.kind.typ, "/")
	id := s.groupID(c.route.group) + "/providers/" + types[0]
	for i := 0; i < n; i += 2 {
		id += "/" + types[i/2+1] + "/" + c.route.parts[i+1]
	}
	if p := s.resources[lower(id)]; p != nil {
		return p, nil
	}
	return nil, fail(http.StatusNotFound, "ResourceNotFound", "The Resource '"+strings.TrimPrefix(id, s.groupID(c.route.group)+"/providers/")+"' under resource group '"+c.route.group+"' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix")
}

func (s *Server) listEmbedded(c *call) {
	p, e := s.parentOf(c)
	if e != nil {
		c.fail(e)
		return
	}
	value := []any{}
	for _, ch := range objects(s.render(p, ""), "properties", c.kind.embedded) {
		value = append(value, ch)
	}
	c.answer(http.StatusOK, object{"value": value})
}

func (s *Server) serveEmbedded(c *call) {
	p, e := s.parentOf(c)
	if e != nil {
		c.fail(e)
		return
	}
	id := p.id() + "/" + c.kind.embedded + "/" + c.route.last()
	old := s.child(id)
	switch c.r.Method {
	case http.MethodGet:
		if old == nil {
			c.fail(fail(http.StatusNotFound, "NotFound", "Resource "+id+" not found."))
			return
		}
		ch := clone(old)
		if c.kind.embedded == "backendAddressPools" {
			s.fillPool(ch)
		}
		c.answer(http.StatusOK, ch)
	case http.MethodPut:
		s.putEmbedded(c, p, id, old)
	case http.MethodDelete:
		s.deleteEmbedded(c, p, id, old)
	default:
		c.fail(methodNotAllowed(c))
	}
}

func (s *Server) putEmbedded(c *call, p *resource, id string, old object) {
	ignored, e := checkFields(c.kind.fields, c.body)
	for _, f := range ignored {
		s.ignored[c.kind.typ+" "+f]++
	}
	if e == nil && c.kind.name == kindSubnet {
		e = checkSubnet(c.body, texts(p.Doc, "properties", "addressSpace", "addressPrefixes"))
	}
	if e != nil {
		c.fail(e)
		return
	}
	c.body["id"], c.body["name"], c.body["type"] = id, c.route.last(), c.kind.typ
	put(c.body, stateSucceeded, "properties", "provisioningState")
	list, _ := dig(p.Doc, "properties", c.kind.embedded).([]any)
	status := http.StatusCreated
	if old == nil {
		list = append(list, c.body)
	} else {
		status = http.StatusOK
		for i, ch := range list {
			if o, ok := ch.(object); ok && lower(str(o, "id")) == lower(id) {
				list[i] = c.body
			}
		}
	}
	put(p.Doc, list, "properties", c.kind.embedded)
	s.touch(p)
	c.answer(status, c.body)
}

func (s *Server) deleteEmbedded(c *call, p *resource, id string, old object) {
	if old == nil {
		c.answer(http.StatusNoContent, nil)
		return
	}
	key := lower(id)
	users := s.nicsIn(func(ip object) bool { return lower(str(ip, "properties", "subnet", "id")) == key || inPool(ip, id) })
	if len(users) > 0 {
		c.fail(fail(http.StatusBadRequest, "InUseSubnetCannotBeDeleted", c.kind.typ+" "+c.route.last()+" is in use by "+users[0]+" and cannot be deleted. In order to delete it, delete all the resources that use it. See aka.ms/deletesubnet."))
		return
	}
	list, _ := dig(p.Doc, "properties", c.kind.embedded).([]any)
	list = slices.DeleteFunc(list, func(ch any) bool { o, ok := ch.(object); return ok && lower(str(o, "id")) == key })
	put(p.Doc, list, "properties", c.kind.embedded)
	s.touch(p)
	c.answer(http.StatusOK, nil)
}
