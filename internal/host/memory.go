package host

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"millwright.io/millwright/internal/engine/transition"
)

// MemoryOptions are what a machine in memory is made of.
type MemoryOptions struct {
	// Image is the OS image it runs, Arguments its kernel's.
	Image     string
	Arguments []string
	// BootID is the first one; "": one of its own.
	BootID string
	// Fault lays faults over disk and system; nil: none. Its Disk is set.
	Fault *Faulty
	// Reboot is called when a reboot was asked for; nil: RebootAsked tells.
	Reboot func()
	// Intern returns a copy of contents that machines share; nil: none is shared but
	// with the writer.
	Intern func([]byte) []byte
}

// Memory is a machine without a disk: an ostree host with a rootless systemd, for
// thousands of hollow nodes and for tests that cut its power. Contents of files are
// shared with whoever wrote them.
type Memory struct {
	*machine
	mem *memory
	sys *memorySystem
}

// NewMemory returns a machine that has booted for the first time.
func NewMemory(o MemoryOptions) *Memory {
	if o.BootID == "" {
		o.BootID = "boot-1"
	}
	sys := &memorySystem{
		booted: deployment{image: o.Image, arguments: slices.Clone(o.Arguments), kernel: "default"},
		bootID: o.BootID, boots: 1, ask: o.Reboot, failing: map[string]bool{},
	}
	mem := newMemory()
	mem.intern = o.Intern
	m := assemble(mem, sys, o.Fault)
	for _, f := range []struct{ path, body string }{
		{"/etc/os-release", "ID=rhcos\nVARIANT_ID=coreos\nVERSION_ID=\"4.20\"\n"},
		{passwdPath, "root:x:0:0:root:/root:/bin/sh\ncore:x:1000:1000:CoreOS Admin:/var/home/core:/bin/sh\n"},
		{groupPath, "root:x:0:\ncore:x:1000:\n"},
	} {
		m.seed(f.path, f.body)
	}
	return m
}

func assemble(mem *memory, sys *memorySystem, fault *Faulty) *Memory {
	var d Disk = mem
	var s System = sys
	if fault != nil {
		fault.Disk = mem
		d, s = fault, faultySystem{sys, fault}
	}
	return &Memory{machine: newMachine(d, Options{System: s}), mem: mem, sys: sys}
}

// seed writes a file that was always there, past all faults.
func (m *Memory) seed(p, body string) {
	_ = files{m.mem}.Replace(p, []byte(body), Attr{Mode: 0o644})
}

// Boot restarts the machine: what was staged becomes true, what is volatile is gone,
// the boot ID is another one. With powerCut everything that was not synced is gone
// too. fault replaces the faults of the life before.
func (m *Memory) Boot(powerCut bool, fault *Faulty) *Memory {
	mem := m.mem
	if powerCut {
		mem = mem.crash()
	} else {
		mem.sync()
	}
	mem.empty("/tmp", 0o777|uint32(fs.ModeSticky))
	mem.empty("/run", 0o755)
	mem.empty("/dev/shm", 0o777|uint32(fs.ModeSticky))
	return assemble(mem, m.sys.boot(), fault)
}

// Restart is the machine as the next process finds it: nothing changed but that the
// faults are others.
func (m *Memory) Restart(fault *Faulty) *Memory { return assemble(m.mem, m.sys, fault) }

// RebootAsked tells that somebody asked for a reboot in this boot.
func (m *Memory) RebootAsked() bool {
	m.sys.mu.Lock()
	defer m.sys.mu.Unlock()
	return m.sys.rebooting
}

// FailService makes restarts and reloads of a service fail, or work again.
func (m *Memory) FailService(name string, fail bool) {
	m.sys.mu.Lock()
	defer m.sys.mu.Unlock()
	m.sys.failing[name] = fail
}

// FailFinalize makes the next boot come up with what ran before, as when the disk is
// full at shutdown.
func (m *Memory) FailFinalize() {
	m.sys.mu.Lock()
	defer m.sys.mu.Unlock()
	m.sys.failFinalize = true
}

// Done lists the effects on services in this boot, e.g. "restart crio.service".
func (m *Memory) Done() []string {
	m.sys.mu.Lock()
	defer m.sys.mu.Unlock()
	return slices.Clone(m.sys.done)
}

// Tree prints the machine for comparisons: every path with mode, owner and contents
// or target, then image and kernel arguments of the next boot. Folders, and paths
// below those that skip names, are left out.
func (m *Memory) Tree(skip ...string) string {
	var b strings.Builder
	m.mem.mu.RLock()
	m.mem.root.print(&b, "/", skip)
	m.mem.mu.RUnlock()
	m.sys.mu.Lock()
	defer m.sys.mu.Unlock()
	next := m.sys.next()
	fmt.Fprintf(&b, "image %s\narguments %v\nkernel %s\nextensions %v\n", next.image, next.arguments, next.kernel, next.extensions)
	return b.String()
}

