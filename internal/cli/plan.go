package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"millwright.io/millwright/internal/engine/budget"
	"millwright.io/millwright/internal/engine/diff"
	"millwright.io/millwright/internal/engine/disruption"
	"millwright.io/millwright/internal/engine/lint"
	"millwright.io/millwright/internal/engine/render"
)

// planFlags are the flags of plan.
type planFlags struct {
	inputs
	without  []string
	exitCode bool
	out      output
	times    estimates
	base     render.Base
}

func planCommand(d Deps) *cobra.Command {
	f := planFlags{times: defaultEstimates()}
	cmd := &cobra.Command{
		Use:   "plan -f FILES",
		Short: "Says what applying manifests would do to nodes and machines",
		Long: `Compares the files with a cluster and says, per pool, the old and the new config,
what every node would have to do and which item forces it, in which order, what
would hold up the drains now, and how long it may take; for MachineSets what is
made, deleted or kept as it is.

The cluster is the one of --context, by default of the current context. With
--from it is read from a directory of manifests or a must-gather. Without both
and without a kubeconfig the files are all there is. Nothing is ever written:
plan only gets and lists.`,
		Example: "  millwright plan -f 99-worker-sysctl.yaml\n  millwright plan -f configs/ --from must-gather/ -o json\n  millwright plan --without 99-worker-sysctl --exit-code",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runPlan(cmd, d, f) },
	}
	f.addFiles(cmd)
	f.addCluster(cmd)
	addOutput(cmd, &f.out)
	fl := cmd.Flags()
	fl.StringArrayVar(&f.without, "without", nil, "plan as if this MachineConfig, or KIND/NAME such as KubeletConfig/x, were deleted; may be repeated")
	fl.BoolVar(&f.exitCode, "exit-code", false, "exit with 3 if something would change")
	fl.DurationVar(&f.times.Reboot, "reboot-time", f.times.Reboot, "what a reboot takes, for the estimate")
	fl.DurationVar(&f.times.Drain, "drain-time", f.times.Drain, "what a drain takes where the pods are not known, for the estimate")
	fl.StringVar(&f.base.OSImageURL, "os-image", "", "OS image of the cluster, where it has no ControllerConfig")
	fl.StringVar(&f.base.BaseOSExtensionsContainerImage, "extensions-image", "", "extensions image of the cluster, where it has no ControllerConfig")
	return cmd
}

func runPlan(cmd *cobra.Command, d Deps, f planFlags) error {
	var ms []manifest
	if len(f.files) > 0 || len(f.without) == 0 {
		var err error
		if ms, err = f.manifests(cmd); err != nil {
			return err
		}
	}
	p := newProgress(cmd.ErrOrStderr())
	before, where, err := f.cluster(cmd.Context(), cmd.InOrStdin(), p, true)
	if err != nil {
		return err
	}
	after := before.copy()
	if err := after.apply(ms); err != nil {
		return err
	}
	for _, name := range f.without {
		if !after.drop(name) {
			return &UsageError{fmt.Sprintf("plan: --without %s: there is no such object; name a MachineConfig, or KIND/NAME of what MachineConfigs are made of", name)}
		}
	}
	generated, refused, err := after.generate(cmd.Context(), d, before)
	if err != nil {
		return err
	}
	pl := planner{before: before, after: after, times: f.times, base: f.base, drains: newDrains(after, time.Now())}
	r := pl.plan(where)
	r.Generated = generated
	if r.Findings, err = lintManifests(ms, after); err != nil {
		return err
	}
	r.Findings = merged(r.Findings, refused)
	if r.MachineSets, err = planSets(cmd.Context(), d, before, after); err != nil {
		return err
	}
	r.Changes = r.changes()
	if err := f.out.print(cmd.OutOrStdout(), r, func(w io.Writer) error { return r.text(w, newPaint(w)) }); err != nil {
		return err
	}
	switch {
	case r.bad():
		return &exitError{ExitFailure}
	case f.exitCode && r.Changes:
		return &exitError{ExitChanges}
	}
	return nil
}

// planSets hands the MachineSets that the files touch to their own code.
func planSets(ctx context.Context, d Deps, before, after *cluster) ([]SetPlan, error) {
	in := SetsInput{Infra: after.infra}
	for _, key := range sortedKeys(after.sets) {
		if after.touched["MachineSet "+key] {
			in.Changes = append(in.Changes, SetChange{Current: before.sets[key], Desired: after.sets[key]})
		}
	}
	if len(in.Changes) == 0 || d.PlanSets == nil {
		return nil, nil
	}
	for _, key := range sortedKeys(after.machines) {
		in.Machines = append(in.Machines, after.machines[key])
	}
	for _, key := range sortedKeys(after.nodes) {
		in.Nodes = append(in.Nodes, after.nodes[key])
	}
	return d.PlanSets(ctx, in)
}

// planner compares two states of one cluster.
type planner struct {
	before, after *cluster
	times         estimates
	base          render.Base
	drains        *drains
	policy        disruption.Policy
}

func (pl *planner) plan(where string) Plan {
	r := Plan{Source: where, Notes: pl.after.notes}
	nodes, notes := pl.after.assign()
	r.Notes = append(r.Notes, notes...)
	pl.policy, notes = pl.after.disruptionPolicy()
	r.Notes = append(r.Notes, notes...)
	for _, name := range pl.after.poolNames() {
		r.Pools = append(r.Pools, pl.pool(name, nodes[name]))
	}
	return r
}

