package cli

import (
	"time"

	"github.com/spf13/cobra"
)

func upCommand(d Deps) *cobra.Command {
	var o UpOptions
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Starts a simulated cluster with its cloud, machines and controllers",
		Long: `Starts a whole world on this machine: etcd and Kubernetes, a simulated Azure,
machines that boot and join, and Millwright's controllers as pods. It needs no
root, no container runtime and no account. Without --detach it stays and stops
the world when it is interrupted.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return d.Up(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	addDir(cmd, &o.Dir)
	f := cmd.Flags()
	f.BoolVar(&o.Detach, "detach", false, "return when ready and leave the world running")
	f.IntVar(&o.Workers, "workers", 3, "worker nodes at the first start")
	f.StringVar(&o.Machines, "machines", "rooted", "kind of machines: rooted, nspawn or hollow")
	f.DurationVar(&o.BootDelay, "boot-delay", 5*time.Second, "from power on to a machine's first service")
	f.DurationVar(&o.VMDelay, "vm-delay", time.Second, "what the simulated cloud needs to provision a VM")
	f.DurationVar(&o.NodeClientDelay, "node-client-delay", 20*time.Second, "from joining to the node components' certificate requests")
	f.StringArrayVar(&o.Admission, "admission", nil, "RULE=MODE with mode enforce, warn or off; may be repeated")
	f.BoolVar(&o.Audit, "audit", false, "write the API server's audit log to logs/audit.log")
	f.StringVar(&o.Devplane, "devplane-source", "", "folder of the control plane's sources, if it must be built; default: those of the checkout it was built in, else searched upwards")
	return cmd
}

func downCommand(d Deps) *cobra.Command {
	var dir string
	var purge bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stops a simulated cluster",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return d.Down(cmd.Context(), dir, purge, cmd.ErrOrStderr())
		},
	}
	addDir(cmd, &dir)
	cmd.Flags().BoolVar(&purge, "purge", false, "remove its state as well")
	return cmd
}
