// Package systemd acts on the services of a host and restarts the host, through
// systemctl or, on a live system, systemd's bus. After an effect it can tell whether
// it took hold. It writes no unit files and decides nothing.
//
//	s := systemd.NewCommands(program.New("/", log), systemd.Options{Root: "/"})
//	err := s.Perform(ctx, restartOfCrio)
//	err = s.Verify(ctx, restartOfCrio)
package systemd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"millwright.io/millwright/internal/engine/transition"
	"millwright.io/millwright/internal/host"
	"millwright.io/millwright/internal/host/program"
)

// Options are what services of a host may be given.
type Options struct {
	// Root is where the host's files are seen.
	Root string
	// Direct asks systemctl itself for a reboot, not a unit made for it.
	Direct bool
	// Ostree tells that a reboot must wait for the staged deployment.
	Ostree bool
}

// rebootUnit is the unit that restarts a host, so that the agent's own end does not
// stop it.
const rebootUnit = "machine-config-daemon-reboot"

// trustService rebuilds the CA bundle of CoreOS hosts.
const trustService = "coreos-update-ca-trust.service"

// Commands is a host.System for services and reboots that runs systemctl.
type Commands struct {
	run program.Runner
	o   Options
}

// NewCommands returns the services of a host.
func NewCommands(run program.Runner, o Options) *Commands { return &Commands{run, o} }

// Facts implements host.System.
func (c *Commands) Facts(_ context.Context, f *transition.Facts) error {
	f.Live = true
	return nil
}

// Observe implements host.System: effects have no state.
func (c *Commands) Observe(context.Context, transition.Ref) (transition.State, error) {
	return transition.State{}, nil
}

// Perform implements host.System.
func (c *Commands) Perform(ctx context.Context, step transition.Step) error {
	switch step.Kind {
	case transition.KindDaemonReload:
		if err := c.run.Run(ctx, "systemctl", "daemon-reload"); err != nil {
			return fmt.Errorf("could not apply update: reloading systemd's units failed. Error: %w", err)
		}
		return nil
	case transition.KindReload:
		if err := c.run.Run(ctx, "systemctl", "reload", step.Key); err != nil {
			return reloadError(step.Key, err)
		}
		return nil
	case transition.KindRestart:
		return restart(ctx, c.run, step.Key, func() error { return c.run.Run(ctx, "systemctl", "restart", step.Key) })
	case transition.KindTrust:
		return trust(ctx, c.run)
	case transition.KindReboot:
		return reboot(ctx, c.run, c.o, step.Cause)
	default:
		return fmt.Errorf("%s: systemd cannot do that", step)
	}
}

func reloadError(unit string, err error) error {
	return fmt.Errorf("could not apply update: reloading %s configuration failed. Error: %w", unit, err)
}

// restart restarts a service. That of the CA bundle has a program to fall back on.
func restart(ctx context.Context, run program.Runner, unit string, do func() error) error {
	err := do()
	if err != nil && unit == trustService && run.Has("update-ca-trust") {
		err = run.Run(ctx, "update-ca-trust")
	}
	if err != nil {
		return fmt.Errorf("could not apply update: restarting %s service failed. Error: %w", unit, err)
	}
	return nil
}

// trust rebuilds the CA bundle with the program that the host has.
func trust(ctx context.Context, run program.Runner) error {
	for _, name := range []string{"update-ca-trust", "update-ca-certificates"} {
		if !run.Has(name) {
			continue
		}
		if err := run.Run(ctx, name); err != nil {
			return fmt.Errorf("rebuild the CA bundle: %w", err)
		}
		return nil
	}
	return fmt.Errorf("rebuild the CA bundle: this host has neither update-ca-trust nor update-ca-certificates")
}

// reboot asks for a restart of the host and returns at once.
func reboot(ctx context.Context, run program.Runner, o Options, why string) error {
	if o.Direct {
		return rebootError(run.Run(ctx, "systemctl", "reboot"))
	}
	args := []string{"--unit", rebootUnit, "--description", "machine-config-daemon: " + why}
	if o.Ostree {
		args = append(args, "-p", "Requires=ostree-finalize-staged.service", "-p", "After=ostree-finalize-staged.service")
	}
	err := run.Run(ctx, "systemd-run", append(args, "/bin/sh", "-c", "systemctl reboot")...)
	if err != nil && strings.Contains(err.Error(), "already") {
		// Asked for before, perhaps in vain: a unit that failed makes room.
		if _, failed := run.Query(ctx, "systemctl", "is-failed", rebootUnit+".service"); failed != nil {
			return nil
		}
		if err = run.Run(ctx, "systemctl", "reset-failed", rebootUnit+".service"); err == nil {
			err = run.Run(ctx, "systemd-run", append(args, "/bin/sh", "-c", "systemctl reboot")...)
		}
	}
	return rebootError(err)
}

func rebootError(err error) error {
	if err != nil {
		return fmt.Errorf("reboot command failed, something is seriously wrong: %w", err)
	}
	return nil
}

// Verify implements host.System.
func (c *Commands) Verify(ctx context.Context, step transition.Step) error {
	switch step.Kind {
	case transition.KindReload, transition.KindRestart:
		raw, err := c.run.Query(ctx, "systemctl", "show", "--property=Type,Result,LoadState,ActiveState", step.Key)
		if err != nil {
			return fmt.Errorf("look at %s: %w", step.Key, err)
		}
		return parseUnit(raw).took(step)
	case transition.KindReboot:
		return rebooted(c.o.Root, step)
	default:
		return nil
	}
}

// rebooted compares boot IDs.
func rebooted(root string, step transition.Step) error {
	raw, err := os.ReadFile(filepath.Join(root, "proc/sys/kernel/random/boot_id"))
	if err != nil {
		return fmt.Errorf("verify the reboot: %w", err)
	}
	if id := strings.TrimSpace(string(raw)); id == step.Before.Value {
		return fmt.Errorf("reboot: the boot ID is still %s", id)
	}
	return nil
}

// unitState is what systemd says about a unit after an effect.
type unitState struct{ kind, result, load, active string }

// parseUnit reads the lines of systemctl show.
func parseUnit(text string) unitState {
	var u unitState
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "Type":
			u.kind = value
		case "Result":
			u.result = value
		case "LoadState":
			u.load = value
		case "ActiveState":
			u.active = value
		}
	}
	return u
}

// took tells whether a restart or reload took hold: the unit is active, or, as it does
// one thing and ends, did it well.
func (u unitState) took(step transition.Step) error {
	switch {
	case u.active == "active", u.active == "reloading":
		return nil
	case u.active == "inactive" && u.kind == "oneshot" && u.result == "success" && u.load != "not-found":
		return nil
	}
	words := fmt.Sprintf("the unit is %s (%s)", u.active, u.result)
	if u.load != "" && u.load != "loaded" {
		words = "the unit is " + u.load
	}
	err := fmt.Errorf("%s", words)
	if step.Kind == transition.KindReload {
		return reloadError(step.Key, err)
	}
	return fmt.Errorf("could not apply update: restarting %s service failed. Error: %w", step.Key, err)
}

var _ host.System = (*Commands)(nil)
