package arm

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// prepareVM checks a VM PUT as the compute service does and completes it.
func (s *Server) prepareVM(c *call, old *resource, doc object) (commit, *Error) {
	name := str(doc, "name")
	if strings.TrimSpace(str(doc, "properties", "osProfile", "computerName")) == "" && sub(doc, "properties", "osProfile") != nil {
		put(doc, name, "properties", "osProfile", "computerName")
	}
	z, e := s.checkSize(doc)
	if e != nil {
		return nil, e
	}
	var before *size
	if old != nil {
		if e := checkUnchanged(old.Doc, doc); e != nil {
			return nil, e
		}
		before, _ = sizeIn(regionNamed(old.location()), str(old.Doc, "properties", "hardwareProfile", "vmSize"))
		keepVM(old.Doc, doc)
	} else if e := s.checkNewVM(doc); e != nil {
		return nil, e
	}
	nics, e := s.checkVMNICs(old, doc, z)
	if e != nil {
		return nil, e
	}
	if e := s.checkQuota(regionNamed(str(doc, "location")), z, before, isSpot(doc)); e != nil {
		return nil, e
	}
	disks, e := s.planDisks(old, doc)
	if e != nil {
		return nil, e
	}
	if old == nil {
		put(doc, s.uuid(), "properties", "vmId")
		put(doc, stamped(s.cfg.Clock.Now()), "properties", "timeCreated")
	}
	return func(r *resource) {
		if old == nil {
			r.Power = ""
		}
		for _, n := range nics {
			put(n.Doc, object{"id": r.id()}, "properties", "virtualMachine")
			s.touch(n)
		}
		s.makeDisks(r, disks)
	}, nil
}

// checkSize checks size and zone against the region.
func (s *Server) checkSize(doc object) (*size, *Error) {
	reg, name := regionNamed(str(doc, "location")), str(doc, "properties", "hardwareProfile", "vmSize")
	if name == "" {
		return nil, missingField("properties.hardwareProfile.vmSize")
	}
	z, zones := sizeIn(reg, name)
	if z == nil {
		return nil, invalidParameter("vmSize", "The value "+name+" provided for the VM size is not valid. The valid sizes in the current region are: "+strings.Join(sizesIn(reg), ",")+". Find out more on the available VM sizes in each region at https://aka.ms/azure-regions.")
	}
	asked := texts(doc, "zones")
	if len(asked) > 1 {
		return nil, invalidParameter("zones", "Virtual Machines can be placed in only one availability zone; "+fmt.Sprint(len(asked))+" were given.")
	}
	for _, zone := range asked {
		if !slices.Contains(reg.zones, zone) {
			return nil, invalidParameter("zones", "The zone(s) '"+zone+"' for resource 'Microsoft.Compute/virtualMachines/"+str(doc, "name")+"' is not supported. The supported zones for location '"+reg.name+"' are '"+strings.Join(reg.zones, ",")+"'.")
		}
		if !slices.Contains(zones, zone) {
			return nil, fail(http.StatusConflict, "SkuNotAvailable", "The requested size for resource '"+str(doc, "id")+"' is currently not available in location '"+reg.name+"' zones '"+zone+"' for subscription '"+s.cfg.SubscriptionID+"'. Please try another size or deploy to a different location or zones. See https://aka.ms/azureskunotavailable for details.")
		}
	}
	return z, nil
}

// checkNewVM checks what is asked of a VM at creation only.
func (s *Server) checkNewVM(doc object) *Error {
	os := sub(doc, "properties", "osProfile")
	attach := strings.EqualFold(str(doc, "properties", "storageProfile", "osDisk", "createOption"), "Attach")
	if os == nil && !attach {
		return missingField("properties.osProfile")
	}
	if os != nil {
		if e := checkOSProfile(os); e != nil {
			return e
		}
	}
	if sub(doc, "properties", "storageProfile", "osDisk") == nil {
		return missingField("properties.storageProfile.osDisk")
	}
	if !attach {
		if e := s.checkImage(doc); e != nil {
			return e
		}
	}
	if e := s.checkReferences(doc); e != nil {
		return e
	}
	return checkSpot(doc)
}

