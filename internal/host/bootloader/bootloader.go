// Package bootloader sets kernel arguments of hosts that have no ostree: through
// grubby, in boot loader entries (BLS), or in /etc/default/grub. It edits the
// arguments that it is told and leaves all others alone, in every entry that a person
// would boot; rescue entries stay as they are. What it sets is true at the next boot.
//
//	sys, ok := bootloader.Find(run, files)
//	err := sys.Perform(ctx, step)
//
// It never installs a boot loader and decides nothing.
package bootloader

import (
	"context"
	"fmt"
	"slices"

	"millwright.io/millwright/internal/engine/transition"
	"millwright.io/millwright/internal/host"
	"millwright.io/millwright/internal/host/program"
)

// loader is one way of keeping kernel arguments.
type loader interface {
	backend() transition.Backend
	// arguments are those of the next boot, as far as they are kept here.
	arguments(ctx context.Context) ([]string, error)
	// set edits every list of arguments. It is safe to repeat.
	set(ctx context.Context, edit func([]string) []string, before, after []string) error
}

// System is a host.System for kernelArguments.
type System struct{ loader loader }

// Find returns what sets kernel arguments on a host, the first that it has of grubby,
// entries, and /etc/default/grub; false if it has none.
func Find(run program.Runner, files host.Files) (*System, bool) {
	if run.Has("grubby") {
		return &System{grubby{run}}, true
	}
	b := bls{files}
	if entries, err := b.entries(); err == nil && len(entries) > 0 {
		return &System{b}, true
	}
	g := grub{run, files}
	if _, err := files.Lstat(grubPath); err == nil && g.rebuild() != nil {
		return &System{g}, true
	}
	return nil, false
}

// Facts implements host.System.
func (s *System) Facts(_ context.Context, f *transition.Facts) error {
	f.Kernel = s.loader.backend()
	return nil
}

// Observe implements host.System.
func (s *System) Observe(ctx context.Context, ref transition.Ref) (transition.State, error) {
	if ref.Kind != transition.KindKernelArguments {
		return transition.State{}, nil
	}
	list, err := s.loader.arguments(ctx)
	return transition.State{Type: transition.List, Values: list}, err
}

// Perform implements host.System.
func (s *System) Perform(ctx context.Context, step transition.Step) error {
	if step.Kind != transition.KindKernelArguments {
		return fmt.Errorf("%s: %s cannot do that", step, s.loader.backend())
	}
	before, after := step.Before.Values, step.After.Values
	edit := func(have []string) []string { return host.Arguments(have, before, after) }
	if err := s.loader.set(ctx, edit, before, after); err != nil {
		return fmt.Errorf("set kernel arguments: %w", err)
	}
	return nil
}

// Verify implements host.System: arguments are compared with Observe.
func (s *System) Verify(context.Context, transition.Step) error { return nil }

// replace writes a file anew and keeps its mode and owner.
func replace(files host.Files, p, body string) error {
	info, err := files.Lstat(p)
	if err != nil {
		return err
	}
	return files.Replace(p, []byte(body), host.Attr{Mode: info.Mode & 0o777, UID: info.UID, GID: info.GID, Label: info.Label})
}

// edited applies an edit to one text; unchanged tells that there is nothing to write.
func edited(have []string, edit func([]string) []string) (list []string, unchanged bool) {
	list = edit(have)
	return list, slices.Equal(list, have)
}

var _ host.System = (*System)(nil)
