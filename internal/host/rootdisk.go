package host

import (
	"errors"
	"io"
	"io/fs"
	"os"
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
	// labels tells that the host has SELinux.
	labels bool
}

// attributeOwner holds uid:gid where the process may not set them.
const attributeOwner = "user.millwright.owner"

// attributeMode holds the mode of what is closed even to its owner, in octal digits
// as os.FileMode has them.
const attributeMode = "user.millwright.mode"

const attributeLabel = "security.selinux"

func openRoot(dir string) (*rooted, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	d := &rooted{root: root, dir: dir, attributes: os.Geteuid() != 0}
	_, err = root.Lstat("sys/fs/selinux/enforce")
	d.labels = err == nil
	return d, nil
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
		return &fs.PathError{Op: word(pe.Op), Path: p, Err: pe.Err}
	case errors.As(err, &le):
		return &fs.PathError{Op: word(le.Op), Path: p, Err: le.Err}
	}
	return err
}

// cause takes operation and path off an error.
func cause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// word is an operation as package os calls it: openat and its kin are nobody's words.
func word(op string) string {
	op = strings.TrimSuffix(op, "at")
	if op == "unlink" {
		return "remove"
	}
	return op
}

func (d *rooted) Lstat(p string) (Info, error) {
	fi, err := d.root.Lstat(rel(p))
	if err != nil {
		return Info{}, &fs.PathError{Op: "lstat", Path: p, Err: cause(err)}
	}
	info := Info{Mode: uint32(fi.Mode()), Size: fi.Size()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		info.UID, info.GID = int(st.Uid), int(st.Gid)
	}
	if d.attributes {
		info.UID, info.GID = 0, 0
	}
	if !d.attributes && !d.labels || !fi.Mode().IsRegular() && !fi.IsDir() {
		return info, nil
	}
	f, err := d.root.OpenFile(rel(p), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return info, nil // the rest is known
	}
	defer func() { _ = f.Close() }()
	if d.attributes {
		info.UID, info.GID = ownerIn(attribute(f, attributeOwner))
		info.Mode = uint32(keptMode(f, fi.Mode()))
	}
	if d.labels {
		info.Label = attribute(f, attributeLabel)
	}
	return info, nil
}

// attribute reads an extended attribute; "" if there is none. It asks the open file:
// a path could lead elsewhere by now.
func attribute(f *os.File, name string) string {
	buf := make([]byte, 256)
	n, err := unix.Fgetxattr(int(f.Fd()), name, buf)
	if err != nil || n <= 0 {
		return ""
	}
	return strings.TrimRight(string(buf[:n]), "\x00")
}

// ownerIn reads uid:gid. A file without them is root's.
func ownerIn(s string) (uid, gid int) {
	a, b, _ := strings.Cut(s, ":")
	uid, _ = strconv.Atoi(a)
	gid, _ = strconv.Atoi(b)
	return uid, gid
}

// ReadFile reads regular files only: a pipe or a device might never end.
func (d *rooted) ReadFile(p string) ([]byte, error) {
	f, err := d.root.OpenFile(rel(p), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, named(p, err)
	}
	defer func() { _ = f.Close() }()
	fi, err := f.Stat()
	switch {
	case err != nil:
		return nil, named(p, err)
	case fi.IsDir():
		return nil, &fs.PathError{Op: "read", Path: p, Err: syscall.EISDIR}
	case !fi.Mode().IsRegular():
		return nil, &fs.PathError{Op: "read", Path: p, Err: syscall.EINVAL}
	}
	b := make([]byte, fi.Size()+1) // files below /proc have size 0
	n := 0
	for {
		more, err := f.Read(b[n:])
		n += more
		if err == io.EOF {
			return b[:n:n], nil
		}
		if err != nil {
			return nil, named(p, err)
		}
		if n == len(b) {
			b = append(b, make([]byte, max(512, len(b)))...)
		}
	}
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
	defer func() { _ = f.Close() }()
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
	f, err := d.root.OpenFile(rel(p), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return named(p, err)
	}
	if d.attributes {
		m, err = keepMode(f, m)
	}
	if err == nil {
		err = f.Chmod(m)
	}
	return named(p, errors.Join(err, f.Close()))
}

// readable are the bits without which the owner of a file or folder could not use it.
func readable(dir bool) os.FileMode {
	if dir {
		return 0o700
	}
	return 0o400
}

// keepMode puts a mode that closes a file even to its owner into an attribute, as
// without root's rights nobody could read it then, and returns one that does not.
func keepMode(f *os.File, m os.FileMode) (os.FileMode, error) {
	fi, err := f.Stat()
	if err != nil {
		return m, err
	}
	open := m | readable(fi.IsDir())
	if open == m {
		err = unix.Fremovexattr(int(f.Fd()), attributeMode)
		if err == unix.ENODATA || err == unix.ENOTSUP || err == unix.EACCES {
			err = nil
		}
		return m, err
	}
	return open, unix.Fsetxattr(int(f.Fd()), attributeMode, []byte(strconv.FormatUint(uint64(m), 8)), 0)
}

// keptMode is the mode that keepMode was given, unless somebody has changed it since.
func keptMode(f *os.File, now os.FileMode) os.FileMode {
	kept, err := strconv.ParseUint(attribute(f, attributeMode), 8, 32)
	if err != nil || os.FileMode(kept)|readable(now.IsDir()) != now&^os.ModeType {
		return now
	}
	return os.FileMode(kept) | now.Type()
}

func (d *rooted) Chown(p string, uid, gid int) error {
	if !d.attributes {
		return named(p, d.root.Lchown(rel(p), uid, gid))
	}
	if uid != 0 || gid != 0 {
		return d.setAttribute(p, attributeOwner, strconv.Itoa(uid)+":"+strconv.Itoa(gid))
	}
	// Without one the file is root's, also where there are no attributes.
	return d.onFile("removexattr", p, func(fd int) error {
		err := unix.Fremovexattr(fd, attributeOwner)
		if err == unix.ENODATA || err == unix.ENOTSUP {
			return nil
		}
		return err
	})
}

func (d *rooted) setAttribute(p, name, value string) error {
	return d.onFile("setxattr", p, func(fd int) error { return unix.Fsetxattr(fd, name, []byte(value), 0) })
}

// onFile does something to an open file or folder.
func (d *rooted) onFile(op, p string, do func(fd int) error) error {
	f, err := d.root.OpenFile(rel(p), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return named(p, err)
	}
	defer func() { _ = f.Close() }()
	if err := do(int(f.Fd())); err != nil {
		return &fs.PathError{Op: op, Path: p, Err: err}
	}
	return nil
}

func (d *rooted) SetLabel(p, label string) error {
	if !d.labels {
		return nil
	}
	return d.setAttribute(p, attributeLabel, label+"\x00")
}

func (d *rooted) Symlink(target, p string) error { return named(p, d.root.Symlink(target, rel(p))) }

func (d *rooted) Rename(from, to string) error {
	return named(to, d.root.Rename(rel(from), rel(to)))
}

func (d *rooted) Remove(p string) error { return named(p, d.root.Remove(rel(p))) }

func (d *rooted) Sync(p string) error { return d.sync(p) }

func (d *rooted) SyncDir(p string) error { return d.sync(p) }

// sync waits for the platter. File systems that cannot sync folders need not.
func (d *rooted) sync(p string) error {
	f, err := d.root.OpenFile(rel(p), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return named(p, err)
	}
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return named(p, errors.Join(err, f.Close()))
}
