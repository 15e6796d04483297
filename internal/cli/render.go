package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"millwright.io/millwright/internal/engine/render"
)

func renderCommand(d Deps) *cobra.Command {
	var in inputs
	var pool string
	var explain bool
	var base render.Base
	out := renderOutput("yaml")
	cmd := &cobra.Command{
		Use:   "render -f FILES --pool POOL",
		Short: "Renders the MachineConfig of a pool",
		Long: `Merges the MachineConfigs that the pool selects into the rendered one, with the
name and the content that a cluster would give it. Everything that enters must be
in the files or, with --from or --context, in the cluster they show: the base
configs a cluster makes itself (00-…, 01-…) and its ControllerConfig too. What it
makes of KubeletConfigs, mirrors and other settings in the files is made here. Without a
MachineConfigPool in the files the pool selects by role as usual.`,
		Example: "  millwright render -f configs/ --pool worker -o name\n  millwright render -f 99-mine.yaml --from must-gather/ --pool worker --explain",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if pool == "" {
				return &UsageError{"render: name the pool with --pool, e.g. --pool worker"}
			}
			ms, err := in.manifests(cmd)
			if err != nil {
				return err
			}
			c, _, err := in.cluster(cmd.Context(), cmd.InOrStdin(), newProgress(cmd.ErrOrStderr()), false)
			if err != nil {
				return err
			}
			before := c.copy()
			if err := c.apply(ms); err != nil {
				return err
			}
			_, refused, err := c.generate(cmd.Context(), d, before)
			if err != nil {
				return err
			}
			for _, f := range refused {
				c.notes = append(c.notes, f.Object+": "+f.Why)
			}
			r, err := c.render(pool, base)
			if err != nil {
				return err
			}
			for _, n := range append(c.notes, r.notes...) {
				_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "note: "+n)
			}
			if explain {
				return r.explain(cmd.OutOrStdout())
			}
			return r.print(cmd.OutOrStdout(), out)
		},
	}
	in.addFiles(cmd)
	in.addCluster(cmd)
	cmd.Flags().StringVar(&pool, "pool", "", "name of the MachineConfigPool")
	cmd.Flags().VarP(&out, "output", "o", "yaml, json or name")
	cmd.Flags().BoolVar(&explain, "explain", false, "list every item with the MachineConfig that set it and those it overrode")
	cmd.Flags().StringVar(&base.OSImageURL, "os-image", "", "OS image of the cluster; default: that of the ControllerConfig")
	cmd.Flags().StringVar(&base.BaseOSExtensionsContainerImage, "extensions-image", "", "extensions image of the cluster; default: that of the ControllerConfig")
	return cmd
}

// renderOutput is the value of render's -o.
type renderOutput string

func (o *renderOutput) String() string { return string(*o) }
func (o *renderOutput) Type() string   { return "format" }

// Set implements pflag.Value.
func (o *renderOutput) Set(s string) error {
	switch s {
	case "yaml", "json", "name":
		*o = renderOutput(s)
		return nil
	}
	return errors.New("want yaml, json or name")
}

// rendered is a rendered config and how it came about.
type rendered struct {
	render.Result
	config *mcfgv1.MachineConfig
	notes  []string
}

// render merges a pool's configs; base fills what flags gave.
func (c *cluster) render(name string, base render.Base) (rendered, error) {
	var r rendered
	pool, known := c.pool(name)
	if !known {
		if len(c.pools) > 0 {
			return r, fmt.Errorf("there is no MachineConfigPool %s; known are %s", name, strings.Join(sortedKeys(c.pools), ", "))
		}
		r.notes = append(r.notes, fmt.Sprintf("MachineConfigPool %s is not among the objects; assumed that it selects %s", name, metav1.FormatLabelSelector(pool.Spec.MachineConfigSelector)))
	}
	mcs, err := c.selected(pool)
	if err != nil {
		return r, err
	}
	if len(mcs) == 0 {
		return r, fmt.Errorf("no MachineConfigs found matching selector %s of MachineConfigPool %s", metav1.FormatLabelSelector(pool.Spec.MachineConfigSelector), name)
	}
	fragments := make([]render.Fragment, len(mcs))
	for i, mc := range mcs {
		fragments[i] = render.FromMachineConfig(mc)
	}
	base, note := c.base(pool, base)
	if note != "" {
		r.notes = append(r.notes, note)
	}
	if base, err = c.followed(pool, base); err != nil {
		return r, err
	}
	if c.controller != nil && ordersByName(c.controller.Annotations[annoRelease]) {
		base.ByName = true
		r.notes = append(r.notes, fmt.Sprintf("release %s merges by name alone: a worker's config may beat the pool's own", c.controller.Annotations[annoRelease]))
	}
	r.Result, err = render.Render(render.Pool{Name: name, Selector: pool.Spec.MachineConfigSelector}, fragments, base)
	if err != nil {
		return r, renderError(name, err)
	}
	for _, p := range r.Problems {
		r.notes = append(r.notes, guilt(p))
	}
	r.config = c.renderedObject(pool, mcs, r.Result)
	return r, nil
}

