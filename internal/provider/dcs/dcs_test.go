package dcs_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/provider/dcs"
	"millwright.io/millwright/internal/provider/dcs/spec"
	"millwright.io/millwright/internal/sim/vrm"
)

// run creates until the instance runs; it returns the faults on the way.
func (s *subject) run(t *testing.T, c cloud.Cloud, in cloud.Intent) []error {
	t.Helper()
	var faults []error
	for range 40 {
		i, err := c.Create(t.Context(), in)
		if err == nil && i.State == cloud.StateRunning {
			return faults
		}
		if err != nil {
			faults = append(faults, err)
		}
		s.clk.Step(time.Minute)
	}
	t.Fatalf("%s does not run: %v; there are %v", in.Key.Name, faults, s.leaks())
	return nil
}

func (s *subject) remove(t *testing.T, c cloud.Cloud, key cloud.Key) {
	t.Helper()
	var err error
	for range 40 {
		if err = c.Delete(t.Context(), key); cloud.KindOf(err) == cloud.NotFound {
			return
		}
		s.clk.Step(time.Minute)
	}
	t.Fatalf("%s is not gone: %v; there are %v", key.Name, err, s.leaks())
}

func (s *subject) vm(t *testing.T, name string) vrm.VM {
	t.Helper()
	for _, v := range s.vrm.VMs() {
		if v.Name == name {
			return v
		}
	}
	t.Fatalf("there is no VM %s", name)
	return vrm.VM{}
}

func withDisk(sp *spec.Spec) { sp.Slot.Disks = []spec.SlotDisk{{Name: "pool-0a1b2c3d", Slot: 0}} }

func (s *subject) disk(t *testing.T, name string) cloud.Disk {
	t.Helper()
	k := s.cloud.(cloud.DiskKeeper)
	for range 5 {
		d, err := k.EnsureDisk(t.Context(), cloud.DiskIntent{Name: name, SizeG: 40, Group: "dsc-1"})
		if err != nil {
			t.Fatal(err)
		}
		if d.ID != "" {
			return d
		}
		s.clk.Step(time.Minute)
	}
	t.Fatal("the volume is never there")
	return cloud.Disk{}
}

// What the guest gets: its template, place, numbers of disks, data.
func TestCreatedVM(t *testing.T) {
	s := newSubject(t, nil)
	s.disk(t, "pool-0a1b2c3d")
	in := intent("worker-0", "uid-0", func(sp *spec.Spec) {
		withDisk(sp)
		sp.Slot.MachineName, sp.Slot.Hostname = "vm-0", "host-0"
		sp.Slot.Additional = []spec.NIC{{DVSwitchName: "dvs-2", PortGroupName: "nodes"}}
	})
	s.run(t, s.cloud, in)
	v := s.vm(t, "vm-0")
	if string(v.UserData) != userData || v.KubeletVersion != "v1.33.1" || v.CPUs != 8 || v.MemoryMB != 16384 || v.FolderURN == "" {
		t.Errorf("got %+v", v)
	}
	var seq []int
	for _, d := range v.Disks {
		seq = append(seq, d.Sequence)
	}
	if d := cmp.Diff([]int{1, 2, 3}, seq); d != "" {
		t.Errorf("sequence numbers (-want +got):\n%s", d)
	}
	if len(v.NICs) != 2 || strings.Split(v.NICs[0].PortGroupURN, ":")[4] == strings.Split(v.NICs[1].PortGroupURN, ":")[4] {
		t.Errorf("the port groups of one name are to be on two switches: %v", v.NICs)
	}
	got, err := s.cloud.Observe(t.Context(), in.Key)
	if err != nil || got.Addresses[0].Address != "host-0" {
		t.Errorf("got %v, %v", got.Addresses, err)
	}
	e := s.cloud.(cloud.Ejector)
	for range 4 {
		if err = e.Eject(t.Context(), in.Key); err != nil {
			break
		}
		s.clk.Step(time.Minute)
	}
	if cloud.KindOf(err) != cloud.NotFound || len(s.vrm.Files()) != 0 || s.vm(t, "vm-0").CDROM != "" {
		t.Errorf("after Eject: %v, files %v", err, s.vrm.Files())
	}
	s.remove(t, s.cloud, in.Key)
	if d := cmp.Diff([]string{"volume pool-0a1b2c3d"}, s.leaks()); d != "" {
		t.Errorf("left (-want +got):\n%s", d)
	}
}

