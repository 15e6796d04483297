package detect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright.io/millwright/internal/engine/disruption"
	"millwright.io/millwright/internal/engine/transition"
	"millwright.io/millwright/internal/host"
	"millwright.io/millwright/internal/host/journal"
)

const (
	// insideEnv tells the test that it runs on the machine.
	insideEnv = "MILLWRIGHT_INSIDE_MACHINE"
	// exitReboot is how systemd-nspawn ends when its machine asked for a reboot.
	exitReboot = 133
	stagePath  = "/var/lib/probe/stage"
	resultPath = "/var/lib/probe/log"
	// verifiedPath is there when both stages held.
	verifiedPath = "/var/lib/probe/verified"
	bootEntry    = "/boot/loader/entries/debian-6.1.conf"
)

// debianRoot is an unpacked Debian with systemd, made once from Debian's packages.
func debianRoot(t *testing.T) string {
	t.Helper()
	for _, p := range []string{"systemd-nspawn", "mmdebstrap", "unshare"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("no %s here: install systemd-container and mmdebstrap", p)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("booting a machine needs root's rights")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(cache, "millwright", "debian-bookworm-systemd")
	if _, err := os.Stat(root); err == nil {
		return root
	}
	if err := os.MkdirAll(filepath.Dir(root), 0o755); err != nil {
		t.Fatal(err)
	}
	making := fmt.Sprintf("%s.%d", root, os.Getpid())
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "mmdebstrap", "--variant=minbase", "--include=systemd,systemd-sysv,dbus", "bookworm", making).CombinedOutput()
	if err != nil {
		_ = os.RemoveAll(making)
		t.Skipf("no Debian could be made here: %v\n%s", err, out)
	}
	if err := os.Rename(making, root); err != nil {
		t.Fatal(err)
	}
	return root
}

// machine is a layer over a root that systemd-nspawn boots.
type machine struct{ lower, upper, work, merged string }

// newMachine lays the machine's own files over the root: this test as a service.
func newMachine(t *testing.T, lower string) machine {
	t.Helper()
	dir := t.TempDir()
	m := machine{lower, filepath.Join(dir, "upper"), filepath.Join(dir, "work"), filepath.Join(dir, "merged")}
	for _, d := range []string{m.upper, m.work, m.merged, filepath.Join(m.upper, "usr/local/bin")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]struct {
		body string
		mode os.FileMode
	}{
		"usr/local/bin/probe": {string(body), 0o755},
		"etc/machine-id":      {"uninitialized\n", 0o444},
		"var/lib/probe/stage": {"first", 0o644},
		bootEntry[1:]:         {"title Debian\nlinux /vmlinuz\noptions root=/dev/vda ro\n", 0o644},
		"etc/systemd/system/probe.service": {"[Unit]\nAfter=basic.target\n[Service]\nType=exec\nEnvironment=" + insideEnv + "=1\n" +
			"ExecStart=/usr/local/bin/probe -test.run ^TestInsideMachine$ -test.v\nStandardOutput=append:" + resultPath + "\nStandardError=inherit\n", 0o644},
	} {
		p := filepath.Join(m.upper, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(f.body), f.mode); err != nil {
			t.Fatal(err)
		}
	}
	wants := filepath.Join(m.upper, "etc/systemd/system/multi-user.target.wants")
	if err := os.MkdirAll(wants, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/systemd/system/probe.service", filepath.Join(wants, "probe.service")); err != nil {
		t.Fatal(err)
	}
	return m
}

// boot runs the machine until it turns off or asks for a reboot. Mounts are its own
// and end with it.
func (m machine) boot(t *testing.T) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	script := `set -e
mkdir -p /run/systemd/nspawn
mount -t tmpfs tmpfs /run/systemd/nspawn
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2,workdir=$3" "$4"
exec systemd-nspawn --quiet --register=no --keep-unit --console=pipe --boot -D "$4" systemd.unit=multi-user.target`
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", m.lower, m.upper, m.work, m.merged)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && ctx.Err() == nil && exit.ExitCode() == exitReboot:
		return exitReboot
	}
	t.Fatalf("boot: %v\n%s\n%s", err, out, m.log())
	return -1
}

