package vm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
)

// joins records who joined and holds machines up until they are switched off.
type joins struct {
	mu   sync.Mutex
	seen []Machine
	fail error // what the next join fails with, once
}

func (j *joins) Join(ctx context.Context, m Machine, up func()) error {
	j.mu.Lock()
	j.seen = append(j.seen, m)
	err := j.fail
	j.fail = nil
	j.mu.Unlock()
	if err != nil {
		return err
	}
	up()
	<-ctx.Done()
	return ctx.Err()
}

func (j *joins) count() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.seen)
}

func newHypervisor(t *testing.T, dir string, j Joiner) *Hypervisor {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	h, err := New(ctx, Config{
		Dir: dir, World: 7, BootDelay: func(Hardware) time.Duration { return 0 }, Joiner: j, HollowJoiner: j,
		Hollow: func(h Hardware) bool { return strings.HasPrefix(h.Name, "hollow") },
		Clock:  clock.RealClock{}, Log: logr.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Stop(); cancel() })
	return h
}

func hardwareNamed(name string) Hardware {
	return Hardware{UUID: "uuid-" + name, Name: name, PrivateIP: "10.0.128.9", UserData: config("3.2.0", `,"storage":{"files":[{"path":"/etc/from-user-data","contents":{"source":"data:,x"}}]}`)}
}

func waitStage(t *testing.T, h *Hypervisor, name string, want Stage) Record {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	var last Record
	for time.Now().Before(deadline) {
		for _, r := range h.List() {
			if r.Name == name {
				if last = r; r.Stage == want {
					return r
				}
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	console, _ := h.Console(last.UUID)
	t.Fatalf("machine %s: got stage %q, want %q; console:\n%s", name, last.Stage, want, console)
	return last
}

// newDeadline returns a short pause that ends the test when it was made too often.
func newDeadline(t *testing.T) func() {
	deadline := time.Now().Add(20 * time.Second)
	return func() {
		t.Helper()
		if time.Now().After(deadline) {
			t.Fatal("not within 20 s")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestMachineBootsOnceAndRebootsFromDisk(t *testing.T) {
	dir := t.TempDir()
	j := &joins{}
	h := newHypervisor(t, dir, j)
	hw := hardwareNamed("a")
	if err := h.PowerOn(hw); err != nil {
		t.Fatal(err)
	}
	first := waitStage(t, h, "a", StageUp)
	root := filepath.Join(dir, "machines", "a")
	if b, err := os.ReadFile(filepath.Join(root, "etc", "from-user-data")); err != nil || string(b) != "x" {
		t.Errorf("user data: got %q, %v; want x", b, err)
	}
	// What a person leaves on the disk stays, what is volatile goes.
	for _, name := range []string{"etc/kept", "tmp/lost", "run/lost"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte("y"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(root, "etc/from-user-data")); err != nil {
		t.Fatal(err)
	}
	if err := h.PowerOff(hw.UUID); err != nil {
		t.Fatal(err)
	}
	waitStage(t, h, "a", StageOff)
	if err := h.PowerOn(hw); err != nil {
		t.Fatal(err)
	}
	second := waitStage(t, h, "a", StageUp)
	if first.BootID == second.BootID || second.BootID == "" {
		t.Errorf("got boot IDs %q and %q, want two different ones", first.BootID, second.BootID)
	}
	var left []string
	for _, name := range []string{"etc/kept", "tmp/lost", "run/lost", "etc/from-user-data"} {
		if _, err := os.Stat(filepath.Join(root, name)); err == nil {
			left = append(left, name)
		}
	}
	if diff := cmp.Diff([]string{"etc/kept"}, left); diff != "" {
		t.Errorf("files after the reboot (-want +got); user data apply once only:\n%s", diff)
	}
	if first.Number != second.Number || h.BindIP(first.Number) != "127.7.1.1" {
		t.Errorf("got loopback %s then %s, want 127.7.1.1 both times", h.BindIP(first.Number), h.BindIP(second.Number))
	}
}

func TestMachinesSurviveTheHypervisor(t *testing.T) {
	for _, name := range []string{"rooted", "hollow"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := &joins{}
			h := newHypervisor(t, dir, j)
			hw := hardwareNamed(name)
			if err := h.PowerOn(hw); err != nil {
				t.Fatal(err)
			}
			waitStage(t, h, name, StageUp)
			if err := j.seen[0].Disk.Write("etc/cert", []byte("c"), 0o600); err != nil {
				t.Fatal(err)
			}
			h.Stop()
			h = newHypervisor(t, dir, j)
			if got := h.List(); len(got) != 1 || !got[0].Powered || got[0].Stage != StageOff {
				t.Fatalf("got %+v, want one machine that was on and is off", got)
			}
			if err := h.PowerOn(hw); err != nil {
				t.Fatal(err)
			}
			waitStage(t, h, name, StageUp)
			got, err := j.seen[1].Disk.Read("etc/cert")
			if err != nil || string(got) != "c" {
				t.Errorf("got %q, %v; want what was on the disk", got, err)
			}
		})
	}
}

func TestMachineTriesToJoinAgain(t *testing.T) {
	j := &joins{fail: errors.New("no route")}
	h := newHypervisor(t, t.TempDir(), j)
	if err := h.PowerOn(hardwareNamed("a")); err != nil {
		t.Fatal(err)
	}
	waitStage(t, h, "a", StageUp)
	if j.count() != 2 {
		t.Errorf("got %d joins, want 2", j.count())
	}
	console, err := h.Console("uuid-a")
	if err != nil || !strings.Contains(string(console), "kubelet.service: no route; next try in 5s") {
		t.Errorf("console: got %q, %v; want it to say why", console, err)
	}
}

func TestMachineWithBadUserDataFailsOnItsConsole(t *testing.T) {
	h := newHypervisor(t, t.TempDir(), &joins{})
	hw := hardwareNamed("a")
	hw.UserData = []byte("nonsense")
	if err := h.PowerOn(hw); err != nil {
		t.Fatal(err)
	}
	waitStage(t, h, "a", StageFailed)
	console, _ := h.Console(hw.UUID)
	if !strings.Contains(string(console), "Boot failed: ignition: parse user data") {
		t.Errorf("console: got %q, want the reason", console)
	}
}

func TestRemovedMachineLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	h := newHypervisor(t, dir, &joins{})
	for _, n := range []string{"a", "b"} {
		if err := h.PowerOn(hardwareNamed(n)); err != nil {
			t.Fatal(err)
		}
		waitStage(t, h, n, StageUp)
	}
	if err := h.Remove("uuid-a"); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"vms/uuid-a", "machines/a"} {
		if _, err := os.Lstat(filepath.Join(dir, p)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: got %v, want it gone", p, err)
		}
	}
	// Its loopback number is free for the next one.
	if err := h.PowerOn(hardwareNamed("c")); err != nil {
		t.Fatal(err)
	}
	if r := waitStage(t, h, "c", StageUp); r.Number != 1 {
		t.Errorf("got number %d, want 1 again", r.Number)
	}
}
