package vrm

import (
	"slices"
	"time"
)

// What a task does when it is due.
const (
	doClone  = "CloneVmTask"
	doStart  = "StartVmTask"
	doStop   = "StopVmTask"
	doReboot = "RebootVmTask"
	doDelete = "DeleteVmTask"
	doAttach = "AttachVolumeTask"
	doDetach = "DetachVolumeTask"
	doInsert = "AttachCdromTask"
	doEject  = "DetachCdromTask"
	doMake   = "CreateVolumeTask"
	doWipe   = "DeleteVolumeTask"
)

// Status values of VMs that the server sets itself.
const (
	running  = "running"
	stopped  = "stopped"
	creating = "creating"
	starting = "starting"
	stopping = "stopping"
	dying    = "shutting-down"
	broken   = "unknown"
)

const taskMemory = time.Hour

// begin starts a task and answers the call; lock held.
func (s *Server) begin(c *call, t *task) object {
	now := s.cfg.Clock.Now()
	delay := s.cfg.TaskDelay / 4
	if t.Do == doClone {
		delay = s.cfg.TaskDelay
	}
	t.ID, t.Status, t.Started, t.Due = s.id(), running, now, now.Add(delay)
	if c.fault != nil {
		t.Failure = c.fault.error()
	}
	s.st.Tasks[t.ID] = t
	s.changed()
	u := s.urn("tasks", t.ID)
	return object{"urn": t.Entity, "uri": uri(t.Entity), "taskUrn": u, "taskUri": uri(u)}
}

// busy tells whether something works on an object; lock held.
func (s *Server) busy(urn string) bool {
	for _, t := range s.st.Tasks {
		if t.Status == running && t.Entity == urn {
			return true
		}
	}
	return false
}

