package drain

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// ledger is what the budgets still grant while a plan is made.
type ledger struct {
	of map[place][]*Budget
}

// place is where a budget is looked up: under a label that all its pods carry,
// or, without such a label, under its namespace alone.
type place struct{ namespace, label, value string }

func newLedger(budgets []Budget) *ledger {
	l := &ledger{of: map[place][]*Budget{}}
	for _, b := range budgets {
		if b.Selector == nil {
			continue
		}
		at := placeOf(b)
		l.of[at] = append(l.of[at], &b)
	}
	return l
}

func placeOf(b Budget) place {
	rs, _ := b.Selector.Requirements()
	for _, r := range rs {
		if v, exact := b.Selector.RequiresExactMatch(r.Key()); exact {
			return place{b.Namespace, r.Key(), v}
		}
	}
	return place{namespace: b.Namespace}
}

// over returns the budgets that select a pod, by name.
func (l *ledger) over(p Pod) []*Budget {
	var out []*Budget
	take := func(at place) {
		for _, b := range l.of[at] {
			if b.Selector.Matches(labels.Set(p.Labels)) {
				out = append(out, b)
			}
		}
	}
	take(place{namespace: p.Namespace})
	for k, v := range p.Labels {
		take(place{p.Namespace, k, v})
	}
	slices.SortFunc(out, func(a, b *Budget) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (l *ledger) names(p Pod) []string {
	var out []string
	for _, b := range l.over(p) {
		out = append(out, b.Name)
	}
	return out
}

// charge takes one disruption off the budgets of a pod, by the server's own
// rules, or says which of them keep it. direct says that the eviction API
// would not take the pod although its budgets do, since they are several.
func (l *ledger) charge(p Pod) (v Verdict, direct bool) {
	if p.Pending {
		return Verdict{}, false
	}
	budgets := l.over(p)
	var need, spent []*Budget
	for _, b := range budgets {
		switch {
		case !p.Ready && (b.AlwaysAllow || b.Healthy >= b.Desired && b.Desired > 0):
			// It counts for nothing and may go.
		case b.Stale, b.Allowed <= 0:
			spent = append(spent, b)
		default:
			need = append(need, b)
		}
	}
	if len(spent) > 0 {
		return blocked(p, spent), false
	}
	for _, b := range need {
		b.Allowed--
	}
	return Verdict{}, len(budgets) > 1
}

func blocked(p Pod, by []*Budget) Verdict {
	v := Verdict{Pod: p, Why: WhyBudget, Detail: textBudgets(by)}
	for _, b := range by {
		v.Budgets = append(v.Budgets, b.Name)
	}
	switch {
	case len(by) > 1:
		v.Why = WhyBudgets
	case by[0].Stale:
		v.Why = WhyStale
	}
	return v
}
