package host

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// disks runs a test on every kind of disk.
func disks(t *testing.T, test func(t *testing.T, d Disk)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) { test(t, newMemory()) })
	t.Run("rooted", func(t *testing.T) { test(t, openTemp(t)) })
	t.Run("rooted without root's rights", func(t *testing.T) {
		d := openTemp(t)
		d.attributes = true
		if err := os.WriteFile(filepath.Join(d.dir, "probe"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := d.Chown("/probe", 7, 7); errors.Is(err, syscall.ENOTSUP) {
			t.Skip("the file system of the temporary folder has no user attributes")
		}
		_ = d.Remove("/probe")
		test(t, d)
	})
}

func openTemp(t *testing.T) *rooted {
	t.Helper()
	d, err := openRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.root.Close() })
	return d
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// write puts files on a disk: contents by path, "-> x" for a link.
func write(t *testing.T, f Files, tree map[string]string) {
	t.Helper()
	for _, p := range slices.Sorted(maps.Keys(tree)) {
		if target, ok := strings.CutPrefix(tree[p], "-> "); ok {
			must(t, f.Link(target, p))
			continue
		}
		must(t, f.Replace(p, []byte(tree[p]), Attr{Mode: 0o644}))
	}
}

func TestLinksResolveInsideTheRoot(t *testing.T) {
	rows := []struct {
		name, why string
		tree      map[string]string
		path      string
		want      string // where Replace writes
	}{
		{"plain", "nothing to follow", nil, "/etc/a", "/etc/a"},
		{"absolute link in the middle", "it starts at the host's root, not ours", map[string]string{"/home": "-> /var/home"}, "/home/core/a", "/var/home/core/a"},
		{"relative link in the middle", "it starts where the link is", map[string]string{"/usr/local": "-> ../var/usrlocal"}, "/usr/local/bin/a", "/var/usrlocal/bin/a"},
		{"link out of the root", "dots stop at the root", map[string]string{"/etc/out": "-> ../../../../../../etc"}, "/etc/out/a", "/etc/a"},
		{"link to the root", "an absolute link may be the root itself", map[string]string{"/etc/out": "-> /"}, "/etc/out/a", "/a"},
		{"dots in the path", "a config may write them", nil, "/etc/../../../a", "/a"},
		{"link to a link", "each is followed", map[string]string{"/a": "-> /b", "/b": "-> /c/../d"}, "/a/x", "/d/x"},
		{"link at the end", "the file replaces it", map[string]string{"/etc/a": "-> /etc/shadow"}, "/etc/a", "/etc/a"},
		{"link to nothing", "what is missing is made inside", map[string]string{"/etc/d": "-> /nowhere/deep"}, "/etc/d/a", "/nowhere/deep/a"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			disks(t, func(t *testing.T, d Disk) {
				f := NewFiles(d)
				write(t, f, row.tree)
				must(t, f.Replace(row.path, []byte("x"), Attr{Mode: 0o600}))
				got, err := d.ReadFile(row.want)
				if err != nil || string(got) != "x" {
					t.Fatalf("got %q, %v at %s; want x (%s)", got, err, row.want, row.why)
				}
				back, err := f.ReadFile(row.path)
				if err != nil || string(back) != "x" {
					t.Errorf("reading it back: got %q, %v", back, err)
				}
				must(t, f.Remove(row.path))
				if _, err := d.Lstat(row.want); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("after Remove: got %v, want that nothing is there", err)
				}
			})
		})
	}
}

func TestReadFollowsALinkAtTheEnd(t *testing.T) {
	disks(t, func(t *testing.T, d Disk) {
		f := NewFiles(d)
		write(t, f, map[string]string{"/usr/lib/os-release": "ID=x", "/etc/os-release": "-> ../usr/lib/os-release"})
		got, err := f.ReadFile("/etc/os-release")
		if err != nil || string(got) != "ID=x" {
			t.Errorf("got %q, %v; want ID=x", got, err)
		}
		info, err := f.Lstat("/etc/os-release")
		if err != nil || fs.FileMode(info.Mode)&fs.ModeSymlink == 0 {
			t.Errorf("got %v, %v; want the link itself", fs.FileMode(info.Mode), err)
		}
	})
}

