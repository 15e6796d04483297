package services

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// newMachine has the image's units and two of its own.
func newMachine(t *testing.T) (*Machine, string) {
	t.Helper()
	root := t.TempDir()
	files := Image()
	files["etc/systemd/system/own.service"] = "[Service]\nExecStart=/bin/x\n[Install]\nWantedBy=multi-user.target\n"
	files["etc/systemd/system/once.service"] = "[Service]\nType=oneshot\n"
	files["etc/systemd/system/stays.service"] = "[Service]\nType=oneshot\nRemainAfterExit=yes\n"
	files["etc/standin-failing"] = "bad.service\n"
	files["etc/systemd/system/bad.service"] = "[Service]\nExecStart=/bin/false\n"
	for name, body := range files {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/dev/null", filepath.Join(root, "etc/systemd/system/hidden.service")); err != nil {
		t.Fatal(err)
	}
	m, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m, root
}

func run(m *Machine, line string) (int, string) {
	var out bytes.Buffer
	code := m.Systemctl(strings.Fields(line), &out, &out)
	return code, strings.TrimSpace(out.String())
}

func TestSystemctl(t *testing.T) {
	for _, row := range []struct {
		name, before, command string
		code                  int
		says                  string
	}{
		{"the image's run", "", "is-active crio", 0, "active"},
		{"others do not", "", "is-active own", 3, "inactive"},
		{"start", "start own", "is-active own", 0, "active"},
		{"stop", "stop crio", "is-active crio", 3, "inactive"},
		{"restart", "stop crio;restart crio", "is-active crio", 0, "active"},
		{"restart once", "", "restart once", 0, ""},
		{"once is over", "restart once", "show once --property=ActiveState,Result,Type", 0, "Type=oneshot\nResult=success\nActiveState=inactive"},
		{"once that stays", "restart stays", "is-active stays", 0, "active"},
		{"restart what fails", "", "restart bad", 1, "Job for bad.service failed because the control process exited with error code.\nSee \"systemctl status bad.service\" and \"journalctl -xeu bad.service\" for details."},
		{"failed", "restart bad", "is-failed bad", 0, "failed"},
		{"restart what is not there", "", "restart foo", 5, "Failed to restart foo.service: Unit foo.service not found."},
		{"restart what is masked", "", "restart hidden", 1, "Failed to restart hidden.service: Unit hidden.service is masked."},
		{"reload", "", "reload crio", 0, ""},
		{"reload what rests", "", "reload own", 1, "own.service is not active, cannot reload."},
		{"not enabled", "", "is-enabled own", 1, "disabled"},
		{"enabled", "enable own", "is-enabled own", 0, "enabled"},
		{"enabled is active", "enable own", "is-active own", 0, "active"},
		{"disabled", "enable own;disable own", "is-enabled own", 1, "disabled"},
		{"static", "", "is-enabled once", 0, "static"},
		{"masked", "mask crio", "is-enabled crio", 1, "masked"},
		{"unmasked", "mask crio;unmask crio", "is-enabled crio", 1, "disabled"},
		{"unknown unit", "", "is-enabled foo", 4, "not-found"},
		{"no unit at all", "", "restart ../../x", 5, "Failed to restart ../../x.service: Unit ../../x.service not found."},
		{"daemon-reload", "", "daemon-reload", 0, ""},
		{"unknown verb", "", "frobnicate", 1, "Unknown command verb 'frobnicate'."},
		{"system", "", "is-system-running", 0, "running"},
		{"value", "", "show -p ActiveState --value crio", 0, "active"},
	} {
		t.Run(row.name, func(t *testing.T) {
			m, _ := newMachine(t)
			for c := range strings.SplitSeq(row.before, ";") {
				run(m, c)
			}
			if code, said := run(m, row.command); code != row.code || said != row.says {
				t.Errorf("got code %d and %q, want %d and %q", code, said, row.code, row.says)
			}
		})
	}
}

func TestPowerIsAskedFor(t *testing.T) {
	m, root := newMachine(t)
	if got := m.Power(); got != "" {
		t.Errorf("got %q, want nothing", got)
	}
	if code, said := run(m, "reboot"); code != 0 || m.Power() != "reboot" {
		t.Errorf("got code %d, %q, power %q; want reboot", code, said, m.Power())
	}
	if b, err := os.ReadFile(filepath.Join(root, logPath)); err != nil || string(b) != "reboot\n" {
		t.Errorf("log: got %q, %v; want reboot", b, err)
	}
}

func TestTrustCollectsAnchors(t *testing.T) {
	m, root := newMachine(t)
	for name, body := range map[string]string{"b.crt": "B", "a.crt": "A"} {
		if err := m.write(anchorsDir+"/"+name, body); err != nil {
			t.Fatal(err)
		}
	}
	var said bytes.Buffer
	if code := m.UpdateTrust(&said); code != 0 {
		t.Fatal(said.String())
	}
	if b, err := os.ReadFile(filepath.Join(root, bundlePath)); err != nil || string(b) != "# a.crt\nA\n# b.crt\nB\n" {
		t.Errorf("bundle: got %q, %v; want both anchors", b, err)
	}
}
