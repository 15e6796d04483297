package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/engine/diff"
	"millwright.io/millwright/internal/engine/node"
	"millwright.io/millwright/internal/engine/render"
)

func adoptCommand(d Deps) *cobra.Command {
	var f clusterFlags
	var files []string
	cmd := &cobra.Command{
		Use:   "adopt POOL -f FILE",
		Short: "Makes changes that were made by hand official, without a reboot",
		Long: `Takes over what somebody changed by hand on every node of a pool. FILE holds the
MachineConfigs that describe the changes, and perhaps the rendered one that they
make; without it, it is rendered here. Every node's agent is asked first whether its disk
agrees with the result: where one item of one node differs, nothing is done. Then
the pool is paused, each agent takes the new name, the MachineConfigs are
written, the pool is pointed to the result and goes on. No node drains or reboots.`,
		Example: "  millwright adopt worker -f 99-by-hand.yaml\n  millwright adopt worker -f 99-by-hand.yaml -f rendered-worker.yaml --yes",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if slices.Contains(files, "-") && !f.yes {
				return &UsageError{"adopt: with -f - there is no way to ask; add --yes"}
			}
			in := inputs{files: files}
			ms, err := in.manifests(cmd)
			if err != nil {
				return err
			}
			o, err := f.operator(cmd, d)
			if err != nil {
				return err
			}
			a, err := o.adoption(cmd.Context(), args[0], ms)
			if err != nil {
				return err
			}
			return o.adopt(cmd.Context(), a, func() bool {
				return f.yes || agreed(cmd.InOrStdin(), cmd.ErrOrStderr())
			}, cmd.OutOrStdout())
		},
	}
	f.add(cmd)
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "file or directory with the MachineConfigs, - for standard input; may be repeated")
	return cmd
}

// adoption is what is to be made official.
type adoption struct {
	pool      *mcfgv1.MachineConfigPool
	before    *mcfgv1.MachineConfig // the pool's config now; nil: it is gone
	after     rendered              // what it becomes
	fragments []*mcfgv1.MachineConfig
	nodes     []string
	created   bool // the rendered config is ours and nobody needs it yet
}

// adoption reads the pool and what the files make of it. It writes nothing but a
// dry run.
func (o *operator) adoption(ctx context.Context, name string, ms []manifest) (*adoption, error) {
	c := newCluster()
	for _, l := range []client.ObjectList{&mcfgv1.MachineConfigPoolList{}, &mcfgv1.MachineConfigList{}, &mcfgv1.ControllerConfigList{}, &mcfgv1.OSImageStreamList{}} {
		if err := c.loadKind(ctx, o, l); err != nil {
			return nil, err
		}
	}
	pool := c.pools[name]
	if pool == nil {
		return nil, fmt.Errorf("there is no MachineConfigPool %s; known are %s", name, strings.Join(sortedKeys(c.pools), ", "))
	}
	was := c.copy()
	a := &adoption{pool: pool, before: c.configs[pool.Spec.Configuration.Name]}
	given, err := a.take(c, ms)
	if err != nil {
		return nil, err
	}
	if a.after, err = c.render(name, render.Base{}); err != nil {
		return nil, err
	}
	if given != nil {
		if err := sameRendered(name, given, a.after); err != nil {
			return nil, err
		}
	}
	if err := a.alone(was, c); err != nil {
		return nil, err
	}
	for _, mc := range a.fragments {
		if err := o.put(ctx, mc, client.DryRunAll); err != nil {
			return nil, err
		}
	}
	return a, o.members(ctx, a)
}

