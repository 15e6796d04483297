package disruption

import (
	"cmp"
	"slices"

	"github.com/BurntSushi/toml"

	"millwright.io/millwright/internal/engine/diff"
)

// registriesConf is what counts of a registries.conf of version 2.
type registriesConf struct {
	Search     []string   `toml:"unqualified-search-registries"`
	Registries []registry `toml:"registry"`
}

type registry struct {
	Prefix     string   `toml:"prefix"`
	Location   string   `toml:"location"`
	Insecure   bool     `toml:"insecure"`
	Blocked    bool     `toml:"blocked"`
	DigestOnly bool     `toml:"mirror-by-digest-only"`
	Mirrors    []mirror `toml:"mirror"`
}

type mirror struct {
	Location string `toml:"location"`
	Insecure bool   `toml:"insecure"`
	Pull     string `toml:"pull-from-mirror"`
}

func (r registry) scope() string { return cmp.Or(r.Prefix, r.Location) }

func (r registry) digestOnly(m mirror) bool { return r.DigestOnly || m.Pull == "digest-only" }

// safeRegistries tells that running pods cannot notice a change: images that
// could be pulled can still be pulled from where they came, and only digests,
// which say what they are, may come from new places. What cannot be read is not
// safe.
func safeRegistries(before, after *diff.Item) bool {
	if before == nil || after == nil {
		return false
	}
	old, ok := parseRegistries(before.Contents)
	if !ok {
		return false
	}
	now, ok := parseRegistries(after.Contents)
	if !ok || len(old.Search) > len(now.Search) || !slices.Equal(old.Search, now.Search[:len(old.Search)]) {
		return false
	}
	kept := map[string]registry{}
	for _, r := range now.Registries {
		kept[r.scope()] = r
	}
	for _, was := range old.Registries {
		r, ok := kept[was.scope()]
		if !ok || !safeRegistry(was, r) {
			return false
		}
		delete(kept, was.scope())
	}
	for _, r := range kept {
		if !r.harmless() {
			return false
		}
	}
	return true
}

// harmless tells that a new registry serves nothing but digests.
func (r registry) harmless() bool {
	bare := len(r.Mirrors) == 0 && !r.DigestOnly
	return !bare && !r.Blocked && !slices.ContainsFunc(r.Mirrors, func(m mirror) bool { return !r.digestOnly(m) })
}

func parseRegistries(data []byte) (conf registriesConf, ok bool) {
	defer func() {
		// A parser of foreign bytes may give up in its own way.
		if recover() != nil {
			ok = false
		}
	}()
	return conf, toml.Unmarshal(data, &conf) == nil
}

func safeRegistry(was, now registry) bool {
	if was.Prefix != now.Prefix || was.Location != now.Location || was.Blocked != now.Blocked || was.Insecure != now.Insecure {
		return false
	}
	mirrors := map[string]mirror{}
	for _, m := range now.Mirrors {
		mirrors[m.Location] = m
	}
	for _, m := range was.Mirrors {
		n, ok := mirrors[m.Location]
		if !ok || m.Insecure != n.Insecure {
			return false
		}
		// Tags may stop coming from a mirror, they may not start to.
		if m.Pull != n.Pull && n.Pull != "digest-only" || was.digestOnly(m) && !now.digestOnly(n) {
			return false
		}
		delete(mirrors, m.Location)
	}
	for _, n := range mirrors {
		if !now.digestOnly(n) {
			return false
		}
	}
	return true
}