func checkOSProfile(os object) *Error {
	if n := str(os, "computerName"); len(n) > 64 {
		return invalidParameter("computerName", "Linux host name cannot exceed 64 characters in length or contain the following characters: ` ~ ! @ # $ % ^ & * ( ) = + _ [ ] { } \\ | ; : ' \" , < > / ?.")
	}
	if str(os, "adminUsername") == "" {
		return missingField("properties.osProfile.adminUsername")
	}
	if str(os, "adminPassword") == "" && len(objects(os, "linuxConfiguration", "ssh", "publicKeys")) == 0 {
		return invalidParameter("linuxConfiguration", "Authentication using either SSH or by user name and password must be enabled in Linux profile.")
	}
	data := str(os, "customData")
	raw, err := base64.StdEncoding.DecodeString(data)
	if err != nil || len(raw) > 65535 {
		return invalidParameter("customData", "Custom data in OSProfile must be in Base64 encoding and with a maximum length of 87380 characters.")
	}
	return nil
}

// checkSpot accepts empty strings, as the service does.
func checkSpot(doc object) *Error {
	p, e := str(doc, "properties", "priority"), str(doc, "properties", "evictionPolicy")
	switch {
	case p != "" && !strings.EqualFold(p, "Regular") && !isSpot(doc):
		return invalidParameter("priority", "The value '"+p+"' of parameter 'priority' is not allowed. Allowed values are: Regular,Low,Spot.")
	case e != "" && !isSpot(doc):
		return invalidParameter("evictionPolicy", "Eviction policy can be set only on Azure Spot Virtual Machines.")
	case e != "" && !strings.EqualFold(e, "Delete") && !strings.EqualFold(e, "Deallocate"):
		return invalidParameter("evictionPolicy", "The value '"+e+"' of parameter 'evictionPolicy' is not allowed. Allowed values are: Deallocate,Delete.")
	}
	return nil
}

// publishers are those whose marketplace images exist here.
var publishers = []string{"azureopenshift", "redhat", "redhat-limited", "canonical", "debian", "fedora-coreos"}

// checkImage looks for the image of a new VM.
func (s *Server) checkImage(doc object) *Error {
	ref := sub(doc, "properties", "storageProfile", "imageReference")
	if ref == nil {
		return missingField("properties.storageProfile.imageReference")
	}
	id, loc := str(ref, "id"), str(doc, "location")
	if id == "" {
		for _, f := range []string{"publisher", "offer", "sku", "version"} {
			if str(ref, f) == "" {
				return missingField("properties.storageProfile.imageReference." + f)
			}
		}
		if !slices.Contains(publishers, strings.ToLower(str(ref, "publisher"))) {
			return fail(http.StatusNotFound, "PlatformImageNotFound", "The platform image '"+imageName(ref)+"' is not available. Verify that all fields in the storage profile are correct. For more details about storage profile information, please refer to https://aka.ms/storageprofile")
		}
		return nil
	}
	if segment(id, "galleries") == "" {
		if s.resources[lower(id)] == nil {
			return fail(http.StatusNotFound, "ImageNotFound", "The Image '"+id+"' cannot be found in '"+loc+"' region.")
		}
		return nil
	}
	if s.galleryVersion(id) == nil {
		return fail(http.StatusNotFound, "GalleryImageNotFound", "The gallery image "+id+" is not available in "+loc+" region. Please contact image owner to replicate to this region, or change your requested region.")
	}
	return nil
}

func imageName(ref object) string {
	return strings.Join([]string{str(ref, "publisher"), str(ref, "offer"), str(ref, "sku"), str(ref, "version")}, ":")
}

