package fleet

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"slices"
	"strconv"

	"millwright.io/millwright/internal/engine/plan"
)

const (
	// alphabet is the one generateName draws from: no vowels, no look-alikes.
	alphabet   = "bcdfghjklmnpqrstvwxz2456789"
	suffixSize = 5
	// MaxName is the longest name a machine can have: it becomes a host name,
	// a node name and a label value.
	MaxName = 63
	// MaxSetName is the longest name of a set whose machines, called
	// <set>-xxxxx, stay within MaxName.
	MaxSetName = MaxName - suffixSize - 1
)

// checkName says why a set of this name cannot make machines, or nil.
func checkName(set string) *plan.Condition {
	if p := NameProblem(set); p != "" {
		c := invalid(ReasonNameTooLong, p)
		return &c
	}
	return nil
}

// NameProblem says what is wrong with a set's name as a source of machine
// names: the field, its value and the limit. Empty when nothing is.
func NameProblem(set string) string {
	if len(set) <= MaxSetName {
		return ""
	}
	return fmt.Sprintf("metadata.name: Invalid value: %q: machines are named <name>-xxxxx, which would have %d characters; at most %d are allowed, so the name of the set may have at most %d",
		set, len(set)+suffixSize+1, MaxName, MaxSetName)
}

// creations returns n create actions. The same members give the same names, so
// that deciding twice on one stale picture asks for the same machines; a
// member more or less, deleting ones included, gives new names.
func creations(in Input, all []Member, n int) []plan.Action {
	used := make(map[string]bool, len(all)+len(in.Taken)+n)
	uids := make([]string, 0, len(all))
	for _, m := range all {
		used[m.Name] = true
		if m.Owner == OwnerOurs || m.Owner == OwnerNone && m.Match {
			uids = append(uids, m.UID)
		}
	}
	for _, t := range in.Taken {
		used[t] = true
	}
	slices.Sort(uids)
	base := seed(in.Set, uids)
	acts := make([]plan.Action, 0, n)
	for i := uint64(0); len(acts) < n; i++ {
		name := in.Set.Name + "-" + suffix(base, i)
		if used[name] {
			continue
		}
		used[name] = true
		acts = append(acts, plan.CreateMachine{Name: name})
	}
	return acts
}

// seed condenses what names depend on.
func seed(s Set, uids []string) [sha256.Size]byte {
	h := sha256.New()
	field(h, s.UID)
	field(h, strconv.FormatInt(s.Generation, 10))
	for _, u := range uids {
		field(h, u)
	}
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	return sum
}

// Suffix returns the i-th five characters that the parts of a seed give, of
// the alphabet that generateName draws from. The order of the parts matters.
func Suffix(seed []string, i uint64) string {
	h := sha256.New()
	for _, s := range seed {
		field(h, s)
	}
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	return suffix(sum, i)
}

// field writes s with its length, so that neighbours cannot run together.
func field(h hash.Hash, s string) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(s)))
	h.Write(n[:])
	h.Write([]byte(s))
}

// suffix returns the i-th five characters of a seed.
func suffix(base [sha256.Size]byte, i uint64) string {
	var in [sha256.Size + 8]byte
	copy(in[:], base[:])
	binary.BigEndian.PutUint64(in[sha256.Size:], i)
	sum := sha256.Sum256(in[:])
	v := binary.BigEndian.Uint64(sum[:8])
	var out [suffixSize]byte
	for k := range out {
		out[k] = alphabet[v%uint64(len(alphabet))]
		v /= uint64(len(alphabet))
	}
	return string(out[:])
}
