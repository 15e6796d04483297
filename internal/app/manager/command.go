package manager

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"millwright.io/millwright/internal/version"
)

// Command returns the command line of millwright-manager. Flags that the
// originals have and that mean nothing here are accepted.
func Command() *cobra.Command {
	var o Options
	var kubeconfig string
	cmd := &cobra.Command{
		Use:           "millwright-manager --controllers=NAME[,NAME...]",
		Short:         "Runs Millwright's controllers and admission",
		Version:       version.Version,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			rules := clientcmd.NewDefaultClientConfigLoadingRules()
			rules.ExplicitPath = kubeconfig
			cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
			if err != nil {
				return fmt.Errorf("read kubeconfig: %w; set --kubeconfig or KUBECONFIG, or run in a pod", err)
			}
			return Run(cmd.Context(), cfg, o)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Controllers, "controllers", nil, "controllers to run; known are listed when one is not")
	f.StringVar(&o.Namespace, "namespace", "", "namespace of Leases and of the components' own objects")
	f.BoolVar(&o.LeaderElect, "leader-elect", false, "run only while holding the Lease")
	f.StringVar(&o.LeaseName, "leader-elect-resource-name", "", "name of the Lease; default: the one its users know")
	f.StringVar(&o.HealthAddr, "health-addr", "", "host:port of /healthz and /readyz; empty: not served")
	f.StringVar(&o.MetricsAddr, "metrics-bind-address", "", "host:port of /metrics; empty: not served")
	f.StringVar(&o.WebhookAddr, "webhook-addr", "", "host:port of admission, with --controllers=webhook")
	f.StringArrayVar(&o.Admission, "admission", nil, "RULE=MODE, mode enforce, warn or off; may be repeated")
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file; default: KUBECONFIG, then the pod's account")
	f.IntVarP(&o.Verbosity, "v", "v", 3, "log verbosity; 3 is the usual one, 4 adds decisions, 5 requests")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &UsageError{err.Error()} })
	return cmd
}

// ExitCode maps the result of Command to the process's: 0 fine, 1 failure, 2
// wrong usage. It prints the error.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "millwright-manager: "+err.Error())
	var usage *UsageError
	if errors.As(err, &usage) {
		return 2
	}
	return 1
}
