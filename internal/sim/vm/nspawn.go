package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"millwright.io/millwright/internal/engine/diff"
)

// Nspawn makes machines real: a Debian root with a systemd of its own, booted and
// rebooted by systemd-nspawn. It needs root's rights. The kubelet stays outside.
type Nspawn struct {
	// Image is a folder with an unpacked Debian that has systemd and dbus.
	Image string
	// Shared are folders of the host that machines see under the same path, for the
	// processes that kubelets start inside.
	Shared []string
	// Machines says which machines are real; the others stay as they are.
	Machines func(Hardware) bool
}

const (
	// exitReboot is how systemd-nspawn ends when its machine asked for a reboot.
	exitReboot = 133
	// bootLimit bounds how long a machine's systemd takes to come up.
	bootLimit = 30 * time.Second
	// installedPath is there once a first boot was completed.
	installedPath = "var/lib/millwright-vm"
	debianEntry   = "boot/loader/entries/debian.conf"
)

// spawned is a running machine.
type spawned struct {
	cmd  *exec.Cmd
	init int // its systemd's process on the host
	done chan struct{}
	end  power
}

// startNspawn brings a real machine's disk up to date and boots it.
func (h *Hypervisor) startNspawn(ctx context.Context, root *os.Root, rec *Record, print func(string, ...any)) (*spawned, error) {
	if _, err := root.Lstat(installedPath); errors.Is(err, fs.ErrNotExist) {
		if err := h.installDebian(ctx, root, rec, print); err != nil {
			return nil, err
		}
	}
	s, err := h.spawn(ctx, rec, print)
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/proc/sys/kernel/random/boot_id", s.init))
	if err != nil {
		s.cut()
		return nil, fmt.Errorf("read boot ID: %w", err)
	}
	rec.BootID = strings.TrimSpace(string(raw))
	return s, nil
}

// installDebian is a first boot: the image on the disk, the config applied.
func (h *Hypervisor) installDebian(ctx context.Context, root *os.Root, rec *Record, print func(string, ...any)) error {
	if out, err := exec.CommandContext(ctx, "cp", "-a", h.cfg.Nspawn.Image+"/.", rec.Root).CombinedOutput(); err != nil {
		return fmt.Errorf("write image to disk: %w: %s", err, out)
	}
	files := map[string]string{
		"etc/machine-id": "uninitialized\n", "etc/hostname": rec.Name + "\n",
		"etc/hosts": "127.0.0.1 localhost\n" + rec.PrivateIP + " " + rec.Name + "\n",
		debianEntry: "title Debian\nlinux /vmlinuz\noptions root=/dev/sda1 ro\n",
	}
	for name, body := range files {
		if err := writeFile(root, name, []byte(body), 0o644); err != nil {
			return err
		}
	}
	// The kubelet of a simulated machine runs outside of it.
	if err := writeFile(root, "usr/bin/kubelet", []byte("#!/bin/sh\nexec sleep infinity\n"), 0o755); err != nil {
		return err
	}
	for name, line := range map[string]string{"etc/passwd": "core:x:1000:1000:CoreOS Admin:/home/core:/bin/sh\n", "etc/group": "core:x:1000:\n", "etc/shadow": "core:*:20000:0:99999:7:::\n"} {
		if err := appendLine(root, name, line); err != nil {
			return err
		}
	}
	if err := h.ignite(ctx, root, rec, print); err != nil {
		return err
	}
	if err := provisionDebian(root); err != nil {
		return fmt.Errorf("first boot: %w", err)
	}
	return writeFile(root, installedPath, nil, 0o600)
}

func appendLine(root *os.Root, name, line string) error {
	have, err := root.ReadFile(name)
	if err != nil {
		return fmt.Errorf("read /%s: %w", name, err)
	}
	info, err := root.Lstat(name)
	if err != nil {
		return fmt.Errorf("read /%s: %w", name, err)
	}
	return writeFile(root, name, append(have, line...), info.Mode().Perm())
}

