package program

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// teller is the program of the roots in these tests: this test, called by that name.
const teller = "teller"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == teller || filepath.Base(os.Args[0]) == Standin {
		os.Exit(tell(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// tell prints what a program can see of how it was called.
func tell(args []string) int {
	if slices.Contains(args, "fail") {
		fmt.Println("as far as it came")
		fmt.Fprint(os.Stderr, " no such unit \n\n")
		return 3
	}
	if i := slices.Index(args, "hang"); i >= 0 {
		if err := os.WriteFile(args[i+1], nil, 0o600); err != nil {
			return 1
		}
		time.Sleep(time.Minute)
	}
	dir, err := os.Getwd()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_, err = os.Stat("/only-in-this-root")
	fmt.Printf("args=%q dir=%s own=%t secret=%q\n", args, dir, err == nil, os.Getenv("PROGRAM_TEST_SECRET"))
	return 0
}

// newRoot is a folder with the teller in dir.
func newRoot(t *testing.T, dir string) string {
	t.Helper()
	root := t.TempDir()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{filepath.Join(dir, teller): body, "only-in-this-root": nil} {
		if err := os.WriteFile(filepath.Join(root, name), content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// simulated makes a root's programs those of a simulated machine.
func simulated(t *testing.T, root string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(root, "usr/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "usr/bin", Standin), []byte("x"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// static tells that this test runs in a root that has no libraries.
func static(t *testing.T) bool {
	t.Helper()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(own)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

func TestAProgramOfASimulatedMachineIsToldItsRoot(t *testing.T) {
	t.Setenv("PROGRAM_TEST_SECRET", "token")
	root := newRoot(t, "usr/sbin")
	simulated(t, root)
	got, err := New(root, nil).Query(t.Context(), teller, "kargs", "--append=a b")
	if err != nil {
		t.Fatal(err)
	}
	// Neither inside the root nor with the agent's own environment.
	want := fmt.Sprintf("args=%q dir=", []string{"--root", root, "kargs", "--append=a b"})
	if !strings.HasPrefix(got, want) || !strings.HasSuffix(got, " own=false secret=\"\"\n") {
		t.Errorf("got %q, want %q… outside the root and without secrets", got, want)
	}
}

func TestAProgramOfAMountedHostRunsInsideIt(t *testing.T) {
	if os.Getuid() != 0 || !static(t) {
		t.Skip("needs root and a test without libraries")
	}
	t.Setenv("PROGRAM_TEST_SECRET", "token")
	root := newRoot(t, "usr/bin")
	got, err := New(root, nil).Query(t.Context(), teller, "kargs")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("args=[\"kargs\"] dir=/ own=true secret=\"\"\n", got); diff != "" {
		t.Errorf("what the program saw (-want +got):\n%s", diff)
	}
}

func TestFailuresSayWhatTheProgramSaid(t *testing.T) {
	root := newRoot(t, "usr/bin")
	simulated(t, root)
	p := New(root, nil)
	got, err := p.Captured(t.Context(), teller, "fail")
	if want := "error running teller fail: no such unit: exit status 3"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %q", err, want)
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("got %v, want the exit code in it", err)
	}
	if want := "as far as it came\n"; got != want {
		t.Errorf("got %q, want %q also of a failure", got, want)
	}
	if err := p.Run(t.Context(), "absent", "x"); !errors.Is(err, exec.ErrNotFound) || !strings.HasPrefix(err.Error(), "error running absent x: ") {
		t.Errorf("got %v of a program that is not there", err)
	}
}

func TestAnEndedContextEndsTheProgram(t *testing.T) {
	root := newRoot(t, "usr/bin")
	simulated(t, root)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	started := filepath.Join(t.TempDir(), "started")
	done := make(chan error, 1)
	go func() { done <- New(root, nil).Run(ctx, teller, "hang", started) }()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(started); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the program did not start")
		}
	}
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the program goes on after its context ended")
	}
}

func TestOnlyCommandsAreLogged(t *testing.T) {
	root := newRoot(t, "usr/bin")
	simulated(t, root)
	var lines []string
	p := New(root, func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) })
	if err := p.Run(t.Context(), teller, "restart", "crio.service"); err != nil {
		t.Fatal(err)
	}
	for _, ask := range []func(context.Context, string, ...string) (string, error){p.Captured, p.Query} {
		if _, err := ask(t.Context(), teller, "kargs"); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"Running: teller restart crio.service", "Running captured: teller kargs"}, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestHas(t *testing.T) {
	root := newRoot(t, "usr/local/bin")
	for name, target := range map[string]string{"usr/bin/folder/": "", "usr/bin/away": "/usr/bin/env", "usr/bin/nowhere": "gone"} {
		full := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(full, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.Symlink(target, full); err != nil {
			t.Fatal(err)
		}
	}
	p := New(root, nil)
	for name, want := range map[string]bool{
		teller: true, "folder": false, "absent": false, "nowhere": false,
		// A link to an absolute path means one inside the root; only a chroot can follow it.
		"away": true,
		// What we have ourselves is not what the host has.
		"env": false,
	} {
		if got := p.Has(name); got != want {
			t.Errorf("Has(%q): got %t, want %t", name, got, want)
		}
	}
	simulated(t, root)
	if New(root, nil).Has("away") {
		t.Error("a simulated machine has a program that lies outside its root, want not")
	}
}

func TestAStandinIsAFileNotALink(t *testing.T) {
	root := t.TempDir()
	if IsStandin(root) {
		t.Error("an empty root is a simulated machine's, want not")
	}
	if err := os.MkdirAll(filepath.Join(root, "usr/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/bin/true", filepath.Join(root, "usr/bin", Standin)); err != nil {
		t.Fatal(err)
	}
	if IsStandin(root) {
		t.Error("a link makes a root a simulated machine's, want not")
	}
	if IsStandin("/") {
		t.Error("this host is a simulated machine, want not")
	}
}
