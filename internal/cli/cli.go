// Package cli holds the commands of millwright: their flags, what they print
// and their exit codes. It reads clusters and turns knobs; what starts a world
// or writes to a cluster is handed in by internal/app/cli.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"millwright.io/millwright/internal/version"
)

// Exit codes.
const (
	ExitOK      = 0 // fine
	ExitFailure = 1 // a finding or a failure
	ExitUsage   = 2 // wrong usage
	ExitChanges = 3 // plan --exit-code: something would change
)

// exitError ends the process with a code when all has been said already.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// UsageError is a mistake in the call.
type UsageError struct{ Message string }

func (e *UsageError) Error() string { return e.Message }

// UpOptions are the flags of up.
type UpOptions struct {
	Dir             string
	Detach          bool
	Workers         int
	Machines        string
	BootDelay       time.Duration
	VMDelay         time.Duration
	NodeClientDelay time.Duration
	Admission       []string
	Audit           bool
	Devplane        string
}

// Deps are what the commands cannot do themselves.
type Deps struct {
	// Up runs or, with Detach, starts a world; args are the command line's
	// own, for the detached copy.
	Up func(ctx context.Context, o UpOptions, out, progress io.Writer) error
	// Down stops a world and, with purge, removes its state.
	Down func(ctx context.Context, dir string, purge bool, progress io.Writer) error
	// Socket is where the world of a directory listens.
	Socket func(dir string) (string, error)
	// PlanSets previews MachineSets with the code of their controller.
	PlanSets func(ctx context.Context, in SetsInput) ([]SetPlan, error)
	// Generate previews what the controllers of KubeletConfigs, mirrors and
	// other settings make of them, with those controllers' code.
	Generate func(ctx context.Context, in GenerateInput) (Generated, error)
	// Client reads and writes the cluster of a kubeconfig and a context; empty:
	// the usual ones.
	Client func(kubeconfig, kubecontext string) (client.Client, error)
	// Explainers say why objects are stuck, with the code of their
	// controllers.
	Explainers []Explainer
}

// Command returns the whole command line.
func Command(d Deps) *cobra.Command {
	root := &cobra.Command{
		Use:           "millwright",
		Short:         "Keeps the machines under a Kubernetes cluster in their declared state",
		Version:       version.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &UsageError{fmt.Sprintf("%v; see `%s --help`", err, cmd.CommandPath())}
	})
	root.AddCommand(upCommand(d), downCommand(d), statusCommand(d), simCommand(d),
		renderCommand(d), hashCommand(), lintCommand(), diffCommand(), planCommand(d), explainCommand(d),
		recoverCommand(d), adoptCommand(d))
	wrapArgs(root)
	return root
}

// wrapArgs turns complaints about arguments into usage errors.
func wrapArgs(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return &UsageError{fmt.Sprintf("%v; see `%s --help`", err, c.CommandPath())}
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		wrapArgs(sub)
	}
}

// ExitCode prints the error, if any, and returns the process's exit code.
func ExitCode(err error, stderr io.Writer) int {
	if err == nil {
		return ExitOK
	}
	var silent *exitError
	if errors.As(err, &silent) {
		return silent.code
	}
	if !errors.Is(err, context.Canceled) {
		_, _ = fmt.Fprintln(stderr, "millwright: "+err.Error())
	}
	var usage *UsageError
	if errors.As(err, &usage) {
		return ExitUsage
	}
	return ExitFailure
}

// defaultDir is MILLWRIGHT_DIR, else .millwright.
func defaultDir() string {
	if d := os.Getenv("MILLWRIGHT_DIR"); d != "" {
		return d
	}
	return ".millwright"
}

func addDir(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", defaultDir(), "state directory of the world (MILLWRIGHT_DIR)")
}

// output is the value of -o.
type output string

func (o *output) String() string { return string(*o) }
func (o *output) Type() string   { return "format" }

// Set implements pflag.Value.
func (o *output) Set(s string) error {
	switch s {
	case "", "json", "yaml":
		*o = output(s)
		return nil
	}
	return fmt.Errorf("want json or yaml")
}

func addOutput(cmd *cobra.Command, o *output) {
	cmd.Flags().VarP(o, "output", "o", "json or yaml; default: a table for people")
}

// print writes v as asked for; text prints the table.
func (o output) print(w io.Writer, v any, text func(io.Writer) error) error {
	switch o {
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	case "yaml":
		b, err := yaml.Marshal(v)
		if err != nil {
			return fmt.Errorf("encode answer: %w", err)
		}
		_, err = w.Write(b)
		return err
	default:
		return text(w)
	}
}

// interactive says whether w is a terminal.
func interactive(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
