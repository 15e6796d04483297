// Package vm makes machines boot. A machine is a root directory, a power
// state and a goroutine that does what firmware, the first boot and a node's
// services do: it applies its user data to the root, asks for certificates
// with real signing requests, registers its Node and runs a kubelet.
//
// It is the other side of the wire: it knows no controller of ours and reads
// only what a machine could read, its disk and the API server.
package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// Hardware is what a cloud sells: one virtual machine as it was ordered.
type Hardware struct {
	UUID      string    `json:"uuid"` // never changes, unique in the world
	Name      string    `json:"name"` // host name and, later, the Node's name
	Cloud     string    `json:"cloud"`
	Size      string    `json:"size"`
	Location  string    `json:"location"`
	Zone      string    `json:"zone,omitempty"`
	PrivateIP string    `json:"privateIP"` // 10.x, never dialled
	VCPUs     int       `json:"vcpus"`
	MemoryMiB int64     `json:"memoryMiB"`
	UserData  []byte    `json:"userData,omitempty"` // decoded, as the machine reads it
	CreatedAt time.Time `json:"createdAt"`
}

// Stage is what a machine is doing.
type Stage string

// Stages.
const (
	StageOff     Stage = "Off"
	StageBooting Stage = "Booting"
	StageJoining Stage = "Joining" // its disk is ready, it asks for certificates
	StageUp      Stage = "Up"      // its kubelet runs
	StageFailed  Stage = "Failed"  // it will not come up by itself
)

// Record is one machine as the hypervisor keeps it.
type Record struct {
	Hardware
	// Number is n of its loopback 127.w.n.1, 1..254; 0 for hollow machines.
	Number int `json:"number,omitempty"`
	// Hollow machines have no root: their disk is a few files in memory.
	Hollow  bool   `json:"hollow,omitempty"`
	Powered bool   `json:"powered"`
	BootID  string `json:"bootID,omitempty"`
	Stage   Stage  `json:"-"`
	Root    string `json:"-"`
}

// Config is what a hypervisor needs.
type Config struct {
	Dir   string // holds vms/<uuid>/ and machines/<name>
	World int    // w of the loopback addresses 127.w.n.k, 1..254
	// BootDelay is how long a machine takes from power on to its services.
	BootDelay func(Hardware) time.Duration
	Busybox   string // path of a static busybox; "" for roots without userland
	// Standin is the path of millwright-standin, which answers for rpm-ostree and
	// systemctl on a machine; "" for machines without them.
	Standin string
	Joiner  Joiner
	// Hollow says which machines have no root; nil: none. HollowJoiner runs
	// those.
	Hollow       func(Hardware) bool
	HollowJoiner Joiner
	// Nspawn makes some machines real; nil: none.
	Nspawn *Nspawn
	// Fetcher follows what user data refer to; nil: they refer to nothing.
	Fetcher *Fetcher
	Clock   clock.WithTicker
	Log     logr.Logger
}

// Joiner runs what a booted machine runs until ctx ends: certificates, Node,
// kubelet. It calls up once the kubelet serves. It returns an error when the
// machine cannot join, which the machine tries again after a pause.
type Joiner interface {
	Join(ctx context.Context, m Machine, up func()) error
}

// Machine is what a Joiner may know of a booted machine.
type Machine struct {
	Record
	BindIP string // 127.w.n.1; empty for hollow machines
	// Enter is a command that runs another one inside the machine; nil: its processes
	// run outside.
	Enter   []string
	Disk    Disk
	Console func(format string, args ...any)
}

// Hypervisor holds all machines of a world. Safe for concurrent use.
type Hypervisor struct {
	cfg    Config
	base   context.Context
	mu     sync.Mutex
	guests map[string]*guest
	// contents are those of hollow machines.
	contents *contents
}

type guest struct {
	rec    Record
	cancel context.CancelFunc
	done   chan struct{}
}

// stopTimeout bounds how long a machine may take to shut down before its
// power is cut; its kubelet kills what it runs when its context ends.
const stopTimeout = 20 * time.Second

// New loads the machines of earlier runs; they stay off until PowerOn. ctx
// bounds the life of every machine.
func New(ctx context.Context, cfg Config) (*Hypervisor, error) {
	h := &Hypervisor{cfg: cfg, base: ctx, guests: map[string]*guest{}, contents: newContents(filepath.Join(cfg.Dir, "vms", "contents"))}
	for _, d := range []string{"vms", "machines"} {
		if err := os.MkdirAll(filepath.Join(cfg.Dir, d), 0o755); err != nil {
			return nil, fmt.Errorf("make machine directory: %w", err)
		}
	}
	paths, err := filepath.Glob(filepath.Join(cfg.Dir, "vms", "*", "vm.json"))
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			return nil, fmt.Errorf("read machine: %w", err)
		}
		var r Record
		if err := json.Unmarshal(b, &r); err != nil {
			return nil, fmt.Errorf("read machine %s: %w", p, err)
		}
		r.Stage, r.Root = StageOff, h.rootOf(r.UUID)
		h.guests[r.UUID] = &guest{rec: r}
	}
	return h, nil
}

func (h *Hypervisor) rootOf(uuid string) string {
	return filepath.Join(h.cfg.Dir, "vms", uuid, "root")
}