// settle ends what is due and returns how long until the next is; 0 when
// nothing runs. Lock held.
func (s *Server) settle() time.Duration {
	now := s.cfg.Clock.Now()
	var due []*task
	var next time.Duration
	for id, t := range s.st.Tasks {
		switch {
		case t.Status != running:
			if now.Sub(t.Ended) > taskMemory {
				delete(s.st.Tasks, id)
			}
		case !t.Due.After(now):
			due = append(due, t)
		case next == 0 || t.Due.Sub(now) < next:
			next = t.Due.Sub(now)
		}
	}
	slices.SortFunc(due, func(a, b *task) int {
		if d := a.Due.Compare(b.Due); d != 0 {
			return d
		}
		return len(a.ID)*1e6 - len(b.ID)*1e6 + compare(a.ID, b.ID)
	})
	for _, t := range due {
		if t.Stalled = t.Failure == nil && s.stalls(t); t.Stalled {
			continue
		}
		t.Status, t.Ended = "success", now
		if t.Failure != nil {
			t.Status = "failed"
		}
		s.finish(t)
		s.changed()
	}
	return next
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// stalls tells whether a task that is due makes no progress.
func (s *Server) stalls(t *task) bool {
	switch t.Do {
	case doClone:
		return s.frozen || !s.fits(t.Clone)
	case doStop:
		v := s.st.VMs[last(t.Entity)]
		return v != nil && t.Arg != "force" && !v.PVDriver && v.Status == stopping
	}
	return false
}

// fits tells whether the datastores have room for the disks.
func (s *Server) fits(disks []newDisk) bool {
	need := map[string]int{}
	for _, d := range disks {
		need[last(d.DatastoreURN)] += d.GB
	}
	for id, gb := range need {
		if ds := s.st.Datastores[id]; ds == nil || s.free(ds) < gb {
			return false
		}
	}
	return true
}

func (s *Server) finish(t *task) {
	id := last(t.Entity)
	if t.Do == doMake || t.Do == doWipe {
		if (t.Do == doMake) == (t.Failure != nil) {
			delete(s.st.Volumes, id)
		}
		return
	}
	v := s.st.VMs[id]
	if v == nil {
		return
	}
	if t.Failure != nil {
		s.undo(t, v)
		return
	}
	switch t.Do {
	case doClone:
		s.cloned(t, v)
	case doStart:
		s.poweredOn(v)
	case doStop:
		s.poweredOff(v)
	case doReboot:
		s.rebooted(v)
	case doDelete:
		s.removeVM(v, t.Arg == "1")
	case doAttach:
		v.Disks = append(v.Disks, *t.Disk)
	case doDetach:
		v.Disks = slices.DeleteFunc(v.Disks, func(d Disk) bool { return d.VolumeURN == t.Arg })
	case doInsert:
		v.CDROM = t.Arg
	case doEject:
		v.CDROM = ""
	}
}

// undo is the end of a task that failed: a clone leaves a ruin.
func (s *Server) undo(t *task, v *vm) {
	switch t.Do {
	case doClone:
		v.Status = broken
	case doStart:
		v.Status = stopped
	case doStop:
		v.Status = running
	case doDelete:
		v.Status = stopped
	}
}

func (s *Server) cloned(t *task, v *vm) {
	for _, d := range t.Clone {
		if d.VolumeURN == "" {
			vol := &Volume{URN: s.urn("volumes", s.id()), UUID: s.uuid(), Name: v.Name + "-" + s.id(), GB: d.GB, DatastoreURN: d.DatastoreURN, Thin: d.Thin, PCIType: d.PCIType}
			s.st.Volumes[last(vol.URN)] = vol
			d.VolumeURN = vol.URN
		}
		v.Disks = append(v.Disks, d.Disk)
	}
	v.Status = stopped
	s.place(v)
	if t.AutoBoot {
		s.poweredOn(v)
	}
}

func (s *Server) poweredOn(v *vm) {
	v.Status = running
	if !v.Born {
		v.Born, v.UserData = true, s.firstBoot(v)
		hw := s.view(v)
		s.inform(func(m Machines) { m.Create(hw) })
	}
	u := v.UUID
	s.inform(func(m Machines) { m.Power(u, true) })
}

func (s *Server) rebooted(v *vm) {
	if v.UserData == nil {
		v.Born = false // it found nothing to boot from until now
		s.poweredOn(v)
	}
	u := v.UUID
	s.inform(func(m Machines) { m.Power(u, false); m.Power(u, true) })
}

// poweredOff also ejects the disc, as VRM does.
func (s *Server) poweredOff(v *vm) {
	v.Status, v.CDROM = stopped, ""
	u := v.UUID
	s.inform(func(m Machines) { m.Power(u, false) })
}

func (s *Server) removeVM(v *vm, reserve bool) {
	for _, d := range v.Disks {
		vol := s.st.Volumes[last(d.VolumeURN)]
		if vol != nil && !(vol.Independent && (reserve || s.keepDisk)) {
			delete(s.st.Volumes, last(d.VolumeURN))
		}
	}
	delete(s.st.VMs, v.ID)
	urn := s.urn("vms", v.ID)
	for _, c := range s.st.Clusters {
		for i := range c.Rules {
			c.Rules[i].VMs = slices.DeleteFunc(c.Rules[i].VMs, func(u string) bool { return u == urn })
		}
	}
	if u := v.UUID; v.Born {
		s.inform(func(m Machines) { m.Delete(u) })
	}
}

func (s *Server) taskView(t *task) object {
	u := s.urn("tasks", t.ID)
	o := object{"urn": u, "uri": uri(u), "type": t.Do, "entityUrn": t.Entity, "entityName": t.Name, "status": t.Status, "startTime": t.Started.UTC().Format(time.DateTime), "progress": 100}
	if t.Status == running {
		o["progress"] = 33
	}
	if t.Failure != nil && t.Status == "failed" {
		o["reason"], o["reasonDes"] = t.Failure.Code, t.Failure.Des
	}
	return o
}

func (s *Server) getTask(c *call) (any, *Error) {
	t := s.st.Tasks[c.id()]
	if t == nil {
		return nil, missing("The task")
	}
	return s.taskView(t), nil
}

func (s *Server) listTasks(c *call) (any, *Error) {
	out := []object{}
	for _, t := range sorted(s.st.Tasks) {
		if st := c.q("status"); st == "" || st == t.Status {
			out = append(out, s.taskView(t))
		}
	}
	return page(c, "tasks", out), nil
}
