// Package admission judges MachineConfigs that people write, with the rules of
// engine/lint: what would leave a node degraded for ever or never render is
// refused before any node hears of it. It translates a request for the rules
// and their findings back, reads no cluster, and changes no object, so that it
// answers while the controllers are stopped.
//
//	verdict, err := admission.Validate(ctx, request)
package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/engine/hostconf"
	"millwright.io/millwright/internal/engine/lint"
	"millwright.io/millwright/internal/engine/render"
)

// PathValidate is where the API server calls.
const PathValidate = "/validate-machineconfiguration-openshift-io-v1-machineconfig"

// Rules lists the rules, sorted by ID. The original makes none of these checks
// at the door.
func Rules() []cloud.Rule {
	var out []cloud.Rule
	for _, r := range lint.Rules() {
		out = append(out, cloud.Rule{ID: r.ID, Ours: true})
	}
	slices.SortFunc(out, func(a, b cloud.Rule) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// Verdict is what was found.
type Verdict struct {
	Annotations map[string]string // of the object: they may accept risks
	Problems    []cloud.Problem
}

// Validate judges one request. An error means that the request itself cannot
// be understood. Configs that a controller made are its own affair, and an
// update that changes nothing that people write is none.
func Validate(_ context.Context, req *admissionv1.AdmissionRequest) (Verdict, error) {
	var mc machineconfigv1.MachineConfig
	if err := json.Unmarshal(req.Object.Raw, &mc); err != nil {
		return Verdict{}, fmt.Errorf("decode machine config: %w", err)
	}
	v := Verdict{Annotations: mc.Annotations}
	if metav1.GetControllerOfNoCopy(&mc) != nil || (hostconf.IsRendered(mc.Name) && len(mc.Labels) == 0) {
		return v, nil
	}
	if len(req.OldObject.Raw) > 0 {
		var old machineconfigv1.MachineConfig
		if err := json.Unmarshal(req.OldObject.Raw, &old); err != nil {
			return Verdict{}, fmt.Errorf("decode present machine config: %w", err)
		}
		if mc.DeletionTimestamp != nil || unchanged(&old, &mc) {
			return v, nil
		}
	}
	found := lint.Lint(lint.Input{Fragments: []lint.Fragment{{Fragment: render.FromMachineConfig(&mc), Manifest: req.Object.Raw}}})
	for _, f := range found {
		v.Problems = append(v.Problems, problem(f))
	}
	return v, nil
}

func unchanged(a, b *machineconfigv1.MachineConfig) bool {
	return equality.Semantic.DeepEqual(a.Spec, b.Spec) && equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		equality.Semantic.DeepEqual(a.Annotations, b.Annotations)
}

// problem says a finding as a sentence: where, what stands there, what will
// happen and what would be right.
func problem(f lint.Finding) cloud.Problem {
	var b strings.Builder
	b.WriteString(f.Object)
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
	b.WriteString(" [" + f.Rule + "]")
	return cloud.Problem{Rule: f.Rule, Field: f.Field, Value: f.Value, Detail: b.String(), Warning: f.Severity != lint.Error}
}
