package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/engine/diff"
	"millwright.io/millwright/internal/engine/disruption"
	"millwright.io/millwright/internal/engine/node"
	"millwright.io/millwright/internal/engine/render"
	"millwright.io/millwright/internal/engine/rollout"
	"millwright.io/millwright/internal/engine/transition"
)

// clusterFlags choose the cluster that a command changes.
type clusterFlags struct {
	kubeconfig, context string
	yes                 bool
	answers, limit      time.Duration
}

func (f *clusterFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.context, "context", "", "kubeconfig context of the cluster")
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file; default: KUBECONFIG, else ~/.kube/config")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do not ask")
	cmd.Flags().DurationVar(&f.answers, "answer-timeout", 30*time.Second, "how long an agent may take to tell what differs")
	cmd.Flags().DurationVar(&f.limit, "timeout", 30*time.Minute, "how long to wait for a node")
	_ = cmd.RegisterFlagCompletionFunc("context", completeContext)
}

func (f *clusterFlags) operator(cmd *cobra.Command, d Deps) (*operator, error) {
	c, err := d.Client(f.kubeconfig, f.context)
	if err != nil {
		return nil, err
	}
	return &operator{Client: c, out: cmd.ErrOrStderr(), answers: f.answers, limit: f.limit}, nil
}

func recoverCommand(d Deps) *cobra.Command {
	var f clusterFlags
	cmd := &cobra.Command{
		Use:   "recover NODE",
		Short: "Brings a degraded node back, showing first what it will do",
		Long: `Asks the node's agent how its disk differs from the config that the node's pool
wants, shows that and what will be done about it, asks, and does it: the desired
config is set back to the pool's, the agent writes every item that differs, once,
whatever was tried before, and reboots only for what nothing else makes true. A
cordon that machine-config-controller left behind is taken away; somebody else's
stays. Where only a person can help, it says what to do.`,
		Example: "  millwright recover worker-1\n  millwright recover worker-1 --yes --timeout 10m",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := f.operator(cmd, d)
			if err != nil {
				return err
			}
			r, err := o.diagnose(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			r.text(cmd.OutOrStdout(), newPaint(cmd.OutOrStdout()))
			switch {
			case r.Refused != "":
				return &exitError{ExitFailure}
			case !r.acts():
				return nil
			case !f.yes && !agreed(cmd.InOrStdin(), cmd.ErrOrStderr()):
				_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "Nothing was done.")
				return &exitError{ExitFailure}
			}
			return o.recover(cmd.Context(), r)
		},
	}
	f.add(cmd)
	return cmd
}

// Recovery is what is wrong with a node, and what will be done about it.
type Recovery struct {
	Node, Pool, State, Reason string
	Current, Desired          string
	Goal                      string   // the config that it shall have
	Differs                   []string // from the goal, on its disk
	Steps                     []string // what will be done
	Person                    string   // what only a person can do, if anything
	// Refused is why nothing can be done.
	Refused string

	ask, uncordon bool // ask the agent; take our own cordon away afterwards
}

func (r *Recovery) acts() bool { return r.ask || r.uncordon }