// log is what the test printed on the machine.
func (m machine) log() string {
	b, err := os.ReadFile(filepath.Join(m.upper, resultPath))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// TestRealMachineIsChangedAndRebooted boots a Debian under systemd and changes it from
// inside, as a node agent would: TestInsideMachine is what runs there.
func TestRealMachineIsChangedAndRebooted(t *testing.T) {
	if testing.Short() {
		t.Skip("boots a machine twice")
	}
	m := newMachine(t, debianRoot(t))
	if code := m.boot(t); code != exitReboot {
		t.Fatalf("first boot: got exit code %d, want %d for a reboot\n%s", code, exitReboot, m.log())
	}
	if code := m.boot(t); code != 0 {
		t.Fatalf("second boot: got exit code %d, want 0 for power off\n%s", code, m.log())
	}
	// What the test prints last, the machine's end may swallow: it leaves a file before.
	if _, err := os.Stat(filepath.Join(m.upper, verifiedPath)); err != nil {
		t.Errorf("the machine did not verify its change; it says:\n%s", m.log())
	}
}

const (
	oldConfig = `{"ignition":{"version":"3.2.0"}}`
	newConfig = `{"ignition":{"version":"3.2.0"},
	 "storage":{"files":[{"path":"/etc/mine.conf","mode":384,"contents":{"source":"data:,hello"}}]},
	 "systemd":{"units":[
	  {"name":"mine.service","enabled":true,"contents":"[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"},
	  {"name":"broken.service","contents":"[Service]\nType=oneshot\nExecStart=/bin/false\n"}]}}`
)

func spec(raw string, arguments ...string) mcfgv1.MachineConfigSpec {
	return mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: []byte(raw)}, KernelArguments: arguments}
}

