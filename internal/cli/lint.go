package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright.io/millwright/internal/engine/lint"
	"millwright.io/millwright/internal/engine/render"
)

// LintReport is what lint answers.
type LintReport struct {
	Checked  int            `json:"checked"` // MachineConfigs and pools
	Errors   int            `json:"errors"`
	Warnings int            `json:"warnings"`
	Findings []lint.Finding `json:"findings"`
}

func lintCommand() *cobra.Command {
	var in inputs
	var out output
	var modes []string
	var list bool
	cmd := &cobra.Command{
		Use:   "lint -f FILES",
		Short: "Finds what would break a node, fail to render or surprise",
		Long: `Checks MachineConfigs and MachineConfigPools. Each finding names the object, the
field and the value, says what would happen and what would be right. With an error
the exit code is 1; warnings alone end with 0. A risk is accepted with the
annotation millwright.io/accept-risk: RULE on the object, or with --rule RULE=warn.`,
		Example: "  millwright lint -f configs/\n  millwright lint -f configs/ -o json | jq '.findings[].rule'\n  millwright lint --rules",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if list {
				return out.print(cmd.OutOrStdout(), lint.Rules(), ruleTable)
			}
			chosen, err := ruleModes(modes)
			if err != nil {
				return err
			}
			ms, err := in.manifests(cmd)
			if err != nil {
				return err
			}
			r, notes, err := lintFiles(ms, chosen)
			if err != nil {
				return err
			}
			for _, n := range notes {
				_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "note: "+n)
			}
			if err := out.print(cmd.OutOrStdout(), r, func(w io.Writer) error { return r.text(w, newPaint(w)) }); err != nil {
				return err
			}
			if r.Errors > 0 {
				return &exitError{ExitFailure}
			}
			return nil
		},
	}
	in.addFiles(cmd)
	addOutput(cmd, &out)
	cmd.Flags().StringArrayVar(&modes, "rule", nil, "RULE=MODE with mode enforce, warn or off; may be repeated")
	cmd.Flags().BoolVar(&list, "rules", false, "list the rules")
	return cmd
}

// ruleModes reads RULE=MODE.
func ruleModes(args []string) (map[string]lint.Mode, error) {
	out := map[string]lint.Mode{}
	for _, a := range args {
		rule, text, _ := strings.Cut(a, "=")
		mode := lint.Mode(text)
		if mode != lint.Enforce && mode != lint.Warn && mode != lint.Off {
			return nil, &UsageError{fmt.Sprintf("lint: --rule %s: want RULE=enforce, RULE=warn or RULE=off", a)}
		}
		if !slices.ContainsFunc(lint.Rules(), func(r lint.Rule) bool { return r.ID == rule }) {
			return nil, &UsageError{fmt.Sprintf("lint: --rule %s: there is no such rule; `millwright lint --rules` lists them", a)}
		}
		out[rule] = mode
	}
	return out, nil
}

func ruleTable(w io.Writer) error {
	rows := [][]string{{"RULE", "SEVERITY", "LOOKS FOR"}}
	for _, r := range lint.Rules() {
		rows = append(rows, []string{r.ID, string(r.Severity), r.What})
	}
	table(w, "", rows)
	return nil
}

// lintFiles checks everything in the files, with what else they say about the
// cluster.
func lintFiles(ms []manifest, modes map[string]lint.Mode) (LintReport, []string, error) {
	c := newCluster()
	if err := c.apply(ms); err != nil {
		return LintReport{}, nil, err
	}
	in := lint.Input{Modes: modes}
	if c.controller != nil {
		in.Base = render.Base{OSImageURL: c.controller.Spec.BaseOSContainerImage, BaseOSExtensionsContainerImage: c.controller.Spec.BaseOSExtensionsContainerImage}
	}
	policy, notes := c.disruptionPolicy()
	in.Policy, notes = &policy, append(c.notes, notes...)
	var err error
	if in.Fragments, err = fragments(ms); err != nil {
		return LintReport{}, nil, err
	}
	for _, m := range ms {
		if p := c.pools[m.Name]; p != nil && m.is(groupMachineConfig, "MachineConfigPool") {
			in.Pools = append(in.Pools, lint.Pool{Name: p.Name, Annotations: p.Annotations, Selector: p.Spec.MachineConfigSelector, NodeSelector: p.Spec.NodeSelector, Source: lint.Source{File: m.Source.String()}})
		}
	}
	for _, name := range sortedKeys(c.nodes) {
		in.Nodes = append(in.Nodes, lint.Node{Name: name, Labels: c.nodes[name].Labels})
	}
	if err := lintedSettings(ms, &in); err != nil {
		return LintReport{}, nil, err
	}
	in.Units = c.unitFacts()
	r := LintReport{Checked: len(in.Fragments) + len(in.Pools) + len(in.Kubelets) + len(in.Runtimes), Findings: lint.Lint(in)}
	if r.Findings == nil {
		r.Findings = []lint.Finding{} // an empty list for programs, not null
	}
	for _, f := range r.Findings {
		if f.Severity == lint.Error {
			r.Errors++
		} else {
			r.Warnings++
		}
	}
	return r, notes, nil
}