// galleryVersion finds an image version; without a version, or with latest,
// any will do.
func (s *Server) galleryVersion(id string) *resource {
	if r := s.resources[lower(id)]; r != nil && r.Kind == kindVersion {
		return r
	}
	v := segment(id, "versions")
	if v != "" && !strings.EqualFold(v, "latest") {
		return nil
	}
	image := strings.TrimSuffix(lower(id), "/versions/latest")
	var newest *resource
	for _, r := range s.sorted(kindVersion) {
		if strings.HasPrefix(lower(r.id()), image+"/versions/") {
			newest = r
		}
	}
	return newest
}

// checkReferences looks for identities and the availability set.
func (s *Server) checkReferences(doc object) *Error {
	for id := range sub(doc, "identity", "userAssignedIdentities") {
		if r := s.resources[lower(id)]; r == nil || r.Kind != kindID {
			return fail(http.StatusBadRequest, "FailedIdentityOperation", "Identity operation for resource '"+str(doc, "id")+"' failed with error 'Failed to perform resource identity operation. Status: 'BadRequest'. Response: '{\"error\":{\"code\":\"BadRequest\",\"message\":\"Resource '"+id+"' was not found.\"}}'.'.")
		}
	}
	set := str(doc, "properties", "availabilitySet", "id")
	if set == "" {
		return nil
	}
	if len(texts(doc, "zones")) > 0 {
		return fail(http.StatusBadRequest, "BadRequest", "Virtual Machine cannot be created because both an Availability Set and an Availability Zone were specified. Deploying an Availability Set to an Availability Zone isn't supported.")
	}
	if r := s.resources[lower(set)]; r == nil || r.Kind != kindSet {
		return fail(http.StatusNotFound, "NotFound", "Resource "+set+" not found.")
	}
	return nil
}

// checkVMNICs looks for the interfaces and says who else has them.
func (s *Server) checkVMNICs(old *resource, doc object, z *size) ([]*resource, *Error) {
	refs := objects(doc, "properties", "networkProfile", "networkInterfaces")
	if len(refs) == 0 {
		return nil, missingField("properties.networkProfile.networkInterfaces")
	}
	var out []*resource
	primaries := 0
	for _, ref := range refs {
		n, e := s.checkVMNIC(old, doc, z, str(ref, "id"))
		if e != nil {
			return nil, e
		}
		if truth(ref, "properties", "primary") {
			primaries++
		}
		out = append(out, n)
	}
	if len(refs) > 1 && primaries != 1 {
		return nil, fail(http.StatusBadRequest, "VirtualMachineMustHaveOneNetworkInterfaceAsPrimary", "The virtual machine "+str(doc, "id")+" must have one network interface set as the primary.")
	}
	return out, nil
}

// checkVMNIC finds an interface that the VM may use.
func (s *Server) checkVMNIC(old *resource, doc object, z *size, id string) (*resource, *Error) {
	n := s.resources[lower(id)]
	owner := ""
	if n != nil {
		owner = str(n.Doc, "properties", "virtualMachine", "id")
	}
	switch {
	case n == nil || n.Kind != kindNIC:
		return nil, fail(http.StatusNotFound, "NotFound", "Resource "+id+" not found.")
	case owner != "" && lower(owner) != lower(str(doc, "id")):
		return nil, fail(http.StatusBadRequest, "NicReservedForAnotherVm", "Nic(s) in request is reserved for another Virtual Machine for 180 seconds. Please provide another nic(s) or retry after 180 seconds. Reserved VM: "+owner)
	case n.state() != stateSucceeded && old == nil:
		return nil, fail(http.StatusConflict, "ReferencedResourceNotProvisioned", "Cannot proceed with operation because resource "+id+" used by resource "+str(doc, "id")+" is not in Succeeded state. Resource is in "+n.state()+" state and the last operation that updated/is updating the resource is PutNicOperation.")
	case n.location() != str(doc, "location"):
		return nil, fail(http.StatusBadRequest, "InvalidResourceReference", "Resource "+id+" referenced by resource "+str(doc, "id")+" was not found. Please make sure that the referenced resource exists, and that both resources are in the same region.")
	case truth(n.Doc, "properties", "enableAcceleratedNetworking") && !z.accelerated:
		return nil, fail(http.StatusBadRequest, "VMSizeIsNotPermittedToEnableAcceleratedNetworking", "VMSizeIsNotPermittedToEnableAcceleratedNetworking: the size "+z.name+" does not support accelerated networking on "+id+".")
	}
	return n, nil
}

