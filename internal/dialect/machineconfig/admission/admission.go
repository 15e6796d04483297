// Package admission judges what people write: MachineConfigs and pools with the
// rules of engine/lint, KubeletConfigs and ContainerRuntimeConfigs with those of
// engine/hostconf. What would leave a node degraded for ever or never render is
// refused before any node hears of it. It translates a request for the rules
// and their findings back and changes no object. It reads the cluster only for
// what a rule must know of hosts, so it answers while the controllers are
// stopped.
//
//	verdict, err := admission.Validate(ctx, request)
package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/dialect/machineconfig/unitnames"
	"millwright.io/millwright/internal/engine/hostconf"
	"millwright.io/millwright/internal/engine/lint"
	"millwright.io/millwright/internal/engine/render"
)

//+kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfigs;machineconfigpools,verbs=get;list
//+kubebuilder:rbac:groups="",resources=nodes,verbs=get;list
//+kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list,namespace=openshift-machine-config-operator

// PathValidate is where the API server calls, for all kinds.
const PathValidate = "/validate-machineconfiguration-openshift-io-v1"

// Rules about objects that no pool could use.
const (
	RuleKubeletConfig = lint.RuleKubeletConfig
	RuleRuntimeConfig = lint.RuleRuntimeConfig
)

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
	switch req.Kind.Kind {
	case "MachineConfigPool":
		return judge(req, func(p *machineconfigv1.MachineConfigPool) ([]cloud.Problem, any) { return judgePool(p), p.Spec })
	case "KubeletConfig":
		return judge(req, func(k *machineconfigv1.KubeletConfig) ([]cloud.Problem, any) {
			return refusal("KubeletConfig/"+k.Name, RuleKubeletConfig, hostconf.CheckKubelet(k, "", false)), k.Spec
		})
	case "ContainerRuntimeConfig":
		return judge(req, func(k *machineconfigv1.ContainerRuntimeConfig) ([]cloud.Problem, any) {
			return refusal("ContainerRuntimeConfig/"+k.Name, RuleRuntimeConfig, hostconf.CheckRuntime(k)), k.Spec
		})
	default:
		return judge(req, func(mc *machineconfigv1.MachineConfig) ([]cloud.Problem, any) {
			return judgeConfig(mc, req.Object.Raw), mc.Spec
		})
	}
}

// judge decodes a request and asks about it, unless nothing changes that
// people write. ask returns the spec, too.
func judge[T any, P interface {
	*T
	client.Object
}](req *admissionv1.AdmissionRequest, ask func(P) ([]cloud.Problem, any)) (Verdict, error) {
	obj := P(new(T))
	if err := json.Unmarshal(req.Object.Raw, obj); err != nil {
		return Verdict{}, fmt.Errorf("decode %s: %w", req.Kind.Kind, err)
	}
	v := Verdict{Annotations: obj.GetAnnotations()}
	problems, spec := ask(obj)
	if len(problems) == 0 {
		return v, nil
	}
	if len(req.OldObject.Raw) > 0 {
		old := P(new(T))
		if err := json.Unmarshal(req.OldObject.Raw, old); err != nil {
			return Verdict{}, fmt.Errorf("decode present %s: %w", req.Kind.Kind, err)
		}
		_, was := ask(old)
		if obj.GetDeletionTimestamp() != nil || (equality.Semantic.DeepEqual(was, spec) &&
			maps.Equal(old.GetLabels(), obj.GetLabels()) && maps.Equal(old.GetAnnotations(), obj.GetAnnotations())) {
			return v, nil
		}
	}
	v.Problems = problems
	return v, nil
}

