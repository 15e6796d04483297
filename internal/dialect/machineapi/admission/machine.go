package admission

import (
	"context"
	"fmt"
	"maps"
	"slices"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	found := r.judge(ctx, subject{
		namespace: req.Namespace, machine: now.Name, value: now.Spec.ProviderSpec.Value,
		update: update, old: old.Spec.ProviderSpec.Value,
	})
	v.Problems = append(v.Problems, found...)
	return r.underSet(ctx, req.Namespace, &now.ObjectMeta, v), nil
}

const kindMachineSet = "MachineSet"

// underSet is the verdict on a Machine that a set may control. What the
// original would admit becomes a warning then, and risks accepted for the set
// are accepted for the Machine: the set's author was told, and a Machine that
// fails in the cloud shows the cloud's own words, while one that cannot be made
// shows nothing.
func (r *Reviewer) underSet(ctx context.Context, namespace string, m *metav1.ObjectMeta, v Verdict) Verdict {
	ref := metav1.GetControllerOfNoCopy(m)
	if ref == nil || ref.Kind != kindMachineSet {
		return v
	}
	for i := range v.Problems {
		if r.ours[v.Problems[i].Rule] {
			v.Problems[i].Warning = true
		}
	}
	if len(v.Problems) > 0 {
		v.Annotations = r.inherited(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, m.Annotations)
	}
	return v
}

// inherited returns a Machine's annotations with those of its set beneath: a
// risk that was accepted for the set is accepted for its Machines.
func (r *Reviewer) inherited(ctx context.Context, key client.ObjectKey, own map[string]string) map[string]string {
	var set machinev1.MachineSet
	if err := r.Client.Get(ctx, key, &set, client.UnsafeDisableDeepCopy); err != nil {
		r.unreadable(err, "machineset")
		return own
	}
	out := maps.Clone(set.Annotations)
	if out == nil {
		return own
	}
	maps.Copy(out, own)
	return out
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
