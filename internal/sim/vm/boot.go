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
	"time"
)

// retryPause is how long a machine waits before it tries to join again, as
// systemd's RestartSec of a kubelet unit does.
const retryPause = 5 * time.Second

// volatile paths are lost at every boot.
var volatile = []string{"tmp", "run", "dev/shm"}

// live is one boot of a machine, from power on to ctx's end.
func (h *Hypervisor) live(ctx context.Context, uuid string) {
	h.mu.Lock()
	rec := h.guests[uuid].rec
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
		return
	}
	defer disk.close()
	h.setStage(uuid, StageJoining)
	m := Machine{Record: rec, BindIP: h.BindIP(rec.Number), Console: print, Disk: disk}
	for {
		err := joiner.Join(ctx, m, func() { h.setStage(uuid, StageUp); print("Kubelet is up") })
		if ctx.Err() != nil {
			print("Power off")
			return
		}
		h.setStage(uuid, StageJoining)
		print("kubelet.service: %v; next try in %s", err, retryPause)
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
	if err := h.start(ctx, root, rec, print); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return rootDisk{root}, h.booted(rec)
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

// start empties what is volatile and, at the first boot, writes the image and
// applies the user data.
func (h *Hypervisor) start(ctx context.Context, root *os.Root, rec *Record, print func(string, ...any)) error {
	for _, v := range volatile {
		if err := root.RemoveAll(v); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("empty /%s: %w", v, err)
		}
		if err := root.MkdirAll(v, 0o777); err != nil {
			return fmt.Errorf("make /%s: %w", v, err)
		}
	}
	first := false
	if _, err := root.Lstat("etc/machine-id"); errors.Is(err, fs.ErrNotExist) {
		first = true
		if err := h.install(root, rec); err != nil {
			return fmt.Errorf("write image to disk: %w", err)
		}
		print("Ignition: first boot, %d bytes of user data", len(rec.UserData))
		userData, err := h.userData(ctx, rec, print)
		if err != nil {
			return fmt.Errorf("ignition: %w", err)
		}
		done, err := ApplyIgnition(root, userData)
		if err != nil {
			return fmt.Errorf("ignition: %w", err)
		}
		print("Ignition: %s", done)
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

const osRelease = `NAME="Red Hat Enterprise Linux CoreOS"
ID=rhcos
ID_LIKE="rhel fedora"
VERSION="9.6.20251015-0"
VERSION_ID="4.20"
PLATFORM_ID="platform:el9"
PRETTY_NAME="Red Hat Enterprise Linux CoreOS 9.6.20251015-0"
VARIANT_ID=coreos
`

const bootEntry = `title Red Hat Enterprise Linux CoreOS 9.6.20251015-0 (ostree:0)
version 1
options ostree=/ostree/boot.1/rhcos/0/0 ignition.platform.id=azure root=UUID=910678ff-f77e-4a7d-8d53-86f2ac47a823 rw
linux /ostree/rhcos/vmlinuz
`

// install writes what the image brings: a userland, identity files and a
// boot entry.
func (h *Hypervisor) install(root *os.Root, rec *Record) error {
	for _, d := range []string{"usr/bin", "usr/sbin", "usr/lib", "etc/systemd/system", "etc/kubernetes", "var/lib/kubelet/pki", "var/log", "var/home", "proc/sys/kernel/random", "sys", "dev", "root", "boot/loader/entries", "opt", "srv"} {
		if err := root.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("make /%s: %w", d, err)
		}
	}
	for name, to := range map[string]string{"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib", "home": "var/home"} {
		if err := root.Symlink(to, name); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("link /%s: %w", name, err)
		}
	}
	files := map[string]string{
		"etc/os-release":                    osRelease,
		"etc/hostname":                      rec.Name + "\n",
		"etc/hosts":                         "127.0.0.1 localhost\n" + rec.PrivateIP + " " + rec.Name + "\n",
		"etc/passwd":                        "root:x:0:0:root:/root:/bin/sh\ncore:x:1000:1000:CoreOS Admin:/var/home/core:/bin/sh\n",
		"etc/group":                         "root:x:0:\nwheel:x:10:core\ncore:x:1000:\n",
		"boot/loader/entries/ostree-1.conf": bootEntry,
		"proc/cmdline":                      "BOOT_IMAGE=(hd0,gpt3)/ostree/rhcos/vmlinuz ostree=/ostree/boot.1/rhcos/0/0 ignition.platform.id=azure root=UUID=910678ff-f77e-4a7d-8d53-86f2ac47a823 rw\n",
	}
	for name, body := range files {
		if err := writeFile(root, name, []byte(body), 0o644); err != nil {
			return err
		}
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
