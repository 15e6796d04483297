package host

import (
	"bytes"
	"errors"
	"io/fs"
	"path"
	"strings"
	"syscall"
)

// maxLinks bounds the links that one path may lead through, as Linux does.
const maxLinks = 40

// temporary is what a file is called until it is whole. One name for each file: a
// killed process leaves one beside it at most, which the next write takes away.
func temporary(p string) string {
	base := path.Base(p)
	// The longest names there are leave no room for an addition.
	return path.Join(path.Dir(p), "."+base[:min(len(base), 200)]+temporarySuffix)
}

const temporarySuffix = ".millwright"

// files is Files over a Disk.
type files struct{ disk Disk }

// NewFiles returns Files over a Disk.
func NewFiles(d Disk) Files { return files{d} }

// resolve follows every link in the folders of a path, inside the root, and leaves
// the last element alone. What does not exist stays as it is written. Errors name
// the path as it was given.
func (f files) resolve(p string) (string, error) {
	clean := path.Clean("/" + p)
	if clean == "/" {
		return clean, nil
	}
	dir, err := f.follow(path.Dir(clean), maxLinks)
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: p, Err: err}
	}
	return path.Join(dir, path.Base(clean)), nil
}

// follow resolves a folder.
func (f files) follow(p string, left int) (string, error) {
	return f.followVia(p, left, func(string) {})
}

// followVia is follow; it tells every name that is looked at on the way.
func (f files) followVia(p string, left int, via func(string)) (string, error) {
	at := "/"
	names := strings.FieldsFunc(p, func(r rune) bool { return r == '/' })
	for i := 0; i < len(names); i++ {
		if names[i] == ".." {
			at = path.Dir(at) // of the root it is the root
			continue
		}
		next := path.Join(at, names[i])
		via(next)
		target, err := f.disk.ReadLink(next)
		if err != nil { // no link, or not there
			at = next
			continue
		}
		if left--; left < 0 {
			return "", syscall.ELOOP
		}
		if path.IsAbs(target) {
			at = "/"
		}
		rest := strings.FieldsFunc(target, func(r rune) bool { return r == '/' })
		rest = append(rest, names[i+1:]...)
		names, i = dropDots(rest), -1
	}
	return at, nil
}

// dropDots removes elements that mean the same folder.
func dropDots(names []string) []string {
	out := names[:0:0]
	for _, n := range names {
		if n != "." {
			out = append(out, n)
		}
	}
	return out
}

// rename gives an error the path the caller knows.
func rename(p string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return &fs.PathError{Op: pe.Op, Path: p, Err: pe.Err}
	}
	return err
}

func (f files) ReadFile(p string) ([]byte, error) {
	full, err := f.follow(path.Clean("/"+p), maxLinks)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: p, Err: err}
	}
	b, err := f.disk.ReadFile(full)
	return b, rename(p, err)
}

func (f files) Lstat(p string) (Info, error) {
	full, err := f.resolve(p)
	if err != nil {
		return Info{}, err
	}
	info, err := f.disk.Lstat(full)
	return info, rename(p, err)
}

func (f files) ReadLink(p string) (string, error) {
	full, err := f.resolve(p)
	if err != nil {
		return "", err
	}
	s, err := f.disk.ReadLink(full)
	return s, rename(p, err)
}

func (f files) ReadDir(p string) ([]string, error) {
	full, err := f.follow(path.Clean("/"+p), maxLinks)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: p, Err: err}
	}
	list, err := f.disk.ReadDir(full)
	return list, rename(p, err)
}

// folders makes the folders of a resolved path that are missing, each synced into
// the one above.
func (f files) folders(dir string) error {
	info, err := f.disk.Lstat(dir)
	switch {
	case err == nil && info.Mode&uint32(fs.ModeDir) != 0:
		return nil
	case err == nil:
		return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
		return &fs.PathError{Op: "mkdir", Path: dir, Err: errors.Unwrap(err)}
	}
	if err := f.folders(path.Dir(dir)); err != nil {
		return err
	}
	if err := f.disk.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return f.disk.SyncDir(path.Dir(dir))
}

// DirectoryError says that the folder of a file cannot be made, in the original's
// words.
type DirectoryError struct {
	Dir string
	Err error
}

