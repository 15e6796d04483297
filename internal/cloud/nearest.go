package cloud

import (
	"slices"
	"strings"
)

// Nearest returns the known name of which word is most likely a slip: one that
// differs only in case, else the one that is fewest edits away, of several the
// first in the alphabet; "" when none is near. Near is one edit for names of
// three letters or more and two from six letters on; a swap of neighbours is
// one edit.
func Nearest(word string, known []string) string {
	best, found := 3, ""
	for _, k := range slices.Sorted(slices.Values(known)) {
		if strings.EqualFold(word, k) {
			return k
		}
		shorter, limit := min(len(word), len(k)), 1
		if shorter >= 6 {
			limit = 2
		}
		if shorter < 3 {
			continue
		}
		if d := Distance(strings.ToLower(word), strings.ToLower(k), limit); d <= limit && d < best {
			best, found = d, k
		}
	}
	return found
}

// Distance is the number of letters to insert, delete, replace or swap with
// their neighbour to make b of a; limit+1 when it is more than limit.
func Distance(a, b string, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	var prev2 []int
	prev := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur := make([]int, len(b)+1)
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev = prev, cur
	}
	return min(prev[len(b)], limit+1)
}