func (n *inode) print(b *strings.Builder, p string, skip []string) {
	if slices.Contains(skip, p) {
		return
	}
	switch n.kind {
	case kindDir:
		names := make([]string, 0, len(n.entries))
		for name := range n.entries {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			n.entries[name].print(b, path.Join(p, name), skip)
		}
	case kindLink:
		fmt.Fprintf(b, "%s -> %s\n", p, n.target)
	default:
		fmt.Fprintf(b, "%s %o %d:%d %s\n", p, n.mode, n.uid, n.gid, transition.Digest(n.data)[:19])
	}
}

// deployment is what a machine boots.
type deployment struct {
	image      string
	arguments  []string
	kernel     string
	extensions []string
}

// memorySystem is the rest of a machine in memory. What is staged is on its disk.
type memorySystem struct {
	mu           sync.Mutex
	booted       deployment
	staged       *deployment
	bootID       string
	boots        int
	rebooting    bool
	failFinalize bool
	failing      map[string]bool
	done         []string
	ask          func()
}

func (s *memorySystem) next() *deployment {
	if s.staged != nil {
		return s.staged
	}
	return &s.booted
}

func (s *memorySystem) stage() *deployment {
	if s.staged == nil {
		c := s.booted
		c.arguments, c.extensions = slices.Clone(c.arguments), slices.Clone(c.extensions)
		s.staged = &c
	}
	return s.staged
}

func (s *memorySystem) boot() *memorySystem {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := &memorySystem{booted: s.booted, boots: s.boots + 1, ask: s.ask, failing: s.failing}
	n.bootID = "boot-" + strconv.Itoa(n.boots)
	if s.staged != nil && !s.failFinalize {
		n.booted = *s.staged
	}
	return n
}

func (s *memorySystem) Facts(_ context.Context, f *transition.Facts) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.Arch, f.Kernel, f.Image, f.Live = "amd64", transition.RPMOSTree, transition.RPMOSTree, true
	f.BootID, f.Booted, f.CommandLine = s.bootID, s.booted.image, slices.Clone(s.booted.arguments)
	return nil
}

func (s *memorySystem) Observe(_ context.Context, ref transition.Ref) (transition.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.next()
	switch ref.Kind {
	case transition.KindKernelArguments:
		return transition.State{Type: transition.List, Values: slices.Clone(n.arguments)}, nil
	case transition.KindImage:
		return transition.State{Type: transition.Value, Value: n.image}, nil
	case transition.KindKernelType:
		return transition.State{Type: transition.Value, Value: n.kernel}, nil
	case transition.KindExtensions:
		return transition.State{Type: transition.List, Values: slices.Clone(n.extensions)}, nil
	default: // effects have no state
		return transition.State{}, nil
	}
}

func (s *memorySystem) Perform(_ context.Context, step transition.Step) error {
	s.mu.Lock()
	ask := s.ask
	err := s.perform(step)
	s.mu.Unlock()
	if step.Kind == transition.KindReboot && err == nil && ask != nil {
		ask()
	}
	return err
}

func (s *memorySystem) perform(step transition.Step) error {
	switch step.Kind {
	case transition.KindKernelArguments:
		d := s.stage()
		d.arguments = Arguments(d.arguments, step.Before.Values, step.After.Values)
	case transition.KindImage:
		s.stage().image = step.After.Value
	case transition.KindKernelType:
		s.stage().kernel = step.After.Value
	case transition.KindExtensions:
		s.stage().extensions = slices.Clone(step.After.Values)
	case transition.KindReload, transition.KindRestart:
		if s.failing[step.Key] {
			verb := map[transition.Kind]string{transition.KindReload: "reloading %s configuration", transition.KindRestart: "restarting %s service"}[step.Kind]
			return fmt.Errorf("could not apply update: "+verb+" failed. Error: exit status 1", step.Key)
		}
		s.done = append(s.done, step.String())
	case transition.KindDaemonReload, transition.KindTrust:
		s.done = append(s.done, step.String())
	case transition.KindReboot:
		s.rebooting = true
	default:
		return fmt.Errorf("%s: no step of the system", step)
	}
	return nil
}

func (s *memorySystem) Verify(_ context.Context, step transition.Step) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if step.Kind == transition.KindReboot && s.bootID == step.Before.Value {
		return fmt.Errorf("reboot: the boot ID is still %s", s.bootID)
	}
	return nil
}

// Arguments returns a kernel's arguments after a step: those of before and after are
// taken away, then those of after added, so that a repeated step changes nothing.
// Of an argument that stands several times as many go as the lists name.
func Arguments(have, before, after []string) []string {
	out := slices.Clone(have)
	if slices.Equal(tail(out, len(after)), after) {
		rest := out[:len(out)-len(after)]
		if !slices.ContainsFunc(before, func(a string) bool { return slices.Contains(rest, a) && !slices.Contains(after, a) }) {
			return out // done before
		}
	}
	for _, a := range before {
		if i := slices.Index(out, a); i >= 0 {
			out = slices.Delete(out, i, i+1)
		}
	}
	return append(out, after...)
}

func tail(list []string, n int) []string {
	if n > len(list) {
		return nil
	}
	return list[len(list)-n:]
}

// faultySystem counts effects with the disk's operations.
type faultySystem struct {
	System
	fault *Faulty
}

func (s faultySystem) Perform(ctx context.Context, step transition.Step) error {
	return s.fault.effect(string(step.Kind), step.Key, false, func() error { return s.System.Perform(ctx, step) })
}
