package admission

import (
	"context"
	"fmt"
	"maps"
	"slices"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"millwright.io/millwright/internal/cloud"
)

func (r *Reviewer) validateMachine(ctx context.Context, req *admissionv1.AdmissionRequest) (Verdict, error) {
	var now, old machinev1.Machine
	if err := decode(req, &now, &old); err != nil {
		return Verdict{}, err
	}
	v := Verdict{Annotations: now.Annotations}
	update := req.Operation == admissionv1.Update
	if update && equality.Semantic.DeepEqual(now.Spec, old.Spec) &&
		maps.Equal(now.Labels, old.Labels) && maps.Equal(now.Annotations, old.Annotations) {
		return v, nil // only bookkeeping, such as a finalizer that goes
	}
	if update && now.DeletionTimestamp != nil {
		v.Problems = hookProblems(now.Spec.LifecycleHooks, old.Spec.LifecycleHooks)
	}
	v.Problems = append(v.Problems, r.judge(ctx, subject{
		namespace: req.Namespace, machine: now.Name, value: now.Spec.ProviderSpec.Value,
		update: update, old: old.Spec.ProviderSpec.Value,
	})...)
	return v, nil
}

// hookProblems refuses hooks that appear or change once deletion has begun;
// taking them away is how deletion goes on.
func hookProblems(now, old machinev1.LifecycleHooks) []cloud.Problem {
	var out []cloud.Problem
	for _, stage := range []struct {
		field, name string
		now, old    []machinev1.LifecycleHook
	}{
		{"preDrain", "pre-drain", now.PreDrain, old.PreDrain},
		{"preTerminate", "pre-terminate", now.PreTerminate, old.PreTerminate},
	} {
		var added []machinev1.LifecycleHook
		for _, h := range stage.now {
			if !slices.Contains(stage.old, h) {
				added = append(added, h)
			}
		}
		if len(added) > 0 {
			out = append(out, cloud.Problem{Rule: RuleHooks, Type: cloud.ProblemForbidden, Field: "spec.lifecycleHooks." + stage.field,
				Detail: fmt.Sprintf("%s hooks are immutable when machine is marked for deletion: the following hooks are new or changed: %+v", stage.name, added)})
		}
	}
	return out
}
