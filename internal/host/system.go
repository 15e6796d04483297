package host

import (
	"context"

	"millwright.io/millwright/internal/engine/transition"
)

// System is what a machine has besides files: boot loader, OS image, services and
// power. A Host hands it the steps and refs of the kinds kernelArguments, osImageURL,
// kernelType, extensions, daemonReload, reload, restart, trust and reboot.
//
// A System that lacks one of them says so in Facts (NoBackend, Live false), so that
// planning refuses it; Observe then answers with the zero State, Perform and Verify
// with an error that names the step and what the host lacks.
type System interface {
	// Facts adds what it knows: Kernel, Image, Live, Booted, BootID, CommandLine.
	// The file side of the host has filled the rest in before.
	Facts(ctx context.Context, f *transition.Facts) error
	// Observe returns the state of one ref.
	Observe(ctx context.Context, ref transition.Ref) (transition.State, error)
	// Perform brings about step.After; it is safe to repeat.
	Perform(ctx context.Context, step transition.Step) error
	// Verify checks that an effect took hold.
	Verify(ctx context.Context, step transition.Step) error
}

// UnitSystem is a System with a service manager that enables units itself, as a
// running systemd does. A Host whose System is not one enables units by links.
type UnitSystem interface {
	System
	// ObserveUnit returns the word of systemctl is-enabled for a unit.
	ObserveUnit(ctx context.Context, name string) (string, error)
	// PerformUnit enables, disables or presets a unit (step.After.Value) whose step
	// has After.Type Value; links are restored by the Host.
	PerformUnit(ctx context.Context, step transition.Step) error
}
