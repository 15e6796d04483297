package cli

import (
	"fmt"
	"io"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/spf13/cobra"

	"millwright.io/millwright/internal/engine/render"
)

// HashReport is what hash answers.
type HashReport struct {
	Name string `json:"name"` // rendered-<pool>-<32 hex digits>
	Pool string `json:"pool"`
	// PoolFrom tells where the pool was found: flag, ownerReference or name.
	PoolFrom string `json:"poolFrom"`
	Object   string `json:"object"`  // the name the file gives
	Matches  bool   `json:"matches"` // both names are equal
}

func hashCommand() *cobra.Command {
	var pool string
	var out output
	cmd := &cobra.Command{
		Use:   "hash FILE",
		Short: "Prints the rendered name of a MachineConfig's content",
		Long: `Prints the name that a rendered MachineConfig with this spec has. Metadata does
not count, so a config taken from a cluster and edited by hand is fine as it is.
The pool is that of --pool, else that of the ownerReference, else that of the
file's own rendered-<pool>-… name.`,
		Example: "  oc get mc rendered-worker-… -o yaml > new.yaml\n  $EDITOR new.yaml\n  millwright hash new.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := hashFile(args[0], pool, cmd.InOrStdin(), newProgress(cmd.ErrOrStderr()))
			if err != nil {
				return err
			}
			if !r.Matches && strings.HasPrefix(r.Object, renderedPrefix) {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "the file calls itself %s; its content has the name below\n", r.Object)
			}
			return out.print(cmd.OutOrStdout(), r, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, r.Name)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&pool, "pool", "", "name of the pool")
	addOutput(cmd, &out)
	return cmd
}

func hashFile(file, pool string, stdin io.Reader, p *progress) (HashReport, error) {
	m, mc, err := oneConfig("hash", file, stdin, p)
	if err != nil {
		return HashReport{}, err
	}
	r := HashReport{Object: mc.Name}
	if r.Pool, r.PoolFrom = poolOf(mc, pool); r.Pool == "" {
		return r, &UsageError{fmt.Sprintf("hash: %s: %s has no ownerReference to a MachineConfigPool and no rendered-<pool>-… name; give --pool", m.Source, m.object())}
	}
	if r.Name, _, err = render.Hash(r.Pool, mc.Spec); err != nil {
		return r, fmt.Errorf("%s: %s: %w", m.Source, m.object(), err)
	}
	r.Matches = r.Name == r.Object
	return r, nil
}

// oneConfig reads the file's only MachineConfig.
func oneConfig(command, file string, stdin io.Reader, p *progress) (manifest, *mcfgv1.MachineConfig, error) {
	ms, err := readManifests([]string{file}, stdin, p)
	if err != nil {
		return manifest{}, nil, err
	}
	var found []manifest
	for _, m := range ms {
		if m.is(groupMachineConfig, "MachineConfig") {
			found = append(found, m)
		}
	}
	switch len(found) {
	case 1:
		mc, err := found[0].machineConfig()
		return found[0], mc, err
	case 0:
		return manifest{}, nil, &UsageError{fmt.Sprintf("%s: %s holds no MachineConfig of %s/v1", command, file, groupMachineConfig)}
	}
	return manifest{}, nil, &UsageError{fmt.Sprintf("%s: %s holds %d MachineConfigs (%s, %s, …); give a file with one", command, file, len(found), found[0].Name, found[1].Name)}
}

// poolOf finds the pool of a config and says where; empty: nowhere.
func poolOf(mc *mcfgv1.MachineConfig, flag string) (pool, from string) {
	if flag != "" {
		return flag, "flag"
	}
	for _, o := range mc.OwnerReferences {
		if o.Kind == "MachineConfigPool" && o.Name != "" {
			return o.Name, "ownerReference"
		}
	}
	// The digest may have been replaced by anything; pools' names have dashes.
	rest, ok := strings.CutPrefix(mc.Name, renderedPrefix)
	if i := strings.LastIndexByte(rest, '-'); ok && i > 0 {
		return rest[:i], "name"
	}
	return "", ""
}