// fragments are the MachineConfigs of the files, with their text.
func fragments(ms []manifest) ([]lint.Fragment, error) {
	var out []lint.Fragment
	for _, m := range ms {
		mc, err := m.machineConfig()
		if err != nil {
			return nil, err
		}
		if mc != nil {
			out = append(out, lint.Fragment{Fragment: render.FromMachineConfig(mc), Source: lint.Source{File: m.Source.String()}, Manifest: m.text()})
		}
	}
	return out, nil
}

// lintedSettings adds what MachineConfigs are made of.
func lintedSettings(ms []manifest, in *lint.Input) error {
	for _, m := range ms {
		at := lint.Source{File: m.Source.String()}
		switch {
		case m.is(groupMachineConfig, "KubeletConfig"):
			k := &mcfgv1.KubeletConfig{}
			if err := m.decode(k); err != nil {
				return err
			}
			in.Kubelets = append(in.Kubelets, lint.Kubelet{KubeletConfig: k, Source: at})
		case m.is(groupMachineConfig, "ContainerRuntimeConfig"):
			k := &mcfgv1.ContainerRuntimeConfig{}
			if err := m.decode(k); err != nil {
				return err
			}
			in.Runtimes = append(in.Runtimes, lint.Runtime{ContainerRuntimeConfig: k, Source: at})
		}
	}
	return nil
}

// lintManifests checks the MachineConfigs that a plan would bring.
func lintManifests(ms []manifest, c *cluster) ([]lint.Finding, error) {
	fs, err := fragments(ms)
	if err != nil {
		return nil, err
	}
	policy, _ := c.disruptionPolicy()
	in := lint.Input{Fragments: fs, Policy: &policy}
	if err := lintedSettings(ms, &in); err != nil {
		return nil, err
	}
	found := lint.Lint(in)
	suspect := func(f lint.Finding) bool { return f.Rule == lint.RuleUnitUnknown }
	if !slices.ContainsFunc(found, suspect) || len(c.units) == 0 {
		return found, nil
	}
	// Whether a unit is known is for the pools' hosts and other configs to say.
	mine := map[string]bool{}
	for i := range fs {
		mine[fs[i].Name] = true
	}
	for _, name := range sortedKeys(c.configs) {
		if mc := c.configs[name]; !mine[name] && mc.Labels[labelRole] != "" {
			in.Fragments = append(in.Fragments, lint.Fragment{Fragment: render.FromMachineConfig(mc)})
		}
	}
	for _, name := range sortedKeys(c.pools) {
		p := c.pools[name]
		in.Pools = append(in.Pools, lint.Pool{Name: name, Selector: p.Spec.MachineConfigSelector, NodeSelector: p.Spec.NodeSelector})
	}
	in.Units = c.unitFacts()
	known := slices.DeleteFunc(lint.Lint(in), func(f lint.Finding) bool {
		return !suspect(f) || !mine[strings.TrimPrefix(f.Object, "MachineConfig/")]
	})
	return append(slices.DeleteFunc(found, suspect), known...), nil
}

// unitFacts are the units that the hosts of each pool have told.
func (c *cluster) unitFacts() map[string]lint.UnitFacts {
	if len(c.units) == 0 {
		return nil
	}
	pools := map[string]*metav1.LabelSelector{}
	for name, p := range c.pools {
		pools[name] = p.Spec.NodeSelector
	}
	var nodes []lint.UnitNode
	for _, name := range sortedKeys(c.nodes) {
		nodes = append(nodes, lint.UnitNode{Labels: c.nodes[name].Labels, Digest: c.nodes[name].Annotations[lint.UnitNamesKey]})
	}
	return lint.UnitsByPool(pools, nodes, c.units)
}

func (r LintReport) text(w io.Writer, p paint) error {
	for _, f := range r.Findings {
		findingText(w, p, f)
		_, _ = fmt.Fprintln(w)
	}
	if r.Checked == 0 {
		_, err := fmt.Fprintln(w, "There is no MachineConfig, MachineConfigPool, KubeletConfig or ContainerRuntimeConfig in the files.")
		return err
	}
	_, err := fmt.Fprintf(w, "%s checked: %s, %s\n", plural(r.Checked, "object"), plural(r.Errors, "error"), plural(r.Warnings, "warning"))
	return err
}

// findingText prints where, what, why, and what would be right.
func findingText(w io.Writer, p paint, f lint.Finding) {
	head := p.yellow(string(f.Severity))
	if f.Severity == lint.Error {
		head = p.red(string(f.Severity))
	}
	_, _ = fmt.Fprintf(w, "%s %s [%s]\n", head, p.bold(f.Object), f.Rule)
	rows := [][]string{}
	for _, row := range [][]string{{"in", f.Source.String()}, {"field", f.Field}, {"value", f.Value}, {"why", f.Why}, {"fix", f.Fix}} {
		if row[1] != "" {
			rows = append(rows, row)
		}
	}
	table(w, "  ", rows)
}