// take puts the files' MachineConfigs over the cluster's. It returns the rendered one
// among them, if there is one.
func (a *adoption) take(c *cluster, ms []manifest) (*mcfgv1.MachineConfig, error) {
	var given *mcfgv1.MachineConfig
	var fragments []manifest
	for _, m := range ms {
		if !m.is(groupMachineConfig, "MachineConfig") {
			return nil, &UsageError{fmt.Sprintf("adopt: %s: %s: want MachineConfigs of %s/v1 only", m.Source, m.object(), groupMachineConfig)}
		}
		mc, err := m.machineConfig()
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(mc.Name, renderedPrefix) {
			if given != nil {
				return nil, &UsageError{fmt.Sprintf("adopt: %s and %s: want one rendered MachineConfig at most", given.Name, mc.Name)}
			}
			given = mc
			continue
		}
		fragments, a.fragments = append(fragments, m), append(a.fragments, mc)
	}
	if err := c.apply(fragments); err != nil {
		return nil, err
	}
	selected, err := c.selected(a.pool)
	if err != nil {
		return nil, err
	}
	for _, mc := range a.fragments {
		if !slices.ContainsFunc(selected, func(s *mcfgv1.MachineConfig) bool { return s.Name == mc.Name }) {
			return nil, fmt.Errorf("MachineConfig %s: metadata.labels: pool %s does not select it; set %s: %s", mc.Name, a.pool.Name, labelRole, a.pool.Name)
		}
	}
	return given, nil
}

// sameRendered refuses a rendered config that the controller would take back.
func sameRendered(pool string, given *mcfgv1.MachineConfig, own rendered) error {
	name, _, err := render.Hash(pool, given.Spec)
	switch {
	case err != nil:
		return fmt.Errorf("MachineConfig %s: %w", given.Name, err)
	case name != given.Name:
		return fmt.Errorf("MachineConfig %s: metadata.name: its content has the name %s; use that, or correct the content", given.Name, name)
	case name == own.Name:
		return nil
	}
	text := fmt.Sprintf("MachineConfig %s: pool %s renders to %s, so its controller would take this one back; add the MachineConfig that holds the changes with -f", given.Name, pool, own.Name)
	d, err := diff.Compute(own.Spec, given.Spec)
	if err != nil {
		return errors.New(text)
	}
	for _, c := range d.Changes {
		text += "\n  " + c.Label()
	}
	return errors.New(text)
}

// alone refuses fragments that would roll out to another pool's nodes meanwhile.
func (a *adoption) alone(was, is *cluster) error {
	for _, name := range sortedKeys(is.pools) {
		p := is.pools[name]
		if name == a.pool.Name || p.Spec.Paused || p.Status.MachineCount == 0 {
			continue
		}
		before, errBefore := was.render(name, render.Base{})
		after, errAfter := is.render(name, render.Base{})
		if errBefore == nil && errAfter == nil && before.Name != after.Name {
			return fmt.Errorf("pool %s selects these MachineConfigs, too, and would roll out %s to its %s: pause it and adopt it next, or label the MachineConfigs for pool %s alone",
				name, after.Name, plural(int(p.Status.MachineCount), "node"), a.pool.Name)
		}
	}
	return nil
}

// members finds the pool's nodes and refuses those that are on their way.
func (o *operator) members(ctx context.Context, a *adoption) error {
	f, err := readFleet(ctx, o)
	if err != nil {
		return err
	}
	var busy []string
	for _, n := range f.byPool[a.pool.Name] {
		a.nodes = append(a.nodes, n.Name)
		switch r := nodeReport(n, nil, a.pool.Spec.Configuration.Name); r.Step {
		case StepDone, StepQueued, StepBroken, StepOutOfOrder:
		default:
			busy = append(busy, fmt.Sprintf("node %s is %s, waits for %s", n.Name, r.Step, or(r.WaitsFor, "its agent")))
		}
	}
	if len(busy) > 0 {
		return fmt.Errorf("pool %s is at work; pause it, wait until its nodes are done, and adopt then:\n  %s", a.pool.Name, strings.Join(busy, "\n  "))
	}
	return nil
}

// adopt checks every disk, shows what it found, asks, and makes it official.
func (o *operator) adopt(ctx context.Context, a *adoption, agree func() bool, w io.Writer) error {
	a.text(w)
	if err := o.create(ctx, a); err != nil {
		return err
	}
	differ, err := o.compare(ctx, a, w)
	switch {
	case err != nil:
	case differ > 0:
		err = fmt.Errorf("nothing is adopted: %d of %s differ from %s", differ, plural(len(a.nodes), "node"), a.after.Name)
	case !agree():
		err = errors.New("nothing was done")
	default:
		return o.official(ctx, a)
	}
	return errors.Join(err, o.forget(context.WithoutCancel(ctx), a))
}

