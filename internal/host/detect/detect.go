// Package detect finds out what a host has besides files and puts its System together:
// a boot loader or an ostree, services, power. It looks at the root and nothing else.
//
//	sys, err := detect.System(root, log.Infof)
//	h, err := host.New(root, host.Options{System: sys})
package detect

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"millwright.io/millwright/internal/engine/transition"
	"millwright.io/millwright/internal/host"
	"millwright.io/millwright/internal/host/bootloader"
	"millwright.io/millwright/internal/host/ostree"
	"millwright.io/millwright/internal/host/program"
	"millwright.io/millwright/internal/host/systemd"
)

// System returns the system of the host whose files are at root. log takes the lines
// "Running: …"; nil: nobody reads them. A root that nothing runs on, such as an image,
// has a System that can do nothing.
func System(root string, log func(format string, args ...any)) (host.System, error) {
	info, err := os.Stat(root)
	if err != nil {
		return nil, fmt.Errorf("look at the host: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("look at the host: %s is no folder; want the root of a host", root)
	}
	run := program.New(root, log)
	if program.IsStandin(root) {
		return &system{
			boot:     ostree.New(run, ostree.Options{Tries: 3, Pause: time.Second}),
			services: systemd.NewCommands(run, systemd.Options{Root: root, Direct: true, Ostree: true}),
		}, nil
	}
	booted := exists(root, "run/ostree-booted")
	s := &system{}
	switch {
	case booted && run.Has("rpm-ostree"):
		s.boot = ostree.New(run, ostree.Options{})
	case booted && run.Has("bootc"):
		s.boot = ostree.NewBootc(run)
	default:
		bare, err := host.New(root, host.Options{})
		if err != nil {
			return nil, err
		}
		if loader, ok := bootloader.Find(run, bare.Files()); ok {
			s.boot = loader
		}
	}
	if !exists(root, "run/systemd/system") {
		return s, nil
	}
	units := systemd.Live{Commands: systemd.NewCommands(run, systemd.Options{Root: root, Ostree: booted})}
	s.services = units
	return &live{s, units}, nil
}

// live is a system whose own systemd enables units.
type live struct {
	*system
	units systemd.Live
}

// ObserveUnit implements host.UnitSystem.
func (l *live) ObserveUnit(ctx context.Context, name string) (string, error) {
	return l.units.ObserveUnit(ctx, name)
}

// PerformUnit implements host.UnitSystem.
func (l *live) PerformUnit(ctx context.Context, step transition.Step) error {
	return l.units.PerformUnit(ctx, step)
}

func exists(root, name string) bool {
	_, err := os.Stat(filepath.Join(root, name))
	return err == nil
}

// system hands each kind of step to the part that knows it. A part may be nil.
type system struct{ boot, services host.System }

// part is who performs a kind.
func (s *system) part(k transition.Kind) host.System {
	switch k {
	case transition.KindKernelArguments, transition.KindImage, transition.KindKernelType, transition.KindExtensions:
		return s.boot
	default:
		return s.services
	}
}

// Facts implements host.System.
func (s *system) Facts(ctx context.Context, f *transition.Facts) error {
	f.Arch = runtime.GOARCH
	for _, p := range []host.System{s.boot, s.services} {
		if p == nil {
			continue
		}
		if err := p.Facts(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// Observe implements host.System.
func (s *system) Observe(ctx context.Context, ref transition.Ref) (transition.State, error) {
	if p := s.part(ref.Kind); p != nil {
		return p.Observe(ctx, ref)
	}
	return transition.State{}, nil
}

// Perform implements host.System.
func (s *system) Perform(ctx context.Context, step transition.Step) error {
	if p := s.part(step.Kind); p != nil {
		return p.Perform(ctx, step)
	}
	return lacks(step)
}

// Verify implements host.System.
func (s *system) Verify(ctx context.Context, step transition.Step) error {
	if p := s.part(step.Kind); p != nil {
		return p.Verify(ctx, step)
	}
	return lacks(step)
}

func lacks(step transition.Step) error {
	return fmt.Errorf("%s: this host has nothing that could", step)
}

var (
	_ host.System     = (*system)(nil)
	_ host.UnitSystem = (*live)(nil)
)