// fixed are the properties that a VM keeps for life.
var fixed = [][]string{
	{"zones"}, {"properties", "osProfile", "computerName"}, {"properties", "osProfile", "adminUsername"}, {"properties", "osProfile", "customData"},
	{"properties", "storageProfile", "imageReference"}, {"properties", "storageProfile", "osDisk", "name"}, {"properties", "storageProfile", "osDisk", "createOption"},
	{"properties", "availabilitySet"}, {"properties", "priority"}, {"properties", "networkProfile", "networkInterfaces"},
}

// checkUnchanged refuses a PUT that changes a fixed property. What the body
// leaves out is kept.
func checkUnchanged(old, doc object) *Error {
	for _, path := range fixed {
		was, now := dig(old, path...), dig(doc, path...)
		if now == nil || now == "" || same(was, now) {
			continue
		}
		last := path[len(path)-1]
		if last == "imageReference" && contains(was, now) || last == "networkInterfaces" && same(idsOf(old, path), idsOf(doc, path)) {
			continue
		}
		if s, ok := now.(string); ok && strings.EqualFold(s, fmt.Sprint(was)) {
			continue
		}
		name := strings.TrimPrefix(strings.Join(path, "."), "properties.")
		return &Error{Status: http.StatusConflict, Code: "PropertyChangeNotAllowed", Message: "Changing property '" + name + "' is not allowed.", Target: name}
	}
	return nil
}

func idsOf(o object, path []string) []string {
	var ids []string
	for _, ref := range objects(o, path...) {
		ids = append(ids, lower(str(ref, "id")))
	}
	return ids
}

// contains says that every field of part is in whole with the same value: a
// GET adds fields (exactVersion) that the next PUT lacks.
func contains(whole, part any) bool {
	w, okW := whole.(object)
	p, okP := part.(object)
	if !okW || !okP {
		return same(whole, part)
	}
	for k, v := range p {
		if !contains(w[k], v) {
			return false
		}
	}
	return true
}

// keepVM carries over what a PUT may leave out or cannot set.
func keepVM(old, doc object) {
	for _, path := range append([][]string{
		{"properties", "vmId"}, {"properties", "timeCreated"}, {"properties", "osProfile"}, {"identity"}, {"plan"}, {"tags"},
		{"properties", "osProfile", "adminPassword"}, {"properties", "storageProfile"}, {"properties", "networkProfile"},
		{"properties", "storageProfile", "osDisk"}, {"properties", "storageProfile", "dataDisks"}, {"properties", "storageProfile", "osDisk", "managedDisk", "id"},
	}, fixed...) {
		if v := dig(old, path...); v != nil && (dig(doc, path...) == nil || dig(doc, path...) == "") {
			put(doc, cloneValue(v), path...)
		}
	}
}

// provisioned is the end of a VM's creation or update; lock held.
func (s *Server) provisioned(r *resource) {
	if r.Born {
		return
	}
	r.Born, r.Power = true, PowerRunning
	vm := s.vmOf(r)
	vm.Provisioning = stateSucceeded
	s.inform(func(m Machines) { m.Create(vm) })
}

