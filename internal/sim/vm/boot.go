package vm

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// retryPause is how long a machine waits before it tries to join again, as
// systemd's RestartSec of a kubelet unit does.
const retryPause = 5 * time.Second

// volatile paths are lost at every boot.
var volatile = []string{"tmp", "run", "dev/shm"}

// powerPoll is how often a running machine's disk is asked whether it wants to
// reboot.
const powerPoll = 150 * time.Millisecond

// live is all boots of a machine from power on to ctx's end, or to the end that the
// machine itself asked for.
func (h *Hypervisor) live(ctx context.Context, uuid string) {
	for {
		switch h.life(ctx, uuid) {
		case powerReboot:
		case powerOff:
			h.switchedOff(uuid)
			return
		default:
			return
		}
	}
}

// switchedOff records that a machine turned its power off.
func (h *Hypervisor) switchedOff(uuid string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.guests[uuid]
	if g == nil || g.cancel == nil {
		return
	}
	g.cancel()
	g.cancel = nil
	g.rec.Powered, g.rec.Stage = false, StageOff
	if err := h.save(&g.rec); err != nil {
		h.cfg.Log.Error(err, "Recording that a machine is off", "vm", g.rec.Name)
	}
}

// life is one boot of a machine. It returns what the machine asked for at its end.
func (h *Hypervisor) life(ctx context.Context, uuid string) power {
	h.mu.Lock()
	g := h.guests[uuid]
	if g == nil {
		h.mu.Unlock()
		return powerStays
	}
	rec := g.rec
	h.mu.Unlock()
	print := h.printer(rec)
	h.setStage(uuid, StageBooting)
	print("Booting %s (%s, %d vCPU, %d MiB) in %s", rec.Name, rec.Size, rec.VCPUs, rec.MemoryMiB, rec.Location)
	boot, joiner := h.boot, h.cfg.Joiner
	if rec.Hollow {
		boot, joiner = h.bootHollow, h.cfg.HollowJoiner
	}
	disk, err := boot(ctx, &rec, print)
	if err != nil {
		if ctx.Err() == nil {
			print("Boot failed: %v", err)
			h.setStage(uuid, StageFailed)
		}
		return powerStays
	}
	defer disk.close()
	on, off := context.WithCancel(ctx)
	var wants power
	var wg sync.WaitGroup
	wg.Go(func() {
		switch d := disk.(type) {
		case *hollowDisk:
			wants = d.watchPower(on)
		case *realDisk:
			wants = d.watchPower(on, off)
		default:
			wants = h.watchPower(on, rec.Root)
		}
		if wants != powerStays {
			print("systemd: %s was asked for; stopping", wants)
			off()
		}
	})
	h.serve(on, joiner, Machine{Record: rec, BindIP: h.BindIP(rec.Number), Console: print, Disk: disk, Enter: enter(disk)})
	off()
	wg.Wait()
	if ctx.Err() != nil {
		print("Power off")
		return powerStays
	}
	return wants
}

// watchPower waits until the machine asks for a reboot, or on ends.
func (d *hollowDisk) watchPower(on context.Context) power {
	select {
	case <-on.Done():
		return powerStays
	case <-d.reboot:
		return powerReboot
	}
}

// watchPower waits until a machine asks for another power state, or on ends.
func (h *Hypervisor) watchPower(on context.Context, root string) power {
	tick := h.cfg.Clock.NewTicker(powerPoll)
	defer tick.Stop()
	for {
		select {
		case <-on.Done():
			return powerStays
		case <-tick.C():
		}
		if p := asked(root); p != powerStays {
			return p
		}
	}
}

// serve joins a booted machine to its cluster, again and again, until ctx ends.
func (h *Hypervisor) serve(ctx context.Context, joiner Joiner, m Machine) {
	h.setStage(m.UUID, StageJoining)
	for {
		err := joiner.Join(ctx, m, func() { h.setStage(m.UUID, StageUp); m.Console("Kubelet is up") })
		if ctx.Err() != nil {
			return
		}
		h.setStage(m.UUID, StageJoining)
		m.Console("kubelet.service: %v; next try in %s", err, retryPause)
		select {
		case <-ctx.Done():
			return
		case <-h.cfg.Clock.After(retryPause):
		}
	}
}

