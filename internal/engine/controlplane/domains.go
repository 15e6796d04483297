package controlplane

import (
	"slices"
	"strings"
)

// place says in which failure domain each index belongs: where it is, as long
// as that is one of the wanted ones and does not hold more than its share;
// else where fewest are. An even spread differs by one at most.
func place(groups []group, domains []string) {
	domains = distinct(domains)
	if len(domains) == 0 {
		return
	}
	share, rest := len(groups)/len(domains), len(groups)%len(domains)
	held := map[string]int{}
	var homeless []int
	for i := range groups {
		at := groups[i].home(domains)
		switch {
		case at == "":
		case held[at] < share:
			held[at]++
			groups[i].domain = at
			continue
		case held[at] == share && rest > 0:
			rest--
			held[at]++
			groups[i].domain = at
			continue
		}
		homeless = append(homeless, i)
	}
	for _, i := range homeless {
		least := domains[0]
		for _, d := range domains[1:] {
			if held[d] < held[least] {
				least = d
			}
		}
		held[least]++
		groups[i].domain = least
	}
}

// home is where an index is: with its youngest machine that stays, else with
// its youngest that goes; "" when that is none of the wanted domains.
func (g group) home(domains []string) string {
	var best *Member
	for i := range g.all {
		if m := &g.all[i]; best == nil || younger(m, best) {
			best = m
		}
	}
	if best == nil || !slices.Contains(domains, best.Domain) {
		return ""
	}
	return best.Domain
}

func younger(a, b *Member) bool {
	switch {
	case a.Deleting != b.Deleting:
		return b.Deleting
	case a.Created != b.Created:
		return a.Created > b.Created
	}
	return strings.Compare(a.Name, b.Name) < 0
}

// distinct drops repetitions and the empty domain, keeping the order.
func distinct(in []string) []string {
	var out []string
	for _, d := range in {
		if d != "" && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}
