// Package agent is the composition root of millwright-agent: it wires one node's
// agent to the machine below a root directory and to the API server. Wiring only; no
// rules.
//
//	millwright-agent start --node-name worker-0 --root-mount /rootfs
package agent

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"millwright.io/millwright/internal/version"
)

// Options are the process's settings.
type Options struct {
	Node           string // name of the own Node
	Root           string // where the host's root is mounted
	Kubeconfig     string // of the agent's own account; empty: the pod's
	NodeKubeconfig string // host path of the kubelet's kubeconfig
	MetricsAddr    string // host:port of /metrics; empty: not served
	Healthz        string // URL of the kubelet's health; empty: not asked
}

// usageError is a mistake in the call: exit code 2.
type usageError struct{ error }

// Command returns the command line of millwright-agent. Flags that the original has
// and that mean nothing here are accepted; those that ask for another way of working
// are refused.
func Command() *cobra.Command {
	root := &cobra.Command{
		Use: "millwright-agent", Short: "Keeps one node's disk as its MachineConfig says", Version: version.Version,
		SilenceUsage: true, SilenceErrors: true,
	}
	root.PersistentFlags().String("payload-version", "", "accepted for compatibility, without effect")
	root.PersistentFlags().IntP("v", "v", 2, "accepted for compatibility, without effect")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(start(), versionCommand())
	return root
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "MachineConfigDaemon %s-%s\n", version.Version, version.Commit)
			return err
		},
	}
}

func start() *cobra.Command {
	var o Options
	var onceFrom, configMap string
	var healthz bool
	cmd := &cobra.Command{
		Use: "start", Short: "Run until the process is ended", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case onceFrom != "":
				return usageError{errors.New("--once-from is not supported: a node takes its config from its Node's desiredConfig; leave the flag out")}
			case configMap != "":
				return usageError{errors.New("--desired-configmap is not supported: nodes of hosted control planes are replaced, not changed; leave the flag out")}
			}
			if o.Node == "" {
				o.Node = os.Getenv("NODE_NAME")
			}
			if o.Node == "" {
				return usageError{errors.New("node-name is required: set --node-name or the variable NODE_NAME")}
			}
			if !healthz {
				o.Healthz = ""
			}
			return Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig file of the agent's account; default: KUBECONFIG, then the pod's account")
	f.StringVar(&o.NodeKubeconfig, "node-kubeconfig", "/var/lib/kubelet/kubeconfig", "kubeconfig, on the host, with which the Node is written; if there is none: the agent's account")
	f.StringVar(&o.Node, "node-name", "", "name of the Node; default: the variable NODE_NAME")
	f.StringVar(&o.Root, "root-mount", "/rootfs", "folder at which the host's root is mounted")
	f.StringVar(&o.MetricsAddr, "metrics-url", "127.0.0.1:8797", "host:port of /metrics; empty: not served")
	f.BoolVar(&healthz, "kubelet-healthz-enabled", true, "ask for the kubelet's health and count failures")
	f.StringVar(&o.Healthz, "kubelet-healthz-endpoint", "http://localhost:10248/healthz", "URL of the kubelet's health")
	f.StringVar(&onceFrom, "once-from", "", "not supported")
	f.StringVar(&configMap, "desired-configmap", "", "not supported")
	f.Bool("skip-reboot", false, "accepted for compatibility; it meant something with --once-from only")
	f.StringSlice("tls-cipher-suites", nil, "accepted for compatibility: metrics are served without TLS")
	f.String("tls-min-version", "", "accepted for compatibility: metrics are served without TLS")
	return cmd
}

// ExitCode maps the result of Command to the process's: 0 fine, 1 failure, 2 wrong
// usage. It prints the error.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "millwright-agent: "+err.Error())
	if errors.As(err, new(usageError)) {
		return 2
	}
	return 1
}