// TestInsideMachine runs on the machine only, once in each of its two boots.
func TestInsideMachine(t *testing.T) {
	if os.Getenv(insideEnv) == "" {
		return // another test runs this one
	}
	sys, err := System("/", t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.New("/", host.Options{System: sys})
	if err != nil {
		t.Fatal(err)
	}
	stage, err := os.ReadFile(stagePath)
	if err != nil {
		t.Fatal(err)
	}
	switch string(stage) {
	case "first":
		change(t, h)
	case "second":
		defer func() {
			if !t.Failed() {
				if err := os.WriteFile(verifiedPath, nil, 0o644); err != nil {
					t.Error(err)
				}
			}
			if out, err := exec.Command("systemctl", "poweroff").CombinedOutput(); err != nil {
				t.Errorf("power off: %v\n%s", err, out)
			}
		}()
		verify(t, h)
	}
}

// change brings about the new config and asks for the reboot.
func change(t *testing.T, h host.Host) {
	facts, err := h.Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !facts.Live || facts.Kernel != transition.BLS || facts.Class != transition.Plain || facts.ID != "debian" || facts.Image != transition.NoBackend {
		t.Errorf("facts: got %+v, want a live Debian with boot entries", facts)
	}
	in := transition.Input{
		Current: spec(oldConfig), Desired: spec(newConfig, "nosmt"), Facts: facts, Actions: []disruption.Action{{Kind: disruption.Reboot}},
		Records: []transition.Record{{Path: "/etc/machine-config-daemon/currentconfig", Body: []byte("{}"), Mode: 0o600}},
	}
	refs, err := transition.Touches(in)
	if err != nil {
		t.Fatal(err)
	}
	if in.Live, in.Blobs, err = h.Observe(t.Context(), refs); err != nil {
		t.Fatal(err)
	}
	planned, err := transition.Plan(in)
	if err != nil || len(planned.Refused) > 0 {
		t.Fatalf("got %v, refused %v", err, planned.Refused)
	}
	for _, s := range planned.Steps {
		t.Logf("step %s", s)
	}
	j, err := journal.Open(h)
	if err != nil {
		t.Fatal(err)
	}
	j.BeforeReboot = func(context.Context, journal.Change) error {
		if actOnUnits(t, h); t.Failed() {
			return errors.New("the first stage failed")
		}
		return os.WriteFile(stagePath, []byte("second"), 0o644)
	}
	out, err := j.Run(t.Context(), journal.Change{From: "old", To: "new"}, planned)
	if err != nil || out.Kind != journal.RebootPending {
		t.Fatalf("got %+v, %v; want a pending reboot", out, err)
	}
}

// actOnUnits acts on units that were just written, good and bad ones.
func actOnUnits(t *testing.T, h host.Host) {
	effect := func(kind transition.Kind, unit string) transition.Step {
		return transition.Step{Ref: transition.Ref{Kind: kind, Key: unit}}
	}
	for _, s := range []transition.Step{effect(transition.KindDaemonReload, ""), effect(transition.KindRestart, "mine.service")} {
		if err := h.Perform(t.Context(), s, nil); err != nil {
			t.Errorf("%s: %v", s, err)
		}
		if err := h.Verify(t.Context(), s); err != nil {
			t.Errorf("verify %s: %v", s, err)
		}
	}
	bad := effect(transition.KindRestart, "broken.service")
	if err := h.Perform(t.Context(), bad, nil); err == nil || !strings.HasPrefix(err.Error(), "could not apply update: restarting broken.service service failed. Error: ") {
		t.Errorf("restart of what fails: got %v", err)
	}
	if err := h.Verify(t.Context(), bad); err == nil {
		t.Error("verify what failed: got no error")
	}
}

// verify looks at the machine after the reboot.
func verify(t *testing.T, h host.Host) {
	j, err := journal.Open(h)
	if err != nil {
		t.Fatal(err)
	}
	out, err := j.Resume(t.Context())
	if err != nil || out.Kind != journal.Completed || !out.Rebooted {
		t.Fatalf("got %+v, %v; want a change that was completed by its reboot", out, err)
	}
	unit := transition.Ref{Kind: transition.KindUnit, Key: "mine.service"}
	file := transition.Ref{Kind: transition.KindFile, Key: "/etc/mine.conf"}
	kernel := transition.Ref{Kind: transition.KindKernelArguments}
	now, blobs, err := h.Observe(t.Context(), []transition.Ref{unit, file, kernel})
	if err != nil {
		t.Fatal(err)
	}
	if now[unit].Value != "enabled" || now[file].Mode != 0o600 || string(blobs[now[file].Digest]) != "hello" || !slices.Contains(now[kernel].Values, "nosmt") {
		t.Errorf("after the reboot: got %+v", now)
	}
	active := transition.Step{Ref: transition.Ref{Kind: transition.KindRestart, Key: "mine.service"}}
	if err := h.Verify(t.Context(), active); err != nil {
		t.Errorf("the enabled unit after the reboot: %v", err)
	}
	// Drift and repair.
	want := now[file]
	if err := os.WriteFile(file.Key, []byte("drifted"), 0o644); err != nil {
		t.Fatal(err)
	}
	if now, _, err = h.Observe(t.Context(), []transition.Ref{file}); err != nil || now[file].Digest == want.Digest {
		t.Errorf("drift: got %+v, %v; want another digest", now[file], err)
	}
	if err := h.Perform(t.Context(), transition.Step{Ref: file, After: want}, blobs); err != nil {
		t.Errorf("repair: %v", err)
	}
	if b, err := os.ReadFile(file.Key); err != nil || string(b) != "hello" {
		t.Errorf("repaired: got %q, %v; want hello", b, err)
	}
}