// renderError names the guilty MachineConfig and field beside the words that
// RenderDegraded would show.
func renderError(pool string, err error) error {
	text := fmt.Sprintf("render pool %s: %v", pool, err)
	var e *render.Error
	if errors.As(err, &e) {
		for _, p := range e.Problems {
			text += "\n  " + guilt(p)
		}
	}
	return errors.New(text)
}

func guilt(p render.Problem) string {
	object := "MachineConfig " + p.Fragment
	if p.Fragment == "" {
		object = "the merged config"
	}
	p.Fragment = ""
	if p.Path != "" {
		p.Path = "spec." + p.Path
	}
	return object + ": " + p.String()
}

// base is what the cluster supplies: flags, else the ControllerConfig, else
// what the pool's present config says.
func (c *cluster) base(pool *mcfgv1.MachineConfigPool, given render.Base) (render.Base, string) {
	var found render.Base
	note := ""
	current := c.configs[pool.Spec.Configuration.Name]
	switch {
	case c.controller != nil:
		found = render.Base{OSImageURL: c.controller.Spec.BaseOSContainerImage, BaseOSExtensionsContainerImage: c.controller.Spec.BaseOSExtensionsContainerImage}
	case current != nil && current.Annotations[annoOverridden] == "":
		found = render.Base{OSImageURL: current.Spec.OSImageURL, BaseOSExtensionsContainerImage: current.Spec.BaseOSExtensionsContainerImage}
		note = fmt.Sprintf("no ControllerConfig: the OS images are those of %s", current.Name)
	case given == (render.Base{}):
		note = "no ControllerConfig: the OS images are left empty, so the name differs from a cluster's; add it, or give --os-image and --extensions-image"
	}
	if given.OSImageURL == "" {
		given.OSImageURL = found.OSImageURL
	}
	if given.BaseOSExtensionsContainerImage == "" {
		given.BaseOSExtensionsContainerImage = found.BaseOSExtensionsContainerImage
	}
	return given, note
}

// ordersByName says whether controllers of a release merge in the order of
// names alone.
func ordersByName(release string) bool {
	var major, minor int
	n, err := fmt.Sscanf(release, "%d.%d", &major, &minor)
	return err == nil && n == 2 && (major < 4 || major == 4 && minor < 15)
}

// followed puts in the images of the OS image stream that a pool follows.
func (c *cluster) followed(pool *mcfgv1.MachineConfigPool, base render.Base) (render.Base, error) {
	name := render.StreamOf(pool, c.pools[poolWorker])
	if name == "" {
		return base, nil
	}
	if c.streams == nil {
		return base, fmt.Errorf("render pool %s: it follows OS image stream %s, and there is no OSImageStream cluster among the objects", pool.Name, name)
	}
	base, err := base.WithStream(pool.Spec.OSImageStream.Name, name, c.streams.Status.AvailableStreams)
	if err != nil {
		return base, fmt.Errorf("render pool %s: %w", pool.Name, err)
	}
	return base, nil
}

// renderedObject is the object a cluster would make of it.
func (c *cluster) renderedObject(pool *mcfgv1.MachineConfigPool, mcs []*mcfgv1.MachineConfig, r render.Result) *mcfgv1.MachineConfig {
	mc := &mcfgv1.MachineConfig{Spec: r.Spec}
	mc.APIVersion, mc.Kind, mc.Name = groupMachineConfig+"/v1", "MachineConfig", r.Name
	annotations := map[string]string{}
	for _, m := range mcs {
		// All generated configs of a pool carry the version of its controller.
		if v := m.Annotations[annoGenerated]; v != "" {
			annotations[annoGenerated] = v
			break
		}
	}
	if c.controller != nil && c.controller.Annotations[annoRelease] != "" {
		annotations[annoRelease] = c.controller.Annotations[annoRelease]
	}
	if r.OSImageOverridden {
		annotations[annoOverridden] = "true"
	}
	if len(annotations) > 0 {
		mc.Annotations = annotations
	}
	if pool.UID != "" {
		mc.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: groupMachineConfig + "/v1", Kind: "MachineConfigPool", Name: pool.Name, UID: pool.UID,
			Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
		}}
	}
	return mc
}

func (r rendered) print(w io.Writer, o renderOutput) error {
	switch o {
	case "name":
		_, err := fmt.Fprintln(w, r.Name)
		return err
	case "json":
		return output("json").print(w, r.config, nil)
	}
	b, err := yaml.Marshal(r.config)
	if err != nil {
		return fmt.Errorf("encode %s: %w", r.Name, err)
	}
	_, err = w.Write(b)
	return err
}

// explain lists who set what.
func (r rendered) explain(w io.Writer) error {
	_, _ = fmt.Fprintf(w, "%s, merged from %s\n\n", r.Name, strings.Join(r.Sources, ", "))
	rows := [][]string{{"KIND", "ITEM", "SET BY", "OVERRODE"}}
	for _, o := range r.Origins {
		by, over := o.SetBy, strings.Join(o.Overrode, ", ")
		if by == "" {
			by = "(the cluster)"
		}
		if over == "" {
			over = "-"
		}
		rows = append(rows, []string{o.Kind, o.Key, by, over})
	}
	table(w, "", rows)
	return nil
}
