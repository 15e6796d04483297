package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/engine/fleet"
)

// maxSetName leaves room for the dash and five characters that make the name
// of a Machine out of its set's.
const maxSetName = fleet.MaxName - 6

func (r *Reviewer) validateMachineSet(ctx context.Context, req *admissionv1.AdmissionRequest) (Verdict, error) {
	var now, old machinev1.MachineSet
	if err := decode(req, &now, &old); err != nil {
		return Verdict{}, err
	}
	v := Verdict{Annotations: now.Annotations}
	update := req.Operation == admissionv1.Update
	if update && equality.Semantic.DeepEqual(now.Spec, old.Spec) &&
		maps.Equal(now.Labels, old.Labels) && maps.Equal(now.Annotations, old.Annotations) {
		return v, nil
	}
	var before []cloud.Problem
	if update {
		before = selectorProblems(&old)
		if !equality.Semantic.DeepEqual(now.Spec.Selector, old.Spec.Selector) {
			v.Problems = append(v.Problems, cloud.Problem{Rule: RuleSelectorImmutable, Type: cloud.ProblemForbidden,
				Field: "spec.selector", Detail: "selector is immutable"})
		}
	} else if p, long := nameProblem(now.Name); long {
		v.Problems = append(v.Problems, p)
	}
	v.Problems = append(v.Problems, had(selectorProblems(&now), before)...)
	if !update || !equality.Semantic.DeepEqual(now.Spec.Selector, old.Spec.Selector) ||
		!maps.Equal(now.Spec.Template.Labels, old.Spec.Template.Labels) {
		v.Problems = append(v.Problems, r.overlaps(ctx, &now)...)
	}
	spec := now.Spec.Template.Spec.ProviderSpec
	v.Problems = append(v.Problems, r.judge(ctx, subject{
		namespace: req.Namespace, value: spec.Value, update: update, old: old.Spec.Template.Spec.ProviderSpec.Value,
	})...)
	return v, nil
}

// nameProblem refuses a name from which no Machine could be named.
func nameProblem(name string) (cloud.Problem, bool) {
	return cloud.Problem{Rule: RuleNameLength, Type: cloud.ProblemInvalid, Field: "metadata.name", Value: strconv.Quote(name),
		Detail: fmt.Sprintf("has %d characters, must have at most %d: its Machines are called <name>-xxxxx, and the name of a Machine, "+
			"of its VM and of its Node has at most %d", len(name), maxSetName, fleet.MaxName)}, len(name) > maxSetName
}

// selectorProblems compares a set's selector with its template.
func selectorProblems(s *machinev1.MachineSet) []cloud.Problem {
	selector, err := metav1.LabelSelectorAsSelector(&s.Spec.Selector)
	switch {
	case err != nil:
		return []cloud.Problem{{Rule: RuleSelectorSyntax, Type: cloud.ProblemInvalid, Field: "spec.selector", Value: shown(s.Spec.Selector),
			Detail: "could not convert label selector to selector: " + err.Error()}}
	case selector.Empty():
		return []cloud.Problem{{Rule: RuleSelectorEmpty, Type: cloud.ProblemInvalid, Field: "spec.selector", Value: shown(s.Spec.Selector),
			Detail: "empty selector is not valid for MachineSet."}}
	case !selector.Matches(labels.Set(s.Spec.Template.Labels)):
		return []cloud.Problem{{Rule: RuleSelectorMismatch, Type: cloud.ProblemInvalid, Field: "spec.template.metadata.labels",
			Value: shown(s.Spec.Template.Labels), Detail: "`selector` does not match template `labels`"}}
	}
	return nil
}

// shown prints a value as API machinery does.
func shown(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%v", v)
	}
	return string(raw)
}

// overlaps refuses a set that would own the Machines of another, or the other
// way round. What the cache shows is asked again before it is refused: the
// other set may be gone. What the cache does not show yet is for the
// controllers, who look again.
func (r *Reviewer) overlaps(ctx context.Context, s *machinev1.MachineSet) []cloud.Problem {
	found, err := rivals(ctx, r.Client, s, client.UnsafeDisableDeepCopy)
	if err != nil {
		r.unreadable(err, "machinesets")
		return nil
	}
	if len(found) == 0 {
		return nil
	}
	if live, err := rivals(ctx, r.Live, s); err == nil {
		found = live
	}
	return found
}

func rivals(ctx context.Context, from client.Reader, s *machinev1.MachineSet, opts ...client.ListOption) ([]cloud.Problem, error) {
	mine, err := metav1.LabelSelectorAsSelector(&s.Spec.Selector)
	if err != nil || mine.Empty() {
		return nil, nil
	}
	var list machinev1.MachineSetList
	if err := from.List(ctx, &list, append(opts, client.InNamespace(s.Namespace))...); err != nil {
		return nil, fmt.Errorf("list machinesets: %w", err)
	}
	var out []cloud.Problem
	for i := range list.Items {
		o := &list.Items[i]
		if o.Name == s.Name || o.DeletionTimestamp != nil {
			continue
		}
		theirs, err := metav1.LabelSelectorAsSelector(&o.Spec.Selector)
		if err != nil || theirs.Empty() {
			continue
		}
		switch {
		case theirs.Matches(labels.Set(s.Spec.Template.Labels)):
			out = append(out, overlap(s, "spec.template.metadata.labels", shown(s.Spec.Template.Labels),
				fmt.Sprintf("MachineSet %q would make Machines that the selector of MachineSet %q selects", s.Name, o.Name), o))
		case mine.Matches(labels.Set(o.Spec.Template.Labels)):
			out = append(out, overlap(s, "spec.selector", shown(s.Spec.Selector),
				fmt.Sprintf("MachineSet %q would select the Machines that MachineSet %q makes", s.Name, o.Name), o))
		}
	}
	return out, nil
}

// overlap words the problem, with what to change: the set label, where both
// sets go by it.
func overlap(s *machinev1.MachineSet, field, value, what string, o *machinev1.MachineSet) cloud.Problem {
	remedy := fmt.Sprintf("give %q a label that %q does not have, in spec.selector.matchLabels and in spec.template.metadata.labels", s.Name, o.Name)
	if mine := s.Spec.Selector.MatchLabels[wire.LabelMachineSet]; mine != "" && mine == o.Spec.Selector.MatchLabels[wire.LabelMachineSet] {
		remedy = fmt.Sprintf("set %s to a value of its own, e.g. %q, in spec.selector.matchLabels and in spec.template.metadata.labels", wire.LabelMachineSet, s.Name)
	}
	return cloud.Problem{Rule: RuleOverlap, Type: cloud.ProblemInvalid, Field: field, Value: value, Detail: what + ": " + remedy}
}
