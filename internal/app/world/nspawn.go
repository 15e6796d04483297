package world

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"millwright.io/millwright/internal/sim/vm"
)

// debianSuite and debianPackages are what real machines run.
const (
	debianSuite    = "bookworm"
	debianPackages = "systemd,systemd-sysv,dbus"
)

// checkNspawn says what a world of real machines lacks.
func checkNspawn() error {
	if os.Geteuid() != 0 {
		return &UsageError{"--machines nspawn boots real machines, which needs root's rights: run it as root, or use rooted or hollow"}
	}
	for program, debian := range map[string]string{"systemd-nspawn": "systemd-container", "mmdebstrap": "mmdebstrap", "nsenter": "util-linux", "unshare": "util-linux"} {
		if _, err := exec.LookPath(program); err != nil {
			return &UsageError{fmt.Sprintf("--machines nspawn needs %s: install the Debian package %s", program, debian)}
		}
	}
	return nil
}

// nspawn makes the workers real machines. Their Debian is unpacked once, outside of
// the world.
func (s *supervisor) nspawn(ctx context.Context) (*vm.Nspawn, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find the cache: %w", err)
	}
	image := filepath.Join(cache, "millwright", "debian-"+debianSuite+"-systemd")
	if _, err := os.Stat(image); err != nil {
		s.opts.Say("Unpacking Debian %s into %s, once, about a minute", debianSuite, image)
		making := fmt.Sprintf("%s.%d", image, os.Getpid())
		if err := os.MkdirAll(filepath.Dir(image), 0o755); err != nil {
			return nil, fmt.Errorf("make the cache: %w", err)
		}
		out, err := exec.CommandContext(ctx, "mmdebstrap", "--variant=minbase", "--include="+debianPackages, debianSuite, making).CombinedOutput()
		if err != nil {
			_ = os.RemoveAll(making)
			return nil, fmt.Errorf("unpack Debian: %w: %s", err, out)
		}
		if err := os.Rename(making, image); err != nil {
			return nil, fmt.Errorf("keep Debian: %w", err)
		}
	}
	return &vm.Nspawn{
		Image: image, Shared: []string{s.binDir, s.dir.join("pods")},
		Machines: func(h vm.Hardware) bool { return !s.isMaster(h.Name) },
	}, nil
}
