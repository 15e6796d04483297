package vrm

import (
	"fmt"
	"slices"
)

func (s *Server) view(v *vm) VM {
	return VM{URN: s.urn("vms", v.ID), UUID: v.UUID, Name: v.Name, Description: v.Description, Status: v.Status, Template: v.Template,
		KubeletVersion: v.Kubelet, CPUs: v.CPUs, MemoryMB: v.MemoryMB, HostURN: s.urn("hosts", v.Host), ClusterURN: s.urn("clusters", v.Cluster),
		FolderURN: v.Folder, CDROM: v.CDROM, UserData: v.UserData, Disks: slices.Clone(v.Disks), NICs: slices.Clone(v.NICs)}
}

func (s *Server) vmView(v *vm) object {
	o := s.ref("vms", v.named)
	o["uuid"], o["description"], o["status"], o["isTemplate"] = v.UUID, v.Description, v.Status, v.Template
	o["clusterUrn"], o["locationName"], o["pvDriverStatus"] = s.urn("clusters", v.Cluster), "", "notRunning"
	if h := s.st.Hosts[v.Host]; h != nil {
		o["hostUrn"], o["hostName"] = s.urn("hosts", h.ID), h.Name
	}
	if v.PVDriver && v.Status == running {
		o["pvDriverStatus"] = "running"
	}
	o["cdRomStatus"] = "empty"
	if v.CDROM != "" {
		o["cdRomStatus"] = "fill"
	}
	disks, nics := []object{}, []object{}
	for _, d := range v.Disks {
		if vol := s.st.Volumes[last(d.VolumeURN)]; vol != nil {
			disks = append(disks, object{"sequenceNum": d.Sequence, "pciType": d.PCIType, "volumeUrn": d.VolumeURN, "volumeUuid": vol.UUID, "diskName": vol.Name,
				"quantityGB": vol.GB, "datastoreUrn": vol.DatastoreURN, "isThin": vol.Thin, "indepDisk": vol.Independent, "persistentDisk": vol.Persistent})
		}
	}
	for _, n := range v.NICs {
		nics = append(nics, object{"sequenceNum": n.Sequence, "mac": n.MAC, "ip": "0.0.0.0", "portGroupUrn": n.PortGroupURN, "virtIo": 1})
	}
	o["vmConfig"] = object{"cpu": object{"quantity": v.CPUs}, "memory": object{"quantityMB": v.MemoryMB}, "disks": disks, "nics": nics}
	return o
}

func (s *Server) listVMs(c *call) (any, *Error) {
	out := []object{}
	for _, v := range sorted(s.st.VMs) {
		if t := c.q("isTemplate"); t != "" && (t == "true") != v.Template {
			continue
		}
		if st := c.q("status"); st != "" && st != v.Status {
			continue
		}
		if !like(v.Name, c.q("name")) || !like(v.Description, c.q("description")) {
			continue
		}
		o := s.vmView(v)
		if c.q("detail") != "2" {
			delete(o, "vmConfig")
		}
		out = append(out, o)
	}
	return page(c, "vms", out), nil
}

func (s *Server) getVM(c *call) (any, *Error) {
	v := s.st.VMs[c.id()]
	if v == nil {
		return nil, missing("The VM")
	}
	return s.vmView(v), nil
}

// idle returns a VM on which nothing works, in one of the states.
func (s *Server) idle(c *call, states ...string) (*vm, *Error) {
	v := s.st.VMs[c.id()]
	switch {
	case v == nil:
		return nil, missing("The VM")
	case v.Template:
		return nil, input("The operation is not allowed on a template.")
	case s.busy(s.urn("vms", v.ID)):
		return nil, bad(codeBusy, "Another task works on the VM.")
	case len(states) > 0 && !slices.Contains(states, v.Status):
		return nil, bad(codeBusy, "The VM is "+v.Status+", which does not allow the operation.")
	}
	return v, nil
}

func (s *Server) putVM(c *call) (any, *Error) {
	v, e := s.idle(c)
	if e != nil {
		return nil, e
	}
	var in struct{ Name, Description *string }
	if e := c.decode(&in); e != nil {
		return nil, e
	}
	if in.Name != nil {
		v.Name = *in.Name
	}
	if in.Description != nil {
		v.Description = *in.Description
	}
	return s.begin(c, &task{Do: "ModifyVmTask", Entity: s.urn("vms", v.ID), Name: v.Name}), nil
}

func (s *Server) act(c *call, do, arg, next string, states ...string) (any, *Error) {
	v, e := s.idle(c, states...)
	if e != nil {
		return nil, e
	}
	if next != "" {
		v.Status = next
	}
	return s.begin(c, &task{Do: do, Entity: s.urn("vms", v.ID), Name: v.Name, Arg: arg}), nil
}

func (s *Server) startVM(c *call) (any, *Error) { return s.act(c, doStart, "", starting, stopped) }

func (s *Server) mode(c *call) (string, *Error) {
	in := struct{ Mode string }{c.q("mode")}
	if e := c.decode(&in); e != nil {
		return "", e
	}
	switch in.Mode {
	case "":
		return "safe", nil
	case "safe", "force":
		return in.Mode, nil
	}
	return "", input("The mode must be safe or force.")
}

func (s *Server) stopVM(c *call) (any, *Error) {
	mode, e := s.mode(c)
	if e != nil {
		return nil, e
	}
	return s.act(c, doStop, mode, stopping, running)
}

