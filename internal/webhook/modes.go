package webhook

import (
	"fmt"
	"slices"
	"strings"

	"millwright.io/millwright/internal/cloud"
)

// AnnotationAcceptRisk on an object lists rules, separated by commas, whose
// refusals become warnings for it.
const AnnotationAcceptRisk = "millwright.io/accept-risk"

// Mode says what becomes of a rule's problems.
type Mode string

// Modes. Enforce, the default, refuses what the rule calls an error; its
// warnings stay warnings.
const (
	Enforce Mode = "enforce"
	Warn    Mode = "warn"
	Off     Mode = "off"
)

// Modes holds the modes of all rules. The zero value enforces each and knows
// none.
type Modes struct {
	of   map[string]Mode
	ours map[string]bool
}

// ParseModes reads settings of the form RULE=MODE; of a rule named twice the
// last counts. The error names what is wrong and what would be right.
func ParseModes(settings []string, rules []cloud.Rule) (Modes, error) {
	m := Modes{of: map[string]Mode{}, ours: map[string]bool{}}
	known := make([]string, 0, len(rules))
	for _, r := range rules {
		known = append(known, r.ID)
		m.ours[r.ID] = r.Ours
	}
	slices.Sort(known)
	for _, s := range settings {
		rule, mode, ok := strings.Cut(s, "=")
		if !ok || rule == "" {
			return Modes{}, fmt.Errorf("%q: want RULE=MODE, e.g. machineset-overlap=warn", s)
		}
		if !slices.Contains(known, rule) {
			return Modes{}, fmt.Errorf("unknown rule %q: want one of %s", rule, strings.Join(known, ", "))
		}
		switch Mode(mode) {
		case Enforce, Warn, Off:
			m.of[rule] = Mode(mode)
		default:
			return Modes{}, fmt.Errorf("%s: unknown mode %q: want %s, %s or %s", rule, mode, Enforce, Warn, Off)
		}
	}
	return m, nil
}

// sort tells refusals from warnings, in the order of the problems.
func (m Modes) sort(problems []cloud.Problem, annotations map[string]string) (refusals, warnings []string) {
	accepted := accepted(annotations)
	for _, p := range problems {
		switch mode := m.of[p.Rule]; {
		case mode == Off:
		case p.Warning || mode == Warn:
			warnings = append(warnings, p.String())
		case accepted[p.Rule]:
			warnings = append(warnings, fmt.Sprintf("%s (accepted by annotation %s: %s)", p, AnnotationAcceptRisk, p.Rule))
		case m.ours[p.Rule]:
			refusals = append(refusals, fmt.Sprintf("%s (to accept the risk, annotate the object with %s: %s)", p, AnnotationAcceptRisk, p.Rule))
		default:
			refusals = append(refusals, p.String())
		}
	}
	return refusals, warnings
}

func accepted(annotations map[string]string) map[string]bool {
	out := map[string]bool{}
	for rule := range strings.SplitSeq(annotations[AnnotationAcceptRisk], ",") {
		if rule = strings.TrimSpace(rule); rule != "" {
			out[rule] = true
		}
	}
	return out
}
