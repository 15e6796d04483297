package hostconf

import (
	"encoding/json"
	"fmt"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
)

// RegistryFacts are all cluster-wide settings about where images come from.
type RegistryFacts struct {
	Image    *configv1.Image // nil: none
	Digests  []configv1.ImageDigestMirrorSet
	Tags     []configv1.ImageTagMirrorSet
	Policies []operatorv1alpha1.ImageContentSourcePolicy
}

// pull says for which references a mirror is asked.
type pull string

const (
	byDigest pull = "digest-only"
	byTag    pull = "tag-only"
)

// registry is one [[registry]] of registries.conf.
type registry struct {
	Prefix   string   `toml:"prefix"`
	Location string   `toml:"location"`
	Insecure bool     `toml:"insecure,omitempty"`
	Blocked  bool     `toml:"blocked,omitempty"`
	Mirrors  []mirror `toml:"mirror,omitempty"`
}

type mirror struct {
	Location string `toml:"location"`
	Insecure bool   `toml:"insecure,omitempty"`
	Pull     pull   `toml:"pull-from-mirror"`
}

type registriesConf struct {
	Search     []string   `toml:"unqualified-search-registries"`
	ShortNames string     `toml:"short-name-mode"`
	Registries []registry `toml:"registry,omitempty"`
}

// Registries returns 99-<pool>-generated-registries. With nothing configured
// it holds no file. The error is a *Refusal when a setting is to blame.
func Registries(role string, f RegistryFacts) (Fragment, error) {
	var b builder
	var src configv1.RegistrySources
	if f.Image != nil {
		src = f.Image.Spec.RegistrySources
	}
	if len(src.AllowedRegistries) > 0 && len(src.BlockedRegistries) > 0 {
		return Fragment{}, &Refusal{"registrySources", "invalid images config: only one of AllowedRegistries or BlockedRegistries may be specified"}
	}
	if regs := f.registries(src); len(regs) > 0 {
		conf := registriesConf{Search: []string{"registry.access.redhat.com", "docker.io"}, Registries: regs}
		if err := b.toml(pathRegistries, conf); err != nil {
			return Fragment{}, err
		}
	}
	if len(src.AllowedRegistries) > 0 || len(src.BlockedRegistries) > 0 {
		raw, err := policyFor(src)
		if err != nil {
			return Fragment{}, err
		}
		b.file(pathPolicy, modeFile, raw)
	}
	if len(src.ContainerRuntimeSearchRegistries) > 0 {
		if err := b.toml(pathSearch, map[string]any{"unqualified-search-registries": src.ContainerRuntimeSearchRegistries}); err != nil {
			return Fragment{}, err
		}
	}
	spec, err := b.spec()
	return Fragment{Name: "99-" + role + "-generated-registries", Role: role, Spec: spec}, err
}

// registries merges all settings by the source they are about, sorted.
func (f RegistryFacts) registries(src configv1.RegistrySources) []registry {
	by := map[string]*registry{}
	at := func(source string) *registry {
		if by[source] == nil {
			by[source] = &registry{Location: source}
			if len(source) > 2 && source[:2] == "*." {
				by[source].Prefix, by[source].Location = source, ""
			}
		}
		return by[source]
	}
	for _, m := range f.mirrors() {
		r := at(m.source)
		r.Blocked = r.Blocked || m.never
		for _, loc := range m.mirrors {
			next := mirror{Location: loc, Pull: m.pull, Insecure: slices.Contains(src.InsecureRegistries, loc)}
			if !slices.Contains(r.Mirrors, next) {
				r.Mirrors = append(r.Mirrors, next)
			}
		}
	}
	for _, s := range src.InsecureRegistries {
		at(s).Insecure = true
	}
	for _, s := range src.BlockedRegistries {
		at(s).Blocked = true
	}
	var out []registry
	for _, s := range sortedKeys(by) {
		out = append(out, *by[s])
	}
	return out
}

// mirrored is one entry of any of the three kinds.
type mirrored struct {
	source  string
	mirrors []string
	pull    pull
	never   bool // never contact the source
}

// mirrors lists the entries by kind, object name and position, so that the
// result does not depend on the order in which objects came.
func (f RegistryFacts) mirrors() []mirrored {
	var out []mirrored
	never := func(p configv1.MirrorSourcePolicy) bool { return p == configv1.NeverContactSource }
	for _, s := range sortedBy(f.Digests, func(s configv1.ImageDigestMirrorSet) string { return s.Name }) {
		for _, m := range s.Spec.ImageDigestMirrors {
			out = append(out, mirrored{m.Source, texts(m.Mirrors), byDigest, never(m.MirrorSourcePolicy)})
		}
	}
	for _, s := range sortedBy(f.Policies, func(s operatorv1alpha1.ImageContentSourcePolicy) string { return s.Name }) {
		for _, m := range s.Spec.RepositoryDigestMirrors {
			out = append(out, mirrored{m.Source, m.Mirrors, byDigest, false})
		}
	}
	for _, s := range sortedBy(f.Tags, func(s configv1.ImageTagMirrorSet) string { return s.Name }) {
		for _, m := range s.Spec.ImageTagMirrors {
			out = append(out, mirrored{m.Source, texts(m.Mirrors), byTag, never(m.MirrorSourcePolicy)})
		}
	}
	return out
}

func sortedBy[T any](in []T, key func(T) string) []T {
	out := slices.Clone(in)
	slices.SortStableFunc(out, func(a, b T) int {
		switch ka, kb := key(a), key(b); {
		case ka < kb:
			return -1
		case ka > kb:
			return 1
		}
		return 0
	})
	return out
}

func texts(in []configv1.ImageMirror) []string {
	out := make([]string, 0, len(in))
	for _, m := range in {
		out = append(out, string(m))
	}
	return out
}

// policyFor writes policy.json: either only what is allowed, or all but what
// is blocked.
func policyFor(src configv1.RegistrySources) ([]byte, error) {
	type rule map[string]string
	accept, reject := []rule{{"type": "insecureAcceptAnything"}}, []rule{{"type": "reject"}}
	base, listed, rules := accept, src.BlockedRegistries, reject
	if len(src.AllowedRegistries) > 0 {
		base, listed, rules = reject, src.AllowedRegistries, accept
	}
	scopes := map[string][]rule{}
	for _, s := range listed {
		scopes[s] = rules
	}
	raw, err := json.MarshalIndent(map[string]any{
		"default": base,
		"transports": map[string]any{
			"docker": scopes, "atomic": scopes,
			"docker-daemon": map[string][]rule{"": accept},
		},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", pathPolicy, err)
	}
	return append(raw, '\n'), nil
}
