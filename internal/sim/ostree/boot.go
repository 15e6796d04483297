package ostree

import (
	"fmt"
	"slices"
	"strings"
)

// Names of what a machine boots.
const (
	osName    = "rhcos"
	osPretty  = "Red Hat Enterprise Linux CoreOS"
	entryPath = "boot/loader/entries/ostree-%d.conf"
)

// FirstVersion is the version of a disk that no image was deployed to.
const FirstVersion = "9.6.20251015-0"

// Report is how a boot came out.
type Report struct {
	Booted Deployment
	// Finalized tells that the booted deployment was staged before.
	Finalized bool
	// Lost is what was staged and could not be made bootable.
	Lost *Deployment
}

// Boot does what shutdown, firmware and kernel do between two lives of a machine: a
// staged deployment becomes the booted one, and the one before the rollback; one that
// cannot be finalized is lost. Then boot entries, /proc/cmdline and os-release say
// what runs. It is safe to repeat.
func (t *Tree) Boot() (Report, error) {
	var r Report
	err := t.change(func(s *State) error {
		if s.Staged != nil {
			if t.Failing(FinalizeUnit) {
				r.Lost = s.Staged
			} else {
				s.Rollback, s.Booted = s.Booted, s.Staged
				r.Finalized = true
			}
			s.Staged = nil
		}
		r.Booted = *s.Booted.clone()
		return t.describe(s)
	})
	if err != nil {
		return r, fmt.Errorf("boot: %w", err)
	}
	return r, nil
}

// Provision makes what a first boot asks for the booted deployment at once, as the
// first-boot service and its reboot would: arguments are added to the disk's own.
func (t *Tree) Provision(image string, arguments, packages, removals []string) error {
	err := t.change(func(s *State) error {
		d := s.Booted
		if image != "" {
			d.Image, d.Origin, d.Version = image, unverified+image, VersionOf(image)
		}
		d.Arguments = append(d.Arguments, arguments...)
		d.Packages, d.Removals = sorted(packages), sorted(removals)
		s.Staged, s.Rollback = nil, nil
		return t.describe(s)
	})
	if err != nil {
		return fmt.Errorf("provision: %w", err)
	}
	return nil
}

// describe writes what a running system says about itself.
func (t *Tree) describe(s *State) error {
	for i, d := range []*Deployment{s.Booted, s.Rollback} {
		if d == nil {
			continue
		}
		if err := t.write(fmt.Sprintf(entryPath, 2-i), []byte(entry(d, i))); err != nil {
			return err
		}
	}
	b := s.Booted
	line := fmt.Sprintf("BOOT_IMAGE=(hd0,gpt3)/ostree/%s-%s/vmlinuz %s\n", osName, b.Checksum(), strings.Join(b.Arguments, " "))
	if err := t.write("proc/cmdline", []byte(line)); err != nil {
		return err
	}
	return t.write("usr/lib/os-release", []byte(release(b)))
}

// entry is a boot loader's description of a deployment.
func entry(d *Deployment, index int) string {
	return fmt.Sprintf("title %s (ostree:%d)\nversion %d\noptions %s\nlinux /ostree/%s-%s/vmlinuz\ninitrd /ostree/%[5]s-%[6]s/initramfs.img\n",
		Pretty(d.Version), index, 2-index, strings.Join(d.Arguments, " "), osName, d.Checksum())
}

// Pretty is the name under which a system of a version presents itself.
func Pretty(version string) string { return osPretty + " " + version }

func release(d *Deployment) string {
	return fmt.Sprintf(`NAME=%q
ID=rhcos
ID_LIKE="rhel fedora"
VERSION=%q
VERSION_ID="4.20"
PLATFORM_ID="platform:el9"
PRETTY_NAME=%q
VARIANT_ID=coreos
OSTREE_VERSION='%s'
`, osPretty, d.Version, Pretty(d.Version), d.Version)
}

// VersionOf is the version of the system in an image: its tag, or the start of its
// digest, for there is no image to ask.
func VersionOf(image string) string {
	if _, digest, ok := strings.Cut(image, "@sha256:"); ok {
		return "9.6." + digest[:min(8, len(digest))]
	}
	if at := strings.LastIndex(image, ":"); at > strings.LastIndex(image, "/") {
		return image[at+1:]
	}
	return FirstVersion
}

func sorted(list []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(list)))
}
