// Package ostree sets kernel arguments, OS image, kernel type and extensions of hosts
// whose system is an ostree deployment, through rpm-ostree or bootc. Everything is
// staged and becomes true at the next boot. It restarts nothing and decides nothing.
//
//	sys := ostree.New(program.New("/", log), ostree.Options{})
//	err := sys.Perform(ctx, step) // runs e.g. rpm-ostree kargs --append=nosmt
package ostree

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"millwright.io/millwright/internal/engine/diff"
	"millwright.io/millwright/internal/engine/transition"
	"millwright.io/millwright/internal/host"
	"millwright.io/millwright/internal/host/program"
)

// Options are what a System may be given.
type Options struct {
	// Tries is how often an image is asked for, 0: 7. Pause is the time before the
	// second try, doubled up to a minute; 0: 10 s.
	Tries int
	Pause time.Duration
	Clock clock.Clock // nil: the real one
}

// maxPause bounds the time between two tries.
const maxPause = time.Minute

// System is a host.System for kernelArguments, osImageURL, kernelType and extensions.
type System struct {
	run program.Runner
	o   Options
}

// New returns the system of a host with rpm-ostree.
func New(run program.Runner, o Options) *System {
	if o.Tries == 0 {
		o.Tries = 7
	}
	if o.Pause == 0 {
		o.Pause = 10 * time.Second
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &System{run, o}
}

func (s *System) status(ctx context.Context) (status, error) {
	raw, err := s.run.Query(ctx, "rpm-ostree", "status", "--json")
	if err != nil {
		return status{}, err
	}
	return parseStatus([]byte(raw))
}

// Facts implements host.System.
func (s *System) Facts(ctx context.Context, f *transition.Facts) error {
	st, err := s.status(ctx)
	if err != nil {
		return err
	}
	booted, _ := st.booted()
	f.Kernel, f.Image, f.Booted = transition.RPMOSTree, transition.RPMOSTree, booted.image()
	return nil
}

// arguments are those of the deployment that boots next.
func (s *System) arguments(ctx context.Context) ([]string, error) {
	raw, err := s.run.Query(ctx, "rpm-ostree", "kargs")
	if err != nil {
		return nil, err
	}
	return diff.Arguments([]string{raw}), nil
}

// Observe implements host.System.
func (s *System) Observe(ctx context.Context, ref transition.Ref) (transition.State, error) {
	switch ref.Kind {
	case transition.KindKernelArguments:
		list, err := s.arguments(ctx)
		return transition.State{Type: transition.List, Values: list}, err
	case transition.KindImage, transition.KindKernelType, transition.KindExtensions:
	default:
		return transition.State{}, nil
	}
	st, err := s.status(ctx)
	if err != nil {
		return transition.State{}, err
	}
	next := st.next()
	switch ref.Kind {
	case transition.KindImage:
		return transition.State{Type: transition.Value, Value: next.image()}, nil
	case transition.KindKernelType:
		return transition.State{Type: transition.Value, Value: next.kernelType()}, nil
	default:
		return transition.State{Type: transition.List, Values: next.extensions()}, nil
	}
}

// Perform implements host.System.
func (s *System) Perform(ctx context.Context, step transition.Step) error {
	var err error
	switch step.Kind {
	case transition.KindKernelArguments:
		err = s.setArguments(ctx, step.Before.Values, step.After.Values)
	case transition.KindImage:
		err = s.setImage(ctx, step.After.Value)
	case transition.KindKernelType:
		err = s.setKernel(ctx, step.After.Value)
	case transition.KindExtensions:
		err = s.setExtensions(ctx, step.After.Values)
	default:
		return fmt.Errorf("%s: rpm-ostree cannot do that", step)
	}
	if err != nil {
		return err
	}
	return s.tidy(ctx)
}

// Verify implements host.System: what is set is compared with Observe.
func (s *System) Verify(context.Context, transition.Step) error { return nil }

// setArguments changes the list by one command. Nothing is asked for what a repeated
// step has done before.
func (s *System) setArguments(ctx context.Context, before, after []string) error {
	raw, err := s.run.Captured(ctx, "rpm-ostree", "kargs")
	if err != nil {
		return err
	}
	have := diff.Arguments([]string{raw})
	if slices.Equal(host.Arguments(have, before, after), have) {
		return nil
	}
	args := []string{"kargs"}
	for _, a := range before {
		args = append(args, "--delete-if-present="+a)
	}
	for _, a := range after {
		args = append(args, "--append="+a)
	}
	return s.run.Run(ctx, "rpm-ostree", args...)
}

// setImage stages an image. A kernel of another type is swapped out meanwhile: its
// packages belong to the image before.
func (s *System) setImage(ctx context.Context, image string) error {
	st, err := s.status(ctx)
	if err != nil {
		return err
	}
	next := st.next()
	if next.image() == image {
		return nil
	}
	if image == "" {
		// The image that ran was not known; what is pending is not it.
		return s.run.Run(ctx, "rpm-ostree", "cleanup", "-p")
	}
	kernel := next.kernelType()
	if err := s.setKernel(ctx, kernelDefault); err != nil {
		return err
	}
	if err := s.rebase(ctx, image); err != nil {
		return err
	}
	return s.setKernel(ctx, kernel)
}

// rebase asks for an image until the registry answers.
func (s *System) rebase(ctx context.Context, image string) error {
	var last error
	pause := s.o.Pause
	for try := range s.o.Tries {
		if try > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-s.o.Clock.After(pause):
			}
			pause = min(2*pause, maxPause)
		}
		if last = s.run.Run(ctx, "rpm-ostree", "rebase", "--experimental", "ostree-unverified-registry:"+image); last == nil {
			return nil
		}
		if ctx.Err() != nil {
			return last
		}
	}
	return fmt.Errorf("failed to update OS to %s after retries: %w", image, last)
}