// boot brings the disk to the state in which services start.
func (h *Hypervisor) boot(ctx context.Context, rec *Record, print func(string, ...any)) (Disk, error) {
	if err := h.wait(ctx, rec); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(rec.Root)
	if err != nil {
		return nil, fmt.Errorf("open disk: %w", err)
	}
	if n := h.cfg.Nspawn; n != nil && n.Machines(rec.Hardware) {
		s, err := h.startNspawn(ctx, root, rec, print)
		if err != nil {
			return nil, errors.Join(err, root.Close())
		}
		return &realDisk{rootDisk{root}, s, h}, h.booted(rec)
	}
	if err := h.start(ctx, root, rec, print); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return rootDisk{root}, h.booted(rec)
}

// realDisk is the root of a running systemd.
type realDisk struct {
	rootDisk
	machine *spawned
	h       *Hypervisor
}

func (d *realDisk) close() {
	select {
	case <-d.machine.done:
	default:
		d.machine.off(d.h.cfg.Clock.After(stopTimeout / 2))
	}
	d.rootDisk.close()
}

// watchPower waits until the machine itself ends, or on ends. At the beginning of a
// shutdown off ends what was started inside from outside: nsenter stops together with
// its child, and a child that nobody takes leave of would hold up the end.
func (d *realDisk) watchPower(on context.Context, off func()) power {
	tick := d.h.cfg.Clock.NewTicker(powerPoll)
	defer tick.Stop()
	for {
		select {
		case <-on.Done():
			return powerStays
		case <-d.machine.done:
			return d.machine.end
		case <-tick.C():
		}
		if !d.machine.ending() {
			continue
		}
		off()
		select {
		case <-d.machine.done:
			return d.machine.end
		case <-d.h.cfg.Clock.After(stopTimeout):
			d.machine.cut()
			return powerReboot
		}
	}
}

// enter is how processes get into a machine; nil: they stay outside.
func enter(d Disk) []string {
	if r, ok := d.(*realDisk); ok {
		return r.machine.enter()
	}
	return nil
}

// wait is the time a machine needs before its services start.
func (h *Hypervisor) wait(ctx context.Context, rec *Record) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-h.cfg.Clock.After(h.cfg.BootDelay(rec.Hardware)):
		return nil
	}
}

// empty takes away what a reboot takes away, and makes what a running systemd makes.
func empty(root *os.Root) error {
	for _, v := range volatile {
		if err := root.RemoveAll(v); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("empty /%s: %w", v, err)
		}
		if err := root.MkdirAll(v, 0o755); err != nil {
			return fmt.Errorf("make /%s: %w", v, err)
		}
		if v == "run" {
			continue
		}
		if err := root.Chmod(v, 0o777|fs.ModeSticky); err != nil {
			return fmt.Errorf("open /%s to all: %w", v, err)
		}
	}
	if err := root.MkdirAll("run/systemd/system", 0o755); err != nil {
		return fmt.Errorf("make /run/systemd/system: %w", err)
	}
	return writeFile(root, "run/ostree-booted", nil, 0o644)
}

// booted keeps the new boot ID.
func (h *Hypervisor) booted(rec *Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.guests[rec.UUID]
	if g == nil {
		return nil // deleted meanwhile
	}
	g.rec.BootID = rec.BootID
	return h.save(&g.rec)
}

// ignite is what Ignition does at a first boot: it gets the config and applies
// it to the disk.
func (h *Hypervisor) ignite(ctx context.Context, root *os.Root, rec *Record, print func(string, ...any)) error {
	print("Ignition: first boot, %d bytes of user data", len(rec.UserData))
	userData, err := h.userData(ctx, rec, print)
	if err != nil {
		return fmt.Errorf("ignition: %w", err)
	}
	done, err := ApplyIgnition(ctx, root, userData)
	if err != nil {
		return fmt.Errorf("ignition: %w", err)
	}
	print("Ignition: %s", done)
	return nil
}