// vmGone frees what a removed VM held and deletes what it took along.
func (s *Server) vmGone(r *resource) {
	if r.Born {
		id := str(r.Doc, "properties", "vmId")
		s.inform(func(m Machines) { m.Delete(id) })
	}
	for _, ref := range objects(r.Doc, "properties", "networkProfile", "networkInterfaces") {
		n := s.resources[lower(str(ref, "id"))]
		if n == nil || lower(str(n.Doc, "properties", "virtualMachine", "id")) != lower(r.id()) {
			continue
		}
		if p, ok := n.Doc["properties"].(object); ok {
			delete(p, "virtualMachine")
		}
		s.touch(n)
		if strings.EqualFold(str(ref, "properties", "deleteOption"), "Delete") {
			s.remove(n)
		}
	}
	s.releaseDisks(r)
}

// vmOf describes a VM for the hardware and the knobs; lock held.
func (s *Server) vmOf(r *resource) VM {
	d := r.Doc
	v := VM{
		ResourceID: r.id(), Name: r.name(), ResourceGroup: segment(r.id(), "resourceGroups"), UUID: str(d, "properties", "vmId"), Location: r.location(),
		Size: str(d, "properties", "hardwareProfile", "vmSize"), ComputerName: str(d, "properties", "osProfile", "computerName"),
		Spot: isSpot(d), Power: r.Power, Provisioning: r.state(), Tags: map[string]string{},
	}
	if zones := texts(d, "zones"); len(zones) > 0 {
		v.Zone = zones[0]
	}
	if ref := sub(d, "properties", "storageProfile", "imageReference"); ref != nil {
		if v.ImageID = str(ref, "id"); v.ImageID == "" {
			v.ImageID = imageName(ref)
		}
	}
	// A state file that was edited by hand may hold anything; an unreadable
	// value is then simply absent.
	v.CustomData, _ = base64.StdEncoding.DecodeString(str(d, "properties", "osProfile", "customData"))
	v.CreatedAt, _ = time.Parse(time.RFC3339, str(d, "properties", "timeCreated"))
	if reg := regionNamed(v.Location); reg != nil {
		if z, _ := sizeIn(reg, v.Size); z != nil {
			v.VCPUs, v.MemoryMiB, v.GPUs, v.Arch = z.vcpus, z.memoryMiB, z.gpus, z.goArch()
		}
	}
	for k, t := range sub(d, "tags") {
		v.Tags[k] = fmt.Sprint(t)
	}
	v.NICs = s.nicsOf(d)
	if len(v.NICs) > 0 && len(v.NICs[0].PrivateIPs) > 0 {
		v.PrivateIP = v.NICs[0].PrivateIPs[0]
	}
	return v
}

func (s *Server) nicsOf(vm object) []NIC {
	var out []NIC
	for _, ref := range objects(vm, "properties", "networkProfile", "networkInterfaces") {
		n := s.resources[lower(str(ref, "id"))]
		if n == nil {
			continue
		}
		nic := NIC{ResourceID: n.id(), Name: n.name(), MAC: str(n.Doc, "properties", "macAddress"), DomainSuffix: str(n.Doc, "properties", "dnsSettings", "internalDomainNameSuffix")}
		for _, ip := range objects(n.Doc, "properties", "ipConfigurations") {
			if a, err := netip.ParseAddr(str(ip, "properties", "privateIPAddress")); err == nil {
				nic.PrivateIPs = append(nic.PrivateIPs, a.String())
			}
			if nic.SubnetID == "" {
				nic.SubnetID = str(ip, "properties", "subnet", "id")
			}
			if p := s.resources[lower(str(ip, "properties", "publicIPAddress", "id"))]; p != nil && nic.PublicIP == "" {
				nic.PublicIP = str(p.Doc, "properties", "ipAddress")
			}
		}
		if truth(ref, "properties", "primary") {
			out = append([]NIC{nic}, out...)
		} else {
			out = append(out, nic)
		}
	}
	return out
}
