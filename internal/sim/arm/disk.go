package arm

import (
	"fmt"
	"net/http"
	"strings"
)

// osDiskGB is the size of an OS disk whose size nobody gave.
const osDiskGB = 30

// diskPlan is a disk that a VM PUT makes or attaches.
type diskPlan struct {
	ref    object // the VM's reference to it, completed by makeDisks
	name   string
	attach *resource // an existing disk
	os     bool
}

// planDisks checks the disks of a VM PUT. Disks that the VM already has are
// left alone.
func (s *Server) planDisks(old *resource, doc object) ([]diskPlan, *Error) {
	group := s.groupID(segment(str(doc, "id"), "resourceGroups"))
	var plans []diskPlan
	osDisk := sub(doc, "properties", "storageProfile", "osDisk")
	if old == nil && osDisk != nil && osDisk["diffDiskSettings"] == nil {
		p, e := s.planDisk(group, doc, osDisk, str(doc, "name")+"_OsDisk_1_"+strings.ReplaceAll(s.uuid(), "-", ""))
		if e != nil {
			return nil, e
		}
		p.os = true
		plans = append(plans, p)
	}
	luns := map[int64]bool{}
	for i, d := range objects(doc, "properties", "storageProfile", "dataDisks") {
		lun, ok := number(d, "lun")
		if !ok || luns[lun] {
			return nil, invalidParameter("dataDisk.lun", fmt.Sprintf("A disk with lun %d is given twice or has no lun.", lun))
		}
		luns[lun] = true
		if old != nil && diskAtLUN(old.Doc, lun) {
			continue
		}
		p, e := s.planDisk(group, doc, d, fmt.Sprintf("%s_DataDisk_%d", str(doc, "name"), i))
		if e != nil {
			return nil, e
		}
		plans = append(plans, p)
	}
	return plans, nil
}

func diskAtLUN(vm object, lun int64) bool {
	for _, d := range objects(vm, "properties", "storageProfile", "dataDisks") {
		if n, ok := number(d, "lun"); ok && n == lun {
			return true
		}
	}
	return false
}

func (s *Server) planDisk(group string, vm, ref object, fallback string) (diskPlan, *Error) {
	if strings.EqualFold(str(ref, "createOption"), "Attach") {
		id := str(ref, "managedDisk", "id")
		r := s.resources[lower(id)]
		if r == nil || r.Kind != kindDisk {
			return diskPlan{}, fail(http.StatusNotFound, "NotFound", "Disk "+id+" is not found.")
		}
		if by := str(r.Doc, "managedBy"); by != "" && lower(by) != lower(str(vm, "id")) {
			return diskPlan{}, fail(http.StatusConflict, "ConflictingUserInput", "Disk '"+id+"' cannot be attached as the disk is already owned by VM '"+by+"'.")
		}
		return diskPlan{ref: ref, name: r.name(), attach: r}, nil
	}
	name := str(ref, "name")
	if name == "" {
		name = fallback
	}
	if size, given := number(ref, "diskSizeGB"); given && (size < 1 || size > 32767) {
		return diskPlan{}, invalidParameter("diskSizeGB", fmt.Sprintf("The value '%d' of parameter 'diskSizeGB' is out of range. The value must be between '1' and '32767', inclusive.", size))
	}
	if s.resources[lower(group+"/providers/Microsoft.Compute/disks/"+name)] != nil {
		return diskPlan{}, fail(http.StatusConflict, "ConflictingUserInput", "Disk "+name+" already exists in resource group "+strings.ToUpper(lastSegment(group))+". Only CreateOption.Attach is supported.")
	}
	return diskPlan{ref: ref, name: name}, nil
}

// makeDisks performs the plan; lock held.
func (s *Server) makeDisks(vm *resource, plans []diskPlan) {
	for _, p := range plans {
		r := p.attach
		if r == nil {
			r = s.newDisk(vm, p)
		}
		r.Doc["managedBy"] = vm.id()
		put(r.Doc, "Attached", "properties", "diskState")
		s.touch(r)
		p.ref["name"] = p.name
		put(p.ref, r.id(), "managedDisk", "id")
		if str(p.ref, "managedDisk", "storageAccountType") == "" {
			put(p.ref, str(r.Doc, "sku", "name"), "managedDisk", "storageAccountType")
		}
		if _, given := number(p.ref, "diskSizeGB"); !given {
			p.ref["diskSizeGB"] = dig(r.Doc, "properties", "diskSizeGB")
		}
		if p.os && str(p.ref, "osType") == "" {
			p.ref["osType"] = "Linux"
		}
		if str(p.ref, "deleteOption") == "" {
			p.ref["deleteOption"] = "Detach"
		}
	}
}