// A volume is taken over by the next VM of its slot, and only by one at a time.
func TestDiskMovesOn(t *testing.T) {
	s := newSubject(t, nil)
	before := s.disk(t, "pool-0a1b2c3d")
	old, next := intent("old", "uid-old", withDisk), intent("next", "uid-next", withDisk)
	s.run(t, s.cloud, old)
	s.clk.Step(time.Minute)
	var err error
	for range 6 {
		if _, err = s.cloud.Create(t.Context(), next); err != nil {
			break
		}
		s.clk.Step(time.Minute)
	}
	if f := cloud.FaultOf(err); f == nil || f.Reason != "WaitingForDetach" {
		t.Fatalf("got %v, want WaitingForDetach", err)
	}
	s.remove(t, s.cloud, old.Key)
	s.run(t, s.cloud, next)
	after, err := s.cloud.(cloud.DiskKeeper).ObserveDisk(t.Context(), "pool-0a1b2c3d")
	if err != nil || after.ID != before.ID || after.AttachedTo != s.vm(t, "next").URN {
		t.Errorf("got %+v, %v, want %s on the next VM", after, err, before.ID)
	}
	if err := s.cloud.(cloud.DiskKeeper).DeleteDisk(t.Context(), "pool-0a1b2c3d"); reasonOf(err) != "WaitingForDetach" {
		t.Errorf("delete of an attached volume: %v", err)
	}
}

func reasonOf(err error) string {
	if f := cloud.FaultOf(err); f != nil {
		return f.Reason
	}
	return ""
}

// The catalogue of failures, as far as the provider sees them.
func TestFailures(t *testing.T) {
	for _, c := range []struct {
		name    string
		disturb func(*subject)
		change  func(*spec.Spec)
		kind    cloud.Kind
		reason  string
		heal    func(*subject) // then it runs; nil: it stays
	}{
		{name: "template absent", change: func(sp *spec.Spec) { sp.VMTemplateName = "k8s" }, kind: cloud.Transient, reason: "TemplateNotFound"},
		{name: "switch absent", change: func(sp *spec.Spec) { sp.VMConfig.DVSwitchName = "dvs" }, kind: cloud.Transient, reason: "ReferenceNotFound"},
		{name: "port group of another switch", change: func(sp *spec.Spec) { sp.VMConfig.PortGroupName = "storage" }, kind: cloud.Transient, reason: "ReferenceNotFound"},
		{name: "folder absent", change: func(sp *spec.Spec) { sp.Location.Name = "work" }, kind: cloud.Transient, reason: "ReferenceNotFound"},
		{name: "datastore absent", change: func(sp *spec.Spec) { sp.VMConfig.Disks[1].Datastore = "ds" }, kind: cloud.Transient, reason: "ReferenceNotFound"},
		{name: "system disk too small", change: func(sp *spec.Spec) { sp.VMConfig.Disks[0].Quantity = 39 }, kind: cloud.Invalid, reason: "SystemDiskTooSmall"},
		{name: "no address", change: func(sp *spec.Spec) { sp.Slot.IP = "" }, kind: cloud.Invalid, reason: "InvalidSpec"},
		{name: "upload host unreachable", disturb: func(s *subject) { s.vrm.SetUploadBase("https://127.0.0.1:1") }, kind: cloud.Transient, reason: "UploadFailed",
			heal: func(s *subject) { s.vrm.SetUploadBase("") }},
		{name: "datastore refuses uploads", change: func(sp *spec.Spec) { sp.VMConfig.CDROMDatastore = "ds-block" }, kind: cloud.Transient, reason: "UploadRejected"},
		{name: "clone fails", disturb: func(s *subject) {
			_ = s.vrm.Fail(vrm.Fault{Op: "vm.clone", Async: true, Code: "10300777", Message: "The datastore is not shared."})
		}, kind: cloud.Transient, reason: "10300777", heal: func(*subject) {}},
		{name: "start fails", disturb: func(s *subject) {
			_ = s.vrm.Fail(vrm.Fault{Op: "vm.start", Async: true, Code: "10300778", Message: "Host resources are not enough."})
		}, kind: cloud.NoCapacity, reason: "10300778", heal: func(*subject) {}},
		{name: "licence", disturb: func(s *subject) { _ = s.vrm.Fail(vrm.Fault{Op: "session.create", Code: "10000040", Count: -1}) }, kind: cloud.Denied, reason: "10000040"},
		{name: "truncated or odd answers", disturb: func(s *subject) { _ = s.vrm.Fail(vrm.Fault{Op: "vm.list", Status: 502}) }, kind: cloud.Transient, reason: "10000009", heal: func(*subject) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSubject(t, nil)
			if c.disturb != nil {
				c.disturb(s)
			}
			in := intent("w", "uid-w", c.change)
			var err error
			for range 10 {
				if _, err = s.cloud.Create(t.Context(), in); err != nil {
					break
				}
				s.clk.Step(time.Minute)
			}
			if cloud.KindOf(err) != c.kind || reasonOf(err) != c.reason {
				t.Fatalf("got %q %q (%v), want %q %q", cloud.KindOf(err), reasonOf(err), err, c.kind, c.reason)
			}
			if c.heal != nil {
				c.heal(s)
				s.run(t, s.cloud, in)
				if n := strings.Count(strings.Join(s.leaks(), "\n"), "vm "); n != 1 {
					t.Errorf("there are %d VMs: %v", n, s.leaks())
				}
			}
		})
	}
}

