package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/engine/lint"
)

// setting is a kind that controllers make MachineConfigs of.
type setting struct {
	kind schema.GroupKind
	make func() client.Object
	list func() client.ObjectList
}

// settings are all of them. What a pool and the ControllerConfig say counts
// too; those are read by themselves.
var settings = []setting{
	{schema.GroupKind{Group: groupMachineConfig, Kind: "KubeletConfig"}, func() client.Object { return &mcfgv1.KubeletConfig{} }, func() client.ObjectList { return &mcfgv1.KubeletConfigList{} }},
	{schema.GroupKind{Group: groupMachineConfig, Kind: "ContainerRuntimeConfig"}, func() client.Object { return &mcfgv1.ContainerRuntimeConfig{} }, func() client.ObjectList { return &mcfgv1.ContainerRuntimeConfigList{} }},
	{schema.GroupKind{Group: groupConfig, Kind: "ImageDigestMirrorSet"}, func() client.Object { return &configv1.ImageDigestMirrorSet{} }, func() client.ObjectList { return &configv1.ImageDigestMirrorSetList{} }},
	{schema.GroupKind{Group: groupConfig, Kind: "ImageTagMirrorSet"}, func() client.Object { return &configv1.ImageTagMirrorSet{} }, func() client.ObjectList { return &configv1.ImageTagMirrorSetList{} }},
	{schema.GroupKind{Group: groupOperator, Kind: "ImageContentSourcePolicy"}, func() client.Object { return &operatorv1alpha1.ImageContentSourcePolicy{} }, func() client.ObjectList { return &operatorv1alpha1.ImageContentSourcePolicyList{} }},
	{schema.GroupKind{Group: groupConfig, Kind: "Image"}, func() client.Object { return &configv1.Image{} }, func() client.ObjectList { return &configv1.ImageList{} }},
	{schema.GroupKind{Group: groupConfig, Kind: "FeatureGate"}, func() client.Object { return &configv1.FeatureGate{} }, func() client.ObjectList { return &configv1.FeatureGateList{} }},
	{schema.GroupKind{Group: groupConfig, Kind: "Node"}, func() client.Object { return &configv1.Node{} }, func() client.ObjectList { return &configv1.NodeList{} }},
	{schema.GroupKind{Group: groupConfig, Kind: "APIServer"}, func() client.Object { return &configv1.APIServer{} }, func() client.ObjectList { return &configv1.APIServerList{} }},
}

func settingOf(kind schema.GroupKind) (setting, bool) {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.kind == kind })
	if i < 0 {
		return setting{}, false
	}
	return settings[i], true
}

// settingKind is the kind of a typed object, or false for other objects.
func settingKind(obj client.Object) (string, bool) {
	for _, s := range settings {
		if reflect.TypeOf(s.make()) == reflect.TypeOf(obj) {
			return s.kind.Kind, true
		}
	}
	return "", false
}

// GenerateInput is a cluster as far as generated MachineConfigs depend on it.
type GenerateInput struct {
	Controller *mcfgv1.ControllerConfig
	Pools      []*mcfgv1.MachineConfigPool
	Configs    []*mcfgv1.MachineConfig // no rendered ones
	Settings   []client.Object
}

// Generated is what the controllers make of it.
type Generated struct {
	Configs map[string]*mcfgv1.MachineConfig // every one there is then
	Refused []Refusal
}

// Refusal is an object that cannot be used as it is.
type Refusal struct{ Object, Why string } // Kind/name

// GeneratedChange is a MachineConfig that a controller makes, changes or
// removes because of the files.
type GeneratedChange struct {
	Config string `json:"config"`
	Change string `json:"change"` // added, changed or removed
}

// affectsGenerated says whether the files change what MachineConfigs are
// generated from.
func (c *cluster) affectsGenerated() bool {
	for key := range c.touched {
		switch kind, _, _ := strings.Cut(key, " "); kind {
		case "MachineConfigPool", "ControllerConfig":
			return true
		case "Node":
			if c.settings["Node/cluster"] != nil && key == "Node /cluster" {
				return true
			}
		default:
			if slices.ContainsFunc(settings, func(s setting) bool { return s.kind.Kind == kind }) {
				return true
			}
		}
	}
	return false
}

