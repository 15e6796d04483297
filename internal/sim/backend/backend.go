// Package backend holds what the simulated clouds share and what has nothing to
// do with any cloud: serving until a context ends, a state file, waiting for
// the next thing that is due, and news for the hardware.
package backend

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// SaveDelay is how long a change may stay unsaved.
const SaveDelay = 100 * time.Millisecond

// headerTimeout is how long a client may take to send a request's headers.
const headerTimeout = 10 * time.Second

// Serve answers on l until ctx ends. Requests carry ctx, so those that wait end
// with it. It returns nil when ctx was the reason.
func Serve(ctx context.Context, l net.Listener, config *tls.Config, h http.Handler) error {
	if config != nil {
		l = tls.NewListener(l, config)
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout, BaseContext: func(net.Listener) context.Context { return ctx }}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-ctx.Done()
		_ = srv.Close()
	}()
	err := srv.Serve(l)
	if ctx.Err() != nil {
		<-ended
		return nil
	}
	return err
}

// Signal wakes one waiter; several pokes before it wakes are one.
type Signal chan struct{}

// NewSignal returns a signal that nobody gave yet.
func NewSignal() Signal { return make(Signal, 1) }

// Poke gives the signal. It never blocks.
func (s Signal) Poke() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Wait waits until something is due in wait, for ever when it is not positive,
// or for a kick. When something is unsaved it waits SaveDelay at most, and
// further changes join that save. It returns false when ctx ends.
func Wait(ctx context.Context, c clock.Clock, wait time.Duration, kick Signal, unsaved bool) bool {
	if unsaved {
		kick = nil
		if wait <= 0 || wait > SaveDelay {
			wait = SaveDelay
		}
	}
	var due <-chan time.Time
	if wait > 0 {
		t := c.NewTimer(wait)
		defer t.Stop()
		due = t.C()
	}
	select {
	case <-ctx.Done():
		return false
	case <-due:
	case <-kick:
	}
	return true
}

// News are things that hardware of type M is told, in order and one at a time.
type News[M any] struct {
	mu   sync.Mutex
	list []func(M)
	tell Signal
}

// NewNews returns an empty list.
func NewNews[M any]() *News[M] { return &News[M]{tell: NewSignal()} }

// Add queues something. It never blocks, so it may be called with locks held.
func (n *News[M]) Add(f func(M)) {
	n.mu.Lock()
	n.list = append(n.list, f)
	n.mu.Unlock()
	n.tell.Poke()
}

// Run tells m what is added until ctx ends.
func (n *News[M]) Run(ctx context.Context, m M) {
	for {
		n.mu.Lock()
		list := n.list
		n.list = nil
		n.mu.Unlock()
		for _, f := range list {
			if ctx.Err() != nil {
				return
			}
			f(m)
		}
		if len(list) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-n.tell:
		}
	}
}

// File is where a simulator keeps its state between runs; an empty Path keeps
// none.
type File struct {
	Path   string
	saving sync.Mutex
}

// Load gives the file's bytes to decode. A missing file is no error and decodes
// nothing.
func (f *File) Load(decode func([]byte) error) error {
	if f.Path == "" {
		return nil
	}
	b, err := os.ReadFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = decode(b)
	}
	if err != nil {
		return fmt.Errorf("read state file %s: %w", f.Path, err)
	}
	return nil
}

// Save writes what encode returns if *dirty; lock guards both.
// A save that fails leaves the state dirty and the old file in place.
func (f *File) Save(lock sync.Locker, dirty *bool, encode func() ([]byte, error)) error {
	f.saving.Lock()
	defer f.saving.Unlock()
	lock.Lock()
	if f.Path == "" || !*dirty {
		lock.Unlock()
		return nil
	}
	b, err := encode()
	*dirty = false
	lock.Unlock()
	if err == nil {
		err = writeAtomic(f.Path, b)
	}
	if err != nil {
		lock.Lock()
		*dirty = true
		lock.Unlock()
		return fmt.Errorf("write state file %s: %w", f.Path, err)
	}
	return nil
}

// CheckVersion says in words why a state file of a format version cannot be
// read by a program that knows versions 1 to known; what names the simulator.
func CheckVersion(version, known int, what string) error {
	if version < 1 {
		return fmt.Errorf("formatVersion is %d, want 1 to %d: this is not a state file of %s", version, known, what)
	}
	if version > known {
		return fmt.Errorf("formatVersion %d is newer than this program's %d; use the newer program or remove the file", version, known)
	}
	return nil
}

// writeAtomic leaves either the old or the new file, whatever is pulled.
func writeAtomic(path string, b []byte) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}