// setKernel swaps the kernel: back to the image's own, then to the one that is wanted.
func (s *System) setKernel(ctx context.Context, want string) error {
	if want == "" {
		want = kernelDefault
	}
	st, err := s.status(ctx)
	if err != nil {
		return err
	}
	next := st.next()
	if next.kernelType() == want {
		return nil
	}
	isKernel := func(p string) bool { return strings.HasPrefix(p, "kernel-rt-") || strings.HasPrefix(p, "kernel-64k-") }
	removed := slices.DeleteFunc(slices.Clone(next.RequestedRemovals), func(p string) bool { return !strings.HasPrefix(p, "kernel") })
	layered := slices.DeleteFunc(slices.Clone(next.RequestedPackages), func(p string) bool { return !isKernel(p) })
	if len(removed) > 0 && len(layered) > 0 {
		args := append([]string{"override", "reset"}, removed...)
		if err := s.run.Run(ctx, "rpm-ostree", append(args, options("--uninstall", layered)...)...); err != nil {
			return err
		}
	}
	if want == kernelDefault {
		return nil
	}
	packages, ok := kernels[want]
	if !ok {
		return fmt.Errorf("set kernel type: %q is unknown; want default, realtime or 64k-pages", want)
	}
	args := append([]string{"override", "remove"}, baseKernel...)
	return s.run.Run(ctx, "rpm-ostree", append(args, options("--install", packages)...)...)
}

// options gives each value its option.
func options(name string, values []string) []string {
	out := make([]string, 0, 2*len(values))
	for _, v := range values {
		out = append(out, name, v)
	}
	return out
}

// setExtensions layers the packages of the wanted extensions and removes those of all
// others.
func (s *System) setExtensions(ctx context.Context, names []string) error {
	st, err := s.status(ctx)
	if err != nil {
		return err
	}
	have := st.next().RequestedPackages
	var want, install, uninstall []string
	for _, n := range names {
		packages, ok := extensions[n]
		if !ok {
			return fmt.Errorf("invalid extensions found: [%s]", n)
		}
		want = append(want, packages...)
	}
	for _, p := range want {
		if !slices.Contains(have, p) && !slices.Contains(install, p) {
			install = append(install, p)
		}
	}
	for _, packages := range extensions {
		for _, p := range packages {
			if slices.Contains(have, p) && !slices.Contains(want, p) {
				uninstall = append(uninstall, p)
			}
		}
	}
	if len(install)+len(uninstall) == 0 {
		return nil
	}
	slices.Sort(install)
	slices.Sort(uninstall)
	args := append([]string{"update"}, options("--install", install)...)
	if err := s.run.Run(ctx, "rpm-ostree", append(args, options("--uninstall", uninstall)...)...); err != nil {
		return err
	}
	return s.staged(ctx, want)
}

// staged checks that what was layered is in what boots next.
func (s *System) staged(ctx context.Context, want []string) error {
	st, err := s.status(ctx)
	if err != nil {
		return err
	}
	have := st.next().RequestedPackages
	lacks := slices.DeleteFunc(slices.Clone(want), func(p string) bool { return slices.Contains(have, p) })
	if len(lacks) > 0 {
		slices.Sort(lacks)
		return fmt.Errorf("the following extension packages are missing from the staged deployment: %v", lacks)
	}
	return nil
}

// tidy drops what is staged when it is what runs: a change that was taken back leaves
// nothing pending.
func (s *System) tidy(ctx context.Context) error {
	st, err := s.status(ctx)
	if err != nil {
		return err
	}
	booted, index := st.booted()
	if !st.next().Staged || index < 0 || !st.next().same(booted) {
		return nil
	}
	next, err := s.arguments(ctx)
	if err != nil {
		return err
	}
	raw, err := s.run.Query(ctx, "rpm-ostree", "kargs", "--deploy-index="+strconv.Itoa(index))
	if err != nil {
		return err
	}
	if !slices.Equal(next, diff.Arguments([]string{raw})) {
		return nil
	}
	return s.run.Run(ctx, "rpm-ostree", "cleanup", "-p")
}

var _ host.System = (*System)(nil)