// pool says what happens to one pool.
func (pl *planner) pool(name string, nodes []*corev1.Node) PoolPlan {
	pool, known := pl.after.pool(name)
	p := PoolPlan{Pool: name, Paused: pool.Spec.Paused, Old: pool.Spec.Configuration.Name}
	next, err := pl.after.render(name, pl.base)
	if err != nil {
		p.Error = err.Error()
		return p
	}
	p.New, p.Notes = next.Name, next.notes
	old, origins := pl.old(&p, pool)
	p.Changed = p.New != p.Old
	if !known {
		nodes = nil
	}
	cmp := newComparer(next, origins, pl.policy, pl.after.overrides())
	if p.Changed && old != nil {
		c := cmp.from(p.Old, old)
		p.Items, p.Refused = c.items, c.refused
		p.Action, p.ForcedBy, p.Rule, p.Drains = c.action, c.forcedBy, c.rule, c.drains && pl.draining()
	}
	pl.nodes(&p, pool, nodes, cmp)
	if p.Paused && (p.Changed || p.Waves > 0) {
		p.Notes = append(p.Notes, "the pool is paused: it gets the new target, and its nodes wait until spec.paused is false")
	}
	return p
}

// overrides is which changes that running nodes refuse the cluster allows.
func (c *cluster) overrides() diff.Overrides {
	if c.policy == nil {
		return diff.Overrides{}
	}
	return diff.OverridesOf(c.policy.Spec.IrreconcilableValidationOverrides)
}

// old finds the config that the pool has now: its target, else what the
// configs there are without the files come to. It returns the config, if it is
// known, and who set its items.
func (pl *planner) old(p *PoolPlan, pool *mcfgv1.MachineConfigPool) (*mcfgv1.MachineConfig, []render.Origin) {
	var was rendered
	var err error
	if len(pl.before.configs) > 0 {
		was, err = pl.before.render(p.Pool, pl.base)
	}
	unchanged := was.config != nil && err == nil
	if p.Old == "" {
		if !unchanged {
			return nil, nil
		}
		p.Old = was.Name
		p.Notes = append(p.Notes, "the pool has no target yet; compared with what the present MachineConfigs come to")
		return was.config, was.Origins
	}
	if unchanged && was.Name != p.Old {
		p.Notes = append(p.Notes, fmt.Sprintf("even without the files the pool's configs come to %s and not to its target: it is about to be rendered, or an input is missing here", was.Name))
	}
	if mc := pl.after.configs[p.Old]; mc != nil {
		return mc, was.Origins
	}
	if unchanged && was.Name == p.Old {
		return was.config, was.Origins
	}
	p.Notes = append(p.Notes, fmt.Sprintf("the present config %s is not among the objects, so it is not known what changes", p.Old))
	return nil, was.Origins
}

// draining says whether nodes are drained at all: a cluster of one node has
// nowhere to put its pods.
func (pl *planner) draining() bool {
	return pl.after.infra == nil || pl.after.infra.Status.ControlPlaneTopology != configv1.SingleReplicaTopologyMode
}

// nodes fills in what each node does, in order.
func (pl *planner) nodes(p *PoolPlan, pool *mcfgv1.MachineConfigPool, nodes []*corev1.Node, cmp *comparer) {
	limit, err := budget.PoolMaxUnavailable(pool.Spec.MaxUnavailable, len(nodes))
	if err != nil {
		p.Notes = append(p.Notes, fmt.Sprintf("spec.maxUnavailable: %v; no node would be updated", err))
	}
	p.MaxUnavailable = limit
	for _, n := range nodes {
		p.Nodes = append(p.Nodes, pl.node(p, n, cmp))
	}
	soak := p.waves(pool, nodes, limit, pl.drains.now)
	p.Seconds = int((pl.times.total(p.Nodes) + soak).Seconds())
	held := 0
	for _, n := range p.Nodes {
		if n.State != "" && n.Action == "" {
			held++
		}
	}
	if held >= limit && p.Waves > 0 && err == nil {
		p.Notes = append(p.Notes, fmt.Sprintf("%d nodes are out of service already and use up maxUnavailable %d: nothing else moves until one is back", held, limit))
	}
}

func (pl *planner) node(p *PoolPlan, n *corev1.Node, cmp *comparer) NodePlan {
	out := NodePlan{Node: n.Name, Zone: n.Labels[labelZone], From: n.Annotations[annoCurrent], State: unavailable(n)}
	if out.From == "" {
		out.From = p.Old
	}
	if out.From == p.New && n.Annotations[annoState] != "Degraded" {
		return out
	}
	c := cmp.known[out.From]
	if c == nil {
		mc := pl.after.configs[out.From]
		if mc == nil {
			out.Action = actionUnknown
			return out
		}
		c = cmp.from(out.From, mc)
	}
	out.Action, out.ForcedBy, out.Drains = c.action, c.forcedBy, c.drains && pl.draining()
	took := time.Duration(0)
	if out.Drains {
		s := pl.drains.ask(n.Name)
		out.Blockers = pl.drains.blockers(s)
		took = pl.drains.duration(n.Name, s, pl.times.Drain)
	}
	out.Seconds = int(pl.times.node(out, took).Seconds())
	return out
}

// changes tells whether applying the files changes anything that nodes or
// machines feel.
func (r Plan) changes() bool {
	for _, p := range r.Pools {
		if p.Changed {
			return true
		}
	}
	return len(r.MachineSets) > 0
}

// bad tells whether the files hold something that cannot work.
func (r Plan) bad() bool {
	for _, p := range r.Pools {
		if p.Error != "" || len(p.Refused) > 0 {
			return true
		}
	}
	for _, s := range r.MachineSets {
		if s.Refused {
			return true
		}
	}
	return lint.HasErrors(r.Findings)
}
