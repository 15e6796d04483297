package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"millwright.io/millwright/internal/sim/control"
)

func simCommand(d Deps) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Turns the knobs of a simulated cluster: its cloud and its machines",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&dir, "dir", defaultDir(), "state directory of the world (MILLWRIGHT_DIR)")
	knobs := func() (*control.Client, error) {
		socket, err := d.Socket(dir)
		if err != nil {
			return nil, err
		}
		return control.NewClient(socket), nil
	}
	cmd.AddCommand(vmCommand(knobs), quotaCommand(knobs), failCommand(knobs), slowCommand(knobs))
	return cmd
}

type knobsFunc func() (*control.Client, error)

func vmCommand(knobs knobsFunc) *cobra.Command {
	cmd := &cobra.Command{Use: "vm", Short: "Lists, starts, stops or deletes machines behind everybody's back", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	var out output
	list := &cobra.Command{Use: "list", Short: "Lists the machines", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		k, err := knobs()
		if err != nil {
			return err
		}
		vms, err := k.VMs(cmd.Context())
		if err != nil {
			return err
		}
		return out.print(cmd.OutOrStdout(), vms, func(w io.Writer) error { return vmTable(w, vms) })
	}}
	addOutput(list, &out)
	act := func(use, short, done string, do func(*control.Client, *cobra.Command, string) error) *cobra.Command {
		return &cobra.Command{Use: use + " NAME", Short: short, Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			k, err := knobs()
			if err != nil {
				return err
			}
			if err := do(k, cmd, args[0]); err != nil {
				return err
			}
			if done != "" {
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "vm %s %s\n", args[0], done)
			}
			return nil
		}}
	}
	cmd.AddCommand(list,
		act("start", "Powers a machine on", "starting", func(k *control.Client, c *cobra.Command, n string) error { return k.StartVM(c.Context(), n) }),
		act("stop", "Deallocates a machine", "stopping", func(k *control.Client, c *cobra.Command, n string) error { return k.StopVM(c.Context(), n) }),
		act("delete", "Deletes a machine; its disk and network interface stay", "deleting", func(k *control.Client, c *cobra.Command, n string) error { return k.DeleteVM(c.Context(), n) }),
		act("console", "Prints what a machine printed", "", func(k *control.Client, c *cobra.Command, n string) error {
			b, err := k.Console(c.Context(), n)
			if err == nil {
				_, err = c.OutOrStdout().Write(b)
			}
			return err
		}))
	return cmd
}

func vmTable(w io.Writer, vms []control.VM) error {
	t := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	_, _ = fmt.Fprintln(t, "NAME\tSTATE\tBOOT\tSIZE\tZONE\tIP\tAGE")
	for _, v := range vms {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", v.Name, v.State, v.Boot, v.Size, v.Zone, v.IP, time.Since(v.CreatedAt).Round(time.Second))
	}
	return t.Flush()
}

func quotaCommand(knobs knobsFunc) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:     "quota [SCOPE=VCPUS...]",
		Short:   "Shows or sets vCPU limits of the simulated account",
		Example: "  millwright sim quota cores=28\n  millwright sim quota standardDSv3Family=8",
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := knobs()
			if err != nil {
				return err
			}
			for _, a := range args {
				scope, text, ok := strings.Cut(a, "=")
				limit, err := strconv.Atoi(text)
				if !ok || err != nil || limit < 0 {
					return &UsageError{fmt.Sprintf("quota %q: want SCOPE=VCPUS, e.g. cores=28", a)}
				}
				if err := k.SetQuota(cmd.Context(), control.Quota{Scope: scope, Limit: limit}); err != nil {
					return err
				}
			}
			quotas, err := k.Quotas(cmd.Context())
			if err != nil {
				return err
			}
			return out.print(cmd.OutOrStdout(), quotas, func(w io.Writer) error {
				t := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
				_, _ = fmt.Fprintln(t, "SCOPE\tUSED\tLIMIT")
				for _, q := range quotas {
					_, _ = fmt.Fprintf(t, "%s\t%d\t%d\n", q.Scope, q.Used, q.Limit)
				}
				return t.Flush()
			})
		},
	}
	addOutput(cmd, &out)
	return cmd
}

func failCommand(knobs knobsFunc) *cobra.Command {
	var f control.Fault
	var every, clearAll bool
	cmd := &cobra.Command{
		Use:     "fail [OPERATION CODE]",
		Short:   "Makes calls of a cloud operation fail; without arguments lists what is set",
		Example: "  millwright sim fail vm.put AllocationFailed\n  millwright sim fail vm.delete TooManyRequests --count 3\n  millwright sim fail --clear",
		Args:    cobra.MatchAll(cobra.MaximumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := knobs()
			if err != nil {
				return err
			}
			if clearAll {
				return k.ClearFaults(cmd.Context())
			}
			switch len(args) {
			case 0:
				return printFaults(cmd, k)
			case 1:
				return &UsageError{"fail: want OPERATION and CODE, e.g. `fail vm.put AllocationFailed`"}
			}
			if f.Op, f.Code = args[0], args[1]; every {
				f.Count = -1
			}
			return k.AddFault(cmd.Context(), f)
		},
	}
	fl := cmd.Flags()
	fl.IntVar(&f.Count, "count", 1, "how many calls fail")
	fl.BoolVar(&every, "every", false, "every call fails until --clear")
	fl.BoolVar(&clearAll, "clear", false, "forget all faults and delays")
	fl.IntVar(&f.Status, "status", 0, "HTTP status; default: the usual one of the code")
	fl.StringVar(&f.Message, "message", "", "the cloud's text")
	cmd.MarkFlagsMutuallyExclusive("count", "every")
	return cmd
}

func printFaults(cmd *cobra.Command, k *control.Client) error {
	faults, err := k.Faults(cmd.Context())
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 3, ' ', 0)
	_, _ = fmt.Fprintln(t, "OPERATION\tCODE\tLEFT")
	for _, f := range faults {
		left := strconv.Itoa(f.Count)
		if f.Count < 0 {
			left = "every"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\n", f.Op, f.Code, left)
	}
	return t.Flush()
}

func slowCommand(knobs knobsFunc) *cobra.Command {
	return &cobra.Command{
		Use:     "slow OPERATION DELAY",
		Short:   "Delays every call of a cloud operation; 0s removes the delay",
		Example: "  millwright sim slow vm.put 30s",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			delay, err := time.ParseDuration(args[1])
			if err != nil || delay < 0 {
				return &UsageError{fmt.Sprintf("slow: delay %q: want a duration such as 30s", args[1])}
			}
			k, err := knobs()
			if err != nil {
				return err
			}
			return k.SetSlow(cmd.Context(), control.Slow{Op: args[0], Delay: delay})
		},
	}
}
