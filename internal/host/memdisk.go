package host

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// memory is a Disk that keeps what a real one would: what was synced, and beside it
// what only the running system sees.
type memory struct {
	mu     sync.RWMutex
	root   *inode
	intern func([]byte) []byte

	watchers map[int]watcher
	nextID   int
}

// watcher is told each path that changes, and whether names of folders or links did.
type watcher func(p string, tree bool)

// observe tells w of every change until stop is called.
func (m *memory) observe(w watcher) (stop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.watchers == nil {
		m.watchers = map[int]watcher{}
	}
	m.nextID++
	id := m.nextID
	m.watchers[id] = w
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watchers, id)
	}
}

// tell is called without the lock.
func (m *memory) tell(tree bool, paths ...string) {
	m.mu.RLock()
	list := slices.Collect(maps.Values(m.watchers))
	m.mu.RUnlock()
	for _, w := range list {
		for _, p := range paths {
			w(p, tree)
		}
	}
}

// inode is a file, a link or a folder.
type inode struct {
	kind     uint32 // fs.ModeDir, fs.ModeSymlink or 0
	mode     uint32
	uid, gid int
	label    string
	data     []byte // of files; never changed in place, so that machines can share it
	target   string // of links
	entries  map[string]*inode
	saved    *inode // as the disk holds it: of files data, of folders entries
}

const (
	kindDir  = uint32(fs.ModeDir)
	kindLink = uint32(fs.ModeSymlink)
)

func newMemory() *memory { return &memory{root: newFolder(0o755)} }

func newFolder(mode uint32) *inode {
	return &inode{kind: kindDir, mode: mode, entries: map[string]*inode{}}
}

// crash returns the disk as it is after a power cut: what was not synced is gone.
func (m *memory) crash() *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &memory{root: m.root.durable(), intern: m.intern}
}

// durable is the node as the disk holds it.
func (n *inode) durable() *inode {
	c := *n
	switch {
	case n.kind == kindDir:
		c.entries = map[string]*inode{}
		if n.saved != nil {
			for name, child := range n.saved.entries {
				c.entries[name] = child.durable()
			}
		}
	case n.kind == 0 && n.saved == nil:
		c.data = nil // the name was synced, the bytes were not
	case n.kind == 0:
		c.data, c.mode, c.uid, c.gid = n.saved.data, n.saved.mode, n.saved.uid, n.saved.gid
	}
	c.save()
	return &c
}

// save makes what is there durable.
func (n *inode) save() {
	s := *n
	s.saved, s.entries = nil, maps.Clone(n.entries)
	n.saved = &s
}

func fault(op, p string, err error) error { return &fs.PathError{Op: op, Path: p, Err: err} }

// find returns the node at a path without following links.
func (m *memory) find(op, p string) (*inode, error) {
	n := m.root
	for _, name := range strings.FieldsFunc(p, func(r rune) bool { return r == '/' }) {
		if n.kind != kindDir {
			return nil, fault(op, p, syscall.ENOTDIR)
		}
		child := n.entries[name]
		if child == nil {
			return nil, fault(op, p, syscall.ENOENT)
		}
		n = child
	}
	return n, nil
}

func (m *memory) folder(op, p string) (*inode, error) {
	parent, err := m.find(op, path.Dir(p))
	if err != nil {
		return nil, fault(op, p, err.(*fs.PathError).Err)
	}
	if parent.kind != kindDir {
		return nil, fault(op, p, syscall.ENOTDIR)
	}
	return parent, nil
}

// add puts a new node at a free path.
func (m *memory) add(op, p string, n *inode) error {
	err := m.insert(op, p, n)
	if err == nil {
		m.tell(n.kind != 0, p)
	}
	return err
}

func (m *memory) insert(op, p string, n *inode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	parent, err := m.folder(op, p)
	if err != nil {
		return err
	}
	if parent.entries[path.Base(p)] != nil {
		return fault(op, p, syscall.EEXIST)
	}
	parent.entries[path.Base(p)] = n
	return nil
}

// change does something to the node at a path.
func (m *memory) change(op, p string, do func(*inode) error) error {
	err := m.update(op, p, do)
	if err == nil && op != "sync" {
		m.tell(false, p)
	}
	return err
}

func (m *memory) update(op, p string, do func(*inode) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(op, p)
	if err != nil {
		return err
	}
	if err := do(n); err != nil {
		return fault(op, p, err)
	}
	return nil
}

func (m *memory) Lstat(p string) (Info, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, err := m.find("lstat", p)
	if err != nil {
		return Info{}, err
	}
	info := Info{Mode: n.kind | n.mode, UID: n.uid, GID: n.gid, Size: int64(len(n.data)), Label: n.label}
	if n.kind == kindLink {
		info.Mode, info.Size = kindLink|0o777, int64(len(n.target))
	}
	return info, nil
}