// ValidateWith is Validate with knowledge of hosts, read from r when a config
// enables a unit that it does not bring: the unit is refused when all nodes of a
// pool say that they do not have it. Where r does not answer, that stays a
// warning.
func ValidateWith(ctx context.Context, r client.Reader, req *admissionv1.AdmissionRequest) (Verdict, error) {
	v, err := Validate(ctx, req)
	suspect := func(p cloud.Problem) bool { return p.Rule == lint.RuleUnitUnknown }
	if err != nil || !slices.ContainsFunc(v.Problems, suspect) {
		return v, err
	}
	known, err := unitProblems(ctx, r, req)
	if err != nil {
		return v, nil //nolint:nilerr // what is not known is no reason to refuse
	}
	v.Problems = append(slices.DeleteFunc(v.Problems, suspect), known...)
	return v, nil
}

// unitProblems judges the units of a config with the hosts' own lists and the
// other configs, which may bring them.
func unitProblems(ctx context.Context, r client.Reader, req *admissionv1.AdmissionRequest) ([]cloud.Problem, error) {
	mc := &machineconfigv1.MachineConfig{}
	if err := json.Unmarshal(req.Object.Raw, mc); err != nil {
		return nil, fmt.Errorf("decode %s: %w", req.Kind.Kind, err)
	}
	units, err := unitnames.Read(ctx, r)
	if err != nil {
		return nil, err
	}
	var pools machineconfigv1.MachineConfigPoolList
	var others machineconfigv1.MachineConfigList
	if err := r.List(ctx, &pools); err != nil {
		return nil, fmt.Errorf("list pools: %w", err)
	}
	// Rendered configs have no labels.
	if err := r.List(ctx, &others, client.HasLabels{render.RoleLabel}); err != nil {
		return nil, fmt.Errorf("list machine configs: %w", err)
	}
	in := lint.Input{Units: units, Fragments: []lint.Fragment{{Fragment: render.FromMachineConfig(mc)}}}
	for i := range pools.Items {
		p := &pools.Items[i]
		in.Pools = append(in.Pools, lint.Pool{Name: p.Name, Selector: p.Spec.MachineConfigSelector, NodeSelector: p.Spec.NodeSelector})
	}
	for i := range others.Items {
		if o := &others.Items[i]; o.Name != mc.Name {
			in.Fragments = append(in.Fragments, lint.Fragment{Fragment: render.FromMachineConfig(o)})
		}
	}
	found := slices.DeleteFunc(lint.Lint(in), func(f lint.Finding) bool {
		return f.Rule != lint.RuleUnitUnknown || f.Object != "MachineConfig/"+mc.Name
	})
	return problems(found), nil
}

func judgeConfig(mc *machineconfigv1.MachineConfig, raw []byte) []cloud.Problem {
	if metav1.GetControllerOfNoCopy(mc) != nil || (hostconf.IsRendered(mc.Name) && len(mc.Labels) == 0) {
		return nil
	}
	return problems(lint.Lint(lint.Input{Fragments: []lint.Fragment{{Fragment: render.FromMachineConfig(mc), Manifest: raw}}}))
}

// judgePool judges a pool by itself: what it selects may come later, and
// rendering says so if it does not.
func judgePool(p *machineconfigv1.MachineConfigPool) []cloud.Problem {
	found := lint.Lint(lint.Input{Pools: []lint.Pool{{Name: p.Name, Annotations: p.Annotations, Selector: p.Spec.MachineConfigSelector, NodeSelector: p.Spec.NodeSelector}}})
	return problems(slices.DeleteFunc(found, func(f lint.Finding) bool { return f.Rule != lint.RulePoolSelector && f.Rule != lint.RulePoolNodes }))
}

// refusal is a problem of an object whose check says no.
func refusal(object, rule string, err error) []cloud.Problem {
	if err == nil {
		return nil
	}
	p := cloud.Problem{Rule: rule, Detail: object + ": " + err.Error() + " [" + rule + "]"}
	var r *hostconf.Refusal
	if errors.As(err, &r) {
		p.Field = "spec." + r.Field
		p.Detail = object + ": " + p.Field + ": " + r.Text + " [" + rule + "]"
	}
	return []cloud.Problem{p}
}

func problems(found []lint.Finding) []cloud.Problem {
	var out []cloud.Problem
	for _, f := range found {
		out = append(out, problem(f))
	}
	return out
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
