package hostconf

import (
	"fmt"
	"slices"

	"millwright.io/millwright/internal/engine/plan"
)

// SelectedPool is a pool that an object selects.
type SelectedPool struct {
	Facts    PoolFacts // Role is the pool's name
	Siblings []Sibling // every object of the kind that selects it
}

// GeneratedInput is what the fragments of one KubeletConfig or
// ContainerRuntimeConfig depend on.
type GeneratedInput struct {
	Generator  Generator
	Own        string // the object's name
	Deleting   bool
	Finalizers []string
	Suffix     *string // annotation; nil: none yet
	Pools      []SelectedPool
	NoPool     string // what is said when it selects none
	Check      error  // a *Refusal of the object itself
	// Make returns the fragment for a pool; pure.
	Make func(p PoolFacts, name string) (Fragment, error)
	Have []Existing // owned ones and those whose names come into question
	Note map[string]string
}

// Generated is what came of an object.
type Generated struct {
	Verdict    error // nil: all its fragments are as it says
	Fragments  []Fragment
	Finalizers []string // what should stand on the object
	Suffix     *string  // what should stand in its annotation
}

// DecideGenerated returns what brings an object's fragments about. A refused
// object keeps the fragments that it has: its last good word.
func DecideGenerated(in GeneratedInput) plan.Decision[Generated] {
	if in.Deleting {
		return forget(in)
	}
	var d plan.Decision[Generated]
	d.Status.Finalizers, d.Status.Suffix = in.Finalizers, in.Suffix
	fragments, suffix, err := in.fragments()
	if err != nil {
		d.Status.Verdict = err
		return d
	}
	actions, err := Plan(fragments, in.Have, in.Note)
	if err != nil {
		d.Status.Verdict = err
		return d
	}
	d.Status.Fragments, d.Status.Suffix = fragments, suffix
	names := make([]string, 0, len(fragments))
	for _, f := range fragments {
		names = append(names, f.Name)
	}
	d.Status.Finalizers = in.finalizers(names)
	// Name and finalizers are written before the first config is made.
	if in.Suffix == nil && suffix != nil {
		d.Actions = append(d.Actions, plan.Annotate{})
	}
	if !slices.Equal(d.Status.Finalizers, in.Finalizers) {
		d.Actions = append(d.Actions, plan.AddFinalizer{})
	}
	d.Actions = append(d.Actions, actions...)
	return d
}

func (in GeneratedInput) fragments() ([]Fragment, *string, error) {
	if in.Check != nil {
		return nil, nil, in.Check
	}
	if len(in.Pools) == 0 {
		return nil, nil, &Refusal{"machineConfigPoolSelector", in.NoPool}
	}
	exists := func(name string) bool {
		return slices.ContainsFunc(in.Have, func(h Existing) bool { return h.Name == name })
	}
	suffix := in.Suffix
	var out []Fragment
	for _, p := range in.Pools {
		pool := p.Facts.Role
		siblings := slices.Clone(p.Siblings)
		for i := range siblings {
			if siblings[i].Name == in.Own {
				siblings[i].Suffix = suffix // one suffix for all pools
			}
		}
		name, err := in.Generator.Name(pool, in.Own, siblings, exists)
		if err != nil {
			return nil, nil, err
		}
		if suffix == nil {
			s := in.Generator.Suffix(pool, name)
			suffix = &s
		}
		f, err := in.Make(p.Facts, name)
		if err != nil {
			return nil, nil, fmt.Errorf("could not generate %s: %w", name, err)
		}
		out = append(out, f)
	}
	return out, suffix, nil
}

// finalizers returns those of others, then one per fragment.
func (in GeneratedInput) finalizers(names []string) []string {
	var out []string
	for _, f := range in.Finalizers {
		if !in.Generator.Owns(f) || slices.Contains(names, f) {
			out = append(out, f)
		}
	}
	for _, n := range names {
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// forget removes the fragments of an object that goes, then lets it go.
func forget(in GeneratedInput) plan.Decision[Generated] {
	var d plan.Decision[Generated]
	held := false
	for _, f := range in.Finalizers {
		if in.Generator.Owns(f) {
			held = true
			continue
		}
		d.Status.Finalizers = append(d.Status.Finalizers, f)
	}
	for _, h := range in.Have {
		if h.Owned {
			d.Actions = append(d.Actions, plan.DeleteConfig{Name: h.Name, UID: h.UID})
		}
	}
	if held {
		d.Actions = append(d.Actions, plan.RemoveFinalizer{})
	}
	return d
}

// PoolInput is what the fragments that every pool gets depend on.
type PoolInput struct {
	Pool       PoolFacts
	BuiltIn    bool
	CgroupMode *string // of nodes.config; nil: there is none
	Gates      bool    // there is a FeatureGate
	Registries *RegistryFacts
	Have       []Existing
	Note       map[string]string
}

// DecidePool returns what brings 97-, 98- and 99-…-registries of a pool about,
// and what could not be used, setting by setting: one bad setting holds up no
// other.
func DecidePool(in PoolInput) (plan.Decision[[]Fragment], []error) {
	var d plan.Decision[[]Fragment]
	var errs []error
	keep := map[string]bool{} // refused, so left as it is
	add := func(name string, f Fragment, err error) {
		if err != nil {
			errs, keep[name] = append(errs, fmt.Errorf("make %s: %w", name, err)), true
			return
		}
		d.Status = append(d.Status, f)
	}
	pool := in.Pool.Role
	if in.CgroupMode != nil {
		f, err := NodeConfig(in.Pool, *in.CgroupMode)
		add("97-"+pool+"-generated-kubelet", f, err)
	}
	if in.Gates {
		f, err := FeatureConfig(in.Pool)
		add("98-"+pool+"-generated-kubelet", f, err)
	}
	if in.Registries != nil && in.BuiltIn {
		f, err := Registries(pool, *in.Registries)
		add("99-"+pool+"-generated-registries", f, err)
	}
	have := slices.DeleteFunc(slices.Clone(in.Have), func(h Existing) bool { return keep[h.Name] })
	actions, err := Plan(d.Status, have, in.Note)
	if err != nil {
		return d, append(errs, err)
	}
	d.Actions = actions
	return d, errs
}

// OfPool reports whether a name is that of a fragment that DecidePool makes.
func OfPool(pool, name string) bool {
	switch name {
	case "97-" + pool + "-generated-kubelet", "98-" + pool + "-generated-kubelet", "99-" + pool + "-generated-registries":
		return true
	}
	return false
}