// Texts that people know from the original, with host paths.
func TestErrorsNameHostPaths(t *testing.T) {
	disks(t, func(t *testing.T, d Disk) {
		f := NewFiles(d)
		write(t, f, map[string]string{"/etc/file": "x", "/etc/dir/x": "", "/etc/loop": "-> /etc/loop", "/link": "-> /etc"})
		attr := Attr{Mode: 0o644}
		_, lstat := f.Lstat("/tmp/tmpfile")
		_, read := f.ReadFile("/link/none")
		_, list := f.ReadDir("/none")
		got := []string{
			lstat.Error(), read.Error(), list.Error(),
			f.Replace("/etc/file/sub/a", nil, attr).Error(),
			f.Replace("/etc/dir", []byte("x"), attr).Error(),
			f.Link("/dev/null", "/etc/dir").Error(),
			f.Remove("/etc/dir").Error(),
			f.Replace("/etc/loop/a", nil, attr).Error(),
		}
		want := []string{
			"lstat /tmp/tmpfile: no such file or directory",
			"open /link/none: no such file or directory",
			"open /none: no such file or directory",
			`failed to create directory "/etc/file/sub": mkdir /etc/file: not a directory`,
			"rename /etc/dir: file exists",
			"rename /etc/dir: file exists",
			"remove /etc/dir: directory not empty",
			"open /etc/loop/a: too many levels of symbolic links",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		for _, name := range []string{"/etc/.dir.millwright", "/etc/.loop.millwright"} {
			if _, err := d.Lstat(name); err == nil {
				t.Errorf("a failed write left %s", name)
			}
		}
	})
}

func TestReplaceSetsExactlyTheAttributes(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	for _, mode := range []fs.FileMode{0, 0o600, 0o644, 0o777, 0o755 | fs.ModeSetuid, 0o1 | fs.ModeSticky | fs.ModeSetgid} {
		t.Run(mode.String(), func(t *testing.T) {
			disks(t, func(t *testing.T, d Disk) {
				f := NewFiles(d)
				must(t, f.Replace("/opt/new/a", []byte("x"), Attr{Mode: uint32(mode), UID: 12, GID: 34}))
				info, err := f.Lstat("/opt/new/a")
				must(t, err)
				if diff := cmp.Diff(Info{Mode: uint32(mode), UID: 12, GID: 34, Size: 1}, info); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				dir, err := f.Lstat("/opt/new")
				must(t, err)
				if diff := cmp.Diff(fs.ModeDir|0o755, fs.FileMode(dir.Mode)); diff != "" {
					t.Errorf("a folder that was made (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestLongNamesHaveTemporaryFilesToo(t *testing.T) {
	disks(t, func(t *testing.T, d Disk) {
		f := NewFiles(d)
		p := "/etc/" + strings.Repeat("n", 255)
		must(t, f.Replace(p, []byte("x"), Attr{Mode: 0o644}))
		got, err := f.ReadFile(p)
		if err != nil || string(got) != "x" {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

func TestAppendAddsAndKeepsAttributes(t *testing.T) {
	disks(t, func(t *testing.T, d Disk) {
		f := NewFiles(d)
		must(t, f.Append("/var/lib/j", []byte("one\n"), Attr{Mode: 0o600}), f.Append("/var/lib/j", []byte("two\n"), Attr{Mode: 0o644}))
		got, err := f.ReadFile("/var/lib/j")
		info, err2 := f.Lstat("/var/lib/j")
		must(t, err, err2)
		if string(got) != "one\ntwo\n" || info.Mode != 0o600 {
			t.Errorf("got %q with mode %o, want both lines and 600", got, info.Mode)
		}
	})
}

func TestNamesAreSortedAndRemoveForgives(t *testing.T) {
	disks(t, func(t *testing.T, d Disk) {
		f := NewFiles(d)
		write(t, f, map[string]string{"/d/b": "", "/d/a": "", "/d/c": "-> x"})
		got, err := f.ReadDir("/d")
		must(t, err)
		if diff := cmp.Diff([]string{"a", "b", "c"}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		must(t, f.Remove("/none/x"), f.Remove("/d/a/below-a-file"), f.Rename("/d/b", "/e/b"))
		if _, err := f.ReadFile("/e/b"); err != nil {
			t.Error(err)
		}
	})
}

func TestPipesAndDevicesAreNotRead(t *testing.T) {
	d := openTemp(t)
	must(t, syscall.Mkfifo(filepath.Join(d.dir, "pipe"), 0o600))
	if _, err := NewFiles(d).ReadFile("/pipe"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("got %v, want invalid argument", err)
	}
}

// crashed runs a change with every fault at every operation, in both ways to die,
// and hands over what is left.
func crashed(t *testing.T, change func(f Files) error, prepare func(f Files), check func(t *testing.T, f Files, ok bool)) int {
	t.Helper()
	runs := 0
	for _, fault := range []Fault{Fail, NoSpace, Kill, Torn} {
		for _, cut := range []bool{false, true} {
			for at := 1; ; at++ {
				m := newMemory()
				prepare(NewFiles(m))
				m.sync()
				faulty := &Faulty{Disk: m, At: at, Fault: fault}
				var err error
				killed := dies(func() { err = change(NewFiles(faulty)) })
				if faulty.Ops < at {
					break
				}
				runs++
				left := m
				if cut {
					left = m.crash()
				}
				t.Run(fmt.Sprintf("fault %d at %d, power cut %v", fault, at, cut), func(t *testing.T) {
					check(t, NewFiles(left), !killed && err == nil)
					must(t, change(NewFiles(left))) // the next process repeats it
					check(t, NewFiles(left), true)
				})
			}
		}
	}
	return runs
}

func dies(process func()) (killed bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(Killed); !ok {
				panic(r)
			}
			killed = true
		}
	}()
	process()
	return false
}

func TestReplaceIsOldOrNewWhereverItDies(t *testing.T) {
	older, newer := bytes.Repeat([]byte("old "), 100), bytes.Repeat([]byte("new "), 200)
	for _, existed := range []bool{true, false} {
		runs := crashed(t, func(f Files) error {
			return f.Replace("/etc/deep/a", newer, Attr{Mode: 0o600, UID: 5, GID: 6})
		}, func(f Files) {
			if existed {
				must(t, f.Replace("/etc/deep/a", older, Attr{Mode: 0o644}))
			}
		}, func(t *testing.T, f Files, ok bool) {
			info, err := f.Lstat("/etc/deep/a")
			if errors.Is(err, fs.ErrNotExist) && !existed && !ok {
				return
			}
			must(t, err)
			body, err := f.ReadFile("/etc/deep/a")
			must(t, err)
			isOld := existed && bytes.Equal(body, older) && info.Mode == 0o644 && info.UID == 0
			isNew := bytes.Equal(body, newer) && info.Mode == 0o600 && info.UID == 5 && info.GID == 6
			if !isNew && (ok || !isOld) {
				t.Fatalf("got %d bytes, %+v; want all of the old or the new file, the new one after success (%v)", len(body), info, ok)
			}
		})
		if runs < 60 {
			t.Errorf("enumerated %d faults, want at least 60", runs)
		}
	}
}

func TestLinkAndRemoveAreWholeWhereverTheyDie(t *testing.T) {
	crashed(t, func(f Files) error { return f.Link("/new", "/etc/l") },
		func(f Files) { must(t, f.Link("/old", "/etc/l")) },
		func(t *testing.T, f Files, ok bool) {
			if got, err := f.ReadLink("/etc/l"); err != nil || got != "/new" && (ok || got != "/old") {
				t.Fatalf("got %q, %v", got, err)
			}
		})
	crashed(t, func(f Files) error { return f.Remove("/etc/a") },
		func(f Files) { must(t, f.Replace("/etc/a", []byte("x"), Attr{})) },
		func(t *testing.T, f Files, ok bool) {
			if got, err := f.ReadFile("/etc/a"); err == nil && (ok || string(got) != "x") {
				t.Fatalf("got %q after success %v", got, ok)
			}
		})
}

func TestAPowerCutLosesWhatIsNotSynced(t *testing.T) {
	m := newMemory()
	must(t, m.Mkdir("/d", 0o755), m.SyncDir("/"), m.Create("/d/a"), m.Write("/d/a", []byte("one")), m.Sync("/d/a"))
	if _, err := m.crash().Lstat("/d/a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a name without SyncDir survived: %v", err)
	}
	must(t, m.SyncDir("/d"), m.Write("/d/a", []byte(" two")), m.Chmod("/d/a", 0o644))
	after := m.crash()
	got, err := after.ReadFile("/d/a")
	info, err2 := after.Lstat("/d/a")
	must(t, err, err2)
	if string(got) != "one" || info.Mode != 0o600 {
		t.Errorf("got %q %o, want what was synced: one 600", got, info.Mode)
	}
	must(t, m.Create("/d/b"), m.Write("/d/b", []byte("x")), m.Rename("/d/b", "/d/a"), m.SyncDir("/d"))
	if got, err := m.crash().ReadFile("/d/a"); err != nil || len(got) != 0 {
		t.Errorf("got %q, %v; want an empty file: its bytes were never synced", got, err)
	}
	if got, err := m.ReadFile("/d/a"); err != nil || string(got) != "x" {
		t.Errorf("the running system lost %q, %v", got, err)
	}
}

// FuzzPathStaysInside writes, links, moves and removes along any path through any
// links, and looks at what lies around the root.
func FuzzPathStaysInside(f *testing.F) {
	f.Add("/etc/a", "/etc", "../../outside")
	f.Add("../../outside/canary", "l", "/")
	f.Add("/l/../../canary", "/l", "/../outside")
	f.Add("/l/canary", "l", "../outside")
	f.Add("/a/b/l/./..//canary", "/a/b/l", "../../../outside/./")
	f.Fuzz(func(t *testing.T, p, link, target string) {
		base := t.TempDir()
		root, outside := filepath.Join(base, "root"), filepath.Join(base, "outside")
		must(t, os.Mkdir(root, 0o755), os.Mkdir(outside, 0o755), os.WriteFile(filepath.Join(outside, "canary"), []byte("alive"), 0o600))
		d, err := openRoot(root)
		must(t, err)
		defer func() { _ = d.root.Close() }()
		mem := newMemory()
		for _, files := range []files{{d}, {mem}} {
			_ = files.Link(target, link)
			_ = files.Replace(p, []byte("evil"), Attr{Mode: 0o666})
			_ = files.Append(p+"/x", []byte("evil"), Attr{Mode: 0o666})
			_ = files.Link("/x", path.Join(link, p))
			_ = files.Rename(p, link+"/y")
			_ = files.Remove(path.Join(link, "canary"))
			if b, err := files.ReadFile(path.Join(link, "canary")); err == nil && string(b) == "alive" {
				t.Fatalf("read through %q -> %q", link, target)
			}
			if full, err := files.follow(p, maxLinks); err == nil && (!path.IsAbs(full) || full != path.Clean(full)) {
				t.Fatalf("%q resolves to %q", p, full)
			}
		}
		names, err := os.ReadDir(outside)
		must(t, err)
		canary, err := os.ReadFile(filepath.Join(outside, "canary"))
		if len(names) != 1 || err != nil || string(canary) != "alive" {
			t.Fatalf("outside the root: %v, canary %q %v", names, canary, err)
		}
		around, err := os.ReadDir(base)
		must(t, err)
		if len(around) != 2 {
			t.Fatalf("beside the root: %v", around)
		}
	})
}

func TestAppendLosesNothingThatWasThere(t *testing.T) {
	const before, more = "one\n", "a second line\n"
	for _, fault := range []Fault{Fail, NoSpace, Kill, Torn} {
		for _, cut := range []bool{false, true} {
			for at := 1; ; at++ {
				m := newMemory()
				must(t, NewFiles(m).Append("/var/j", []byte(before), Attr{Mode: 0o600}))
				faulty := &Faulty{Disk: m, At: at, Fault: fault}
				var err error
				killed := dies(func() { err = NewFiles(faulty).Append("/var/j", []byte(more), Attr{Mode: 0o600}) })
				if faulty.Ops < at {
					break
				}
				left := m
				if cut {
					left = m.crash()
				}
				got, readErr := NewFiles(left).ReadFile("/var/j")
				must(t, readErr)
				if !strings.HasPrefix(before+more, string(got)) || len(got) < len(before) || !killed && err == nil && len(got) != len(before+more) {
					t.Errorf("fault %d at %d, power cut %v: got %q after %v", fault, at, cut, got, err)
				}
			}
		}
	}
}
