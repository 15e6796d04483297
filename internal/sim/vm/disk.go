package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// Disk is what survives a machine's reboots. Names are relative to its root.
type Disk interface {
	// Read returns a file, or an error that is fs.ErrNotExist.
	Read(name string) ([]byte, error)
	// Write replaces a file in one step.
	Write(name string, body []byte, mode os.FileMode) error
	close()
}

// rootDisk is a directory.
type rootDisk struct{ root *os.Root }

func (d rootDisk) Read(name string) ([]byte, error) { return d.root.ReadFile(name) }
func (d rootDisk) Write(name string, body []byte, mode os.FileMode) error {
	return writeFile(d.root, name, body, mode)
}
func (d rootDisk) close() { _ = d.root.Close() }

// hollowDisk is a handful of files in memory, kept in one file of the host.
type hollowDisk struct {
	path  string
	mu    sync.Mutex
	files map[string][]byte
}

func (d *hollowDisk) Read(name string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b, ok := d.files[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: "/" + name, Err: fs.ErrNotExist}
	}
	return b, nil
}

func (d *hollowDisk) Write(name string, body []byte, _ os.FileMode) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[name] = body
	b, err := json.Marshal(d.files)
	if err != nil {
		return fmt.Errorf("encode disk: %w", err)
	}
	if err := os.WriteFile(d.path+".new", b, 0o600); err != nil {
		return fmt.Errorf("write disk: %w", err)
	}
	return os.Rename(d.path+".new", d.path)
}

func (d *hollowDisk) close() {}

// bootHollow brings a hollow machine to the state in which services start.
// Of its user data only files count.
func (h *Hypervisor) bootHollow(ctx context.Context, rec *Record, print func(string, ...any)) (Disk, error) {
	if err := h.wait(ctx, rec); err != nil {
		return nil, err
	}
	d := &hollowDisk{path: filepath.Join(h.cfg.Dir, "vms", rec.UUID, "disk.json"), files: map[string][]byte{}}
	b, err := os.ReadFile(d.path)
	switch {
	case err == nil:
		if err := json.Unmarshal(b, &d.files); err != nil {
			return nil, fmt.Errorf("read disk %s: %w", d.path, err)
		}
	case errors.Is(err, fs.ErrNotExist):
		userData, err := h.userData(ctx, rec, print)
		if err != nil {
			return nil, fmt.Errorf("ignition: %w", err)
		}
		files, err := ignitionFiles(userData)
		if err != nil {
			return nil, fmt.Errorf("ignition: %w", err)
		}
		for name, body := range files {
			if err := d.Write(name, body, 0o600); err != nil {
				return nil, err
			}
		}
		print("Ignition: wrote %d files", len(files))
	default:
		return nil, fmt.Errorf("read disk: %w", err)
	}
	rec.BootID = newUUID()
	return d, h.booted(rec)
}
