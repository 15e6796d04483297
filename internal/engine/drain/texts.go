package drain

import (
	"fmt"
	"strings"
	"time"
)

// Words of the eviction API, which people search for.
const (
	textSpent = "Cannot evict pod as it would violate the pod's disruption budget."
	textStale = "The disruption budget %s is still being processed by the server."
	textNeeds = "The disruption budget %s needs %d healthy pods and has %d currently"
)

func textBudgets(by []*Budget) string {
	texts := []string{textSpent}
	for _, b := range by {
		if b.Stale {
			texts = append(texts, fmt.Sprintf(textStale, b.Name))
		} else {
			texts = append(texts, fmt.Sprintf(textNeeds, b.Name, b.Desired, b.Healthy))
		}
	}
	return strings.Join(texts, " ")
}

func textOverdue(p Pod) string {
	return "it should have ended at " + p.Deleted.UTC().Format(time.RFC3339)
}

// String names the pod, its owner and what keeps it.
func (v Verdict) String() string {
	owner := ""
	if v.Pod.Owner != "" {
		owner = " (" + v.Pod.Owner + ")"
	}
	verb := "evicting"
	if v.Why == WhyOverdue {
		verb = "waiting for"
	}
	return fmt.Sprintf("error when %s pods/%q -n %q%s: %s", verb, v.Pod.Name, v.Pod.Namespace, owner, v.Detail)
}

// shown is how many blockers a text names; the rest are counted.
const shown = 5

// Text names what blocks a drain; empty when nothing does. It only changes
// when the blockers do.
func (s Status) Text() string {
	var texts []string
	for i, v := range s.Blocked {
		if i == shown {
			texts = append(texts, fmt.Sprintf("and %d more", len(s.Blocked)-shown))
			break
		}
		texts = append(texts, v.String())
	}
	if len(texts) == 1 {
		return texts[0]
	}
	if len(texts) == 0 {
		return ""
	}
	return "[" + strings.Join(texts, ", ") + "]"
}