func TestPlacementStalls(t *testing.T) {
	for name, stall := range map[string]func(*subject, bool){
		"deploy lock": func(s *subject, on bool) { s.vrm.Freeze(on) },
		"full datastore": func(s *subject, on bool) {
			_ = s.vrm.SetCapacity("ds-1", map[bool]int{true: 50, false: 5000}[on])
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSubject(t, nil)
			stall(s, true)
			in := intent("w", "uid-w", nil)
			for range 20 {
				i, err := s.cloud.Create(t.Context(), in)
				if err != nil || i.State != cloud.StateCreating {
					t.Fatalf("got %s, %v, want Creating", i.State, err)
				}
				s.clk.Step(time.Minute)
			}
			stall(s, false)
			s.run(t, s.cloud, in)
		})
	}
}

// A stop that hangs, the delete race and states that are somebody else's.
func TestDeletionWaits(t *testing.T) {
	s := newSubject(t, nil)
	in := intent("w", "uid-w", nil)
	s.run(t, s.cloud, in)
	if err := s.vrm.SetStatus("w", "pause"); err != nil {
		t.Fatal(err)
	}
	s.clk.Step(time.Minute)
	stays := func(status string) {
		t.Helper()
		for range 5 {
			if err := s.cloud.Delete(t.Context(), in.Key); err != nil {
				t.Fatal(err)
			}
			s.clk.Step(time.Minute)
		}
		if got := s.vm(t, "w").Status; got != status {
			t.Fatalf("the VM is %s, want %s", got, status)
		}
	}
	stays("pause")
	_ = s.vrm.SetStatus("w", "running")
	_ = s.vrm.SetPVDriver("w", false)
	stays("stopping")
	if err := s.vrm.ForceStop("w"); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if err := s.vrm.Fail(vrm.Fault{Op: "vm.delete", Code: "102212808"}); err != nil {
			t.Fatal(err)
		}
		if err := s.cloud.Delete(t.Context(), in.Key); err != nil {
			t.Fatalf("102212808 is no failure: %v", err)
		}
	}
	s.remove(t, s.cloud, in.Key)
	if left := s.leaks(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// At most the configured number of refused logins in an hour, whatever the
// callers do, and no lock; it heals by itself.
func TestWrongPassword(t *testing.T) {
	s := newSubject(t, nil, dcs.WithLogins(2))
	s.vrm.SetPassword("other")
	in := intent("w", "uid-w", nil)
	for range 55 {
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				_, err := s.cloud.Create(t.Context(), in)
				if f := cloud.FaultOf(err); f == nil || f.Kind != cloud.Credentials || f.RetryAfter <= 0 {
					t.Errorf("got %v, want Credentials with a wait", err)
				}
			})
		}
		wg.Wait()
		s.clk.Step(time.Minute)
	}
	if n := s.vrm.Requests()["session.create"]; n != 2 {
		t.Errorf("%d logins in 55 minutes, want 2", n)
	}
	s.vrm.SetPassword("right")
	s.clk.Step(10 * time.Minute)
	s.run(t, s.cloud, in)
}

