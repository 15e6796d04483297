package diff

import (
	"slices"
	"strings"

	"millwright.io/millwright/internal/engine/render"
)

// Arguments splits the entries of a kernel argument list into arguments: an
// entry may hold several. White space inside double quotes does not split, and
// the quotes stay.
func Arguments(entries []string) []string {
	var out []string
	for _, e := range entries {
		out = append(out, splitArguments(e)...)
	}
	return out
}

func splitArguments(s string) []string {
	var out []string
	start, quoted := -1, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			quoted = !quoted
			if start < 0 {
				start = i
			}
		case !quoted && strings.IndexByte(" \t\n\v\f\r", c) >= 0:
			if start >= 0 {
				out = append(out, s[start:i])
				start = -1
			}
		case start < 0:
			start = i
		}
	}
	if start >= 0 {
		out = append(out, s[start:])
	}
	return out
}

// kernelArguments compares two ordered lists with repeats: what stays keeps its
// place. A removed argument directly followed by an added one with the same
// name is one changed argument. Index is the place in the list of its side.
func kernelArguments(current, desired []string) []Change {
	a, b := Arguments(current), Arguments(desired)
	var out []Change
	for _, r := range editRuns(a, b) {
		out = append(out, argumentRun(a, b, r)...)
	}
	return out
}

func argumentRun(a, b []string, r run) []Change {
	var out []Change
	usedA := make([]bool, r.a1-r.a0)
	pair := make([]int, r.b1-r.b0)
	next := r.a0
	for j := r.b0; j < r.b1; j++ {
		pair[j-r.b0] = -1
		for i := next; i < r.a1; i++ {
			if argumentName(a[i]) == argumentName(b[j]) {
				pair[j-r.b0], usedA[i-r.a0], next = i, true, i+1
				break
			}
		}
	}
	for i := r.a0; i < r.a1; i++ {
		if !usedA[i-r.a0] {
			out = append(out, Change{Kind: render.KindKernelArgument, Key: a[i], Op: Removed, Before: &Item{Value: a[i], Index: i}})
		}
	}
	for j := r.b0; j < r.b1; j++ {
		c := Change{Kind: render.KindKernelArgument, Key: b[j], Op: Added, After: &Item{Value: b[j], Index: j}}
		if i := pair[j-r.b0]; i >= 0 {
			c.Op, c.Before = Changed, &Item{Value: a[i], Index: i}
		}
		out = append(out, c)
	}
	return out
}

func argumentName(arg string) string {
	name, _, _ := strings.Cut(arg, "=")
	return name
}

// extensions compares sets: neither order nor repeats install anything else.
func extensions(current, desired []string) []Change {
	var out []Change
	a, b := unique(current), unique(desired)
	for _, e := range b {
		if !slices.Contains(a, e) {
			out = append(out, Change{Kind: render.KindExtension, Key: e, Op: Added, After: &Item{Value: e}})
		}
	}
	for _, e := range a {
		if !slices.Contains(b, e) {
			out = append(out, Change{Kind: render.KindExtension, Key: e, Op: Removed, Before: &Item{Value: e}})
		}
	}
	return out
}

func unique(in []string) []string {
	seen := make(map[string]bool, len(in))
	var out []string
	for _, s := range in {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

// run is a stretch a[a0:a1] that b[b0:b1] replaces.
type run struct{ a0, a1, b0, b1 int }

// maxCells bounds the table of the longest common subsequence; longer middles
// are replaced as a whole.
const maxCells = 1 << 22

// editRuns returns how b comes from a, leaving as much as possible in place.
func editRuns(a, b []string) []run {
	lo := 0
	for lo < len(a) && lo < len(b) && a[lo] == b[lo] {
		lo++
	}
	endA, endB := len(a), len(b)
	for endA > lo && endB > lo && a[endA-1] == b[endB-1] {
		endA--
		endB--
	}
	if lo == endA && lo == endB {
		return nil
	}
	n, m := endA-lo, endB-lo
	if n == 0 || m == 0 || n*m > maxCells {
		return []run{{lo, endA, lo, endB}}
	}
	return walkTable(a, b, lo, n, m)
}

func walkTable(a, b []string, lo, n, m int) []run {
	// longest[i*(m+1)+j] is the longest common subsequence of the tails.
	longest := make([]int32, (n+1)*(m+1))
	for i := n - 1; i >= 0; i-- {
		for j := m - 1; j >= 0; j-- {
			at := i*(m+1) + j
			if a[lo+i] == b[lo+j] {
				longest[at] = longest[at+m+2] + 1
			} else {
				longest[at] = max(longest[at+m+1], longest[at+1])
			}
		}
	}
	w := walk{a: a[lo : lo+n], b: b[lo : lo+m], longest: longest}
	var out []run
	for i, j := 0, 0; i < n || j < m; {
		if w.equal(i, j) {
			i++
			j++
			continue
		}
		endI, endJ := w.difference(i, j)
		out = append(out, run{lo + i, lo + endI, lo + j, lo + endJ})
		i, j = endI, endJ
	}
	return out
}

// walk goes through two lists along their longest common subsequence.
type walk struct {
	a, b    []string
	longest []int32 // of the tails a[i:] and b[j:], at i*(len(b)+1)+j
}

func (w walk) equal(i, j int) bool { return i < len(w.a) && j < len(w.b) && w.a[i] == w.b[j] }

// difference returns where the lists meet again after i and j.
func (w walk) difference(i, j int) (endI, endJ int) {
	n, m := len(w.a), len(w.b)
	for (i < n || j < m) && !w.equal(i, j) {
		if j == m || (i < n && w.longest[(i+1)*(m+1)+j] >= w.longest[i*(m+1)+j+1]) {
			i++
		} else {
			j++
		}
	}
	return i, j
}
