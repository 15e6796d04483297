package target

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright.io/millwright/internal/engine/diff"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/engine/render"
)

// Settling: inputs are merged once nothing about them has changed for Quiet,
// and after Patience at the latest, so that one change of many inputs makes
// one rendered config.
const (
	Quiet    = 2 * time.Second
	Patience = 10 * time.Second
)

// DefaultKeep is how many configs that nobody needs any more a pool keeps, for
// people who want to look at them or to go back.
const DefaultKeep = 10

// ConditionRenderDegraded is the one condition that this planner owns.
const ConditionRenderDegraded = "RenderDegraded"

// Event reasons.
const (
	ReasonSelectingAll = "SelectingAll"
)

// Pool is a pool as far as its target matters.
type Pool struct {
	Name     string
	Selector *metav1.LabelSelector // nil selects nothing
	Target   string                // name of the rendered config it aims at; empty at first
	Sources  []string              // recorded with the target
	Degraded bool                  // RenderDegraded is True now
}

// Outcome is what a pool's inputs come to: a config or a refusal.
type Outcome struct {
	Result render.Result
	Err    error // a *Failure
}

// Failure says why there is no rendered config.
type Failure struct {
	Text     string           // the original's words
	Problems []render.Problem // whose fault it is
}

// Error returns the original's words, then the guilty configs and fields,
// which the original does not name.
func (f *Failure) Error() string {
	if len(f.Problems) == 0 {
		return f.Text
	}
	said := make([]string, 0, len(f.Problems))
	for _, p := range f.Problems {
		if strings.HasSuffix(f.Text, p.Detail) {
			p.Detail = "" // said already
		}
		said = append(said, guilt(p))
	}
	const most = 5
	if n := len(said); n > most {
		said = append(said[:most], fmt.Sprintf("and %d more", n-most))
	}
	return f.Text + " (" + strings.Join(said, "; ") + ")"
}

func guilt(p render.Problem) string {
	var b strings.Builder
	if p.Fragment != "" {
		b.WriteString("MachineConfig " + p.Fragment)
	} else {
		b.WriteString("the merged config")
	}
	if p.Path != "" {
		b.WriteString(", spec." + p.Path)
	}
	if p.Value != "" {
		fmt.Fprintf(&b, " %q", p.Value)
	}
	if p.Detail != "" {
		b.WriteString(": " + p.Detail)
	}
	return b.String()
}

// Render merges what a pool selects. It is pure and costs time; callers keep
// the outcome as long as the inputs do not change.
func Render(pool Pool, sources []render.Fragment, base render.Base) Outcome {
	if len(sources) == 0 {
		return Outcome{Err: &Failure{Text: "no MachineConfigs found matching selector " + metav1.FormatLabelSelector(orNothing(pool.Selector))}}
	}
	res, err := render.Render(render.Pool{Name: pool.Name, Selector: pool.Selector}, sources, base)
	if err == nil {
		return Outcome{Result: res}
	}
	f := &Failure{Text: "could not generate rendered MachineConfig: " + err.Error()}
	var e *render.Error
	if errors.As(err, &e) {
		f.Text = "could not generate rendered MachineConfig: " + e.Wire
		for _, p := range e.Problems {
			if !p.Warning {
				f.Problems = append(f.Problems, p)
			}
		}
	}
	return Outcome{Err: f}
}

// Judge returns out, or a refusal when a node that runs current, the pool's
// present target, cannot take it, unless o lifts that. sources are those that
// out was made of. The
// original's words come first, whoever they blame; then those who are guilty.
func Judge(current diff.Named, out Outcome, sources []render.Fragment, o diff.Overrides) Outcome {
	if out.Err != nil || current.Name == out.Result.Name {
		return out
	}
	err := diff.Reconcile(current, diff.Named{Name: out.Result.Name, Spec: out.Result.Spec}, o)
	if err == nil || diff.Reconcile(current, current, o) != nil {
		return out // nobody runs what cannot be read: it must not hold the pool
	}
	var named []diff.Named
	for _, name := range out.Result.Sources {
		if i := slices.IndexFunc(sources, func(f render.Fragment) bool { return f.Name == name }); i >= 0 {
			named = append(named, diff.Named{Name: name, Spec: sources[i].Spec})
		}
	}
	f := &Failure{Text: "could not generate rendered MachineConfig: " + diff.Blame(err, current, named, o).Error()}
	var r *diff.Refusal
	if errors.As(err, &r) {
		for _, name := range diff.Guilty(r, out.Result.Origins) {
			f.Problems = append(f.Problems, render.Problem{Fragment: name, Detail: r.Reason()})
		}
	}
	return Outcome{Err: f}
}

