package hostconf

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"

	"millwright.io/millwright/internal/engine/plan"
)

// Existing is a fragment that is in the cluster.
type Existing struct {
	Name        string
	UID         string
	Role        string // label
	Owned       bool   // controlled by the decided object
	Annotations map[string]string
	Spec        machineconfigv1.MachineConfigSpec
}

// Plan returns what makes the fragments that exist what they should be: those
// of want made or changed, those of the decided object's that are not wanted
// removed. note are the annotations that every one bears; others stay. Content
// is compared by meaning: order of keys and white space do not matter.
func Plan(want []Fragment, have []Existing, note map[string]string) ([]plan.Action, error) {
	by := map[string]Existing{}
	for _, h := range have {
		by[h.Name] = h
	}
	var out []plan.Action
	wanted := map[string]bool{}
	for _, w := range want {
		wanted[w.Name] = true
		h, ok := by[w.Name]
		if !ok {
			out = append(out, plan.CreateConfig{Name: w.Name})
			continue
		}
		same, err := unchanged(w, h, note)
		if err != nil {
			return nil, err
		}
		if !same {
			out = append(out, plan.UpdateConfig{Name: w.Name})
		}
	}
	names := slices.Sorted(maps.Keys(by))
	for _, n := range names {
		if h := by[n]; h.Owned && !wanted[n] {
			out = append(out, plan.DeleteConfig{Name: n, UID: h.UID})
		}
	}
	return out, nil
}

func unchanged(w Fragment, h Existing, note map[string]string) (bool, error) {
	if h.Role != w.Role || !h.Owned {
		return false, nil
	}
	for k, v := range note {
		if h.Annotations[k] != v {
			return false, nil
		}
	}
	wantDigest, err := digestOf(w.Spec)
	if err != nil {
		return false, fmt.Errorf("compare %s: %w", w.Name, err)
	}
	// What stands there may be anything; what cannot be read is replaced.
	haveDigest, err := digestOf(h.Spec)
	return err == nil && wantDigest == haveDigest, nil
}

// IsRendered reports whether a config's name is that of a rendered one.
func IsRendered(name string) bool { return strings.HasPrefix(name, "rendered-") }