func (s *Server) newDisk(vm *resource, p diskPlan) *resource {
	id := s.groupID(segment(vm.id(), "resourceGroups")) + "/providers/Microsoft.Compute/disks/" + p.name
	sku := str(p.ref, "managedDisk", "storageAccountType")
	if sku == "" {
		sku = "Standard_LRS"
	}
	gb, given := number(p.ref, "diskSizeGB")
	if !given {
		gb = osDiskGB
	}
	props := object{
		"diskSizeGB": gb, "timeCreated": stamped(s.cfg.Clock.Now()), "provisioningState": stateSucceeded, "uniqueId": s.uuid(),
		"creationData": object{"createOption": "Empty"},
	}
	if p.os {
		props["osType"] = "Linux"
		props["creationData"] = object{"createOption": "FromImage", "imageReference": object{"id": str(vm.Doc, "properties", "storageProfile", "imageReference", "id")}}
	}
	r := &resource{Kind: kindDisk, kind: kindNamed(kindDisk), Doc: object{
		"id": id, "name": p.name, "type": "Microsoft.Compute/disks", "location": vm.location(), "sku": object{"name": sku}, "properties": props,
	}}
	if z := vm.Doc["zones"]; z != nil {
		r.Doc["zones"] = cloneValue(z)
	}
	if t, ok := vm.Doc["tags"].(object); ok {
		r.Doc["tags"] = clone(t)
	}
	s.resources[lower(id)] = r
	return r
}

// releaseDisks detaches the disks of a removed VM, or deletes them with it.
func (s *Server) releaseDisks(vm *resource) {
	refs := objects(vm.Doc, "properties", "storageProfile", "dataDisks")
	if d := sub(vm.Doc, "properties", "storageProfile", "osDisk"); d != nil {
		refs = append(refs, d)
	}
	for _, ref := range refs {
		r := s.resources[lower(str(ref, "managedDisk", "id"))]
		if r == nil || lower(str(r.Doc, "managedBy")) != lower(vm.id()) {
			continue
		}
		delete(r.Doc, "managedBy")
		put(r.Doc, "Unattached", "properties", "diskState")
		s.touch(r)
		if strings.EqualFold(str(ref, "deleteOption"), "Delete") {
			s.remove(r)
		}
	}
}

// prepareDisk completes a disk PUT.
func (s *Server) prepareDisk(_ *call, old *resource, doc object) (commit, *Error) {
	if old != nil {
		for _, path := range [][]string{{"managedBy"}, {"properties", "diskState"}, {"properties", "timeCreated"}, {"properties", "uniqueId"}, {"sku"}, {"zones"}, {"properties", "diskSizeGB"}} {
			if v := dig(old.Doc, path...); v != nil && dig(doc, path...) == nil {
				put(doc, cloneValue(v), path...)
			}
		}
		return nil, nil
	}
	if _, given := number(doc, "properties", "diskSizeGB"); !given && strings.EqualFold(str(doc, "properties", "creationData", "createOption"), "Empty") {
		return nil, missingField("properties.diskSizeGB")
	}
	if doc["sku"] == nil {
		doc["sku"] = object{"name": "Standard_LRS"}
	}
	put(doc, "Unattached", "properties", "diskState")
	put(doc, stamped(s.cfg.Clock.Now()), "properties", "timeCreated")
	put(doc, s.uuid(), "properties", "uniqueId")
	return nil, nil
}

func (s *Server) diskHeld(r *resource) *Error {
	if by := str(r.Doc, "managedBy"); by != "" {
		return fail(http.StatusConflict, "OperationNotAllowed", "Disk '"+r.name()+"' is attached to VM '"+by+"'.")
	}
	return nil
}

// prepareSet completes an availability set.
func (s *Server) prepareSet(_ *call, _ *resource, doc object) (commit, *Error) {
	if n, given := number(doc, "properties", "platformFaultDomainCount"); given && (n < 1 || n > 3) {
		return nil, invalidParameter("platformFaultDomainCount", fmt.Sprintf("The specified fault domain count %d must fall in the range 1 to 3.", n))
	}
	if doc["sku"] == nil {
		doc["sku"] = object{"name": "Classic"}
	}
	return nil, nil
}

func (s *Server) vmsOfSet(r *resource) []any {
	out := []any{}
	for _, vm := range s.sorted(kindVM) {
		if lower(str(vm.Doc, "properties", "availabilitySet", "id")) == lower(r.id()) {
			out = append(out, object{"id": vm.id()})
		}
	}
	return out
}

func (s *Server) renderSet(r *resource) object {
	d := clone(r.Doc)
	put(d, s.vmsOfSet(r), "properties", "virtualMachines")
	delete(sub(d, "properties"), "provisioningState")
	return d
}

func (s *Server) setHeld(r *resource) *Error {
	if vms := s.vmsOfSet(r); len(vms) > 0 {
		return fail(http.StatusConflict, "OperationNotAllowed", "Availability Set '"+r.name()+"' cannot be deleted. Before deleting an Availability Set please ensure that it does not contain any VM.")
	}
	return nil
}
