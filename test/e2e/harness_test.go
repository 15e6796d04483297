package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Limits of waits; a loaded machine may need much of them.
const (
	upLimit     = 4 * time.Minute
	downLimit   = 90 * time.Second
	shellLimit  = 2 * time.Minute
	changeLimit = 2 * time.Minute // until a change has its whole effect
	pollEvery   = 250 * time.Millisecond
)

const namespace = "openshift-machine-api"

// full says whether the long forms run.
func full() bool { return os.Getenv("MILLWRIGHT_E2E") == "full" }

// sized returns short, or long in full mode.
func sized(short, long int) int {
	if full() {
		return long
	}
	return short
}

var binaries struct {
	once sync.Once
	dir  string
	made string // temporary folder, if they had to be built
	err  error
}

// binDir returns the folder of the built programs.
func binDir() (string, error) {
	b := &binaries
	b.once.Do(func() {
		dir := os.Getenv("MILLWRIGHT_BIN")
		if dir == "" {
			dir = filepath.Join("..", "..", "bin")
		}
		if b.dir, b.err = filepath.Abs(dir); b.err != nil {
			return
		}
		if _, err := os.Stat(filepath.Join(b.dir, "millwright-manager")); err == nil {
			return
		}
		if b.made, b.err = os.MkdirTemp("", "millwright-e2e-bin-"); b.err != nil {
			return
		}
		b.dir = b.made
		out, err := exec.Command("go", "build", "-p", "2", "-o", b.dir+"/", "../../cmd/...").CombinedOutput()
		if err != nil {
			b.err = fmt.Errorf("build the programs: %w\n%s", err, out)
		}
	})
	return b.dir, b.err
}

// world is one running world.
type world struct {
	bin    string
	dir    string
	home   string
	status worldStatus
	env    []string
	parts  parts // what ran when last looked; see proc_test.go
}

// worldStatus is what `millwright status -o json` says under .world.
type worldStatus struct {
	Phase            string  `json:"phase"`
	PID              int     `json:"pid"`
	World            int     `json:"world"`
	InfraID          string  `json:"infraID"`
	ReadySeconds     float64 `json:"readySeconds"`
	APIServerSeconds float64 `json:"apiServerSeconds"`
}

// quick are the flags of a world whose machines and cloud are fast.
var quick = []string{"--boot-delay", "1s", "--vm-delay", "500ms", "--node-client-delay", "4s", "--audit"}

// startWorld runs `millwright up --detach` in dir and waits until it is ready.
func startWorld(dir string, args ...string) (*world, error) {
	bin, err := binDir()
	if err != nil {
		return nil, err
	}
	w := &world{bin: bin, dir: filepath.Join(dir, "world"), home: filepath.Join(dir, "home")}
	if err := os.MkdirAll(w.home, 0o755); err != nil {
		return nil, err
	}
	return w, w.up(args...)
}

// up starts the world again, or for the first time.
func (w *world) up(args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), upLimit)
	defer cancel()
	w.env = environ() // the control plane's binary is in the cache of the real home
	r := w.exec(ctx, append([]string{filepath.Join(w.bin, "millwright"), "up", "--detach", "--dir", w.dir}, args...)...)
	if r.code != 0 {
		return fmt.Errorf("up ended with %d:\n%s%s", r.code, r.stderr, w.logs())
	}
	path, kubeconfig, err := parseExport(r.stdout)
	if err != nil {
		return err
	}
	w.env = environ("HOME="+w.home, "KUBECONFIG="+kubeconfig, "MILLWRIGHT_DIR="+w.dir, "MAPI="+namespace,
		"PATH="+path+":"+w.bin+":"+os.Getenv("PATH"))
	r = w.exec(ctx, "millwright", "status", "-o", "json")
	var s struct {
		World worldStatus `json:"world"`
	}
	if err := json.Unmarshal([]byte(r.stdout), &s); err != nil {
		return fmt.Errorf("read status (exit code %d): %w\n%s%s", r.code, err, r.stdout, r.stderr)
	}
	w.status = s.World
	w.parts = look(w.status.PID)
	return nil
}

// parseExport reads the one line that up prints.
func parseExport(out string) (path, kubeconfig string, err error) {
	line := strings.TrimSpace(out)
	if strings.Count(line, "\n") != 0 || !strings.HasPrefix(line, "export ") {
		return "", "", fmt.Errorf("up printed %q, want one export line", out)
	}
	for _, f := range strings.Fields(line)[1:] {
		switch name, value, _ := strings.Cut(f, "="); name {
		case "PATH":
			path = strings.TrimSuffix(value, ":$PATH")
		case "KUBECONFIG":
			kubeconfig = value
		}
	}
	if path == "" || kubeconfig == "" {
		return "", "", fmt.Errorf("export line %q lacks PATH or KUBECONFIG", line)
	}
	return path, kubeconfig, nil
}

// down stops and removes the world, then reports whatever is left of it.
func (w *world) down(purge bool) error {
	w.parts = w.parts.and(look(w.status.PID))
	ctx, cancel := context.WithTimeout(context.Background(), downLimit)
	defer cancel()
	args := []string{filepath.Join(w.bin, "millwright"), "down", "--dir", w.dir}
	if purge {
		args = append(args, "--purge")
	}
	r := w.exec(ctx, args...)
	var errs []error
	if r.code != 0 {
		errs = append(errs, fmt.Errorf("down ended with %d: %s%s", r.code, r.stderr, w.logs()))
	}
	if purge {
		if _, err := os.Stat(w.dir); err == nil {
			errs = append(errs, fmt.Errorf("%s is still there after down --purge", w.dir))
		}
	}
	return errors.Join(append(errs, w.nothingLeft(0))...)
}

