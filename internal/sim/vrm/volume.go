package vrm

import "slices"

func (s *Server) volumeView(v *Volume) object {
	o := object{"urn": v.URN, "uri": uri(v.URN), "uuid": v.UUID, "name": v.Name, "quantityGB": v.GB, "status": "USE", "type": "normal", "isThin": v.Thin,
		"indepDisk": v.Independent, "persistentDisk": v.Persistent, "datastoreUrn": v.DatastoreURN, "pciType": v.PCIType}
	return o
}

// holder is the VM that has a volume; lock held.
func (s *Server) holder(urn string) *vm {
	for _, v := range s.st.VMs {
		if slices.ContainsFunc(v.Disks, func(d Disk) bool { return d.VolumeURN == urn }) {
			return v
		}
	}
	return nil
}

func (s *Server) createVolume(c *call) (any, *Error) {
	var v Volume
	if e := c.decode(&v); e != nil {
		return nil, e
	}
	d := s.st.Datastores[last(v.DatastoreURN)]
	switch {
	case d == nil:
		return nil, missing("The datastore")
	case v.Name == "" || v.GB < 1:
		return nil, input("name and quantityGB are needed.")
	case s.free(d) < v.GB:
		return nil, bad("10410057", "The available capacity of the datastore is insufficient.")
	}
	v.URN, v.UUID = s.urn("volumes", s.id()), s.uuid()
	s.st.Volumes[last(v.URN)] = &v
	return s.begin(c, &task{Do: doMake, Entity: v.URN, Name: v.Name}), nil
}

func (s *Server) listVolumes(c *call) (any, *Error) {
	out := []object{}
	for _, v := range sorted(s.st.Volumes) {
		if like(v.Name, c.q("name")) {
			out = append(out, s.volumeView(v))
		}
	}
	return page(c, "volumes", out), nil
}

func (s *Server) getVolume(c *call) (any, *Error) {
	if v := s.st.Volumes[c.id()]; v != nil {
		return s.volumeView(v), nil
	}
	return nil, missing("The volume")
}

func (s *Server) putVolume(c *call) (any, *Error) {
	v := s.st.Volumes[c.id()]
	if v == nil {
		return nil, missing("The volume")
	}
	in := *v
	if e := c.decode(&in); e != nil {
		return nil, e
	}
	if s.holder(v.URN) != nil {
		return nil, bad(codeVolBusy, "The volume is attached.")
	}
	v.Name, v.Independent, v.Persistent = in.Name, in.Independent, in.Persistent
	s.changed()
	return object{}, nil
}

func (s *Server) deleteVolume(c *call) (any, *Error) {
	v := s.st.Volumes[c.id()]
	switch {
	case v == nil:
		return nil, bad(codeVolGone, "The volume does not exist.")
	case s.holder(v.URN) != nil || s.busy(v.URN):
		return nil, bad(codeVolBusy, "The volume is attached or in use.")
	}
	return s.begin(c, &task{Do: doWipe, Entity: v.URN, Name: v.Name}), nil
}

type volumeRef struct {
	Volume   string `json:"volUrn"`
	PCIType  string `json:"pciType"`
	Sequence int    `json:"sequenceNum"`
}

func (s *Server) attachVolume(c *call) (any, *Error) {
	v, e := s.idle(c, running, stopped)
	if e != nil {
		return nil, e
	}
	var in volumeRef
	if e := c.decode(&in); e != nil {
		return nil, e
	}
	switch {
	case s.st.Volumes[last(in.Volume)] == nil:
		return nil, missing("The volume")
	case s.holder(in.Volume) != nil || s.busy(in.Volume):
		return nil, bad(codeVolBusy, "The volume is attached or in use.")
	case slices.ContainsFunc(v.Disks, func(d Disk) bool { return d.Sequence == in.Sequence }):
		return nil, input("The sequenceNum is in use.")
	}
	d := &Disk{Sequence: in.Sequence, VolumeURN: in.Volume, PCIType: in.PCIType}
	return s.begin(c, &task{Do: doAttach, Entity: s.urn("vms", v.ID), Name: v.Name, Disk: d}), nil
}

func (s *Server) detachVolume(c *call) (any, *Error) {
	v, e := s.idle(c, running, stopped)
	if e != nil {
		return nil, e
	}
	var in volumeRef
	if e := c.decode(&in); e != nil {
		return nil, e
	}
	if h := s.holder(in.Volume); h != v {
		return nil, input("The volume is not attached to the VM.")
	}
	return s.begin(c, &task{Do: doDetach, Entity: s.urn("vms", v.ID), Name: v.Name, Arg: in.Volume}), nil
}