// start empties what is volatile and, at the first boot, writes the image and
// applies the user data.
func (h *Hypervisor) start(ctx context.Context, root *os.Root, rec *Record, print func(string, ...any)) error {
	if err := empty(root); err != nil {
		return err
	}
	first := false
	if _, err := root.Lstat("etc/machine-id"); errors.Is(err, fs.ErrNotExist) {
		first = true
		if err := h.install(root, rec); err != nil {
			return fmt.Errorf("write image to disk: %w", err)
		}
		if err := h.ignite(ctx, root, rec, print); err != nil {
			return err
		}
	}
	if err := h.bootSystem(root, rec, first, print); err != nil {
		return err
	}
	rec.BootID = newUUID()
	if err := writeFile(root, "proc/sys/kernel/random/boot_id", []byte(rec.BootID+"\n"), 0o444); err != nil {
		return err
	}
	if first {
		// Last: its presence means that the first boot was completed, so a
		// machine killed half-way starts its first boot anew.
		id := make([]byte, 16)
		_, _ = rand.Read(id)
		if err := writeFile(root, "etc/machine-id", []byte(hex.EncodeToString(id)+"\n"), 0o444); err != nil {
			return err
		}
	}
	return nil
}

// userData is what the first boot applies.
func (h *Hypervisor) userData(ctx context.Context, rec *Record, print func(string, ...any)) ([]byte, error) {
	if h.cfg.Fetcher == nil {
		return rec.UserData, nil
	}
	return h.cfg.Fetcher.Resolve(ctx, rec.UserData, print)
}

// install writes what the image brings: a userland, identity files and a
// boot entry.
func (h *Hypervisor) install(root *os.Root, rec *Record) error {
	for _, d := range []string{"usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin", "usr/lib/systemd/system", "etc/systemd/system", "etc/pki/ca-trust/source/anchors", "var/home/core", "etc/kubernetes", "var/lib/kubelet/pki", "var/log", "var/home", "proc/sys/kernel/random", "sys", "dev", "root", "boot/loader/entries", "opt", "srv"} {
		if err := root.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("make /%s: %w", d, err)
		}
	}
	for name, to := range map[string]string{"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib", "home": "var/home", "etc/os-release": "../usr/lib/os-release"} {
		if err := root.Symlink(to, name); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("link /%s: %w", name, err)
		}
	}
	files := map[string]string{
		"etc/hostname": rec.Name + "\n",
		"etc/hosts":    "127.0.0.1 localhost\n" + rec.PrivateIP + " " + rec.Name + "\n",
		"etc/passwd":   "root:x:0:0:root:/root:/bin/sh\ncore:x:1000:1000:CoreOS Admin:/var/home/core:/bin/sh\n",
		"etc/group":    "root:x:0:\nwheel:x:10:core\ncore:x:1000:\n",
		"etc/shadow":   "root:*:20000:0:99999:7:::\ncore:*:20000:0:99999:7:::\n",
	}
	for name, body := range files {
		mode := os.FileMode(0o644)
		if name == "etc/shadow" {
			mode = 0o600
		}
		if err := writeFile(root, name, []byte(body), mode); err != nil {
			return err
		}
	}
	if err := h.installSystem(root, rec.Root); err != nil {
		return err
	}
	if h.cfg.Busybox == "" {
		return nil
	}
	return installBusybox(rec.Root, h.cfg.Busybox)
}

// writeFile writes a file inside the root, making its directory.
func writeFile(root *os.Root, name string, body []byte, mode os.FileMode) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("make directory of /%s: %w", name, err)
	}
	tmp := name + ".tmp-" + newUUID()[:8]
	if err := root.WriteFile(tmp, body, 0o600); err != nil {
		return fmt.Errorf("write /%s: %w", name, err)
	}
	if err := root.Chmod(tmp, mode); err != nil {
		return fmt.Errorf("set mode of /%s: %w", name, err)
	}
	if err := root.Rename(tmp, name); err != nil {
		return fmt.Errorf("write /%s: %w", name, err)
	}
	return nil
}

// newUUID returns a random version 4 UUID.
func newUUID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