func (m *memory) ReadFile(p string) ([]byte, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, err := m.find("open", p)
	if err != nil {
		return nil, err
	}
	if n.kind == kindDir {
		return nil, fault("read", p, syscall.EISDIR)
	}
	if n.kind == kindLink {
		return nil, fault("open", p, syscall.ELOOP)
	}
	return slices.Clip(n.data), nil
}

func (m *memory) ReadLink(p string) (string, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, err := m.find("readlink", p)
	if err != nil {
		return "", err
	}
	if n.kind != kindLink {
		return "", fault("readlink", p, syscall.EINVAL)
	}
	return n.target, nil
}

func (m *memory) ReadDir(p string) ([]string, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, err := m.find("open", p)
	if err != nil {
		return nil, err
	}
	if n.kind != kindDir {
		return nil, fault("readdirent", p, syscall.ENOTDIR)
	}
	return slices.Sorted(maps.Keys(n.entries)), nil
}

func (m *memory) Mkdir(p string, mode uint32) error { return m.add("mkdir", p, newFolder(mode)) }

func (m *memory) Create(p string) error { return m.add("open", p, &inode{mode: 0o600}) }

func (m *memory) Symlink(target, p string) error {
	return m.add("symlink", p, &inode{kind: kindLink, mode: 0o777, target: target})
}

func (m *memory) Write(p string, data []byte) error {
	return m.change("write", p, func(n *inode) error {
		if n.kind != 0 {
			return syscall.EISDIR
		}
		if len(n.data) == 0 {
			if m.intern != nil {
				data = m.intern(data)
			}
			n.data = data // the first bytes are shared with whoever wrote them
			return nil
		}
		n.data = append(slices.Clip(n.data), data...)
		return nil
	})
}

func (m *memory) Chmod(p string, mode uint32) error {
	return m.change("chmod", p, func(n *inode) error { n.mode = mode; return nil })
}

func (m *memory) Chown(p string, uid, gid int) error {
	return m.change("chown", p, func(n *inode) error { n.uid, n.gid = uid, gid; return nil })
}

func (m *memory) SetLabel(p, label string) error {
	return m.change("setxattr", p, func(n *inode) error { n.label = label; return nil })
}

func (m *memory) Sync(p string) error {
	return m.change("sync", p, func(n *inode) error { n.save(); return nil })
}

func (m *memory) SyncDir(p string) error {
	return m.change("sync", p, func(n *inode) error {
		if n.kind != kindDir {
			return syscall.ENOTDIR
		}
		n.save()
		return nil
	})
}

func (m *memory) Rename(from, to string) error {
	tree, err := m.move(from, to)
	if err == nil {
		m.tell(tree, from, to)
	}
	return err
}

func (m *memory) move(from, to string) (tree bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, err := m.folder("rename", from)
	if err != nil {
		return false, err
	}
	b, err := m.folder("rename", to)
	if err != nil {
		return false, err
	}
	n, old := a.entries[path.Base(from)], b.entries[path.Base(to)]
	switch {
	case n == nil:
		return false, fault("rename", from, syscall.ENOENT)
	case n == old:
		return false, nil
	case strings.HasPrefix(to, from+"/"):
		return false, fault("rename", to, syscall.EINVAL)
	}
	if err := n.over(old); err != nil {
		return false, fault("rename", to, err)
	}
	delete(a.entries, path.Base(from))
	b.entries[path.Base(to)] = n
	return n.kind != 0 || old != nil && old.kind != 0, nil
}

// over tells why a node cannot take the place of another; nil if it can.
func (n *inode) over(old *inode) error {
	switch {
	case old == nil:
		return nil
	case old.kind == kindDir && n.kind != kindDir:
		return syscall.EISDIR
	case old.kind != kindDir && n.kind == kindDir:
		return syscall.ENOTDIR
	case len(old.entries) > 0:
		return syscall.ENOTEMPTY
	}
	return nil
}

func (m *memory) Remove(p string) error {
	n, err := m.take(p)
	if err == nil {
		m.tell(n.kind != 0, p)
	}
	return err
}

// take removes an entry and returns what it was.
func (m *memory) take(p string) (*inode, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	parent, err := m.folder("remove", p)
	if err != nil {
		return nil, err
	}
	n := parent.entries[path.Base(p)]
	if n == nil {
		return nil, fault("remove", p, syscall.ENOENT)
	}
	if n.kind == kindDir && len(n.entries) > 0 {
		return nil, fault("remove", p, syscall.ENOTEMPTY)
	}
	delete(parent.entries, path.Base(p))
	return n, nil
}

// sync makes everything durable, as an orderly shutdown does.
func (m *memory) sync() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.root.saveAll()
}

func (n *inode) saveAll() {
	n.save()
	for _, e := range n.entries {
		e.saveAll()
	}
}

// empty gives a volatile folder its state after a boot. An absent one stays absent.
func (m *memory) empty(p string, mode uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	parent, err := m.folder("boot", p)
	if err != nil {
		return
	}
	n := newFolder(mode)
	n.save()
	parent.entries[path.Base(p)] = n
	parent.save()
}
