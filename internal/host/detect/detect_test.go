package detect

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millwright.io/millwright/internal/app/standin"
	"millwright.io/millwright/internal/engine/transition"
	"millwright.io/millwright/internal/host"
	"millwright.io/millwright/internal/host/program"
	"millwright.io/millwright/internal/sim/ostree"
	"millwright.io/millwright/internal/sim/services"
)

var programs = []string{"rpm-ostree", "bootc", "systemctl", "update-ca-trust"}

// TestMain answers for a machine's programs when the test itself is called as one.
func TestMain(m *testing.M) {
	if slices.Contains(programs, filepath.Base(os.Args[0])) {
		os.Exit(standin.Run(os.Args[0], os.Args[1:]))
	}
	os.Exit(m.Run())
}

// newRoot is a machine as a simulated world makes it, with this test as its programs.
func newRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	files := services.Image()
	files["proc/sys/kernel/random/boot_id"] = "boot-1\n"
	files["etc/standin-failing"] = "bad.service\n"
	files["etc/systemd/system/bad.service"] = "[Service]\n"
	for name, body := range files {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := ostree.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tree.Close() }()
	if err := tree.Install(ostree.Deployment{Image: "q/a:1", Origin: "ostree-unverified-registry:q/a:1", Version: "1", Arguments: []string{"rw"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Boot(); err != nil {
		t.Fatal(err)
	}
	install(t, filepath.Join(root, "usr", "bin"))
	return root
}

func install(t *testing.T, dir string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, program.Standin), body, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		if err := os.Symlink(program.Standin, filepath.Join(dir, p)); err != nil {
			t.Fatal(err)
		}
	}
}

func step(kind transition.Kind, key string, before, after []string) transition.Step {
	return transition.Step{
		Ref: transition.Ref{Kind: kind, Key: key}, Before: transition.State{Type: transition.List, Values: before}, After: transition.State{Type: transition.List, Values: after},
	}
}

func TestSimulatedMachineIsAWholeHost(t *testing.T) {
	root := newRoot(t)
	var lines []string
	sys, err := System(root, func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) })
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.New(root, host.Options{System: sys})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	f, err := h.Facts(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !f.Live || f.Kernel != transition.RPMOSTree || f.Image != transition.RPMOSTree || f.Booted != "q/a:1" || f.BootID != "boot-1" || f.ID != "rhcos" || !f.EnterpriseLinux {
		t.Errorf("facts: got %+v", f)
	}
	for _, s := range []transition.Step{
		step(transition.KindKernelArguments, "", nil, []string{"nosmt"}),
		step(transition.KindDaemonReload, "", nil, nil),
		step(transition.KindRestart, "crio.service", nil, nil),
		step(transition.KindRestart, "coreos-update-ca-trust.service", nil, nil),
		step(transition.KindReload, "crio.service", nil, nil),
		step(transition.KindTrust, "", nil, nil),
		step(transition.KindReboot, "", nil, nil),
	} {
		if err := h.Perform(ctx, s, nil); err != nil {
			t.Errorf("%s: %v", s, err)
		}
		if s.Kind != transition.KindReboot {
			if err := h.Verify(ctx, s); err != nil {
				t.Errorf("verify %s: %v", s, err)
			}
		}
	}
	want := []string{
		"Running captured: rpm-ostree kargs", "Running: rpm-ostree kargs --append=nosmt", "Running: systemctl daemon-reload", "Running: systemctl restart crio.service",
		"Running: systemctl restart coreos-update-ca-trust.service", "Running: systemctl reload crio.service", "Running: update-ca-trust", "Running: systemctl reboot",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	m, err := services.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	if got := m.Power(); got != "reboot" {
		t.Errorf("power: got %q, want reboot", got)
	}
}

func TestFailuresAreInTheOriginalsWords(t *testing.T) {
	root := newRoot(t)
	sys, err := System(root, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		step transition.Step
		want string
	}{
		{step(transition.KindRestart, "bad.service", nil, nil), "could not apply update: restarting bad.service service failed. Error: error running systemctl restart bad.service: Job for bad.service failed"},
		{step(transition.KindReload, "gone.service", nil, nil), "could not apply update: reloading gone.service configuration failed. Error: error running systemctl reload gone.service: Failed to reload gone.service: Unit gone.service not found."},
	} {
		if err := sys.Perform(t.Context(), row.step); err == nil || !strings.HasPrefix(err.Error(), row.want) {
			t.Errorf("%s: got %v, want it to begin with %q", row.step, err, row.want)
		}
	}
	stopped := step(transition.KindRestart, "bad.service", nil, nil)
	if err := sys.Verify(t.Context(), stopped); err == nil || !strings.HasSuffix(err.Error(), "the unit is failed (exit-code)") {
		t.Errorf("verify: got %v, want that the unit is failed", err)
	}
	reboot := transition.Step{Ref: transition.Ref{Kind: transition.KindReboot}, Before: transition.State{Value: "boot-1"}}
	if err := sys.Verify(t.Context(), reboot); err == nil || err.Error() != "reboot: the boot ID is still boot-1" {
		t.Errorf("verify a reboot that did not happen: got %v", err)
	}
	if err := os.WriteFile(filepath.Join(root, "proc/sys/kernel/random/boot_id"), []byte("boot-2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := sys.Verify(t.Context(), reboot); err != nil {
		t.Errorf("verify a reboot that happened: got %v", err)
	}
}

func TestAnImageCanDoNothing(t *testing.T) {
	sys, err := System(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var f transition.Facts
	if err := sys.Facts(context.Background(), &f); err != nil || f.Live || f.Kernel != transition.NoBackend || f.Image != transition.NoBackend {
		t.Errorf("facts: got %+v, %v; want nothing but the architecture", f, err)
	}
	if err := sys.Perform(t.Context(), step(transition.KindReboot, "", nil, nil)); err == nil || err.Error() != "reboot: this host has nothing that could" {
		t.Errorf("reboot: got %v", err)
	}
	if _, err := System(filepath.Join(t.TempDir(), "gone"), nil); err == nil {
		t.Error("no root: got no error")
	}
}
