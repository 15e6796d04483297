package vrm

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"millwright.io/millwright/internal/sim/control"
)

func (f *Fault) error() *Error {
	e := &Error{Status: f.Status, Code: f.Code, Des: f.Message}
	if e.Status == 0 {
		e.Status = http.StatusOK
	}
	if e.Code == "" {
		e.Code = codeTransient
	}
	if e.Des == "" {
		e.Des = "The operation failed."
	}
	return e
}

func matches(pattern, op string) bool {
	prefix, all := strings.CutSuffix(pattern, "*")
	return pattern == op || (all && strings.HasPrefix(op, prefix))
}

// takeFault returns the fault that this call has to suffer; lock held.
func (s *Server) takeFault(op string) *Fault {
	for i, f := range s.faults {
		if !matches(f.Op, op) {
			continue
		}
		taken := *f
		if f.Count > 0 {
			if f.Count--; f.Count == 0 {
				s.faults = slices.Delete(s.faults, i, i+1)
			}
		}
		return &taken
	}
	return nil
}

func sortedKeys[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

// with runs f under the lock, after what is due has ended.
func (s *Server) with(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	f()
	s.changed()
}

// Fail makes calls fail; see Fault. An unknown operation is refused.
func (s *Server) Fail(f Fault) error {
	if !slices.ContainsFunc(Ops(), func(op string) bool { return matches(f.Op, op) }) {
		return &control.NotFoundError{Message: "no operation " + f.Op + "; there are " + strings.Join(Ops(), ", ")}
	}
	if f.Count == 0 {
		f.Count = 1
	}
	s.with(func() { s.faults = append(s.faults, &f) })
	return nil
}

// Slow delays every call of one operation; 0 ends it.
func (s *Server) Slow(op string, d time.Duration) error {
	if !slices.Contains(Ops(), op) {
		return &control.NotFoundError{Message: "no operation " + op + "; there are " + strings.Join(Ops(), ", ")}
	}
	s.with(func() { s.slow[op] = d })
	return nil
}

// ClearFaults forgets every fault and every delay.
func (s *Server) ClearFaults() { s.with(func() { s.faults = nil; clear(s.slow) }) }

// Requests counts the calls by operation since the start; "refused" are those
// beyond the concurrency limit.
func (s *Server) Requests() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.requests)
}

// Peak is the largest number of requests that were served at once.
func (s *Server) Peak() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peak
}

// ExpireSessions ends every session. inBody answers HTTP 200 with the code
// 10000002 instead of HTTP 401, as some versions do.
func (s *Server) ExpireSessions(inBody bool) {
	s.with(func() { clear(s.sessions); s.expiry = inBody })
}

// SetPassword changes the account's password; sessions stay.
func (s *Server) SetPassword(p string) { s.with(func() { s.cfg.Password = p }) }

// Freeze stops or resumes the progress of every clone, as one stuck
// deployment does where a site serialises them.
func (s *Server) Freeze(on bool) { s.with(func() { s.frozen = on }) }

// CDROMNeedsRunning makes attachCdrom refuse VMs that are off.
func (s *Server) CDROMNeedsRunning(on bool) { s.with(func() { s.needsOn = on }) }

// KeepIndependentDisks lets independent disks outlive the VM they hang on.
func (s *Server) KeepIndependentDisks(on bool) { s.with(func() { s.keepDisk = on }) }

// SetUploadBase is where upload URLs point, e.g. an address that nobody
// answers; empty: the host that was asked.
func (s *Server) SetUploadBase(url string) { s.with(func() { s.upBase = url }) }

// SetCapacity changes the size of a datastore.
func (s *Server) SetCapacity(name string, gb int) error {
	err := error(&control.NotFoundError{Message: "no datastore " + name})
	s.with(func() {
		for _, d := range s.st.Datastores {
			if d.Name == name {
				d.CapacityGB, err = gb, nil
			}
		}
	})
	return err
}

func (s *Server) change(name string, f func(*vm)) error {
	err := error(&control.NotFoundError{Message: "no VM " + name})
	s.with(func() {
		for _, v := range sorted(s.st.VMs) {
			if v.Name == name && !v.Template {
				err = nil
				f(v)
				return
			}
		}
	})
	return err
}

// SetPVDriver says whether the guest of a VM takes part in a safe stop.
func (s *Server) SetPVDriver(name string, on bool) error {
	return s.change(name, func(v *vm) { v.PVDriver = on })
}

// StartVM turns a VM on at once, as an operator does in the portal.
func (s *Server) StartVM(name string) error { return s.change(name, s.poweredOn) }