// Error is e.g. failed to create directory "/etc/a/b": mkdir /etc/a: not a directory.
func (e *DirectoryError) Error() string {
	return "failed to create directory \"" + e.Dir + "\": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *DirectoryError) Unwrap() error { return e.Err }

func (f files) makeFolders(given, full string) error {
	if err := f.folders(path.Dir(full)); err != nil {
		return &DirectoryError{Dir: path.Dir(path.Clean("/" + given)), Err: err}
	}
	return nil
}

func (f files) Replace(p string, body []byte, attr Attr) error {
	full, err := f.resolve(p)
	if err != nil {
		return err
	}
	if err := f.makeFolders(p, full); err != nil {
		return err
	}
	tmp := temporary(full)
	if err := f.fill(tmp, body, attr); err != nil {
		_ = f.disk.Remove(tmp)
		return rename(p, err)
	}
	return f.place(tmp, full, p)
}

// place gives a whole file its name.
func (f files) place(tmp, full, given string) error {
	if err := f.disk.Rename(tmp, full); err != nil {
		_ = f.disk.Remove(tmp)
		if errors.Is(err, syscall.EISDIR) {
			return &fs.PathError{Op: "rename", Path: given, Err: syscall.EEXIST} // the words of os.Rename
		}
		return rename(given, err)
	}
	return rename(given, f.disk.SyncDir(path.Dir(full)))
}

// fill makes a whole, synced file at a path of our own.
func (f files) fill(tmp string, body []byte, attr Attr) error {
	if err := f.disk.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := f.disk.Create(tmp); err != nil {
		return err
	}
	if len(body) > 0 {
		if err := f.disk.Write(tmp, body); err != nil {
			return err
		}
	}
	switch have, err := f.disk.ReadFile(tmp); {
	case err != nil:
		return err
	case !bytes.Equal(have, body):
		return &fs.PathError{Op: "read back", Path: tmp, Err: syscall.EIO}
	}
	if err := f.attributes(tmp, attr); err != nil {
		return err
	}
	return f.disk.Sync(tmp)
}

// attributes sets owner, then mode: giving a file away clears special bits.
func (f files) attributes(p string, attr Attr) error {
	if err := f.disk.Chown(p, attr.UID, attr.GID); err != nil {
		return err
	}
	if err := f.disk.Chmod(p, attr.Mode); err != nil {
		return err
	}
	if attr.Label == "" {
		return nil
	}
	return f.disk.SetLabel(p, attr.Label)
}

func (f files) Append(p string, body []byte, attr Attr) error {
	full, err := f.resolve(p)
	if err != nil {
		return err
	}
	_, err = f.disk.Lstat(full)
	fresh := errors.Is(err, fs.ErrNotExist)
	if err != nil && !fresh {
		return rename(p, err)
	}
	if fresh {
		if err := f.makeFolders(p, full); err != nil {
			return err
		}
		if err := f.disk.Create(full); err != nil {
			return rename(p, err)
		}
		if err := f.attributes(full, attr); err != nil {
			return rename(p, err)
		}
	}
	if err := f.disk.Write(full, body); err != nil {
		return rename(p, err)
	}
	if err := f.disk.Sync(full); err != nil || !fresh {
		return rename(p, err)
	}
	return rename(p, f.disk.SyncDir(path.Dir(full)))
}

func (f files) Link(target, p string) error {
	full, err := f.resolve(p)
	if err != nil {
		return err
	}
	if err := f.makeFolders(p, full); err != nil {
		return err
	}
	tmp := temporary(full)
	if err := f.disk.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return rename(p, err)
	}
	if err := f.disk.Symlink(target, tmp); err != nil {
		return rename(p, err)
	}
	return f.place(tmp, full, p)
}

func (f files) Remove(p string) error {
	full, err := f.resolve(p)
	if err != nil {
		return err
	}
	err = f.disk.Remove(full)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err != nil {
		return rename(p, err)
	}
	return rename(p, f.disk.SyncDir(path.Dir(full)))
}

func (f files) Rename(from, to string) error {
	a, err := f.resolve(from)
	if err != nil {
		return err
	}
	b, err := f.resolve(to)
	if err != nil {
		return err
	}
	if err := f.makeFolders(to, b); err != nil {
		return err
	}
	if err := f.disk.Rename(a, b); err != nil {
		return rename(to, err)
	}
	if err := f.disk.SyncDir(path.Dir(b)); err != nil || path.Dir(a) == path.Dir(b) {
		return rename(to, err)
	}
	return rename(from, f.disk.SyncDir(path.Dir(a)))
}

// sweep takes away what a killed process left of a write to a path.
func (f files) sweep(p string) error {
	full, err := f.resolve(p)
	if err != nil {
		return err
	}
	if _, err := f.disk.Lstat(temporary(full)); err != nil {
		return nil
	}
	return f.disk.Remove(temporary(full))
}

// equal tells that a file holds these bytes with these attributes already.
func (f files) equal(p string, body []byte, attr Attr) bool {
	info, err := f.Lstat(p)
	if err != nil || info.Mode != attr.Mode || info.UID != attr.UID || info.GID != attr.GID || info.Size != int64(len(body)) {
		return false
	}
	if attr.Label != "" && info.Label != attr.Label {
		return false
	}
	have, err := f.ReadFile(p)
	return err == nil && bytes.Equal(have, body)
}
