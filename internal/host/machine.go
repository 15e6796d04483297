package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"syscall"

	"millwright.io/millwright/internal/engine/transition"
)

// ErrNoWatch says that a host cannot tell of changes.
var ErrNoWatch = errors.New("this host cannot watch files")

// Options are what a Host may be given.
type Options struct {
	// System is what the machine has besides files; nil: nothing, so that planning
	// refuses what needs it.
	System System
	// Wrap lays something over the disk, e.g. a Faulty; nil: nothing.
	Wrap func(Disk) Disk
	// Watcher tells of changes below folders; nil: inotify.
	Watcher Watcher
}

// Watcher tells of changes in files. Paths are absolute host paths.
type Watcher interface {
	Watch(ctx context.Context, f Files, paths []string, changed func(path string)) error
}

// machine is a Host over a Disk.
type machine struct {
	files files
	sys   System
	watch Watcher
}

// New returns the machine whose root is a folder: "/" or, in tests and simulated
// worlds, any other. Without root's rights owners are kept in an extended attribute.
func New(root string, o Options) (Host, error) {
	d, err := openRoot(root)
	if err != nil {
		return nil, fmt.Errorf("open root: %w", err)
	}
	if o.Watcher == nil {
		o.Watcher = inotify{dir: root}
	}
	return newMachine(d, o), nil
}

func newMachine(d Disk, o Options) *machine {
	if o.Wrap != nil {
		d = o.Wrap(d)
	}
	if o.System == nil {
		o.System = noSystem{}
	}
	return &machine{files: files{d}, sys: o.System, watch: o.Watcher}
}

// Files implements Host.
func (m *machine) Files() Files { return m.files }

// Watch implements Host.
func (m *machine) Watch(ctx context.Context, paths []string, changed func(string)) error {
	if m.watch == nil {
		return ErrNoWatch
	}
	return m.watch.Watch(ctx, m.files, paths, changed)
}

// Observe implements Host.
func (m *machine) Observe(ctx context.Context, refs []transition.Ref) (map[transition.Ref]transition.State, transition.Blobs, error) {
	states, blobs := make(map[transition.Ref]transition.State, len(refs)), transition.Blobs{}
	var units *unitLinks
	for _, ref := range refs {
		var s transition.State
		var err error
		switch ref.Kind {
		case transition.KindFile:
			s, err = m.observeFile(ref.Key, blobs)
		case transition.KindPassword:
			s, err = m.observePassword(ref.Key, blobs)
		case transition.KindUnit:
			if units == nil {
				if units, err = m.readLinks(); err != nil {
					return nil, nil, err
				}
			}
			s, err = m.observeUnit(ctx, ref.Key, units)
		default:
			s, err = m.sys.Observe(ctx, ref)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("look at %s %s: %w", ref.Kind, ref.Key, err)
		}
		states[ref] = s
	}
	return states, blobs, nil
}

// observeFile looks at a path. One below something that is no folder is absent too.
func (m *machine) observeFile(p string, blobs transition.Blobs) (transition.State, error) {
	info, err := m.files.Lstat(p)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return transition.State{Type: transition.Absent}, nil
	}
	if err != nil {
		return transition.State{}, err
	}
	s := transition.State{Mode: info.Mode &^ uint32(fs.ModeType), UID: info.UID, GID: info.GID, Label: info.Label}
	switch {
	case info.Mode&uint32(fs.ModeSymlink) != 0:
		target, err := m.files.ReadLink(p)
		return transition.State{Type: transition.Link, Target: target}, err
	case info.Mode&uint32(fs.ModeType) != 0:
		// A pipe or device is as little to be written over as a folder.
		s.Type = transition.Dir
		return s, nil
	}
	body, err := m.files.ReadFile(p)
	if err != nil {
		return transition.State{}, err
	}
	s.Type, s.Digest = transition.File, transition.Digest(body)
	blobs[s.Digest] = body
	return s, nil
}

// Perform implements Host.
func (m *machine) Perform(ctx context.Context, step transition.Step, blobs transition.Blobs) error {
	switch step.Kind {
	case transition.KindFile:
		return m.performFile(step, blobs)
	case transition.KindPassword:
		return m.performPassword(step, blobs)
	case transition.KindUnit:
		return m.performUnit(ctx, step)
	default:
		return m.sys.Perform(ctx, step)
	}
}

func (m *machine) performFile(step transition.Step, blobs transition.Blobs) error {
	p, want := step.Key, step.After
	if err := m.files.sweep(p); err != nil {
		return err
	}
	switch want.Type {
	case transition.Absent:
		return m.files.Remove(p)
	case transition.Link:
		if have, err := m.files.ReadLink(p); err == nil && have == want.Target {
			return nil
		}
		return m.files.Link(want.Target, p)
	case transition.File:
	default:
		return fmt.Errorf("write %s: a %s is nothing that can be written", p, want.Type)
	}
	body, ok := blobs[want.Digest]
	if !ok || transition.Digest(body) != want.Digest {
		return fmt.Errorf("write %s: its contents %s are missing or damaged", p, want.Digest)
	}
	attr := Attr{Mode: want.Mode, UID: want.UID, GID: want.GID, Label: want.Label}
	if want.Owner != "" {
		var err error
		if attr.UID, attr.GID, err = m.owner(p, want.Owner); err != nil {
			return err
		}
	}
	if m.files.equal(p, body, attr) {
		return nil
	}
	if err := m.keysFolder(p, attr); err != nil {
		return err
	}
	return m.files.Replace(p, body, attr)
}

