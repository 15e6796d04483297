package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// rooted is a Disk below a folder. The kernel refuses every path that would leave it.
type rooted struct {
	root *os.Root
	dir  string
	// owners are kept in an attribute where the process may not give files away.
	attributes bool
}

// attributeOwner holds uid:gid where the process may not set them.
const attributeOwner = "user.millwright.owner"

const attributeLabel = "security.selinux"

func openRoot(dir string) (*rooted, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &rooted{root: root, dir: dir, attributes: os.Geteuid() != 0}, nil
}

// rel is a host path as os.Root wants it.
func rel(p string) string {
	if r := strings.TrimLeft(p, "/"); r != "" {
		return r
	}
	return "."
}

// named gives an error the host's path, in place of one below the root.
func named(p string, err error) error {
	var pe *fs.PathError
	var le *os.LinkError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &pe):
		// openat, lstatat and their kin are nobody's words.
		return &fs.PathError{Op: strings.TrimSuffix(pe.Op, "at"), Path: p, Err: pe.Err}
	case errors.As(err, &le):
		return &fs.PathError{Op: strings.TrimSuffix(le.Op, "at"), Path: p, Err: le.Err}
	}
	return err
}

func (d *rooted) Lstat(p string) (Info, error) {
	fi, err := d.root.Lstat(rel(p))
	if err != nil {
		return Info{}, named(p, err)
	}
	info := Info{Mode: uint32(fi.Mode()), Size: fi.Size()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		info.UID, info.GID = int(st.Uid), int(st.Gid)
	}
	if d.attributes {
		info.UID, info.GID = d.ownerOf(p)
	}
	info.Label = d.attribute(p, attributeLabel)
	return info, nil
}

// attribute reads an extended attribute; "" if there is none.
func (d *rooted) attribute(p, name string) string {
	buf := make([]byte, 256)
	n, err := unix.Lgetxattr(filepath.Join(d.dir, rel(p)), name, buf)
	if err != nil || n <= 0 {
		return ""
	}
	return strings.TrimRight(string(buf[:n]), "\x00")
}

func (d *rooted) ownerOf(p string) (uid, gid int) {
	a, b, _ := strings.Cut(d.attribute(p, attributeOwner), ":")
	uid, _ = strconv.Atoi(a)
	gid, _ = strconv.Atoi(b)
	return uid, gid
}

func (d *rooted) ReadFile(p string) ([]byte, error) {
	b, err := d.root.ReadFile(rel(p))
	return b, named(p, err)
}

func (d *rooted) ReadLink(p string) (string, error) {
	s, err := d.root.Readlink(rel(p))
	return s, named(p, err)
}

func (d *rooted) ReadDir(p string) ([]string, error) {
	f, err := d.root.Open(rel(p))
	if err != nil {
		return nil, named(p, err)
	}
	defer f.Close()
	list, err := f.Readdirnames(-1)
	slices.Sort(list)
	return list, named(p, err)
}

func (d *rooted) Mkdir(p string, mode uint32) error {
	if err := d.root.Mkdir(rel(p), os.FileMode(mode)); err != nil {
		return named(p, err)
	}
	return d.Chmod(p, mode) // whatever the umask
}

func (d *rooted) Create(p string) error {
	f, err := d.root.OpenFile(rel(p), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return named(p, err)
	}
	return named(p, f.Close())
}

func (d *rooted) Write(p string, data []byte) error {
	f, err := d.root.OpenFile(rel(p), os.O_WRONLY|os.O_APPEND|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return named(p, err)
	}
	_, err = f.Write(data)
	return named(p, errors.Join(err, f.Close()))
}

func (d *rooted) Chmod(p string, mode uint32) error {
	m := os.FileMode(mode & 0o777)
	for _, bit := range []os.FileMode{fs.ModeSetuid, fs.ModeSetgid, fs.ModeSticky} {
		if mode&uint32(bit) != 0 {
			m |= bit
		}
	}
	return named(p, d.root.Chmod(rel(p), m))
}

func (d *rooted) Chown(p string, uid, gid int) error {
	if !d.attributes {
		return named(p, d.root.Lchown(rel(p), uid, gid))
	}
	value := strconv.Itoa(uid) + ":" + strconv.Itoa(gid)
	return d.setAttribute(p, attributeOwner, value)
}

func (d *rooted) setAttribute(p, name, value string) error {
	if err := unix.Lsetxattr(filepath.Join(d.dir, rel(p)), name, []byte(value), 0); err != nil {
		return &fs.PathError{Op: "setxattr", Path: p, Err: err}
	}
	return nil
}

func (d *rooted) SetLabel(p, label string) error {
	return d.setAttribute(p, attributeLabel, label+"\x00")
}

func (d *rooted) Symlink(target, p string) error { return named(p, d.root.Symlink(target, rel(p))) }

func (d *rooted) Rename(from, to string) error {
	return named(to, d.root.Rename(rel(from), rel(to)))
}

func (d *rooted) Remove(p string) error { return named(p, d.root.Remove(rel(p))) }

func (d *rooted) Sync(p string) error { return d.sync(p) }

func (d *rooted) SyncDir(p string) error { return d.sync(p) }

func (d *rooted) sync(p string) error {
	f, err := d.root.Open(rel(p))
	if err != nil {
		return named(p, err)
	}
	return named(p, errors.Join(f.Sync(), f.Close()))
}