// provisionDebian puts the config's kernel arguments into the boot entry. Debian has
// no OS image of a config.
func provisionDebian(root *os.Root) error {
	raw, err := root.ReadFile(pathEncapsulated)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read /%s: %w", pathEncapsulated, err)
	}
	var c encapsulated
	if err := json.Unmarshal(raw, &c); err != nil {
		return fmt.Errorf("read /%s: %w", pathEncapsulated, err)
	}
	if list := diff.Arguments(c.Spec.KernelArguments); len(list) > 0 {
		body := "title Debian\nlinux /vmlinuz\noptions root=/dev/sda1 ro " + strings.Join(list, " ") + "\n"
		if err := writeFile(root, debianEntry, []byte(body), 0o644); err != nil {
			return err
		}
	}
	return root.Rename(pathEncapsulated, pathEncapsulatedDone)
}

// bootScript gives systemd-nspawn the file system that a reboot needs below
// /run, in mounts that end with it.
const bootScript = `mkdir -p /run/systemd/nspawn && mount -t tmpfs tmpfs /run/systemd/nspawn && exec systemd-nspawn "$@"`

// spawn boots a machine and waits until its systemd runs.
func (h *Hypervisor) spawn(ctx context.Context, rec *Record, print func(string, ...any)) (*spawned, error) {
	args := []string{"--mount", "--propagation", "private", "sh", "-c", bootScript, "sh",
		"--quiet", "--boot", "--register=no", "--keep-unit", "--console=pipe", "--directory=" + rec.Root}
	for _, dir := range h.cfg.Nspawn.Shared {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("make shared folder: %w", err)
		}
		args = append(args, "--bind="+dir)
	}
	s := &spawned{cmd: exec.Command("unshare", args...), done: make(chan struct{})}
	console, err := os.OpenFile(filepath.Join(filepath.Dir(rec.Root), "systemd.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open console: %w", err)
	}
	s.cmd.Stdout, s.cmd.Stderr = console, console
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start systemd-nspawn: %w", err), console.Close())
	}
	go func() {
		defer close(s.done)
		defer func() { _ = console.Close() }()
		err := s.cmd.Wait()
		var exit *exec.ExitError
		switch {
		case err == nil:
			s.end = powerOff
		case errors.As(err, &exit) && exit.ExitCode() == exitReboot:
			s.end = powerReboot
		}
	}()
	limit := h.cfg.Clock.After(bootLimit)
	tick := h.cfg.Clock.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if s.init = systemdBelow(s.cmd.Process.Pid); s.init != 0 {
			print("systemd is up as process %d", s.init)
			return s, nil
		}
		select {
		case <-ctx.Done():
			s.cut()
			return nil, ctx.Err()
		case <-s.done:
			return nil, errors.New("systemd-nspawn ended before the machine was up; see systemd.log beside its root")
		case <-limit:
			s.cut()
			return nil, fmt.Errorf("no systemd within %s; see systemd.log beside its root", bootLimit)
		case <-tick.C():
		}
	}
}

// systemdBelow finds the machine's systemd among the descendants of a process, once
// it serves; 0: not yet.
func systemdBelow(pid int) int {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0
	}
	for _, word := range strings.Fields(string(raw)) {
		var child int
		if _, err := fmt.Sscan(word, &child); err != nil {
			continue
		}
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", child))
		_, err := os.Stat(fmt.Sprintf("/proc/%d/root/run/systemd/private", child))
		if strings.TrimSpace(string(comm)) == "systemd" && err == nil {
			return child
		}
		if found := systemdBelow(child); found != 0 {
			return found
		}
	}
	return 0
}

// enter is the command that runs another one inside the machine.
func (s *spawned) enter() []string { return []string{"nsenter", "-t", fmt.Sprint(s.init), "-a"} }

// ending tells that the machine's systemd has handed over to its shutdown.
func (s *spawned) ending() bool {
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", s.init))
	return err != nil || strings.TrimSpace(string(comm)) != "systemd"
}

// cut ends the machine as a power cut does.
func (s *spawned) cut() {
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
	<-s.done
}

// off shuts the machine down, and cuts its power if it takes too long.
func (s *spawned) off(limit <-chan time.Time) {
	_ = syscall.Kill(s.cmd.Process.Pid, syscall.SIGTERM)
	select {
	case <-s.done:
	case <-limit:
		s.cut()
	}
}
