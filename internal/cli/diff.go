package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"millwright.io/millwright/internal/engine/diff"
)

// DiffReport is what diff answers.
type DiffReport struct {
	A string `json:"a"` // names of the two configs
	B string `json:"b"`
	diff.Diff
}

func diffCommand() *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Compares two MachineConfigs by what they mean",
		Long: `Compares two files with one MachineConfig each: contents decoded and compared line
by line, file by file, unit by unit, kernel arguments in order. What is only
written differently, such as another encoding of the same bytes, is no difference.
Lines with ! name what a running node would refuse.`,
		Example: "  millwright diff rendered-worker-old.yaml rendered-worker-new.yaml",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "-" && args[1] == "-" {
				return &UsageError{"diff: standard input can be read only once"}
			}
			r, err := diffFiles(args[0], args[1], cmd.InOrStdin(), newProgress(cmd.ErrOrStderr()))
			if err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), r, r.text)
		},
	}
	addOutput(cmd, &out)
	return cmd
}

func diffFiles(fileA, fileB string, stdin io.Reader, p *progress) (DiffReport, error) {
	_, a, err := oneConfig("diff", fileA, stdin, p)
	if err != nil {
		return DiffReport{}, err
	}
	_, b, err := oneConfig("diff", fileB, stdin, p)
	if err != nil {
		return DiffReport{}, err
	}
	r := DiffReport{A: a.Name, B: b.Name}
	if r.Diff, err = diff.Compute(a.Spec, b.Spec); err != nil {
		return r, fmt.Errorf("compare %s with %s: %w", fileA, fileB, err)
	}
	return r, nil
}

func (r DiffReport) text(w io.Writer) error {
	_, _ = fmt.Fprintf(w, "--- %s\n+++ %s\n", r.A, r.B)
	if r.Empty() && len(r.Unreconcilable) == 0 {
		_, err := fmt.Fprintln(w, "No difference in meaning.")
		return err
	}
	return diff.Text(w, r.Diff)
}
