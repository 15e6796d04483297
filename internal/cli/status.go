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
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
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
	Pools []PoolReport    `json:"machineConfigPools,omitempty"`
	// Unassigned are nodes in several custom pools, which no pool touches.
	Unassigned []string    `json:"unassignedNodes,omitempty"`
	Sets       []SetReport `json:"machineSets"`
	// Waiting are Machines that are not running, and why.
	Waiting []MachineReport `json:"waiting,omitempty"`

	now time.Time
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
		Short: "Shows pools, machine sets, and nodes and machines on their way with what they wait for",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch && out != "" {
				return &UsageError{"status: -w prints for people; leave out -o"}
			}
			if !watch {
				r, err := report(cmd.Context(), d, dir)
				if err != nil {
					return err
				}
				return out.print(cmd.OutOrStdout(), r, r.table)
			}
			return follow(cmd.Context(), cmd.OutOrStdout(), func(ctx context.Context) (Report, error) { return report(ctx, d, dir) })
		},
	}
	addDir(cmd, &dir)
	addOutput(cmd, &out)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on showing it: a live view on a terminal, else a line for each change")
	return cmd
}

// every is how often a follower looks.
const every = 2 * time.Second

// follow shows reports until ctx ends: on a terminal a screen, elsewhere what
// changed.
func follow(ctx context.Context, w io.Writer, look func(context.Context) (Report, error)) error {
	live := interactive(w)
	if live {
		_, _ = fmt.Fprint(w, "\x1b[2J")
	}
	var told feed
	for {
		r, err := look(ctx)
		if err != nil {
			return err
		}
		if !live {
			told.print(w, r)
		} else if err := r.screen(w); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

func report(ctx context.Context, d Deps, dir string) (Report, error) {
	r := Report{now: time.Now()}
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
	utilruntime.Must(mcfgv1.Install(scheme))
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
	f, err := readFleet(ctx, c)
	if err != nil {
		return err
	}
	if len(f.pools) > 0 {
		r.Pools, r.Unassigned = f.reports(r.now), f.strays
	}
	var sets machinev1beta1.MachineSetList
	err = c.List(ctx, &sets)
	if len(f.pools) > 0 && (meta.IsNoMatchError(err) || apierrors.IsNotFound(err)) {
		return nil // a cluster with pools and without machines
	}
	if err != nil {
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
	r.poolsText(w)
	if len(r.Pools) > 0 && len(r.Sets)+len(r.Waiting) == 0 {
		return nil
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