// logs returns the ends of the log files, for failures.
func (w *world) logs() string {
	var out strings.Builder
	for _, pattern := range []string{"logs/*.log", "logs/pods/*/*/*"} {
		files, _ := filepath.Glob(filepath.Join(w.dir, pattern))
		for _, f := range files {
			if strings.Contains(f, "audit") {
				continue
			}
			b, err := os.ReadFile(f)
			if err != nil || len(b) == 0 {
				continue
			}
			lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
			fmt.Fprintf(&out, "--- %s\n%s\n", f, strings.Join(lines[max(0, len(lines)-8):], "\n"))
		}
	}
	return out.String()
}

// environ is this process's environment with changes, without a world's.
func environ(set ...string) []string {
	drop := append([]string{"KUBECONFIG=", "MILLWRIGHT_DIR=", "MILLWRIGHT_DEVPLANE="}, set...)
	var out []string
next:
	for _, e := range os.Environ() {
		for _, d := range drop {
			if name, _, _ := strings.Cut(d, "="); strings.HasPrefix(e, name+"=") {
				continue next
			}
		}
		out = append(out, e)
	}
	return append(out, set...)
}

// result is a finished command.
type result struct {
	stdout, stderr string
	code           int
}

func (w *world) exec(ctx context.Context, args ...string) result {
	return execute(ctx, w.env, args...)
}

func execute(ctx context.Context, env []string, args ...string) result {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	if found := lookPath(args[0], env); found != "" {
		cmd.Path, cmd.Err = found, nil
	}
	cmd.Env, cmd.WaitDelay = env, 5*time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	r := result{stdout: out.String(), stderr: errs.String(), code: cmd.ProcessState.ExitCode()}
	if err != nil && cmd.ProcessState == nil {
		r.code, r.stderr = -1, r.stderr+err.Error()
	}
	return r
}

// lookPath finds a program in the PATH of env.
func lookPath(name string, env []string) string {
	if strings.Contains(name, "/") {
		return name
	}
	for _, e := range env {
		if path, ok := strings.CutPrefix(e, "PATH="); ok {
			for _, dir := range filepath.SplitList(path) {
				if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
					return filepath.Join(dir, name)
				}
			}
		}
	}
	return ""
}

// shell runs a script in bash, failing pipes included, with more environment.
func (w *world) shell(ctx context.Context, script string, env ...string) result {
	ctx, cancel := context.WithTimeout(ctx, shellLimit)
	defer cancel()
	return execute(ctx, append(append([]string{}, w.env...), env...), "bash", "-uo", "pipefail", "-c", script)
}

// sh runs a script that has to succeed, and returns its trimmed output.
func (w *world) sh(t testing.TB, script string, env ...string) string {
	t.Helper()
	r := w.shell(t.Context(), script, env...)
	if r.code != 0 {
		t.Fatalf("%s\nended with %d, want 0:\n%s%s", script, r.code, r.stdout, r.stderr)
	}
	return strings.TrimSpace(r.stdout)
}

// until runs a script until its trimmed output pleases ok, which says what it
// wants otherwise.
func (w *world) until(t testing.TB, script string, limit time.Duration, ok func(out string) error, env ...string) string {
	t.Helper()
	var last string
	err := poll(t.Context(), limit, func() error {
		r := w.shell(t.Context(), script, env...)
		last = strings.TrimSpace(r.stdout)
		if err := ok(last); err != nil {
			return fmt.Errorf("%w\nexit code %d, %s", err, r.code, r.stderr)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%s\nafter %s: %v\nlast output:\n%s\n%s", script, limit, err, last, w.logs())
	}
	return last
}

// untilIs waits for an exact output.
func (w *world) untilIs(t testing.TB, script, want string, env ...string) {
	t.Helper()
	w.until(t, script, changeLimit, func(out string) error {
		if out != want {
			return fmt.Errorf("got %q, want %q", out, want)
		}
		return nil
	}, env...)
}

// has accepts outputs that contain all of the texts.
func has(texts ...string) func(string) error {
	return func(out string) error {
		for _, text := range texts {
			if !strings.Contains(out, text) {
				return fmt.Errorf("want %q in the output", text)
			}
		}
		return nil
	}
}

// poll calls ask until it returns nil, the limit or the end of ctx.
func poll(ctx context.Context, limit time.Duration, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// shared is the world of the tests that break nothing.
var shared struct {
	once sync.Once
	w    *world
	dir  string
	err  error
}

// sharedWorld starts it for the first test that wants it.
func sharedWorld(t testing.TB) *world {
	t.Helper()
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "millwright-e2e-"); shared.err != nil {
			return
		}
		shared.w, shared.err = startWorld(shared.dir, quick...)
	})
	if shared.err != nil {
		t.Fatalf("start the shared world: %v", shared.err)
	}
	return shared.w
}

// ownWorld starts a world for one test.
func ownWorld(t testing.TB, args ...string) *world {
	t.Helper()
	w, err := startWorld(t.TempDir(), args...)
	if w != nil {
		t.Cleanup(func() {
			if err := w.down(true); err != nil {
				t.Errorf("end the test's world: %v", err)
			}
		})
	}
	if err != nil {
		t.Fatalf("start a world: %v", err)
	}
	return w
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.w != nil {
		if err := shared.w.down(true); err != nil {
			fmt.Fprintf(os.Stderr, "FAIL: end the shared world: %v\n", err)
			code = max(code, 1)
		}
	}
	for _, dir := range []string{shared.dir, binaries.made} {
		if dir != "" {
			_ = os.RemoveAll(dir)
		}
	}
	os.Exit(code)
}
