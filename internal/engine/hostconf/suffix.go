package hostconf

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Generator is a kind whose objects each make one fragment per pool.
type Generator string

// Generators.
const (
	GeneratorKubelet Generator = "kubelet"
	GeneratorRuntime Generator = "containerruntime"
)

// maxSuffix bounds how many objects of a generator may select one pool: ten.
const maxSuffix = 9

// Sibling is an object of a generator that selects the pool at hand.
type Sibling struct {
	Name       string
	Created    time.Time
	Suffix     *string // annotation mc-name-suffix; nil: not written yet
	Finalizers []string
}

// Name returns the name of the fragment that the object called own makes for
// a pool, given all objects that select it, own among them. exists tells
// whether a fragment is there.
func (g Generator) Name(pool, own string, all []Sibling, exists func(string) bool) (string, error) {
	base := "99-" + pool + "-generated-" + string(g)
	i := slices.IndexFunc(all, func(s Sibling) bool { return s.Name == own })
	if i < 0 {
		return "", fmt.Errorf("%s does not select pool %s", own, pool)
	}
	me := all[i]
	if me.Suffix != nil {
		return withSuffix(base, *me.Suffix), nil
	}
	if len(all) == 1 {
		return base, nil
	}
	newer := slices.ContainsFunc(all, func(s Sibling) bool { return s.Created.After(me.Created) })
	if newer {
		var mine []string
		for _, f := range me.Finalizers {
			if (f == base || strings.HasPrefix(f, base+"-")) && exists(f) {
				mine = append(mine, f)
			}
		}
		if len(mine) > 0 {
			return slices.MaxFunc(mine, func(a, b string) int { return cmp.Compare(number(base, a), number(base, b)) }), nil
		}
	}
	highest := 0
	for _, s := range all {
		if s.Suffix != nil {
			n, _ := strconv.Atoi(*s.Suffix) // empty counts as 0
			highest = max(highest, n)
		}
	}
	if highest+1 > maxSuffix {
		return "", g.tooMany()
	}
	return withSuffix(base, strconv.Itoa(highest+1)), nil
}

// Suffix returns what stands in the annotation for a fragment's name.
func (g Generator) Suffix(pool, name string) string {
	return strings.TrimPrefix(strings.TrimPrefix(name, "99-"+pool+"-generated-"+string(g)), "-")
}

// Owns reports whether name is that of a fragment of this generator.
func (g Generator) Owns(name string) bool {
	return strings.HasPrefix(name, "99-") && strings.Contains(name, "-generated-"+string(g))
}

func (g Generator) tooMany() error {
	if g == GeneratorRuntime {
		return &Refusal{"", "max number of supported ctrcfgs (10) has been reached. Please delete old ctrcfgs before retrying"}
	}
	return &Refusal{"", "max number of supported kubelet config (10) has been reached. Please delete old kubelet configs before retrying"}
}

func withSuffix(base, suffix string) string {
	if suffix == "" {
		return base
	}
	return base + "-" + suffix
}

func number(base, name string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(strings.TrimPrefix(name, base), "-"))
	return n
}
