package lint

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright.io/millwright/internal/engine/target"
)

// How hosts tell which systemd units they have: an agent publishes the names
// once per different list, in a ConfigMap of its namespace with the label
// UnitNamesKey: <digest>, and writes the digest into the annotation UnitNamesKey
// of its Node. The names stand in the ConfigMap's UnitNamesData, one a line.
const (
	UnitNamesKey  = "millwright.io/unit-names"
	UnitNamesData = "units"
)

// maxUnitNames bounds what is read of one host, in bytes.
const maxUnitNames = 1 << 20

// UnitNames are the systemd units of a host, sorted, each once.
type UnitNames []string

// NewUnitNames sorts names. Empty ones and those with white space, which no
// unit has, are left out.
func NewUnitNames(names []string) UnitNames {
	out := UnitNames{}
	for _, n := range names {
		if n != "" && !strings.ContainsAny(n, " \t\r\n") {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Text is what is published: one name a line.
func (u UnitNames) Text() string {
	if len(u) == 0 {
		return ""
	}
	return strings.Join(u, "\n") + "\n"
}

// Digest is the name of the list: 32 hexadecimal digits.
func (u UnitNames) Digest() string {
	sum := sha256.Sum256([]byte(u.Text()))
	return hex.EncodeToString(sum[:16])
}

// UnitNamesObject is the name of the ConfigMap for a digest.
func UnitNamesObject(digest string) string { return "unit-names-" + digest }

// ParseUnitNames reads what was published under a digest. A text that has
// another digest is refused: it was edited or cut off.
func ParseUnitNames(text, digest string) (UnitNames, error) {
	if len(text) > maxUnitNames {
		return nil, fmt.Errorf("read unit names %s: they have %d bytes, want at most %d", digest, len(text), maxUnitNames)
	}
	u := NewUnitNames(strings.Split(text, "\n"))
	if got := u.Digest(); got != digest {
		return nil, fmt.Errorf("read unit names: their digest is %s, want %s", got, digest)
	}
	return u, nil
}

// UnitNode is a Node as far as its units matter.
type UnitNode struct {
	Labels map[string]string
	Digest string // of the Node's annotation; empty: it has not told
}

// UnitsByPool gathers what the nodes of each pool have told. pools are the node
// selectors, published the lists by digest. A pool without nodes, or with a
// node that has not told, is not complete.
func UnitsByPool(pools map[string]*metav1.LabelSelector, nodes []UnitNode, published map[string]UnitNames) map[string]UnitFacts {
	members := target.NewMembers(pools)
	out := map[string]UnitFacts{}
	for _, n := range nodes {
		pool, err := members.Primary(n.Labels)
		if err != nil || pool == "" {
			continue // nobody configures it
		}
		facts, seen := out[pool]
		if !seen {
			facts = UnitFacts{Units: map[string]bool{}, Complete: true}
		}
		names, told := published[n.Digest]
		facts.Complete = facts.Complete && told && n.Digest != ""
		for _, u := range names {
			facts.Units[u] = true
		}
		out[pool] = facts
	}
	return out
}

// has says whether a unit is there, itself or as an instance of a template.
func (f UnitFacts) has(unit string) bool {
	if f.Units[unit] {
		return true
	}
	name, rest, ok := strings.Cut(unit, "@")
	i := strings.LastIndexByte(rest, '.')
	return ok && i >= 0 && f.Units[name+"@"+rest[i:]]
}
