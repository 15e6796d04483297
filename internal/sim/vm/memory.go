package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"millwright.io/millwright/internal/engine/diff"
	"millwright.io/millwright/internal/engine/transition"
	"millwright.io/millwright/internal/host"
)

// contents holds what the files of hollow machines contain, each only once: thousands
// of machines have the same.
type contents struct {
	dir string
	mu  sync.Mutex
	by  map[string][]byte // by digest
	on  map[string]bool   // those in dir
}

func newContents(dir string) *contents {
	return &contents{dir: dir, by: map[string][]byte{}, on: map[string]bool{}}
}

// intern returns the shared copy of a body.
func (c *contents) intern(body []byte) []byte {
	digest := transition.Digest(body)
	c.mu.Lock()
	defer c.mu.Unlock()
	if have, ok := c.by[digest]; ok {
		return have
	}
	c.by[digest] = body
	return body
}

func (c *contents) file(digest string) string {
	return filepath.Join(c.dir, strings.TrimPrefix(digest, "sha256:"))
}

// keep writes a body to the host's disk, once.
func (c *contents) keep(digest string, body []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.on[digest] {
		return nil
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return fmt.Errorf("make folder of contents: %w", err)
	}
	p := c.file(digest)
	if err := os.WriteFile(p+".new", body, 0o600); err != nil {
		return fmt.Errorf("write contents: %w", err)
	}
	if err := os.Rename(p+".new", p); err != nil {
		return fmt.Errorf("write contents: %w", err)
	}
	c.on[digest] = true
	return nil
}

func (c *contents) read(digest string) ([]byte, error) {
	c.mu.Lock()
	body, ok := c.by[digest]
	c.mu.Unlock()
	if ok {
		return body, nil
	}
	body, err := os.ReadFile(c.file(digest))
	if err != nil {
		return nil, err
	}
	if transition.Digest(body) != digest {
		return nil, fmt.Errorf("%s is damaged", c.file(digest))
	}
	return c.intern(body), nil
}

// hollowDisk is a machine in memory. The host keeps it in one file beside the
// contents that all share.
type hollowDisk struct {
	mem    *host.Memory
	path   string
	shared *contents
	reboot chan struct{}
}

func (d *hollowDisk) Read(name string) ([]byte, error) { return d.mem.Files().ReadFile("/" + name) }

func (d *hollowDisk) Write(name string, body []byte, mode os.FileMode) error {
	if err := d.mem.Files().Replace("/"+name, body, host.Attr{Mode: uint32(mode)}); err != nil {
		return err
	}
	return d.save()
}

func (d *hollowDisk) close() { _ = d.save() } // what was lost is made again at the next boot

func (d *hollowDisk) save() error {
	raw, err := d.mem.Save(d.shared.keep)
	if err != nil {
		return fmt.Errorf("save disk: %w", err)
	}
	if err := os.WriteFile(d.path+".new", raw, 0o600); err != nil {
		return fmt.Errorf("write disk: %w", err)
	}
	return os.Rename(d.path+".new", d.path)
}

// askReboot is called by the machine's own agent.
func (d *hollowDisk) askReboot() {
	select {
	case d.reboot <- struct{}{}:
	default:
	}
}

// bootHollow brings a hollow machine to the state in which services start.
func (h *Hypervisor) bootHollow(ctx context.Context, rec *Record, print func(string, ...any)) (Disk, error) {
	if err := h.wait(ctx, rec); err != nil {
		return nil, err
	}
	d := &hollowDisk{path: filepath.Join(h.cfg.Dir, "vms", rec.UUID, "disk.json"), shared: h.contents, reboot: make(chan struct{}, 1)}
	o := host.MemoryOptions{Intern: h.contents.intern}
	raw, err := os.ReadFile(d.path)
	switch {
	case err == nil:
		saved, err := host.RestoreMemory(raw, o, h.contents.read)
		if err != nil {
			return nil, fmt.Errorf("read disk %s: %w", d.path, err)
		}
		d.mem = saved.Boot(false, nil)
	case errors.Is(err, fs.ErrNotExist):
		if d.mem, err = h.firstHollow(ctx, rec, o, print); err != nil {
			return nil, fmt.Errorf("ignition: %w", err)
		}
	default:
		return nil, fmt.Errorf("read disk: %w", err)
	}
	rec.BootID = newUUID()
	d.mem.SetBoot(rec.BootID, d.askReboot)
	if err := d.save(); err != nil {
		return nil, err
	}
	return d, h.booted(rec)
}

// firstHollow is the first boot of a hollow machine: its config applied, its image
// and kernel arguments true at once.
func (h *Hypervisor) firstHollow(ctx context.Context, rec *Record, o host.MemoryOptions, print func(string, ...any)) (*host.Memory, error) {
	userData, err := h.userData(ctx, rec, print)
	if err != nil {
		return nil, err
	}
	cfg, err := parseIgnition(userData)
	if err != nil {
		return nil, err
	}
	o.Arguments = strings.Fields(firstArguments)
	for _, f := range cfg.Storage.Files {
		if strings.TrimPrefix(f.Path, "/") != pathEncapsulated || f.Contents.Source == nil {
			continue
		}
		var c encapsulated
		body, err := fetch(f.Contents)
		if err == nil {
			err = json.Unmarshal(body, &c)
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", f.Path, err)
		}
		o.Image = c.Spec.OSImageURL
		o.Arguments = append(o.Arguments, diff.Arguments(c.Spec.KernelArguments)...)
	}
	m := host.NewMemory(o)
	a := applier{ctx: ctx, host: m}
	done, err := a.all(cfg)
	if err != nil {
		return nil, err
	}
	print("Ignition: %s", done)
	return m, nil
}
