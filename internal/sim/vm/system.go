package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"millwright.io/millwright/internal/engine/diff"
	hostos "millwright.io/millwright/internal/host/ostree"
	"millwright.io/millwright/internal/sim/ostree"
	"millwright.io/millwright/internal/sim/services"
)

// firstArguments are the kernel's on a new disk.
const firstArguments = "ostree=/ostree/boot.1/rhcos/0/0 ignition.platform.id=azure root=UUID=910678ff-f77e-4a7d-8d53-86f2ac47a823 rw"

// Paths of what the first boot leaves for the system, and how they are called once
// done.
const (
	pathEncapsulated     = "etc/ignition-machine-config-encapsulated.json"
	pathEncapsulatedDone = pathEncapsulated + ".bak"
)

// standinNames are the programs for which the stand-in answers.
var standinNames = []string{"rpm-ostree", "bootc", "systemctl", "update-ca-trust", "reboot", "poweroff"}

// installSystem gives a new disk its first deployment, the units of its image and the
// programs that change them.
func (h *Hypervisor) installSystem(root *os.Root, dir string) error {
	for name, body := range services.Image() {
		if err := writeFile(root, name, []byte(body), 0o644); err != nil {
			return err
		}
	}
	for _, u := range []string{"NetworkManager.service", "chronyd.service", "sshd.service"} {
		if err := enable(root, u); err != nil {
			return fmt.Errorf("enable %s: %w", u, err)
		}
	}
	if h.cfg.Standin == "" {
		return nil
	}
	if err := copyOnce(h.cfg.Standin, filepath.Join(dir, "usr", "bin", "millwright-standin")); err != nil {
		return fmt.Errorf("install the stand-in for rpm-ostree: %w", err)
	}
	for _, n := range standinNames {
		if err := root.Symlink("millwright-standin", "usr/bin/"+n); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("install %s: %w", n, err)
		}
	}
	return nil
}

// enable makes the multi-user target want a unit of the image.
func enable(root *os.Root, unit string) error {
	const wants = "etc/systemd/system/multi-user.target.wants"
	if err := root.MkdirAll(wants, 0o755); err != nil {
		return err
	}
	if err := root.Symlink("/usr/lib/systemd/system/"+unit, wants+"/"+unit); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// encapsulated is what the first-boot service reads of a config.
type encapsulated struct {
	Spec struct {
		OSImageURL      string   `json:"osImageURL"`
		KernelArguments []string `json:"kernelArguments"`
		KernelType      string   `json:"kernelType"`
		Extensions      []string `json:"extensions"`
	} `json:"spec"`
}

// provision does what the first-boot service and its reboot do: the image and the
// arguments of the config become what runs, at once. It ends a first boot once.
func provision(root *os.Root, tree *ostree.Tree, print func(string, ...any)) error {
	raw, err := root.ReadFile(pathEncapsulated)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // not of the Machine Config family
	}
	if err != nil {
		return fmt.Errorf("read /%s: %w", pathEncapsulated, err)
	}
	var c encapsulated
	if err := json.Unmarshal(raw, &c); err != nil {
		return fmt.Errorf("read /%s: %w", pathEncapsulated, err)
	}
	layered, removed := hostos.Layers(c.Spec.KernelType, c.Spec.Extensions)
	if err := tree.Provision(c.Spec.OSImageURL, diff.Arguments(c.Spec.KernelArguments), layered, removed); err != nil {
		return err
	}
	print("machine-config-daemon-firstboot: image %q, kernel arguments %q", c.Spec.OSImageURL, strings.Join(c.Spec.KernelArguments, " "))
	if err := root.Rename(pathEncapsulated, pathEncapsulatedDone); err != nil {
		return fmt.Errorf("rename /%s: %w", pathEncapsulated, err)
	}
	return nil
}

// bootSystem brings up what is to be booted; a first boot is provisioned before.
func (h *Hypervisor) bootSystem(root *os.Root, rec *Record, first bool, print func(string, ...any)) error {
	tree, err := ostree.Open(rec.Root)
	if err != nil {
		return err
	}
	defer func() { _ = tree.Close() }()
	err = tree.Install(ostree.Deployment{Version: ostree.FirstVersion, Arguments: strings.Fields(firstArguments), Timestamp: h.cfg.Clock.Now().Unix()})
	if err != nil {
		return err
	}
	if first {
		if err := provision(root, tree, print); err != nil {
			return fmt.Errorf("first boot: %w", err)
		}
	}
	report, err := tree.Boot()
	if err != nil {
		return err
	}
	switch {
	case report.Lost != nil:
		print("ostree-finalize-staged.service: finalizing was made to fail; %s is lost", report.Lost.Version)
	case report.Finalized:
		print("Booted a new deployment: %s, kernel arguments %q", ostree.Pretty(report.Booted.Version), strings.Join(report.Booted.Arguments, " "))
	}
	return nil
}

// power is what a machine's own system asked of its power.
type power string

const (
	powerStays  power = ""
	powerReboot power = "reboot"
	powerOff    power = "poweroff"
)

// asked tells what a running machine asks of its power.
func asked(dir string) power {
	m, err := services.Open(dir)
	if err != nil {
		return powerStays // its disk was deleted
	}
	defer func() { _ = m.Close() }()
	switch p := power(m.Power()); p {
	case powerReboot, powerOff:
		return p
	default:
		return powerStays
	}
}

// osImage is how the system on a disk presents itself.
func osImage(d Disk) string {
	raw, err := d.Read("usr/lib/os-release")
	if err == nil {
		for line := range strings.Lines(string(raw)) {
			if v, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
				return strings.Trim(v, `"`)
			}
		}
	}
	return ostree.Pretty(ostree.FirstVersion)
}
