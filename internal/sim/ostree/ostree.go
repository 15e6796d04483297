// Package ostree stands in for rpm-ostree and bootc on a machine whose root is a
// folder: it keeps the deployments of the machine (booted, staged, rollback) in
// <root>/ostree/deployments.json, answers the commands that node agents use, and
// makes a staged deployment the booted one at the next boot. It pulls no image and
// installs no package; what a deployment holds is what was asked for.
//
//	t, err := ostree.Open(root)
//	code := t.Run([]string{"kargs", "--append=nosmt"}, os.Stdout, os.Stderr)
//	report, err := t.Boot() // what firmware and ostree-finalize-staged do
//
// It never looks outside the root and knows no Kubernetes.
package ostree

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Paths below the root.
const (
	statePath = "ostree/deployments.json"
	lockPath  = "ostree/lock"
	// FailingPath lists, one a line, what fails on this machine: units, and commands
	// such as "rpm-ostree rebase". ostree-finalize-staged.service makes the next boot
	// come up with what ran before.
	FailingPath = "etc/standin-failing"
)

// FinalizeUnit is the unit that makes a staged deployment bootable at shutdown.
const FinalizeUnit = "ostree-finalize-staged.service"

// Deployment is one bootable tree.
type Deployment struct {
	Image     string   `json:"image"`   // as podman would pull it; "": the disk's first contents
	Origin    string   `json:"origin"`  // container-image-reference, as rpm-ostree reports it
	Version   string   `json:"version"` // of the operating system
	Arguments []string `json:"kernelArguments"`
	Packages  []string `json:"packages,omitempty"` // layered, sorted
	Removals  []string `json:"removals,omitempty"` // packages of the image that are left out, sorted
	Serial    int      `json:"serial"`
	Timestamp int64    `json:"timestamp"` // seconds since 1970
}

// Checksum names the contents of a deployment.
func (d *Deployment) Checksum() string {
	sum := sha256.Sum256([]byte(strings.Join(slices.Concat([]string{d.Image, d.Version}, d.Packages, []string{"-"}, d.Removals), "\n")))
	return hex.EncodeToString(sum[:])
}

func (d *Deployment) clone() *Deployment {
	c := *d
	c.Arguments, c.Packages, c.Removals = slices.Clone(d.Arguments), slices.Clone(d.Packages), slices.Clone(d.Removals)
	return &c
}

// State is all deployments of a machine.
type State struct {
	Booted   *Deployment `json:"booted"`
	Staged   *Deployment `json:"staged,omitempty"`
	Rollback *Deployment `json:"rollback,omitempty"`
}

// Next is what boots next unless finalizing fails.
func (s *State) Next() *Deployment {
	if s.Staged != nil {
		return s.Staged
	}
	return s.Booted
}

// list is the order in which a boot loader offers them.
func (s *State) list() []*Deployment {
	var out []*Deployment
	for _, d := range []*Deployment{s.Staged, s.Booted, s.Rollback} {
		if d != nil {
			out = append(out, d)
		}
	}
	return out
}

// Tree is the deployments below one root.
type Tree struct {
	root *os.Root
	now  func() time.Time
}

// Open returns the tree of a machine. Close it.
func Open(root string) (*Tree, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("open root: %w", err)
	}
	return &Tree{root: r, now: time.Now}, nil
}

// Close ends the use of a tree.
func (t *Tree) Close() error { return t.root.Close() }

// Load reads the state. A root that was never installed is an error that is
// fs.ErrNotExist.
func (t *Tree) Load() (*State, error) {
	raw, err := t.root.ReadFile(statePath)
	if err != nil {
		return nil, fmt.Errorf("read deployments: %w", err)
	}
	return decode(raw)
}

func decode(raw []byte) (*State, error) {
	var s State
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("read /%s: %w", statePath, err)
	}
	if s.Booted == nil {
		return nil, fmt.Errorf("read /%s: no booted deployment; want one, as every machine that runs has", statePath)
	}
	return &s, nil
}

// save writes the state in one step.
func (t *Tree) save(s *State) error {
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode deployments: %w", err)
	}
	return t.write(statePath, append(raw, '\n'))
}

// write replaces a file in one step.
func (t *Tree) write(name string, body []byte) error {
	if err := t.root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("write /%s: %w", name, err)
	}
	f, err := t.root.OpenFile(name+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("write /%s: %w", name, err)
	}
	_, err = f.Write(body)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write /%s: %w", name, err)
	}
	if err := t.root.Rename(name+".new", name); err != nil {
		return fmt.Errorf("write /%s: %w", name, err)
	}
	return nil
}

// change runs one transaction at a time.
func (t *Tree) change(do func(*State) error) error {
	if err := t.root.MkdirAll("ostree", 0o755); err != nil {
		return fmt.Errorf("lock deployments: %w", err)
	}
	lock, err := t.root.OpenFile(lockPath, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("lock deployments: %w", err)
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock deployments: %w", err)
	}
	s, err := t.Load()
	if err != nil {
		return err
	}
	if err := do(s); err != nil {
		return err
	}
	return t.save(s)
}

// stage makes the next deployment a changed copy of what would boot next.
func (t *Tree) stage(change func(*Deployment) error) error {
	return t.change(func(s *State) error {
		next := s.Next().clone()
		before := next.clone()
		if err := change(next); err != nil {
			return err
		}
		next.Serial = 0
		if s.Booted.Checksum() == next.Checksum() {
			next.Serial = s.Booted.Serial + 1
		}
		if next.Timestamp == 0 || before.Checksum() != next.Checksum() {
			next.Timestamp = t.now().Unix()
		}
		s.Staged = next
		return nil
	})
}

// Failing tells that a unit or command was made to fail on the machine.
func (t *Tree) Failing(name string) bool { return failing(t.root, name) }

func failing(root *os.Root, name string) bool {
	raw, err := root.ReadFile(FailingPath)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(raw)) {
		if strings.TrimSpace(line) == name {
			return true
		}
	}
	return false
}

// Install makes the first deployment of a new disk. A disk that has one is left
// alone.
func (t *Tree) Install(d Deployment) error {
	_, err := t.root.Lstat(statePath)
	if err == nil {
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for deployments: %w", err)
	}
	return t.save(&State{Booted: &d})
}
