// Package lint decides which parts of MachineConfigs and pools will break a
// node, will not render or will surprise. The same rules serve the command line,
// admission and rendering. It only judges what it is given: it never reads a
// file, a clock or a cluster, and it never changes its input.
//
//	for _, f := range lint.Lint(lint.Input{Fragments: fragments}) {
//		fmt.Println(f)
//	}
package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"millwright.io/millwright/internal/engine/disruption"
	"millwright.io/millwright/internal/engine/ignition"
	"millwright.io/millwright/internal/engine/render"
	"millwright.io/millwright/internal/telemetry"
)

// Severity tells whether a finding refuses.
type Severity string

// Severities.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Mode says what becomes of a rule's findings.
type Mode string

// Modes. Enforce, the default, leaves errors errors.
const (
	Enforce Mode = "enforce"
	Warn    Mode = "warn"
	Off     Mode = "off"
)

// Source is where an object stands; empty if it is no file's.
type Source struct {
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
}

// String is file:line.
func (s Source) String() string {
	if s.File != "" && s.Line > 0 {
		return fmt.Sprintf("%s:%d", s.File, s.Line)
	}
	return s.File
}

// Fragment is a MachineConfig. Manifest is its text, YAML or JSON, if there is
// one: names that no type knows are only seen there.
type Fragment struct {
	render.Fragment
	Source   Source
	Manifest []byte
}

// Pool is a MachineConfigPool.
type Pool struct {
	Name         string
	Annotations  map[string]string
	Selector     *metav1.LabelSelector
	NodeSelector *metav1.LabelSelector
	Source       Source
}

// Node is a Node as far as pools care.
type Node struct {
	Name   string
	Labels map[string]string
}

// UnitFacts are the systemd units the nodes of a pool have. Complete says that
// every node of the pool has told.
type UnitFacts struct {
	Units    map[string]bool
	Complete bool
}

// Input is what is judged. Without pools, rules about pools rest.
type Input struct {
	Fragments []Fragment
	Pools     []Pool
	Kubelets  []Kubelet
	Runtimes  []Runtime
	Nodes     []Node
	Policy    *disruption.Policy   // nil: the defaults
	Units     map[string]UnitFacts // by pool
	Base      render.Base
	Modes     map[string]Mode // by rule
}

// Finding is one thing that is wrong. Why says what will happen, Fix what would
// be right.
type Finding struct {
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	Object   string   `json:"object"` // Kind/name
	Field    string   `json:"field,omitempty"`
	Value    string   `json:"value,omitempty"`
	Why      string   `json:"why"`
	Fix      string   `json:"fix,omitempty"`
	Source   Source   `json:"source,omitzero"`
}

// String is the finding on one line.
func (f Finding) String() string {
	var b strings.Builder
	if at := f.Source.String(); at != "" {
		b.WriteString(at + ": ")
	}
	fmt.Fprintf(&b, "%s: %s", f.Severity, f.Object)
	if f.Field != "" {
		b.WriteString(": " + f.Field)
	}
	if f.Value != "" {
		fmt.Fprintf(&b, ": %q", f.Value)
	}
	b.WriteString(": " + f.Why)
	if f.Fix != "" {
		b.WriteString("; " + f.Fix)
	}
	return b.String() + " [" + f.Rule + "]"
}

// HasErrors tells whether a finding refuses.
func HasErrors(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Severity == Error })
}

// Lint judges. Findings are sorted: by object, errors before warnings, then by
// field. The order of the input does not matter.
func Lint(in Input) []Finding {
	l := newLinter(in)
	for i := range l.in.Fragments {
		l.fragment(&l.in.Fragments[i])
	}
	l.settings()
	l.pools()
	l.nodes()
	slices.SortStableFunc(l.out, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Field, b.Field),
			cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Value, b.Value), cmp.Compare(a.Why, b.Why))
	})
	return slices.CompactFunc(l.out, func(a, b Finding) bool { return a == b })
}

// linter gathers findings.
type linter struct {
	in      Input
	policy  disruption.Policy
	members map[string][]*Pool         // fragment → pools that take it
	defined map[string]map[string]bool // pool → what its fragments give contents to; "" is all fragments
	broken  map[string]bool            // fragments that cannot be merged
	schemas schemas
	configs map[*Fragment]*ignition.Config // what could be read
	out     []Finding
}

func newLinter(in Input) *linter {
	l := &linter{in: in, policy: disruption.Defaults(), members: map[string][]*Pool{}, broken: map[string]bool{}, defined: map[string]map[string]bool{}, schemas: schemas{}, configs: map[*Fragment]*ignition.Config{}}
	if in.Policy != nil {
		l.policy = *in.Policy
	}
	l.in.Fragments = slices.Clone(in.Fragments)
	slices.SortStableFunc(l.in.Fragments, func(a, b Fragment) int { return cmp.Compare(a.Name, b.Name) })
	l.in.Pools = slices.Clone(in.Pools)
	slices.SortStableFunc(l.in.Pools, func(a, b Pool) int { return cmp.Compare(a.Name, b.Name) })
	for i := range l.in.Pools {
		p := &l.in.Pools[i]
		selector, ok := selectorOf(p.Selector)
		if !ok {
			continue
		}
		for j := range l.in.Fragments {
			if f := &l.in.Fragments[j]; selector.Matches(labels.Set(f.Labels)) {
				l.members[f.Name] = append(l.members[f.Name], p)
			}
		}
	}
	for i := range l.in.Fragments {
		f := &l.in.Fragments[i]
		l.configs[f] = parse(f)
		l.define(f)
	}
	return l
}

// selectorOf is not ok for selectors that select nothing or must not be used.
func selectorOf(s *metav1.LabelSelector) (labels.Selector, bool) {
	if s == nil {
		return nil, false
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	return selector, err == nil && !selector.Empty()
}

// object is what findings are about.
type object struct {
	name        string
	annotations map[string]string
	source      Source
}

func (f *Fragment) object() object {
	return object{"MachineConfig/" + f.Name, f.Annotations, f.Source}
}

func (p *Pool) object() object {
	return object{"MachineConfigPool/" + p.Name, p.Annotations, p.Source}
}

// add records a finding after modes and accepted risks. Empty Why and Fix are
// the rule's own.
func (l *linter) add(o object, f Finding) {
	mode := l.in.Modes[f.Rule]
	if mode == Off {
		return
	}
	r := rulesByID[f.Rule]
	f.Object, f.Source = o.name, o.source
	f.Why, f.Fix = cmp.Or(f.Why, r.Why), cmp.Or(f.Fix, r.Fix)
	if f.Severity == "" {
		f.Severity = r.Severity
	}
	if f.Severity == Error {
		switch {
		case mode == Warn:
			f.Severity = Warning
		case accepts(o.annotations, f.Rule):
			f.Severity = Warning
			f.Why += fmt.Sprintf(" (accepted by annotation %s: %s)", telemetry.AnnotationAcceptRisk, f.Rule)
		}
	}
	l.out = append(l.out, f)
}

func accepts(annotations map[string]string, rule string) bool {
	for id := range strings.SplitSeq(annotations[telemetry.AnnotationAcceptRisk], ",") {
		if strings.TrimSpace(id) == rule {
			return true
		}
	}
	return false
}
