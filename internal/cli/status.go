package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/sim/control"
)

// Report is what status answers.
type Report struct {
	// World is the simulated cluster of the directory; nil: there is none,
	// and the sets are those of KUBECONFIG.
	World *control.Status `json:"world,omitempty"`
	Sets  []SetReport     `json:"machineSets"`
	// Waiting are Machines that are not running, and why.
	Waiting []MachineReport `json:"waiting,omitempty"`
}

// SetReport is one MachineSet.
type SetReport struct {
	Name      string `json:"name"`
	Desired   int32  `json:"desired"`
	Current   int32  `json:"current"`
	Ready     int32  `json:"ready"`
	Available int32  `json:"available"`
}

// MachineReport is one Machine on its way.
type MachineReport struct {
	Name   string `json:"name"`
	Phase  string `json:"phase"`
	Reason string `json:"reason,omitempty"`
}

func statusCommand(d Deps) *cobra.Command {
	var dir string
	var out output
	var watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Shows machine sets, and machines on their way with what they wait for",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch && out != "" {
				return &UsageError{"status: -w prints for people; leave out -o"}
			}
			for {
				r, err := report(cmd.Context(), d, dir)
				if err != nil {
					return err
				}
				if watch && interactive(cmd.OutOrStdout()) {
					_, _ = fmt.Fprint(cmd.OutOrStdout(), "\x1b[H\x1b[2J")
				}
				if err := out.print(cmd.OutOrStdout(), r, r.table); err != nil || !watch {
					return err
				}
				select {
				case <-cmd.Context().Done():
					return nil
				case <-time.After(2 * time.Second):
				}
			}
		},
	}
	addDir(cmd, &dir)
	addOutput(cmd, &out)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again every 2 s")
	return cmd
}

func report(ctx context.Context, d Deps, dir string) (Report, error) {
	var r Report
	kubeconfig := ""
	socket, err := d.Socket(dir)
	if err != nil {
		return r, err
	}
	s, err := control.NewClient(socket).Ping(ctx)
	switch {
	case err == nil:
		r.World, kubeconfig = &s, s.Kubeconfig
		if s.APIServer == "" {
			return r, nil
		}
	case !errors.Is(err, control.ErrNoWorld):
		return r, err
	case os.Getenv("KUBECONFIG") == "":
		return r, fmt.Errorf("no world is running in %s and KUBECONFIG is not set: start one with `millwright up`, or point KUBECONFIG to a cluster", dir)
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return r, fmt.Errorf("read kubeconfig: %w", err)
	}
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(machinev1beta1.Install(scheme))
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return r, fmt.Errorf("make client: %w", err)
	}
	if err := r.fill(ctx, c); err != nil {
		if r.World == nil {
			return r, fmt.Errorf("no world is running in %s, and the cluster of KUBECONFIG: %w; start one with `millwright up --dir %s`", dir, err, dir)
		}
		return r, err
	}
	return r, nil
}

func (r *Report) fill(ctx context.Context, c client.Reader) error {
	var sets machinev1beta1.MachineSetList
	if err := c.List(ctx, &sets); err != nil {
		return fmt.Errorf("list machine sets: %w", err)
	}
	for _, s := range sets.Items {
		want := int32(0)
		if s.Spec.Replicas != nil {
			want = *s.Spec.Replicas
		}
		r.Sets = append(r.Sets, SetReport{s.Name, want, s.Status.Replicas, s.Status.ReadyReplicas, s.Status.AvailableReplicas})
	}
	var machines machinev1beta1.MachineList
	if err := c.List(ctx, &machines); err != nil {
		return fmt.Errorf("list machines: %w", err)
	}
	for _, m := range machines.Items {
		phase := ""
		if m.Status.Phase != nil {
			phase = *m.Status.Phase
		}
		if phase != "Running" {
			r.Waiting = append(r.Waiting, MachineReport{m.Name, phase, reason(m)})
		}
	}
	return nil
}

// reason is what a Machine itself says it waits for.
func reason(m machinev1beta1.Machine) string {
	if m.Status.ErrorMessage != nil && *m.Status.ErrorMessage != "" {
		return *m.Status.ErrorMessage
	}
	for _, c := range m.Status.Conditions {
		if c.Status == "False" && c.Message != "" {
			return c.Message
		}
	}
	if m.Status.Phase != nil && *m.Status.Phase == "Provisioned" {
		return "the instance exists and has not joined the cluster yet"
	}
	return ""
}

func (r Report) table(w io.Writer) error {
	if r.World != nil {
		_, _ = fmt.Fprintf(w, "world %d in %s: %s", r.World.World, r.World.Dir, r.World.Phase)
		if r.World.Message != "" {
			_, _ = fmt.Fprintf(w, ", waiting for %s", r.World.Message)
		}
		_, _ = fmt.Fprintf(w, " (pid %d, cluster %s, %s)\n\n", r.World.PID, r.World.InfraID, r.World.APIServer)
	}
	t := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	_, _ = fmt.Fprintln(t, "MACHINESET\tDESIRED\tCURRENT\tREADY\tAVAILABLE")
	for _, s := range r.Sets {
		_, _ = fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\n", s.Name, s.Desired, s.Current, s.Ready, s.Available)
	}
	if err := t.Flush(); err != nil || len(r.Waiting) == 0 {
		return err
	}
	_, _ = fmt.Fprintln(w)
	t = tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	_, _ = fmt.Fprintln(t, "MACHINE\tPHASE\tWAITS FOR")
	for _, m := range r.Waiting {
		first, _, _ := strings.Cut(m.Reason, "\n")
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\n", m.Name, m.Phase, first)
	}
	return t.Flush()
}
