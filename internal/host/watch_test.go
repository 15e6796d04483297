package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// heard collects what a watch says.
type heard struct {
	mu    sync.Mutex
	paths map[string]int
}

func (h *heard) add(p string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.paths == nil {
		h.paths = map[string]int{}
	}
	h.paths[p]++
}

// take tells whether a path was heard of, and forgets everything.
func (h *heard) take(p string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.paths[p]
	h.paths = nil
	return n > 0
}

// until does something again and again until a path is heard of: a watch is not
// armed at once, and nothing tells when it is.
func (h *heard) until(t *testing.T, p string, do func()) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		do()
		for range 20 {
			if h.take(p) {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	t.Fatalf("nothing was heard of %s", p)
}

// watched starts a watch and ends it with the test.
func watched(t *testing.T, h Host, paths ...string) *heard {
	t.Helper()
	out := &heard{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Watch(ctx, paths, out.add) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the watch ended with %v", err)
		}
	})
	return out
}

// watchable runs a test on a rooted host and on one in memory.
func watchable(t *testing.T, test func(t *testing.T, h Host, f Files)) {
	t.Helper()
	t.Run("rooted", func(t *testing.T) {
		dir := t.TempDir()
		h, err := New(dir, Options{})
		must(t, err)
		other, err := New(dir, Options{}) // changes are made by somebody else
		must(t, err)
		test(t, h, other.Files())
	})
	t.Run("memory", func(t *testing.T) {
		m := NewMemory(MemoryOptions{})
		test(t, m, m.Files())
	})
}

func TestWatchHearsOfEveryKindOfChange(t *testing.T) {
	watchable(t, func(t *testing.T, h Host, f Files) {
		write(t, f, map[string]string{"/etc/a": "x", "/home": "-> var/home", "/var/home/k": "x"})
		w := watched(t, h, "/etc/a", "/etc/absent", "/home/k", "/later/deep/b")
		attr := Attr{Mode: 0o644}
		w.until(t, "/etc/a", func() { must(t, f.Replace("/etc/a", []byte("y"), attr)) })
		w.until(t, "/etc/a", func() { must(t, f.Append("/etc/a", []byte("z"), attr)) })
		w.until(t, "/etc/absent", func() { must(t, f.Replace("/etc/absent", nil, attr)) })
		w.until(t, "/home/k", func() { must(t, f.Replace("/var/home/k", []byte("y"), attr)) })
		w.until(t, "/etc/a", func() { must(t, f.Link("/dev/null", "/etc/a")) })
		w.until(t, "/etc/a", func() { must(t, f.Remove("/etc/a"), f.Replace("/etc/a", nil, attr)) })
		w.until(t, "/etc/other", func() { must(t, f.Replace("/etc/other", nil, attr)) })
	})
}

func TestWatchFindsFoldersThatComeAndGo(t *testing.T) {
	watchable(t, func(t *testing.T, h Host, f Files) {
		write(t, f, map[string]string{"/etc/x": "", "/srv/one/a": "", "/srv/two/a": ""})
		w := watched(t, h, "/etc/deep/er/b", "/srv/now/a")
		attr := Attr{Mode: 0o644}
		for range 2 {
			w.until(t, "/etc/deep/er/b", func() { must(t, f.Replace("/etc/deep/er/b", []byte("y"), attr)) })
			w.until(t, "/etc/deep/er/b", func() { must(t, f.Replace("/etc/deep/er/b", []byte("z"), attr)) })
			w.until(t, "/etc/deep/er/b", func() {
				must(t, f.Remove("/etc/deep/er/b"), f.Remove("/etc/deep/er"), f.Remove("/etc/deep"))
			})
		}
		w.until(t, "/srv/now/a", func() { must(t, f.Link("one", "/srv/now")) })
		w.until(t, "/srv/now/a", func() { must(t, f.Replace("/srv/one/a", nil, attr)) })
	})
}

func TestWatchHearsOfAChmod(t *testing.T) {
	dir := t.TempDir()
	h, err := New(dir, Options{})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o600))
	w := watched(t, h, "/a")
	mode := os.FileMode(0o600)
	w.until(t, "/a", func() {
		mode ^= 0o044
		must(t, os.Chmod(filepath.Join(dir, "a"), mode))
	})
}

func TestAWatchInMemoryHearsNothingAfterItsEnd(t *testing.T) {
	m := NewMemory(MemoryOptions{})
	var out heard
	stop := m.OnChange([]string{"/etc/a"}, out.add)
	must(t, m.Files().Replace("/etc/a", []byte("x"), Attr{Mode: 0o644}))
	if !out.take("/etc/a") {
		t.Error("nothing was heard of a change")
	}
	must(t, m.Files().Replace("/var/b", []byte("x"), Attr{Mode: 0o644}))
	if out.take("/var/b") {
		t.Error("heard of a folder that nobody asked for")
	}
	stop()
	must(t, m.Files().Replace("/etc/a", []byte("y"), Attr{Mode: 0o644}))
	if out.take("/etc/a") {
		t.Error("heard of a change after the end")
	}
}

func TestAHostThatCannotWatchSaysSo(t *testing.T) {
	m := newMachine(newMemory(), Options{})
	if err := m.Watch(context.Background(), []string{"/etc/a"}, func(string) {}); !errors.Is(err, ErrNoWatch) {
		t.Errorf("got %v, want %v", err, ErrNoWatch)
	}
}