func TestLockedAccount(t *testing.T) {
	s := newSubject(t, func(c *vrm.Config) { c.Lockout = 1 })
	s.vrm.SetPassword("other")
	in := intent("w", "uid-w", nil)
	_, err := s.cloud.Create(t.Context(), in)
	if cloud.KindOf(err) != cloud.Credentials || reasonOf(err) != "10100116" || cloud.RetryAfter(err) != 5*time.Minute {
		t.Fatalf("got %v", err)
	}
	s.vrm.SetPassword("right")
	s.clk.Step(5*time.Minute + time.Second)
	s.run(t, s.cloud, in)
}

func TestSessionExpiresMidway(t *testing.T) {
	for _, inBody := range []bool{false, true} {
		s := newSubject(t, nil)
		in := intent("w", "uid-w", nil)
		for range 8 {
			if _, err := s.cloud.Create(t.Context(), in); err != nil {
				t.Fatal(err)
			}
			s.vrm.ExpireSessions(inBody)
			s.clk.Step(time.Minute)
		}
		if got := s.vm(t, "w").Status; got != "running" {
			t.Errorf("the VM is %s", got)
		}
	}
}

// 200 at once against a limit of 10 requests.
func TestManyAtOnce(t *testing.T) {
	s := newSubject(t, func(c *vrm.Config) { c.Concurrency = 10 })
	const n = 200
	var mu sync.Mutex
	faults := 0
	left := map[int]bool{}
	for i := range n {
		left[i] = true
	}
	for round := 0; len(left) > 0 && round < 20; round++ {
		var wg sync.WaitGroup
		for i := range left {
			wg.Go(func() {
				name := fmt.Sprintf("m-%d", i)
				inst, err := s.cloud.Create(t.Context(), intent(name, "uid-"+name, nil))
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					faults++
				} else if inst.State == cloud.StateRunning {
					delete(left, i)
				}
			})
		}
		wg.Wait()
		s.clk.Step(time.Minute)
	}
	total := 0
	req := s.vrm.Requests()
	for op, k := range req {
		if op != "refused" {
			total += k
		}
	}
	t.Logf("%.1f requests per machine, at most %d at once; %v", float64(total)/n, s.vrm.Peak(), req)
	vms := slices.DeleteFunc(s.vrm.VMs(), func(v vrm.VM) bool { return v.Template })
	if len(left) > 0 || len(vms) != n || faults > 0 || req["refused"] > 0 || req["session.create"] != 1 || req["vm.clone"] != n {
		t.Errorf("left %d, VMs %d, faults %d, requests %v", len(left), len(vms), faults, req)
	}
	if total > 25*n {
		t.Errorf("%d requests for %d machines, want at most 25 each", total, n)
	}
}

// Killed after any call of create and delete, with the call's effect there and
// its answer lost, a new process ends with one VM and leaves nothing.
func TestKilledAfterEachCall(t *testing.T) {
	in := intent("w", "uid-w", withDisk)
	// steps drives f; when the line is cut it goes on as a new process.
	drive := func(t *testing.T, s *subject, n int, done func(cloud.Cloud) bool) (killed bool) {
		s.cut(n)
		c := s.open(t, nil)
		for range 60 {
			if done(c) {
				s.cut(0)
				return killed
			}
			s.mu.Lock()
			dead := n > 0 && s.calls >= n
			s.mu.Unlock()
			if dead {
				s.cut(0)
				n, killed, c = 0, true, s.open(t, nil)
			}
			s.clk.Step(30 * time.Second)
		}
		t.Fatalf("does not end; there are %v", s.leaks())
		return false
	}
	made := func(c cloud.Cloud) bool {
		i, err := c.Create(t.Context(), in)
		return err == nil && i.State == cloud.StateRunning
	}
	gone := func(c cloud.Cloud) bool { return cloud.KindOf(c.Delete(t.Context(), in.Key)) == cloud.NotFound }
	for n := 1; n < 200; n++ {
		s := newSubject(t, nil)
		s.disk(t, "pool-0a1b2c3d")
		createKilled := drive(t, s, n, made)
		want := []string{"ds-1/", "vm w running", "volume pool-0a1b2c3d"}
		if got := s.leaks(); len(got) != 5 || got[1] != want[1] {
			t.Errorf("create killed after call %d: got %v", n, got)
		}
		deleteKilled := drive(t, s, n, gone)
		if d := cmp.Diff([]string{want[2]}, s.leaks()); d != "" {
			t.Errorf("killed after call %d, left (-want +got):\n%s", n, d)
		}
		if !createKilled && !deleteKilled {
			t.Logf("create and delete end within %d calls", n)
			return
		}
	}
	t.Error("there are too many calls")
}

