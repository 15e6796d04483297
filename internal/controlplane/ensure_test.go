package controlplane

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// fakeModule is a checkout with a devplane module, and a go command that
// counts its builds and writes what it is told into the output file.
type fakeModule struct{ root, module, cache, builds string }

func newModule(t *testing.T, script string) fakeModule {
	t.Helper()
	f := fakeModule{root: t.TempDir(), cache: t.TempDir()}
	f.module, f.builds = filepath.Join(f.root, "devplane"), filepath.Join(f.root, "builds")
	bin := filepath.Join(f.root, "tools")
	for _, dir := range []string{f.module, bin} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f.write(t, "go.mod", modulePath+"\n")
	f.write(t, "main.go", "package main\n")
	tool := "#!/bin/sh\ncase \"$1 $2\" in\n\"env GOVERSION\") echo go1.26.8; exit;;\n\"env GOCACHE\") echo " + f.cache + "; exit;;\nesac\n" +
		"echo x >>" + f.builds + "\nwhile [ \"$1\" != -o ]; do shift; done\n" + script + "\n"
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte(tool), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv(CacheEnv, f.cache)
	t.Setenv(BinaryEnv, "")
	return f
}

func (f fakeModule) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(f.module, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (f fakeModule) count() int {
	data, _ := os.ReadFile(f.builds)
	return bytes.Count(data, []byte("x"))
}

const copySelf = `printf '#!/bin/sh\n' >"$2"; chmod +x "$2"`

func TestEnsureBuildsOncePerSourceState(t *testing.T) {
	f := newModule(t, copySelf)
	var progress bytes.Buffer
	first, err := Ensure(t.Context(), f.root, &progress)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(first, f.cache) || executable(first) != nil {
		t.Errorf("got %s, want an executable in the cache %s", first, f.cache)
	}
	if !strings.Contains(progress.String(), "building the development control plane") {
		t.Errorf("progress says %q", progress.String())
	}
	f.write(t, "main_test.go", "package main\n")
	second, err := Ensure(t.Context(), f.module, nil)
	if err != nil {
		t.Fatal(err)
	}
	if second != first || f.count() != 1 {
		t.Errorf("got %s after %d builds, want %s after 1", second, f.count(), first)
	}
	f.write(t, "main.go", "package main // changed\n")
	if third, err := Ensure(t.Context(), f.root, nil); err != nil || third == first || f.count() != 2 {
		t.Errorf("after a change of a source: %s, %v, %d builds", third, err, f.count())
	}
}

func TestEnsureBuildsOnceForManyCallers(t *testing.T) {
	f := newModule(t, "sleep 0.3; "+copySelf)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, err := Ensure(t.Context(), f.root, nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if f.count() != 1 {
		t.Errorf("%d builds, want 1", f.count())
	}
}

func TestEnsureShowsWhyABuildFails(t *testing.T) {
	f := newModule(t, "echo main.go:1: wrong >&2; exit 1")
	_, err := Ensure(t.Context(), f.root, nil)
	if err == nil || !strings.Contains(err.Error(), "main.go:1: wrong") {
		t.Errorf("got %v, want the compiler's words", err)
	}
}

func TestEnsureEndsWithItsContext(t *testing.T) {
	f := newModule(t, "exec sleep 60")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := Ensure(ctx, f.root, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's end", err)
	}
}

func TestEnsureWithoutSourcesSaysWhatToDo(t *testing.T) {
	t.Setenv(BinaryEnv, "")
	dir := t.TempDir()
	_, err := Ensure(t.Context(), dir, nil)
	if err == nil || !strings.Contains(err.Error(), "make devplane") || !strings.Contains(err.Error(), BinaryEnv) {
		t.Errorf("got %v, want the two ways out", err)
	}
	t.Setenv(BinaryEnv, filepath.Join(dir, "nothing"))
	if _, err := Ensure(t.Context(), dir, nil); err == nil || !strings.Contains(err.Error(), BinaryEnv) {
		t.Errorf("got %v, want the variable's name", err)
	}
}

func TestBuildTellsElapsedTime(t *testing.T) {
	f := newModule(t, "while [ ! -e "+filepath.Join(t.TempDir(), "never")+" ]; do sleep 0.05; done")
	clk := clocktesting.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	said := &lines{want: make(chan string, 10)}
	b := builder{module: f.module, dir: f.cache, progress: said, clk: clk}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.compile(ctx, filepath.Join(f.cache, "out")) }()
	for !clk.HasWaiters() {
		time.Sleep(time.Millisecond)
	}
	clk.Step(progressEvery)
	if got := <-said.want; got != "building the development control plane: 15s\n" {
		t.Errorf("said %q", got)
	}
	cancel()
	<-done
}

type lines struct{ want chan string }

func (l *lines) Write(p []byte) (int, error) { l.want <- string(p); return len(p), nil }

func TestLeasePortsKeepsFreePortsAndReplacesTakenOnes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ports.json")
	first, err := leasePorts(file)
	if err != nil {
		t.Fatal(err)
	}
	other, err := leasePorts(file) // the first still holds them
	if err != nil {
		t.Fatal(err)
	}
	for i, port := range other.all() {
		if *port == *first.all()[i] {
			t.Errorf("port %d was given twice", *port)
		}
	}
	other.release()
	again, err := leasePorts(file)
	if err != nil {
		t.Fatal(err)
	}
	if again.ports != other.ports {
		t.Errorf("got %+v, want the remembered %+v", again.ports, other.ports)
	}
	again.release()
	first.release()
}

func FuzzLastLines(f *testing.F) {
	f.Add([]byte("a\n\nb\n"), 1)
	f.Fuzz(func(t *testing.T, text []byte, n int) {
		n = max(0, min(n, 100))
		if got := lastLines(text, n); strings.Count(got, "\n") > max(0, n-1) {
			t.Errorf("%d lines asked for, got %q", n, got)
		}
	})
}