// orNothing spells a missing selector, which matches nothing.
func orNothing(s *metav1.LabelSelector) *metav1.LabelSelector {
	if s != nil {
		return s
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "nothing", Operator: metav1.LabelSelectorOpIn}}}
}

// Rendered is a rendered config that exists.
type Rendered struct {
	Name    string
	UID     string
	Created time.Time
	// Intact says that content and annotations are what we would write.
	Intact bool
	// Owned says that the pool is its controller.
	Owned bool
}

// Input is everything the decision depends on.
type Input struct {
	Now     time.Time
	Pool    Pool
	Outcome Outcome
	// Waits name inputs that are not complete yet; while there are any, the
	// pool keeps its target.
	Waits []string
	// Changed is when an input was last seen to change, Since when the first
	// change was seen that is not merged yet. Zero: long ago.
	Changed, Since time.Time
	Rendered       []Rendered
	// Needed are the names of configs that a pool, a node or a record of one
	// refers to.
	Needed map[string]bool
	// Keep is how many configs survive that nobody needs.
	Keep int
}

// Status is what the pool is told.
type Status struct {
	// Waiting says what has to end before the pool is rendered again; empty:
	// nothing.
	Waiting string
	// New is the config that this decision makes; empty: none.
	New string
}

// Decide returns what makes the pool aim at the config that its inputs come
// to. Acting on it and deciding again comes to nothing.
func Decide(in Input) plan.Decision[Status] {
	var d plan.Decision[Status]
	if s := in.Pool.Selector; s != nil && len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0 {
		d.Events = []plan.Event{{Type: plan.Warning, Reason: ReasonSelectingAll,
			Message: "This machineconfigpool is selecting all machineconfigs. A non-empty selector is required."}}
		return d
	}
	if len(in.Waits) > 0 {
		d.Status.Waiting = "waiting for " + strings.Join(in.Waits, "; ")
		return d
	}
	if wait := settling(in); wait > 0 {
		d.Status.Waiting, d.Wake = "waiting for its MachineConfigs to settle", wait
		return d
	}
	if in.Outcome.Err != nil {
		d.Conditions = []plan.Condition{{Type: ConditionRenderDegraded, Status: corev1.ConditionTrue,
			Message: fmt.Sprintf("Failed to render configuration for pool %s: %v", in.Pool.Name, in.Outcome.Err)}}
		return d
	}
	d.Conditions = []plan.Condition{{Type: ConditionRenderDegraded, Status: corev1.ConditionFalse}}
	aim(in, &d)
	collect(in, &d)
	return d
}

// settling returns how long the inputs have to be quiet yet. What would change
// nothing needs no wait.
func settling(in Input) time.Duration {
	if in.Outcome.Err == nil && in.Outcome.Result.Name == in.Pool.Target {
		return 0
	}
	if in.Outcome.Err != nil && in.Pool.Degraded {
		return 0
	}
	quiet := in.Changed.Add(Quiet).Sub(in.Now)
	patience := in.Since.Add(Patience).Sub(in.Now)
	return max(0, min(quiet, patience))
}

// aim makes or mends the config, then points the pool at it.
func aim(in Input, d *plan.Decision[Status]) {
	res := &in.Outcome.Result
	i := slices.IndexFunc(in.Rendered, func(r Rendered) bool { return r.Name == res.Name })
	switch {
	case i < 0:
		d.Status.New = res.Name
		d.Actions = append(d.Actions, plan.CreateConfig{Name: res.Name})
	case !in.Rendered[i].Intact:
		d.Actions = append(d.Actions, plan.UpdateConfig{Name: res.Name})
	}
	if in.Pool.Target != res.Name || !slices.Equal(in.Pool.Sources, res.Sources) {
		d.Actions = append(d.Actions, plan.SetTarget{Name: res.Name, Sources: res.Sources})
	}
}

// collect removes the oldest configs that nobody needs, beyond those kept. It
// waits until the pool has its target: while that moves, who needs what moves.
func collect(in Input, d *plan.Decision[Status]) {
	if len(d.Actions) > 0 {
		return
	}
	var idle []Rendered
	for _, r := range in.Rendered {
		if r.Owned && !in.Needed[r.Name] && r.Name != in.Pool.Target {
			idle = append(idle, r)
		}
	}
	slices.SortFunc(idle, func(a, b Rendered) int {
		if c := b.Created.Compare(a.Created); c != 0 {
			return c
		}
		return cmp.Compare(a.Name, b.Name)
	})
	for _, r := range idle[min(len(idle), max(0, in.Keep)):] {
		d.Actions = append(d.Actions, plan.DeleteConfig{Name: r.Name, UID: r.UID})
	}
}
