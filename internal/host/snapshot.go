package host

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"millwright.io/millwright/internal/engine/transition"
)

// Snapshot is a machine in memory as data: what its disk holds, without contents, and
// what it boots.
type Snapshot struct {
	Files  []SavedFile `json:"files"` // folders before what is in them
	Booted Deployment  `json:"booted"`
	Staged *Deployment `json:"staged,omitempty"`
	Boots  int         `json:"boots"`
}

// SavedFile is one path.
type SavedFile struct {
	Path   string `json:"path"`
	Mode   uint32 `json:"mode"` // type and permission bits as os.FileMode has them
	UID    int    `json:"uid,omitempty"`
	GID    int    `json:"gid,omitempty"`
	Digest string `json:"digest,omitempty"` // of a file's contents
	Target string `json:"target,omitempty"` // of a link
}

// Deployment is what a machine boots.
type Deployment struct {
	Image      string   `json:"image,omitempty"`
	Arguments  []string `json:"arguments,omitempty"`
	Kernel     string   `json:"kernel,omitempty"`
	Extensions []string `json:"extensions,omitempty"`
}

func (d deployment) data() Deployment {
	return Deployment{d.image, d.arguments, d.kernel, d.extensions}
}
func (d Deployment) model() deployment {
	return deployment{d.Image, d.Arguments, d.Kernel, d.Extensions}
}

// Save returns the machine as data. keep is called for the contents of each file.
func (m *Memory) Save(keep func(digest string, body []byte) error) ([]byte, error) {
	var s Snapshot
	m.mem.mu.RLock()
	err := m.mem.root.record("/", &s, keep)
	m.mem.mu.RUnlock()
	if err != nil {
		return nil, err
	}
	m.sys.mu.Lock()
	s.Booted, s.Boots = m.sys.booted.data(), m.sys.boots
	if m.sys.staged != nil {
		d := m.sys.staged.data()
		s.Staged = &d
	}
	m.sys.mu.Unlock()
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode machine: %w", err)
	}
	return raw, nil
}

// record adds what is at and below a path.
func (n *inode) record(p string, s *Snapshot, keep func(string, []byte) error) error {
	f := SavedFile{Path: p, Mode: n.kind | n.mode, UID: n.uid, GID: n.gid, Target: n.target}
	if n.kind == 0 {
		f.Digest = transition.Digest(n.data)
		if err := keep(f.Digest, n.data); err != nil {
			return err
		}
	}
	if p != "/" {
		s.Files = append(s.Files, f)
	}
	for name, child := range n.entries {
		if err := child.record(path.Join(p, name), s, keep); err != nil {
			return err
		}
	}
	return nil
}

// RestoreMemory makes a machine of what Save returned. read returns contents by their
// digest.
func RestoreMemory(raw []byte, o MemoryOptions, read func(digest string) ([]byte, error)) (*Memory, error) {
	var s Snapshot
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("decode machine: %w", err)
	}
	m := NewMemory(o)
	m.mem.root = newFolder(0o755)
	for _, f := range s.Files {
		n := &inode{kind: f.Mode & uint32(fs.ModeDir|fs.ModeSymlink), mode: f.Mode &^ uint32(fs.ModeType), uid: f.UID, gid: f.GID, target: f.Target}
		switch n.kind {
		case kindDir:
			n.entries = map[string]*inode{}
		case 0:
			body, err := read(f.Digest)
			if err != nil {
				return nil, fmt.Errorf("read contents of %s: %w", f.Path, err)
			}
			n.data = body
		}
		if !strings.HasPrefix(f.Path, "/") || path.Clean(f.Path) != f.Path {
			return nil, fmt.Errorf("decode machine: %q is no path of a machine", f.Path)
		}
		if err := m.mem.add("open", f.Path, n); err != nil {
			return nil, fmt.Errorf("decode machine: %w", err)
		}
	}
	m.mem.root.saveAll()
	m.sys.booted, m.sys.boots = s.Booted.model(), s.Boots
	if s.Staged != nil {
		d := s.Staged.model()
		m.sys.staged = &d
	}
	return m, nil
}

// SetBoot names the boot that runs, and who is called when a reboot is asked for.
func (m *Memory) SetBoot(id string, reboot func()) {
	m.sys.mu.Lock()
	defer m.sys.mu.Unlock()
	m.sys.bootID, m.sys.ask = id, reboot
}
