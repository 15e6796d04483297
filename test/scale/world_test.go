//go:build scale

package scale

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	commandLimit = 5 * time.Minute
	namespace    = "openshift-machine-api"
	bootDelay    = time.Second
)

// world is a running world of hollow machines.
type world struct {
	dir        string
	env        []string
	supervisor int
	infra      string
}

// startWorld starts a world without workers, with an audit log.
func startWorld(t *testing.T) *world {
	t.Helper()
	bin := os.Getenv("MILLWRIGHT_BIN")
	if bin == "" {
		t.Fatal("MILLWRIGHT_BIN is not set: want the folder of the built programs, as in make scale")
	}
	dir := t.TempDir()
	w := &world{dir: filepath.Join(dir, "world"), env: append(os.Environ(), "HOME="+os.Getenv("HOME"))}
	millwright := filepath.Join(bin, "millwright")
	t.Cleanup(func() {
		if out, err := w.run(context.Background(), millwright+" down --purge --dir "+w.dir); err != nil {
			t.Errorf("end the world: %v\n%s", err, out)
		}
	})
	out, err := w.run(t.Context(), millwright+" up --detach --machines hollow --workers 0 --boot-delay "+bootDelay.String()+" --vm-delay 500ms --node-client-delay 4s --audit --dir "+w.dir)
	if err != nil {
		t.Fatalf("start the world: %v", err)
	}
	for _, f := range strings.Fields(out)[1:] {
		name, value, _ := strings.Cut(f, "=")
		w.env = append(w.env, name+"="+strings.ReplaceAll(value, "$PATH", os.Getenv("PATH")))
	}
	w.env = append(w.env, "MILLWRIGHT_DIR="+w.dir, "MAPI="+namespace)
	var s struct {
		World struct {
			PID     int    `json:"pid"`
			InfraID string `json:"infraID"`
		} `json:"world"`
	}
	if err := json.Unmarshal([]byte(w.sh(t, millwright+" status -o json")), &s); err != nil {
		t.Fatal(err)
	}
	w.supervisor, w.infra = s.World.PID, s.World.InfraID
	return w
}

// variable returns one of the world's environment, the last that was set.
func (w *world) variable(name string) string {
	for _, v := range slices.Backward(w.env) {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

func (w *world) run(ctx context.Context, script string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-uo", "pipefail", "-c", script)
	cmd.Env, cmd.WaitDelay = w.env, 5*time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, errs.String())
	}
	return strings.TrimSpace(out.String()), nil
}

func (w *world) sh(t *testing.T, script string) string {
	t.Helper()
	out, err := w.run(t.Context(), script)
	if err != nil {
		t.Fatalf("%s\n%v\n%s", script, err, out)
	}
	return out
}

// untilIs repeats a script until it prints want.
func (w *world) untilIs(t *testing.T, script, want string, limit time.Duration) {
	t.Helper()
	until(t, limit, func() error {
		if out, err := w.run(t.Context(), script); err != nil || out != want {
			return fmt.Errorf("%s\nprints %q, %v; want %q", script, out, err, want)
		}
		return nil
	})
}

// until asks every two seconds; asking more often would be part of what is
// measured.
func until(t *testing.T, limit time.Duration, ask func() error) {
	t.Helper()
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	end := time.After(limit)
	for {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-end:
			t.Fatalf("after %s: %v", limit, err)
		case <-t.Context().Done():
			t.Fatal(err)
		case <-tick.C:
		}
	}
}

// process is a child of the world's that runs controllers.
type process struct {
	pid         int
	controllers string
	metrics     string // host:port; empty: not served
}

// processes lists those that run controllers, by the names of these.
func (w *world) processes(t *testing.T) []process {
	t.Helper()
	parents := map[int]int{}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(d))
		if f := statFields(pid); len(f) > 1 {
			parents[pid], _ = strconv.Atoi(f[1])
		}
	}
	var out []process
	for pid := range parents {
		above := pid
		for above != 0 && above != w.supervisor {
			above = parents[above]
		}
		if above == 0 {
			continue
		}
		p := process{pid: pid}
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		args := strings.Split(string(line), "\x00")
		if filepath.Base(args[0]) != "millwright-manager" { // Kubernetes' own has such a flag, too
			continue
		}
		for _, arg := range args {
			if v, ok := strings.CutPrefix(arg, "--controllers="); ok {
				p.controllers = v
			}
			if v, ok := strings.CutPrefix(arg, "--metrics-bind-address="); ok {
				p.metrics = v
			}
		}
		if p.controllers != "" {
			out = append(out, p)
		}
	}
	return out
}

// statFields are the fields of /proc/PID/stat from the third on, as proc(5)
// counts them; nil when there is no such process.
func statFields(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
}

// ticksPerSecond is USER_HZ, which Linux keeps at 100 for every program.
const ticksPerSecond = 100

// cpu is the time that a process has used, in user and system mode.
func (p process) cpu() time.Duration {
	f := statFields(p.pid)
	if len(f) < 13 {
		return 0
	}
	user, err1 := strconv.Atoi(f[11])
	system, err2 := strconv.Atoi(f[12])
	if errors.Join(err1, err2) != nil {
		return 0
	}
	return time.Duration(user+system) * time.Second / ticksPerSecond
}

// privateMiB is what the process holds for itself alone.
func (p process) privateMiB() float64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	for _, line := range strings.Split(string(b), "\n") {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "RssAnon:" {
			kib, _ := strconv.Atoi(f[1])
			return float64(kib) / 1024
		}
	}
	return 0
}