// diagnose looks at a node and everything that its way back depends on.
func (o *operator) diagnose(ctx context.Context, name string) (*Recovery, error) {
	n, err := o.node(ctx, name)
	if err != nil {
		return nil, err
	}
	f, err := readFleet(ctx, o)
	if err != nil {
		return nil, err
	}
	a := n.Annotations
	r := &Recovery{Node: name, State: a[node.State], Reason: a[node.Reason], Current: a[node.CurrentConfig], Desired: a[node.DesiredConfig]}
	pool := f.poolOfNode(name)
	if pool == nil {
		r.Refused = "no pool selects it: give it the label of one"
		for _, s := range f.strays {
			if strings.HasPrefix(s, "node "+name+": ") {
				r.Refused = strings.TrimPrefix(s, "node "+name+": ") + ": remove all but one of the custom pools' labels from the node"
			}
		}
		return r, nil
	}
	r.Pool, r.Goal = pool.Name, recoveryGoal(pool, r)
	if r.Refused = r.waits(nodeReport(n, f.records[name], r.Goal)); r.Refused != "" {
		return r, nil
	}
	goal, err := o.config(ctx, r.Goal)
	if err != nil {
		return nil, err
	}
	if goal == nil {
		r.Refused = fmt.Sprintf("MachineConfig %s, which pool %s wants, does not exist: let machine-config-controller run, which makes it again, or create it from currentconfig of a node that has it", r.Goal, pool.Name)
		return r, nil
	}
	if adv := adviceFor(r.Reason); adv != nil {
		r.Person = adv.do
		if adv.never && r.Desired == r.Goal {
			r.Refused = "another try cannot help"
			return r, nil
		}
	}
	v, err := o.verify(ctx, name, r.Goal)
	if err != nil {
		return nil, err
	}
	r.Differs = v.reasons()
	from, err := o.config(ctx, r.Desired)
	if err != nil {
		return nil, err
	}
	r.plan(n, v, from, goal)
	return r, nil
}

// recoveryGoal is the config that a node shall have: its pool's, but a paused pool
// keeps what its nodes agreed on last.
func recoveryGoal(p *mcfgv1.MachineConfigPool, r *Recovery) string {
	record, err := rollout.DecodeRecord(p.Annotations[annoRolloutState])
	if err != nil {
		record = rollout.Record{}
	}
	goal := goalOf(p, record)
	settled := p.Status.Configuration.Name
	if p.Spec.Paused && r.Desired != goal && settled != "" {
		return settled
	}
	return goal
}

// waits says what ends by itself, or by a person only.
func (r *Recovery) waits(n PoolNodeReport) string {
	switch n.Step {
	case StepNoAgent:
		return fmt.Sprintf("its agent has not said anything yet: look at its pod machine-config-daemon in %s, and at the machine's console", namespaceMCO)
	case StepRebooting:
		return "it is rebooting: wait; if it does not come back, restart it from its console"
	case StepDraining:
		if n.WaitsFor != "" && r.Desired == r.Goal {
			return "it is being drained and waits for " + n.WaitsFor + ": free that, and it goes on by itself; do not uncordon it"
		}
	}
	return ""
}

// config reads a MachineConfig; nil: there is none.
func (o *operator) config(ctx context.Context, name string) (*mcfgv1.MachineConfig, error) {
	var mc mcfgv1.MachineConfig
	err := o.Get(ctx, client.ObjectKey{Name: name}, &mc)
	if apierrors.IsNotFound(err) || name == "" {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read MachineConfig %s: %w", name, err)
	}
	return &mc, nil
}

// plan fills in what will be done.
func (r *Recovery) plan(n *corev1.Node, v verdict, from, goal *mcfgv1.MachineConfig) {
	a := n.Annotations
	add := func(format string, args ...any) { r.Steps = append(r.Steps, fmt.Sprintf(format, args...)) }
	done := r.State == node.Done && r.Current == r.Goal && r.Desired == r.Goal
	ours := n.Spec.Unschedulable && rollout.OwnCordon(a[annoCordonedBy], a[node.LastAppliedDrain])
	if !done || len(r.Differs) > 0 {
		r.ask = true
		if r.Desired != r.Goal {
			add("set desiredConfig back from %s to %s", r.Desired, r.Goal)
		}
		add("%s", r.work(v, from, goal))
	}
	switch {
	case ours:
		r.uncordon = true
		add("uncordon it, unless machine-config-controller does so first")
	case n.Spec.Unschedulable:
		add("keep it cordoned: that is somebody else's; kubectl uncordon %s when they agree", r.Node)
	}
}