func (s *Server) rebootVM(c *call) (any, *Error) {
	mode, e := s.mode(c)
	if e != nil {
		return nil, e
	}
	return s.act(c, doReboot, mode, "", running)
}

func (s *Server) deleteVM(c *call) (any, *Error) {
	if v := s.st.VMs[c.id()]; v != nil && v.Status == running {
		return nil, bad(codeNotOff, "Only a stopped VM can be deleted.")
	}
	return s.act(c, doDelete, c.q("isReserveDisks"), dying, stopped, broken)
}

// clone body.
type cloneRequest struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Location    string `json:"location"`
	Parent      string `json:"parentObjUrn"`
	AutoBoot    *bool  `json:"autoBoot"`
	Config      struct {
		CPU struct {
			Quantity int `json:"quantity"`
		} `json:"cpu"`
		Memory struct {
			MB    int  `json:"quantityMB"`
			Wrong *int `json:"quantityMb"`
		} `json:"memory"`
		Disks []struct {
			newDisk
			Quantity int    `json:"quantityGB"`
			DS       string `json:"datastoreUrn"`
			IsThin   bool   `json:"isThin"`
		} `json:"disks"`
		NICs *[]NIC `json:"nics"`
	} `json:"vmConfig"`
}

func (s *Server) clone(c *call) (any, *Error) {
	t := s.st.VMs[c.id()]
	if t == nil {
		return nil, missing("The VM")
	}
	var in cloneRequest
	if e := c.decode(&in); e != nil {
		return nil, e
	}
	s.st.Serial++
	v := &vm{named: named{fmt.Sprintf("i-%08X", s.st.Serial), in.Name}, UUID: s.uuid(), Description: in.Description, Status: creating,
		Kubelet: t.Kubelet, PVDriver: t.PVDriver, Folder: in.Parent, Cluster: t.Cluster, CPUs: in.Config.CPU.Quantity, MemoryMB: in.Config.Memory.MB, NICs: t.NICs}
	disks, e := s.merge(t, &in)
	if e == nil {
		e = s.checkClone(v, &in)
	}
	if e != nil {
		return nil, e
	}
	v.NICs = slices.Clone(v.NICs)
	for i := range v.NICs {
		s.st.Serial++
		v.NICs[i].MAC = fmt.Sprintf("28:6e:d4:%02x:%02x:%02x", s.st.Serial>>16&0xff, s.st.Serial>>8&0xff, s.st.Serial&0xff)
	}
	s.st.VMs[v.ID] = v
	return s.begin(c, &task{Do: doClone, Entity: s.urn("vms", v.ID), Name: v.Name, Clone: disks, AutoBoot: in.AutoBoot == nil || *in.AutoBoot}), nil
}

func (s *Server) checkClone(v *vm, in *cloneRequest) *Error {
	if v.Name == "" || v.CPUs < 1 || v.MemoryMB < 1 || in.Config.Memory.Wrong != nil {
		return input("name, cpu.quantity and memory.quantityMB are needed.")
	}
	if in.Parent != "" && s.st.Folders[last(in.Parent)] == nil {
		return missing("The folder")
	}
	if e := s.locate(v, in.Location); e != nil {
		return e
	}
	if in.Config.NICs != nil {
		v.NICs = *in.Config.NICs
	}
	for _, n := range v.NICs {
		if !s.hasPortGroup(n.PortGroupURN) {
			return missing("The port group")
		}
	}
	return nil
}

// locate puts a VM where the request says: a host or a cluster.
func (s *Server) locate(v *vm, location string) *Error {
	id := last(location)
	h := s.st.Hosts[id]
	switch {
	case location == "":
	case h != nil && s.urn("hosts", id) == location:
		v.Host, v.Cluster = h.ID, h.Cluster
	case s.st.Clusters[id] != nil && s.urn("clusters", id) == location:
		v.Cluster = id
	default:
		return missing("The location")
	}
	return nil
}

// merge applies VRM's rules: a disk of both is a copy of at least the
// template's size, one of the template only is dropped, one of the request
// only is new or an existing volume; no disks at all means all.
func (s *Server) merge(t *vm, in *cloneRequest) ([]newDisk, *Error) {
	var out []newDisk
	own := map[int]newDisk{}
	for _, d := range t.Disks {
		vol := s.st.Volumes[last(d.VolumeURN)]
		own[d.Sequence] = newDisk{Disk: Disk{Sequence: d.Sequence, PCIType: d.PCIType}, GB: vol.GB, DatastoreURN: vol.DatastoreURN}
		out = append(out, own[d.Sequence])
	}
	if in.Config.Disks == nil {
		return out, nil
	}
	out = nil
	seen := map[int]bool{}
	for _, r := range in.Config.Disks {
		d := newDisk{Disk: r.Disk, GB: r.Quantity, DatastoreURN: r.DS, Thin: r.IsThin}
		if base, ok := own[d.Sequence]; ok {
			d.GB = max(d.GB, base.GB)
			if d.DatastoreURN == "" {
				d.DatastoreURN = base.DatastoreURN
			}
		}
		if d.Sequence < 1 || seen[d.Sequence] || d.GB < 1 {
			return nil, input("A disk needs a free sequenceNum and a size.")
		}
		if s.st.Datastores[last(d.DatastoreURN)] == nil {
			return nil, missing("The datastore")
		}
		seen[d.Sequence] = true
		out = append(out, d)
	}
	if !seen[1] {
		return nil, input("The system disk must have sequenceNum 1.")
	}
	return out, nil
}
