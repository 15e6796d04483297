package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// folders knows which host folders are watched and where they are inside the root.
type folders struct {
	files files
	given map[string][]string // the paths of a folder, as they were given
	real  map[string][]string // folders by where they are
	way   map[string]bool     // every folder and link on the way to one
}

func newFolders(f files, paths []string) *folders {
	w := &folders{files: f, given: map[string][]string{}}
	for _, p := range paths {
		p = path.Clean("/" + p)
		w.given[path.Dir(p)] = append(w.given[path.Dir(p)], p)
	}
	w.locate()
	return w
}

// locate follows the links on the way to each folder anew.
func (w *folders) locate() {
	w.real, w.way = map[string][]string{}, map[string]bool{}
	for dir := range w.given {
		full, err := w.files.followVia(dir, maxLinks, func(p string) { w.way[p] = true })
		if err != nil {
			full = dir // nothing is there as long as the links lead in circles
		}
		w.real[full] = append(w.real[full], dir)
	}
	for _, dirs := range w.real {
		slices.Sort(dirs)
	}
}

// relocate is locate; it returns the paths whose folders are elsewhere now.
func (w *folders) relocate() []string {
	var out []string
	before := w.real
	w.locate()
	for full, dirs := range w.real {
		if slices.Equal(before[full], dirs) {
			continue
		}
		for _, dir := range dirs {
			out = append(out, w.given[dir]...)
		}
	}
	return out
}

// names returns the host paths of a name that changed, and those of all files in
// folders that came, went or moved with it.
func (w *folders) names(changed string) []string {
	var out []string
	if strings.HasSuffix(changed, temporarySuffix) {
		return nil // a write of ours that is not done
	}
	for _, dir := range w.real[path.Dir(changed)] {
		out = append(out, path.Join(dir, path.Base(changed)))
	}
	for full, dirs := range w.real {
		if full != changed && !strings.HasPrefix(full, strings.TrimSuffix(changed, "/")+"/") {
			continue
		}
		for _, dir := range dirs {
			out = append(out, w.given[dir]...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// all returns every path that was given.
func (w *folders) all() []string {
	return slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Values(w.given))...)))
}

// inotify is the Watcher of machines with a root.
type inotify struct{ dir string }

// Watch implements Watcher. A folder that is not there is waited for at the nearest
// one above it.
func (n inotify) Watch(ctx context.Context, f Files, paths []string, changed func(string)) error {
	inner, ok := f.(files)
	if !ok {
		return ErrNoWatch
	}
	fw, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch files: %w", err)
	}
	defer func() { _ = fw.Close() }()
	t := &tracker{dir: n.dir, watcher: fw, folders: newFolders(inner, paths)}
	if err := t.arm(); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e := <-fw.Events:
			names, err := t.take(e)
			for _, p := range names {
				changed(p)
			}
			if err != nil {
				return err
			}
		case err := <-fw.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("watch files: %w", err)
			}
			for _, p := range t.folders.all() {
				changed(p)
			}
		}
	}
}

// tracker keeps the kernel's watches where the folders are.
type tracker struct {
	dir     string
	watcher *fsnotify.Watcher
	folders *folders
}

// take turns an event into host paths.
func (t *tracker) take(e fsnotify.Event) ([]string, error) {
	at := t.host(e.Name)
	names := t.folders.names(at)
	if !t.folders.way[at] || e.Op&(fsnotify.Create|fsnotify.Remove|fsnotify.Rename) == 0 {
		return names, nil
	}
	// A folder or a link on the way to one is another now.
	names = append(names, t.folders.relocate()...)
	slices.Sort(names)
	return slices.Compact(names), t.arm()
}

// arm watches every folder, or what is there of the way to it. What appears between
// a look and its watch is found by looking again.
func (t *tracker) arm() error {
	for {
		added := false
		want := map[string]bool{}
		for full := range t.folders.real {
			want[t.outside(t.nearest(full))] = true
		}
		have := t.watcher.WatchList()
		for _, dir := range slices.Sorted(maps.Keys(want)) {
			if slices.Contains(have, dir) {
				continue
			}
			switch err := t.watcher.Add(dir); {
			case err == nil:
				added = true
			case !t.gone(dir):
				return fmt.Errorf("watch folder %s: %w", t.host(dir), err)
			default:
				added = true // it went away just now
			}
		}
		if !added {
			return t.forget(have, want)
		}
	}
}

// forget ends watches that no folder needs.
func (t *tracker) forget(have []string, want map[string]bool) error {
	for _, dir := range have {
		if want[dir] {
			continue
		}
		if err := t.watcher.Remove(dir); err != nil && !errors.Is(err, fsnotify.ErrNonExistentWatch) && !t.gone(dir) {
			return fmt.Errorf("stop watching folder %s: %w", t.host(dir), err)
		}
	}
	return nil
}

// nearest is a folder, or the deepest one above it that is there.
func (t *tracker) nearest(full string) string {
	for full != "/" && t.gone(t.outside(full)) {
		full = path.Dir(full)
	}
	return full
}

func (t *tracker) gone(dir string) bool {
	info, err := t.folders.files.disk.Lstat(t.host(dir))
	return err != nil || info.Mode&kindDir == 0
}

func (t *tracker) outside(full string) string { return filepath.Join(t.dir, full) }

func (t *tracker) host(name string) string {
	return path.Clean("/" + strings.TrimPrefix(name, filepath.Clean(t.dir)))
}

// OnChange calls changed with each of the given files, and with others in their
// folders, when it changes, until stop is called. It is called by whoever changes the
// file, so it must neither take long nor touch the machine. Watch is the same for
// those who want to wait.
func (m *Memory) OnChange(paths []string, changed func(path string)) (stop func()) {
	w := newFolders(files{m.mem}, paths)
	return m.mem.observe(func(name string, tree bool) {
		names := w.names(name)
		if tree && w.way[name] {
			names = append(names, w.relocate()...)
		}
		for _, p := range names {
			changed(p)
		}
	})
}

// Watch implements Host.
func (m *Memory) Watch(ctx context.Context, paths []string, changed func(string)) error {
	stop := m.OnChange(paths, changed)
	defer stop()
	<-ctx.Done()
	return ctx.Err()
}
