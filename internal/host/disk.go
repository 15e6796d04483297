package host

import (
	"errors"
	"io/fs"
	"syscall"
)

// Disk is the seam: every byte that is read or written, and every name that is made,
// goes through it. Paths are absolute, clean, and hold no links but perhaps at
// their end; nothing follows a link. Errors are *fs.PathError with that path.
//
// What is not synced may be lost by a power cut: the bytes of a file until Sync,
// names in a folder until SyncDir.
type Disk interface {
	Lstat(path string) (Info, error)
	ReadFile(path string) ([]byte, error)
	ReadLink(path string) (string, error)
	ReadDir(path string) ([]string, error)

	Mkdir(path string, mode uint32) error
	Create(path string) error // an empty file of mode 0600; the path must be free
	Write(path string, data []byte) error
	Chmod(path string, mode uint32) error
	Chown(path string, uid, gid int) error
	SetLabel(path, label string) error
	Symlink(target, path string) error
	Rename(from, to string) error
	Remove(path string) error // a file, a link or an empty folder
	Sync(path string) error
	SyncDir(path string) error
}

// Fault is what happens at one operation of a Disk.
type Fault int

// Faults.
const (
	NoFault Fault = iota
	// Fail makes the operation fail without effect.
	Fail
	// NoSpace makes it, and every later one that needs room, fail with ENOSPC.
	NoSpace
	// Kill ends the process before the operation: a panic with Killed.
	Kill
	// Torn ends the process in the middle: half of what is written arrives.
	Torn
)

// Killed is the panic of a killed process.
type Killed struct{ Op int }

// Faulty is a Disk that counts its changing operations and fails at one of them.
// Not safe for concurrent use.
type Faulty struct {
	Disk
	At    int   // the operation, from 1; 0: none
	Fault Fault // what happens there
	Ops   int   // changing operations so far
	full  bool
	dead  bool
}

// Free ends NoSpace.
func (f *Faulty) Free() { f.full, f.At = false, 0 }

// enter counts an operation and tells whether it may go on.
func (f *Faulty) enter(op, path string, needsRoom bool) error {
	if f.dead {
		panic(Killed{f.Ops})
	}
	f.Ops++
	if f.full && needsRoom {
		return &fs.PathError{Op: op, Path: path, Err: syscall.ENOSPC}
	}
	if f.Ops != f.At {
		return nil
	}
	switch f.Fault {
	case Fail:
		return &fs.PathError{Op: op, Path: path, Err: syscall.EIO}
	case NoSpace:
		f.full = true
		if needsRoom {
			return &fs.PathError{Op: op, Path: path, Err: syscall.ENOSPC}
		}
	case Kill:
		f.die()
	case Torn:
		return errTorn
	case NoFault:
	}
	return nil
}

var errTorn = errors.New("torn")

func (f *Faulty) die() {
	f.dead = true
	panic(Killed{f.Ops})
}

// effect is one operation that writes no bytes; half of it is all or nothing.
func (f *Faulty) effect(op, path string, needsRoom bool, do func() error) error {
	err := f.enter(op, path, needsRoom)
	if errors.Is(err, errTorn) {
		_ = do() // it happened, and nobody learns of it
		f.die()
	}
	if err != nil {
		return err
	}
	return do()
}

// Mkdir implements Disk.
func (f *Faulty) Mkdir(path string, mode uint32) error {
	return f.effect("mkdir", path, true, func() error { return f.Disk.Mkdir(path, mode) })
}

// Create implements Disk.
func (f *Faulty) Create(path string) error {
	return f.effect("open", path, true, func() error { return f.Disk.Create(path) })
}

// Write implements Disk.
func (f *Faulty) Write(path string, data []byte) error {
	err := f.enter("write", path, true)
	if errors.Is(err, errTorn) {
		_ = f.Disk.Write(path, data[:len(data)/2])
		f.die()
	}
	if errors.Is(err, syscall.ENOSPC) {
		_ = f.Disk.Write(path, data[:len(data)/2]) // what there was room for
	}
	if err != nil {
		return err
	}
	return f.Disk.Write(path, data)
}

// Chmod implements Disk.
func (f *Faulty) Chmod(path string, mode uint32) error {
	return f.effect("chmod", path, false, func() error { return f.Disk.Chmod(path, mode) })
}

// Chown implements Disk.
func (f *Faulty) Chown(path string, uid, gid int) error {
	return f.effect("chown", path, false, func() error { return f.Disk.Chown(path, uid, gid) })
}

// SetLabel implements Disk.
func (f *Faulty) SetLabel(path, label string) error {
	return f.effect("setxattr", path, false, func() error { return f.Disk.SetLabel(path, label) })
}

// Symlink implements Disk.
func (f *Faulty) Symlink(target, path string) error {
	return f.effect("symlink", path, true, func() error { return f.Disk.Symlink(target, path) })
}

// Rename implements Disk.
func (f *Faulty) Rename(from, to string) error {
	return f.effect("rename", to, false, func() error { return f.Disk.Rename(from, to) })
}

// Remove implements Disk.
func (f *Faulty) Remove(path string) error {
	return f.effect("remove", path, false, func() error { return f.Disk.Remove(path) })
}

// Sync implements Disk.
func (f *Faulty) Sync(path string) error {
	return f.effect("sync", path, false, func() error { return f.Disk.Sync(path) })
}

// SyncDir implements Disk.
func (f *Faulty) SyncDir(path string) error {
	return f.effect("sync", path, false, func() error { return f.Disk.SyncDir(path) })
}