func (c *cluster) generateInput() GenerateInput {
	in := GenerateInput{Controller: c.controller}
	for _, name := range sortedKeys(c.pools) {
		in.Pools = append(in.Pools, c.pools[name])
	}
	for _, name := range sortedKeys(c.configs) {
		// The others concern no generator.
		if strings.Contains(name, "-generated-") {
			in.Configs = append(in.Configs, c.configs[name])
		}
	}
	for _, key := range sortedKeys(c.settings) {
		in.Settings = append(in.Settings, c.settings[key])
	}
	return in
}

// generate brings the generated MachineConfigs of c to what its controllers
// will make of the settings. What they would make of before's settings tells
// which difference is the files': a config that another version made stays as
// it is, unless its settings change.
func (c *cluster) generate(ctx context.Context, d Deps, before *cluster) ([]GeneratedChange, []lint.Finding, error) {
	if d.Generate == nil || !c.affectsGenerated() {
		return nil, nil, nil
	}
	if c.controller == nil {
		if len(c.settings) > 0 {
			c.notes = append(c.notes, "there is no ControllerConfig among the objects, so it is not known which MachineConfigs a cluster makes of the settings")
		}
		return nil, nil, nil
	}
	var was Generated
	var err error
	if before.controller != nil {
		if was, err = d.Generate(ctx, before.generateInput()); err != nil {
			return nil, nil, fmt.Errorf("generate MachineConfigs of the present settings: %w", err)
		}
	}
	will, err := d.Generate(ctx, c.generateInput())
	if err != nil {
		return nil, nil, fmt.Errorf("generate MachineConfigs: %w", err)
	}
	changes := c.adopt(was, will, before.controller == nil)
	var findings []lint.Finding
	for _, r := range will.Refused {
		if !slices.Contains(was.Refused, r) {
			kind, _, _ := strings.Cut(r.Object, "/")
			findings = append(findings, lint.Finding{Rule: lint.RuleOfSetting(kind), Severity: lint.Error, Object: r.Object, Why: r.Why})
		}
	}
	return changes, findings, nil
}

// adopt takes over what changes between two states of the generators. alone
// says that the files are all there is: then what stands in them counts, and
// only what is missing is added.
func (c *cluster) adopt(was, will Generated, alone bool) []GeneratedChange {
	names := maps.Clone(will.Configs)
	if names == nil {
		names = map[string]*mcfgv1.MachineConfig{}
	}
	maps.Copy(names, was.Configs)
	var out []GeneratedChange
	for _, name := range sortedKeys(names) {
		if change := c.adoptOne(name, was.Configs[name], will.Configs[name], alone); change != "" {
			out = append(out, GeneratedChange{name, change})
		}
	}
	return out
}

// adoptOne takes over one config and says what became of it; empty: nothing.
func (c *cluster) adoptOne(name string, old, next *mcfgv1.MachineConfig, alone bool) string {
	now := c.configs[name]
	given := c.touched["MachineConfig /"+name]
	same := old != nil && next != nil && sameGenerated(old, next) // the files do not change it
	switch {
	case next == nil && now == nil:
		return ""
	case next == nil:
		delete(c.configs, name)
		return "removed"
	case now == nil && same:
		return "" // it is missing with and without the files
	case now == nil:
		c.configs[name] = next
		return "added"
	case sameGenerated(now, next) || same && !given:
		return ""
	case alone:
		c.notes = append(c.notes, fmt.Sprintf("MachineConfig %s of the files is not what this version makes of the settings in them; the file counts", name))
		return ""
	}
	if !given {
		c.noteForeign(name, old, now)
	}
	c.configs[name] = next
	return "changed"
}

// noteForeign tells of a config that another version made.
func (c *cluster) noteForeign(name string, old, now *mcfgv1.MachineConfig) {
	if old != nil && !sameGenerated(now, old) {
		c.notes = append(c.notes, fmt.Sprintf("MachineConfig %s is not what this version makes of the present settings; all of it is made anew", name))
	}
}