// Verify implements Host.
func (m *machine) Verify(ctx context.Context, step transition.Step) error {
	return m.sys.Verify(ctx, step)
}

// Facts implements Host.
func (m *machine) Facts(ctx context.Context) (transition.Facts, error) {
	f := transition.Facts{Volatile: []string{"/tmp", "/run", "/var/run", "/dev/shm"}}
	release := m.osRelease()
	classify(&f, release)
	f.BootID = m.word("/proc/sys/kernel/random/boot_id")
	f.CommandLine = strings.Fields(m.word("/proc/cmdline"))
	if fips := m.word("/proc/sys/crypto/fips_enabled"); fips != "" {
		on := fips == "1"
		f.FIPS = &on
	}
	f.Users = m.users()
	var err error
	if f.UnitFiles, err = m.unitFiles(); err != nil {
		return f, err
	}
	f.SSHKeys = m.sshKeys(f)
	f.TrustAnchors = m.trustAnchors()
	if err := m.sys.Facts(ctx, &f); err != nil {
		return f, fmt.Errorf("look at the system: %w", err)
	}
	if f.Live {
		m.mounts(&f)
	}
	return f, nil
}

// word reads a small file of one line; "" if there is none.
func (m *machine) word(p string) string {
	b, err := m.files.ReadFile(p)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// osRelease reads the file that says what a host is.
func (m *machine) osRelease() map[string]string {
	out := map[string]string{}
	raw := m.word("/etc/os-release")
	if raw == "" {
		raw = m.word("/usr/lib/os-release")
	}
	for line := range strings.Lines(raw) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || strings.HasPrefix(key, "#") {
			continue
		}
		if unquoted, err := strconv.Unquote(value); err == nil {
			value = unquoted
		}
		out[key] = strings.Trim(value, `'"`)
	}
	return out
}

// classify reads what a host is from os-release. The ID is asked as well as the
// version: Debian 10 is no enterprise Linux 10.
func classify(f *transition.Facts, r map[string]string) {
	f.ID = r["ID"]
	coreos := r["VARIANT_ID"] == "coreos"
	f.EnterpriseLinux = f.ID == "rhcos" || f.ID == "scos" || coreos && (f.ID == "rhel" || f.ID == "centos")
	f.Class = transition.Plain
	if coreos || f.EnterpriseLinux {
		f.Class = transition.CoreOS
	}
	f.Version = r["RHEL_VERSION"]
	if f.Version == "" {
		compact := strings.ReplaceAll(r["OPENSHIFT_VERSION"], ".", "")
		f.Version = r["VERSION"]
		if compact != "" {
			f.Version = strings.TrimPrefix(f.Version, compact+".")
		}
	}
	if f.Version == "" || strings.ContainsAny(f.Version, " (") {
		f.Version = r["VERSION_ID"]
	}
	if f.ID == "flatcar" {
		f.ReadOnly = append(f.ReadOnly, "/usr")
	}
	if f.Class == transition.CoreOS {
		f.ReadOnly = append(f.ReadOnly, readOnlyCoreOS...)
	}
}

// readOnlyCoreOS are the folders of an ostree host in which nothing can be written;
// /usr/local is a link to /var/usrlocal and can.
var readOnlyCoreOS = []string{"/usr/bin", "/usr/etc", "/usr/lib", "/usr/lib64", "/usr/libexec", "/usr/sbin", "/usr/share"}

// trustAnchors is where the host reads CA files, "" for the usual place.
func (m *machine) trustAnchors() string {
	if _, err := m.files.ReadDir("/etc/pki/ca-trust/source"); err == nil {
		return ""
	}
	if _, err := m.files.ReadDir("/usr/local/share/ca-certificates"); err == nil {
		return "/usr/local/share/ca-certificates"
	}
	if _, err := m.files.Lstat("/usr/sbin/update-ca-certificates"); err == nil {
		return "/usr/local/share/ca-certificates"
	}
	return ""
}

// noSystem has nothing besides files.
type noSystem struct{}

func (noSystem) Facts(context.Context, *transition.Facts) error { return nil }
func (noSystem) Observe(context.Context, transition.Ref) (transition.State, error) {
	return transition.State{}, nil
}

func (noSystem) Perform(_ context.Context, step transition.Step) error {
	return fmt.Errorf("%s: this host has no system that could", step)
}

func (noSystem) Verify(_ context.Context, step transition.Step) error {
	return fmt.Errorf("%s: this host has no system that could", step)
}