// text shows what the pool's config becomes.
func (a *adoption) text(w io.Writer) {
	old := or(a.pool.Spec.Configuration.Name, "nothing")
	if old == a.after.Name {
		_, _ = fmt.Fprintf(w, "pool %s has %s already\n", a.pool.Name, old)
		return
	}
	_, _ = fmt.Fprintf(w, "pool %s: %s in place of %s\n", a.pool.Name, a.after.Name, old)
	if a.before == nil {
		return
	}
	if d, err := diff.Compute(a.before.Spec, a.after.Spec); err == nil {
		_ = diff.Text(w, d)
	}
}

// compare asks every agent, node by node, and tells each one's answer. It returns how
// many disks differ.
func (o *operator) compare(ctx context.Context, a *adoption, w io.Writer) (int, error) {
	differ := 0
	for _, name := range a.nodes {
		v, err := o.verify(ctx, name, a.after.Name)
		if err != nil {
			return differ, err
		}
		list := v.reasons()
		if len(list) == 0 {
			_, _ = fmt.Fprintf(w, "node %s: agrees\n", name)
			continue
		}
		differ++
		_, _ = fmt.Fprintf(w, "node %s: differs\n  %s\n", name, strings.Join(list, "\n  "))
	}
	return differ, nil
}

// official makes the agents take the name, and then the pool.
func (o *operator) official(ctx context.Context, a *adoption) error {
	if err := o.pause(ctx, a); err != nil {
		return errors.Join(err, o.forget(context.WithoutCancel(ctx), a))
	}
	var taken []string
	for _, name := range a.nodes {
		if err := o.adoptNode(ctx, name, a.after.Name); err != nil {
			return o.half(a, taken, err)
		}
		taken = append(taken, name)
		o.say("node %s: %s", name, a.after.Name)
	}
	for _, mc := range a.fragments {
		if err := o.put(ctx, mc); err != nil {
			return o.half(a, taken, err)
		}
		o.say("MachineConfig %s: written", mc.Name)
	}
	if err := o.point(ctx, a); err != nil {
		return o.half(a, taken, err)
	}
	o.say("pool %s: adopted %s; no node rebooted", a.pool.Name, a.after.Name)
	return nil
}

// half says how to go on from the middle: the pool is paused, so no node moves.
func (o *operator) half(a *adoption, taken []string, err error) error {
	if len(taken) == 0 {
		return fmt.Errorf("%w; no node has taken %s; pool %s stays paused: run adopt again, or set spec.paused to %t", err, a.after.Name, a.pool.Name, pausedByOthers(a.pool))
	}
	return fmt.Errorf("%w; pool %s stays paused, so that nodes %s, which have taken %s, do not go back: mend this and run adopt again",
		err, a.pool.Name, strings.Join(taken, ", "), a.after.Name)
}

// adoptNode has an agent call its disk by another name.
func (o *operator) adoptNode(ctx context.Context, name, config string) error {
	if err := o.annotate(ctx, name, map[string]*string{node.AdoptRequest: &config}); err != nil {
		return err
	}
	n, err := o.settle(ctx, name, config)
	if err != nil {
		return errors.Join(err, o.annotate(context.WithoutCancel(ctx), name, map[string]*string{node.AdoptRequest: nil}))
	}
	if n.Annotations[node.CurrentConfig] != config {
		v, verifyErr := o.verify(ctx, name, config)
		if verifyErr != nil {
			return fmt.Errorf("node %s did not take %s: %w", name, config, verifyErr)
		}
		return fmt.Errorf("node %s did not take %s: %s", name, config, or(strings.Join(v.reasons(), "; "), "see the log of its pod machine-config-daemon"))
	}
	return nil
}
