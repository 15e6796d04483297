package systemd

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millwright.io/millwright/internal/engine/transition"
)

// fakeRun answers by the whole call; what it does not know goes well.
type fakeRun struct {
	answers map[string]string
	fails   map[string]string
	has     []string
	did     []string
}

func (f *fakeRun) Has(name string) bool { return slices.Contains(f.has, name) }
func (f *fakeRun) Query(_ context.Context, name string, args ...string) (string, error) {
	call := name + " " + strings.Join(args, " ")
	if said, ok := f.fails[call]; ok {
		return f.answers[call], errors.New("error running " + call + ": " + said + ": exit status 1")
	}
	return f.answers[call], nil
}

func (f *fakeRun) Captured(ctx context.Context, name string, args ...string) (string, error) {
	return f.Query(ctx, name, args...)
}

func (f *fakeRun) Run(ctx context.Context, name string, args ...string) error {
	f.did = append(f.did, strings.TrimSpace(name+" "+strings.Join(args, " ")))
	_, err := f.Query(ctx, name, args...)
	return err
}

func step(kind transition.Kind, key, value string) transition.Step {
	return transition.Step{Ref: transition.Ref{Kind: kind, Key: key}, After: transition.State{Type: transition.Value, Value: value}, Cause: "Node will reboot into config c"}
}

const rebootCall = `systemd-run --unit machine-config-daemon-reboot --description machine-config-daemon: Node will reboot into config c /bin/sh -c systemctl reboot`

