package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"millwright.io/millwright/internal/cloud"
)

// subject is the providerSpec of a Machine or of a set's template.
type subject struct {
	namespace string
	machine   string // name of the Machine; "" of a template
	value     *runtime.RawExtension
	update    bool
	old       *runtime.RawExtension // of an update
}

func specRequired() cloud.Problem {
	return cloud.Problem{Rule: RuleSpecRequired, Type: cloud.ProblemRequired, Field: "providerSpec.value", Detail: "a value must be provided"}
}

func specUnreadable(raw []byte, err error) cloud.Problem {
	return cloud.Problem{Rule: RuleSpecDecode, Type: cloud.ProblemInvalid, Field: "providerSpec.value", Value: string(bytes.TrimSpace(raw)), Detail: err.Error()}
}

func absent(v *runtime.RawExtension) bool {
	return v == nil || len(bytes.TrimSpace(v.Raw)) == 0 || bytes.Equal(bytes.TrimSpace(v.Raw), []byte("null"))
}

// foreign says that a value is openly of another kind than the codec's.
func (r *Reviewer) foreign(raw []byte) bool {
	var head struct {
		Kind any `json:"kind"`
	}
	if err := yaml.Unmarshal(raw, &head); err != nil {
		return false
	}
	kind, ok := head.Kind.(string)
	return ok && kind != "" && kind != r.Codec.Kind()
}

// judge returns the problems of a spec. The catalogue is asked only about a
// spec that changed. A problem that the object had before is a warning: to
// refuse it now would keep everybody, our controllers included, from writing
// an object that is no worse than it was.
func (r *Reviewer) judge(ctx context.Context, s subject) []cloud.Problem {
	if r.Codec == nil {
		return nil
	}
	sc := r.specContext(ctx)
	sc.MachineName = s.machine
	if s.update && same(s.value, s.old) {
		found := r.check(s.value, sc)
		return had(found, slices.Clone(found))
	}
	var before []cloud.Problem
	if s.update {
		before = r.check(s.old, sc)
	}
	spec, problems := r.read(s.value)
	if spec == nil {
		return had(problems, before)
	}
	var about []cloud.Problem
	if !r.foreign(s.value.Raw) {
		sc, about = r.market(ctx, spec, s.namespace, sc)
	}
	problems = append(problems, r.Codec.Validate(spec, sc)...)
	return append(had(problems, before), about...)
}

// read decodes a value; without a spec, the problems say why.
func (r *Reviewer) read(value *runtime.RawExtension) (cloud.Spec, []cloud.Problem) {
	if absent(value) {
		return nil, []cloud.Problem{specRequired()}
	}
	spec, problems, err := r.Codec.Decode(value.Raw)
	if err != nil {
		return nil, []cloud.Problem{specUnreadable(value.Raw, err)}
	}
	return spec, problems
}

// check finds what can be found without asking anybody.
func (r *Reviewer) check(value *runtime.RawExtension, sc cloud.SpecContext) []cloud.Problem {
	spec, problems := r.read(value)
	if spec == nil {
		return problems
	}
	return append(problems, r.Codec.Validate(spec, sc)...)
}

// had turns those problems into warnings that were there before.
func had(problems, before []cloud.Problem) []cloud.Problem {
	for i := range problems {
		if slices.Contains(before, problems[i]) {
			problems[i].Warning = true
		}
	}
	return problems
}

// same compares two values by meaning.
func same(a, b *runtime.RawExtension) bool {
	if absent(a) || absent(b) {
		return absent(a) && absent(b)
	}
	if bytes.Equal(a.Raw, b.Raw) {
		return true
	}
	var x, y any
	return json.Unmarshal(a.Raw, &x) == nil && json.Unmarshal(b.Raw, &y) == nil && reflect.DeepEqual(x, y)
}