func sameGenerated(a, b *mcfgv1.MachineConfig) bool {
	return a.Labels[labelRole] == b.Labels[labelRole] && equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

// keepMeta: what controllers write onto an object is not in people's files.
func keepMeta(obj, current client.Object) {
	if current == nil {
		return
	}
	obj.SetUID(current.GetUID())
	obj.SetGeneration(current.GetGeneration())
	obj.SetCreationTimestamp(current.GetCreationTimestamp())
	obj.SetFinalizers(current.GetFinalizers())
	notes := maps.Clone(current.GetAnnotations())
	if notes == nil {
		notes = map[string]string{}
	}
	maps.Copy(notes, obj.GetAnnotations())
	obj.SetAnnotations(notes)
	switch o := obj.(type) {
	case *mcfgv1.KubeletConfig:
		o.Status = current.(*mcfgv1.KubeletConfig).Status
	case *mcfgv1.ContainerRuntimeConfig:
		o.Status = current.(*mcfgv1.ContainerRuntimeConfig).Status
	case *configv1.FeatureGate:
		o.Status = current.(*configv1.FeatureGate).Status
	}
}

// expectGates puts into a FeatureGate's status what its spec will come to, as
// far as that can be told: which gates a named set switches is the release's
// own knowledge.
func (c *cluster) expectGates(next, current *configv1.FeatureGate) {
	if current == nil || equality.Semantic.DeepEqual(next.Spec, current.Spec) {
		return
	}
	if next.Spec.FeatureSet != configv1.CustomNoUpgrade || !slices.Contains([]configv1.FeatureSet{configv1.Default, configv1.CustomNoUpgrade}, current.Spec.FeatureSet) {
		c.notes = append(c.notes, fmt.Sprintf("FeatureGate cluster: which gates feature set %q switches is known to the cluster's release only; what nodes feel of it is not shown", next.Spec.FeatureSet))
		return
	}
	want, was := next.Spec.CustomNoUpgrade, current.Spec.CustomNoUpgrade
	if want == nil {
		want = &configv1.CustomFeatureGates{}
	}
	if was != nil {
		for _, g := range slices.Concat(was.Enabled, was.Disabled) {
			if !slices.Contains(want.Enabled, g) && !slices.Contains(want.Disabled, g) {
				c.notes = append(c.notes, fmt.Sprintf("FeatureGate cluster: %s goes back to its default, which is known to the cluster's release only; it is shown as it is now", g))
			}
		}
	}
	next.Status = *next.Status.DeepCopy()
	for i := range next.Status.FeatureGates {
		d := &next.Status.FeatureGates[i]
		named := func(a configv1.FeatureGateAttributes) bool {
			return slices.Contains(want.Enabled, a.Name) || slices.Contains(want.Disabled, a.Name)
		}
		d.Enabled, d.Disabled = slices.DeleteFunc(d.Enabled, named), slices.DeleteFunc(d.Disabled, named)
		for _, g := range want.Enabled {
			d.Enabled = append(d.Enabled, configv1.FeatureGateAttributes{Name: g})
		}
		for _, g := range want.Disabled {
			d.Disabled = append(d.Disabled, configv1.FeatureGateAttributes{Name: g})
		}
	}
}

// drop removes an object as a deletion would; name may be that of a
// MachineConfig or KIND/NAME. It says whether there was one.
func (c *cluster) drop(name string) bool {
	if kind, rest, ok := strings.Cut(name, "/"); ok && kind != "MachineConfig" {
		if c.settings[name] == nil {
			return false
		}
		delete(c.settings, name)
		c.touched[kind+" /"+rest] = true
		return true
	} else if ok {
		name = rest
	}
	if c.configs[name] == nil {
		return false
	}
	delete(c.configs, name)
	return true
}

// merged appends findings that are not said already of the same object.
func merged(have, more []lint.Finding) []lint.Finding {
	for _, f := range more {
		if !slices.ContainsFunc(have, func(h lint.Finding) bool { return h.Object == f.Object && h.Severity == lint.Error }) {
			have = append(have, f)
		}
	}
	slices.SortStableFunc(have, func(a, b lint.Finding) int { return cmp.Compare(a.Object, b.Object) })
	return have
}