// A clone that took effect although it was answered with an error.
func TestLostAnswer(t *testing.T) {
	s := newSubject(t, nil)
	if err := s.vrm.Fail(vrm.Fault{Op: "vm.clone", Lost: true}); err != nil {
		t.Fatal(err)
	}
	s.run(t, s.cloud, intent("w", "uid-w", nil))
	if n := s.vrm.Requests()["vm.clone"]; n != 1 {
		t.Errorf("%d clones, want 1", n)
	}
}

// Processes that know nothing of each other may clone twice; one VM stays.
func TestTwinIsRemoved(t *testing.T) {
	s := newSubject(t, nil)
	in := intent("w", "uid-w", nil)
	if err := s.vrm.Slow("vm.clone", time.Second); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 3 {
		c := s.open(t, nil)
		wg.Go(func() { _, _ = c.Create(t.Context(), in) })
	}
	for end := time.Now().Add(20 * time.Second); s.vrm.Requests()["vm.clone"] < 3 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	s.clk.Step(2 * time.Second)
	wg.Wait()
	s.vrm.ClearFaults()
	if n := strings.Count(strings.Join(s.leaks(), " "), "vm w"); n != 3 {
		t.Fatalf("%d clones, want 3", n)
	}
	for range 20 {
		if _, err := s.cloud.Create(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		s.clk.Step(time.Minute)
	}
	if got := s.leaks(); len(got) != 4 || got[1] != "vm w running" {
		t.Errorf("got %v, want one VM, its two volumes and its disc", got)
	}
}

func TestOpen(t *testing.T) {
	for _, c := range []struct{ key, value, want string }{
		{"userType", "2", "want interconnect or domain"}, {"userType", "1", "want interconnect or domain"}, {"authKey", "", "authKey is missing"},
		{"endpoint", "vrm:7443", "https://host:7443"}, {"site", "", "spec.site"}, {"caBundle", "x", "no PEM"}, {"insecureSkipVerify", "yes", `neither "true"`},
	} {
		data := map[string]cloud.Secret{"authUser": cloud.Secret("u"), "authKey": cloud.Secret("p"), "endpoint": cloud.Secret("https://vrm:7443"), "site": cloud.Secret("S")}
		data[c.key] = cloud.Secret(c.value)
		_, err := dcs.NewOpener().Open(t.Context(), cloud.Account{Source: "ns/s", Data: data})
		if cloud.KindOf(err) != cloud.Credentials || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %q: got %v, want %q", c.key, c.value, err, c.want)
		}
	}
}

func TestCertificates(t *testing.T) {
	s := newSubject(t, nil)
	key := cloud.Key{UID: "u", Name: "w"}
	none := s.open(t, func(d map[string]cloud.Secret) { delete(d, "caBundle") })
	if _, err := none.Observe(t.Context(), key); reasonOf(err) != "SiteUnreachable" {
		t.Errorf("an unknown certificate: %v", err)
	}
	blind := s.open(t, func(d map[string]cloud.Secret) { delete(d, "caBundle"); d["insecureSkipVerify"] = cloud.Secret("true") })
	if _, err := blind.Observe(t.Context(), key); cloud.KindOf(err) != cloud.NotFound {
		t.Errorf("with the opt-out: %v", err)
	}
}