// ForceStop turns a VM off at once, as an operator does in the portal.
func (s *Server) ForceStop(name string) error {
	return s.change(name, func(v *vm) {
		for _, t := range s.st.Tasks {
			if t.Status == running && t.Do == doStop && last(t.Entity) == v.ID {
				t.Status, t.Ended = "success", s.cfg.Clock.Now()
			}
		}
		s.poweredOff(v)
	})
}

// SetStatus puts a VM into any state, e.g. pause.
func (s *Server) SetStatus(name, status string) error {
	return s.change(name, func(v *vm) { v.Status = status })
}

// DeleteVM removes a VM out of band; what is not its own stays.
func (s *Server) DeleteVM(name string) error {
	return s.change(name, func(v *vm) { s.removeVM(v, true) })
}

// VMs lists VMs and templates by id.
func (s *Server) VMs() []VM {
	var out []VM
	s.with(func() {
		for _, v := range sorted(s.st.VMs) {
			out = append(out, s.view(v))
		}
	})
	return out
}

// Volumes lists the volumes by id, those of templates left out.
func (s *Server) Volumes() []Volume {
	var out []Volume
	s.with(func() {
		for _, v := range sorted(s.st.Volumes) {
			if h := s.holder(v.URN); h == nil || !h.Template {
				out = append(out, *v)
			}
		}
	})
	return out
}

// Files lists what was uploaded, as <datastore>/<file>, sorted.
func (s *Server) Files() []string {
	var out []string
	s.with(func() {
		for _, d := range s.st.Datastores {
			for n := range d.Files {
				out = append(out, d.Name+"/"+n)
			}
		}
	})
	slices.Sort(out)
	return out
}

// Seed fills an empty site; a site that holds anything is left as it is.
func (s *Server) Seed(seed Seed) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.st.Clusters) > 0 {
		return nil
	}
	ids := map[string]string{}
	add := func(kind, name string) named {
		n := named{s.id(), name}
		ids[kind+" "+name] = n.ID
		return n
	}
	for _, c := range seed.Clusters {
		n := add("cluster", c.Name)
		s.st.Clusters[n.ID] = &cluster{named: n, DRS: c.DRS}
	}
	for _, h := range seed.Hosts {
		n := add("host", h.Name)
		s.st.Hosts[n.ID] = &host{named: n, IP: h.IP, Cluster: ids["cluster "+h.Cluster]}
	}
	for _, g := range seed.DatastoreClusters {
		n := add("group", g)
		s.st.Groups[n.ID] = &n
	}
	for _, d := range seed.Datastores {
		n := add("datastore", d.Name)
		s.st.Datastores[n.ID] = &datastore{named: n, Group: ids["group "+d.Cluster], CapacityGB: d.CapacityGB, Refuses: d.RefuseUploads}
	}
	for _, w := range seed.Switches {
		n := add("switch", w.Name)
		sw := &dvswitch{named: n, PortGroups: map[string]*named{}}
		for _, p := range w.PortGroups {
			g := add("portgroup "+w.Name, p)
			sw.PortGroups[g.ID] = &g
		}
		s.st.Switches[n.ID] = sw
	}
	for _, f := range seed.Folders {
		n := add("folder", f)
		s.st.Folders[n.ID] = &n
	}
	for _, t := range seed.Templates {
		if err := s.seedTemplate(t, ids); err != nil {
			return err
		}
	}
	s.changed()
	return nil
}

func (s *Server) seedTemplate(t SeedTemplate, ids map[string]string) error {
	for _, ref := range []string{"datastore " + t.Datastore, "cluster " + t.Cluster, "switch " + t.Switch, "portgroup " + t.Switch + " " + t.PortGroup} {
		if ids[ref] == "" {
			return fmt.Errorf("seed template %s: there is no %s", t.Name, ref)
		}
	}
	s.st.Serial++
	v := &vm{named: named{fmt.Sprintf("i-%08X", s.st.Serial), t.Name}, UUID: s.uuid(), Status: stopped, Template: !t.Placeholder, Kubelet: t.KubeletVersion,
		PVDriver: !t.WithoutPVDriver, Cluster: ids["cluster "+t.Cluster], CPUs: 2, MemoryMB: 4096,
		NICs: []NIC{{PortGroupURN: s.urn("dvswitchs", ids["switch "+t.Switch]) + ":portgroups:" + ids["portgroup "+t.Switch+" "+t.PortGroup]}}}
	vol := &Volume{URN: s.urn("volumes", s.id()), UUID: s.uuid(), Name: t.Name, GB: t.SystemGB, DatastoreURN: s.urn("datastores", ids["datastore "+t.Datastore])}
	s.st.Volumes[last(vol.URN)] = vol
	v.Disks = []Disk{{Sequence: 1, VolumeURN: vol.URN, PCIType: "VIRTIO"}}
	s.st.VMs[v.ID] = v
	return nil
}
