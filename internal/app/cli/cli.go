// Package cli is the composition root of the command line: it hands the
// commands what starts and stops worlds.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"millwright.io/millwright/internal/app/world"
	"millwright.io/millwright/internal/cli"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/sim/control"
)

// Run runs the command line and returns the exit code.
func Run(ctx context.Context) int {
	ctrllog.SetLogger(logr.Discard()) // clients have nothing to say to people
	cmd := cli.Command(cli.Deps{Up: up, Down: down, Socket: world.ControlSocket, PlanSets: planSets, Generate: generate, Client: connect, Explainers: explainers()})
	return cli.ExitCode(usage(cmd.ExecuteContext(ctx)), os.Stderr)
}

// usage translates the world's usage errors into the command line's.
func usage(err error) error {
	var u *world.UsageError
	if errors.As(err, &u) {
		return &cli.UsageError{Message: u.Message}
	}
	return err
}

func up(ctx context.Context, o cli.UpOptions, out, progress io.Writer) error {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(progress, format+"\n", args...) }
	opts := world.Options{
		Dir: o.Dir, Workers: o.Workers, Machines: o.Machines, BootDelay: o.BootDelay, VMDelay: o.VMDelay, NodeClientDelay: o.NodeClientDelay,
		Admission: o.Admission, Audit: o.Audit, Module: o.Devplane, Say: say, Log: logr.Discard(),
	}
	if err := opts.Check(); err != nil {
		return err
	}
	if o.Detach {
		if err := world.Detach(ctx, o.Dir, attached(os.Args[1:]), say); err != nil {
			return err
		}
		socket, err := world.ControlSocket(o.Dir)
		if err != nil {
			return err
		}
		s, err := control.NewClient(socket).Ping(ctx)
		if err != nil {
			return err
		}
		welcome(out, progress, s)
		return nil
	}
	opts.Log = kube.KlogText("world")
	report := world.OpenReport()
	opts.Say = func(format string, args ...any) {
		say(format, args...)
		report.Say(fmt.Sprintf(format, args...))
	}
	err := world.Run(ctx, opts, func(s control.Status) {
		report.Ready()
		welcome(out, progress, s)
	})
	if err != nil {
		report.Failed(err)
	}
	return err
}

// attached is the command line of the supervisor: the same without --detach.
func attached(args []string) []string {
	var out []string
	for _, a := range args {
		if a != "--detach" && !strings.HasPrefix(a, "--detach=") {
			out = append(out, a)
		}
	}
	return out
}

// welcome says where things are, and prints the one line that makes the
// cluster's commands work, for eval.
func welcome(out, progress io.Writer, s control.Status) {
	_, _ = fmt.Fprintf(progress, "Ready after %.1fs: cluster %s, world %d, pid %d\n", s.ReadySeconds, s.InfraID, s.World, s.PID)
	_, _ = fmt.Fprintf(out, "export PATH=%s:$PATH KUBECONFIG=%s\n", s.BinDir, s.Kubeconfig)
}

func down(ctx context.Context, dir string, purge bool, progress io.Writer) error {
	return world.Down(ctx, dir, purge, func(format string, args ...any) { _, _ = fmt.Fprintf(progress, format+"\n", args...) })
}