func TestEffects(t *testing.T) {
	const ostreeReboot = `systemd-run --unit machine-config-daemon-reboot --description machine-config-daemon: Node will reboot into config c -p Requires=ostree-finalize-staged.service -p After=ostree-finalize-staged.service /bin/sh -c systemctl reboot`
	for _, row := range []struct {
		name  string
		o     Options
		run   fakeRun
		step  transition.Step
		did   []string
		fault string
	}{
		{"reload units", Options{}, fakeRun{}, step(transition.KindDaemonReload, "", ""), []string{"systemctl daemon-reload"}, ""},
		{"restart", Options{}, fakeRun{}, step(transition.KindRestart, "crio.service", ""), []string{"systemctl restart crio.service"}, ""},
		{
			"trust falls back", Options{}, fakeRun{has: []string{"update-ca-trust"}, fails: map[string]string{"systemctl restart coreos-update-ca-trust.service": "no"}},
			step(transition.KindRestart, "coreos-update-ca-trust.service", ""), []string{"systemctl restart coreos-update-ca-trust.service", "update-ca-trust"}, "",
		},
		{
			"restart fails", Options{}, fakeRun{fails: map[string]string{"systemctl restart crio.service": "no"}}, step(transition.KindRestart, "crio.service", ""),
			[]string{"systemctl restart crio.service"}, "could not apply update: restarting crio.service service failed. Error: error running systemctl restart crio.service: no: exit status 1",
		},
		{"trust of Debian", Options{}, fakeRun{has: []string{"update-ca-certificates"}}, step(transition.KindTrust, "", ""), []string{"update-ca-certificates"}, ""},
		{"no trust", Options{}, fakeRun{}, step(transition.KindTrust, "", ""), nil, "rebuild the CA bundle: this host has neither update-ca-trust nor update-ca-certificates"},
		{"reboot", Options{}, fakeRun{}, step(transition.KindReboot, "", ""), []string{rebootCall}, ""},
		{"reboot into a deployment", Options{Ostree: true}, fakeRun{}, step(transition.KindReboot, "", ""), []string{ostreeReboot}, ""},
		{"reboot at once", Options{Direct: true}, fakeRun{}, step(transition.KindReboot, "", ""), []string{"systemctl reboot"}, ""},
		{
			"reboot on its way", Options{}, fakeRun{fails: map[string]string{rebootCall: "already loaded", "systemctl is-failed machine-config-daemon-reboot.service": ""}},
			step(transition.KindReboot, "", ""), []string{rebootCall}, "",
		},
		{
			"reboot that failed before", Options{}, fakeRun{fails: map[string]string{rebootCall: "already loaded"}}, step(transition.KindReboot, "", ""),
			[]string{rebootCall, "systemctl reset-failed machine-config-daemon-reboot.service", rebootCall},
			"reboot command failed, something is seriously wrong: error running " + rebootCall + ": already loaded: exit status 1",
		},
		{"something else", Options{}, fakeRun{}, step(transition.KindImage, "", "x"), nil, "change osImageURL: systemd cannot do that"},
	} {
		t.Run(row.name, func(t *testing.T) {
			err := NewCommands(&row.run, row.o).Perform(t.Context(), row.step)
			if got := text(err); got != row.fault {
				t.Errorf("got error %q, want %q", got, row.fault)
			}
			if diff := cmp.Diff(row.did, row.run.did); diff != "" {
				t.Errorf("commands (-want +got):\n%s", diff)
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestVerifyKnowsWhatTookHold(t *testing.T) {
	const ask = "systemctl show --property=Type,Result,LoadState,ActiveState a.service"
	for _, row := range []struct{ name, says, fault string }{
		{"active", "Type=notify\nResult=success\nLoadState=loaded\nActiveState=active\n", ""},
		{"did its work", "Type=oneshot\nResult=success\nLoadState=loaded\nActiveState=inactive\n", ""},
		{"stopped", "Type=simple\nResult=success\nLoadState=loaded\nActiveState=inactive\n", "the unit is inactive (success)"},
		{"failed", "Type=oneshot\nResult=exit-code\nLoadState=loaded\nActiveState=failed\n", "the unit is failed (exit-code)"},
		{"gone", "Type=oneshot\nResult=success\nLoadState=not-found\nActiveState=inactive\n", "the unit is not-found"},
	} {
		t.Run(row.name, func(t *testing.T) {
			run := &fakeRun{answers: map[string]string{ask: row.says}}
			got := text(NewCommands(run, Options{}).Verify(t.Context(), step(transition.KindRestart, "a.service", "")))
			if row.fault != "" {
				row.fault = "could not apply update: restarting a.service service failed. Error: " + row.fault
			}
			if got != row.fault {
				t.Errorf("got %q, want %q", got, row.fault)
			}
		})
	}
}

func TestLiveUnits(t *testing.T) {
	run := &fakeRun{
		answers: map[string]string{"systemctl is-enabled -- a.service": "enabled\n", "systemctl is-enabled -- b.service": "disabled\n"},
		fails: map[string]string{
			"systemctl is-enabled -- b.service": "", "systemctl is-enabled -- c.service": "Failed to get unit file state for c.service: No such file or directory",
			"systemctl is-enabled -- d.service": "no bus", "systemctl enable -- d.service": "no bus", "systemctl preset -- d.service": "no bus",
		},
	}
	l := Live{NewCommands(run, Options{})}
	for unit, want := range map[string]string{"a.service": "enabled", "b.service": "disabled", "c.service": "not-found"} {
		if got, err := l.ObserveUnit(t.Context(), unit); err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", unit, got, err, want)
		}
	}
	if _, err := l.ObserveUnit(t.Context(), "d.service"); err == nil {
		t.Error("d.service: got no error, want one")
	}
	for _, row := range []struct{ unit, value, fault string }{
		{"a.service", "enabled", ""},
		{"a.service", "disabled", ""},
		{"d.service", "preset", ""},
		{"d.service", "enabled", "error enabling units: error running systemctl enable -- d.service: no bus: exit status 1"},
		{"a.service", "upside down", `unit a.service: "upside down" is no state that a unit can be given; want enabled, disabled or preset`},
	} {
		if got := text(l.PerformUnit(t.Context(), step(transition.KindUnit, row.unit, row.value))); got != row.fault {
			t.Errorf("%s %s: got %q, want %q", row.value, row.unit, got, row.fault)
		}
	}
}

func FuzzParseUnit(f *testing.F) {
	f.Add("Type=oneshot\nActiveState=inactive\nResult=success\nLoadState=loaded")
	f.Fuzz(func(t *testing.T, s string) {
		u := parseUnit(s)
		if u.took(transition.Step{}) == nil && u.active == "failed" {
			t.Errorf("%+v took hold, want not", u)
		}
	})
}