// work says what the agent will do.
func (r *Recovery) work(v verdict, from, goal *mcfgv1.MachineConfig) string {
	staged := slices.ContainsFunc(v.Differences, func(d transition.Difference) bool {
		return d.Kind == render.KindOSImage || d.Kind == render.KindKernelArgument
	})
	switch {
	case r.Desired != r.Goal && from == nil:
		return "let its agent write every item of " + r.Goal + ", drain it and reboot it: what it has is not known"
	case staged:
		return "let its agent stage what differs once more, drain it and reboot it"
	case r.Desired != r.Goal:
		if actions := actionsBetween(from, goal); actions != "" {
			return "let its agent take " + r.Goal + "; the change needs: " + actions
		}
	case len(r.Differs) > 0:
		return "let its agent write what differs, without a reboot"
	}
	return "let its agent try " + r.Goal + " again, with the actions that the change needs"
}

// actionsBetween are the actions of a change; empty: they cannot be told.
func actionsBetween(from, to *mcfgv1.MachineConfig) string {
	d, err := diff.Compute(from.Spec, to.Spec)
	if err != nil {
		return ""
	}
	decision := disruption.Decide(d.Changes, disruption.Defaults())
	texts := make([]string, 0, len(decision.Actions))
	for _, a := range decision.Actions {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ", ")
}

func (r *Recovery) text(w io.Writer, p paint) {
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	state := r.State
	if state == "" {
		state = "not known to any agent"
	}
	pool := ""
	if r.Pool != "" {
		pool = " of pool " + r.Pool
	}
	line("node %s%s: %s", p.bold(r.Node), pool, state)
	if r.Reason != "" {
		line("  it says: %s", strings.ReplaceAll(r.Reason, "\n", "\n    "))
	}
	if r.Goal != "" {
		line("  it has %s, was asked for %s, shall have %s", or(r.Current, "no config"), or(r.Desired, "none"), r.Goal)
	}
	for _, d := range r.Differs {
		line("  its disk: %s", d)
	}
	if r.Person != "" {
		line("%s %s", p.yellow("you:"), r.Person)
	}
	if r.Refused != "" {
		line("%s %s", p.red("nothing is done:"), r.Refused)
		return
	}
	for i, s := range r.Steps {
		line("%d. %s", i+1, s)
	}
	if !r.acts() {
		line("There is nothing to recover.")
	}
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// recover does what was shown, and waits for how it ends.
func (o *operator) recover(ctx context.Context, r *Recovery) error {
	if r.ask {
		set := map[string]*string{node.RecoverRequest: &r.Goal}
		if r.Desired != r.Goal {
			set[node.DesiredConfig], set[mcPrefix+"desiredImage"] = &r.Goal, nil
		}
		if err := o.annotate(ctx, r.Node, set); err != nil {
			return err
		}
		n, err := o.settle(ctx, r.Node, r.Goal)
		if err != nil {
			return err
		}
		if a := n.Annotations; a[node.State] != node.Done || a[node.CurrentConfig] != r.Goal {
			text := fmt.Sprintf("node %s: still %s: %s", r.Node, a[node.State], or(a[node.Reason], "it was sent "+a[node.DesiredConfig]+" meanwhile"))
			if adv := adviceFor(a[node.Reason]); adv != nil {
				text += "; you: " + adv.do
			}
			return fmt.Errorf("%s", text)
		}
	}
	if r.uncordon {
		if err := o.uncordon(ctx, r.Node); err != nil {
			return err
		}
	}
	o.say("node %s: done, %s", r.Node, r.Goal)
	return nil
}

// uncordon takes a cordon of our own away that nobody is about to take away.
func (o *operator) uncordon(ctx context.Context, name string) error {
	n, err := o.node(ctx, name)
	if err != nil {
		return err
	}
	a := n.Annotations
	if !n.Spec.Unschedulable || !rollout.OwnCordon(a[annoCordonedBy], a[node.LastAppliedDrain]) {
		return nil
	}
	return o.patchNode(ctx, name, map[string]any{"spec": map[string]any{"unschedulable": nil}})
}