// PowerOn makes the machine if it is new and boots it. A running machine is
// left alone.
func (h *Hypervisor) PowerOn(hw Hardware) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.guests[hw.UUID]
	if g == nil {
		rec := Record{Hardware: hw, Stage: StageOff, Root: h.rootOf(hw.UUID), Hollow: h.cfg.Hollow != nil && h.cfg.Hollow(hw)}
		if !rec.Hollow {
			var err error
			if rec.Number, err = h.freeNumber(); err != nil {
				return err
			}
		}
		g = &guest{rec: rec}
		h.guests[hw.UUID] = g
	}
	if g.cancel != nil {
		return nil
	}
	g.rec.Powered = true
	if err := h.save(&g.rec); err != nil {
		return err
	}
	if err := h.link(&g.rec); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(h.base)
	g.cancel, g.done = cancel, make(chan struct{})
	go func(done chan struct{}) {
		defer close(done)
		h.live(ctx, hw.UUID)
	}(g.done)
	return nil
}

// freeNumber picks the smallest loopback number that no machine holds.
func (h *Hypervisor) freeNumber() (int, error) {
	used := map[int]bool{}
	for _, g := range h.guests {
		used[g.rec.Number] = true
	}
	for n := 1; n <= 254; n++ {
		if !used[n] {
			return n, nil
		}
	}
	return 0, errors.New("254 machines with a root of their own exist already; delete some, or use hollow machines")
}

// PowerOff stops the machine and keeps its disk. It waits until it is off.
func (h *Hypervisor) PowerOff(uuid string) error {
	h.mu.Lock()
	g := h.guests[uuid]
	if g == nil {
		h.mu.Unlock()
		return nil
	}
	cancel, done := g.cancel, g.done
	g.cancel = nil
	g.rec.Powered = false
	err := h.save(&g.rec)
	h.mu.Unlock()
	if cancel != nil {
		cancel()
		select {
		case <-done:
		case <-h.cfg.Clock.After(stopTimeout):
			h.cfg.Log.Info("Machine did not stop in time; its power is cut", "vm", g.rec.Name)
		}
	}
	h.setStage(uuid, StageOff)
	return err
}

// Remove stops the machine and deletes its disk.
func (h *Hypervisor) Remove(uuid string) error {
	if err := h.PowerOff(uuid); err != nil {
		return err
	}
	h.mu.Lock()
	g := h.guests[uuid]
	delete(h.guests, uuid)
	h.mu.Unlock()
	if g == nil {
		return nil
	}
	link := filepath.Join(h.cfg.Dir, "machines", g.rec.Name)
	if to, err := os.Readlink(link); err == nil && strings.Contains(to, uuid) {
		_ = os.Remove(link)
	}
	if err := os.RemoveAll(filepath.Join(h.cfg.Dir, "vms", uuid)); err != nil {
		return fmt.Errorf("delete disk of %s: %w", g.rec.Name, err)
	}
	return nil
}

// Stop ends all machines without changing their power state: they come back
// when they are powered on again.
func (h *Hypervisor) Stop() {
	h.mu.Lock()
	var waits []chan struct{}
	for _, g := range h.guests {
		if g.cancel != nil {
			g.cancel()
			waits = append(waits, g.done)
			g.cancel = nil
		}
	}
	h.mu.Unlock()
	limit := h.cfg.Clock.After(stopTimeout)
	for _, w := range waits {
		select {
		case <-w:
		case <-limit:
			return
		}
	}
}

// List returns all machines, ordered by name.
func (h *Hypervisor) List() []Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]Record, 0, len(h.guests))
	for _, g := range h.guests {
		out = append(out, g.rec)
	}
	slices.SortFunc(out, func(a, b Record) int { return strings.Compare(a.Name+a.UUID, b.Name+b.UUID) })
	return out
}

// Console returns what the machine printed, over all its boots.
func (h *Hypervisor) Console(uuid string) ([]byte, error) {
	b, err := os.ReadFile(h.consolePath(uuid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// BindIP returns the loopback address of machine number n.
func (h *Hypervisor) BindIP(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("127.%d.%d.1", h.cfg.World, n)
}

func (h *Hypervisor) consolePath(uuid string) string {
	return filepath.Join(h.cfg.Dir, "vms", uuid, "console.log")
}

func (h *Hypervisor) setStage(uuid string, s Stage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if g := h.guests[uuid]; g != nil {
		g.rec.Stage = s
	}
}

// save writes the record atomically; h.mu is held.
func (h *Hypervisor) save(r *Record) error {
	dir := filepath.Join(h.cfg.Dir, "vms", r.UUID)
	made := r.Root
	if r.Hollow {
		made = dir
	}
	if err := os.MkdirAll(made, 0o755); err != nil {
		return fmt.Errorf("make disk of %s: %w", r.Name, err)
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode machine %s: %w", r.Name, err)
	}
	tmp := filepath.Join(dir, "vm.json.tmp")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return fmt.Errorf("write machine %s: %w", r.Name, err)
	}
	return os.Rename(tmp, filepath.Join(dir, "vm.json"))
}

// link points machines/<name> to the root, replacing the link of an earlier
// machine of that name; h.mu is held.
func (h *Hypervisor) link(r *Record) error {
	if r.Hollow {
		return nil
	}
	l := filepath.Join(h.cfg.Dir, "machines", r.Name)
	to := filepath.Join("..", "vms", r.UUID, "root")
	if have, err := os.Readlink(l); err == nil && have == to {
		return nil
	}
	_ = os.Remove(l)
	if err := os.Symlink(to, l); err != nil {
		return fmt.Errorf("link machine %s: %w", r.Name, err)
	}
	return nil
}

func (h *Hypervisor) printer(r Record) func(string, ...any) {
	path := h.consolePath(r.UUID)
	start := h.cfg.Clock.Now()
	return func(format string, args ...any) {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return // the disk was deleted while the machine went down
		}
		defer func() { _ = f.Close() }()
		var b bytes.Buffer
		fmt.Fprintf(&b, "[%10.6f] ", h.cfg.Clock.Since(start).Seconds())
		fmt.Fprintf(&b, format, args...)
		b.WriteByte('\n')
		_, _ = f.Write(b.Bytes())
	}
}
