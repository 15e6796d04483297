package admission

import (
	"context"
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
)

func (r *Reviewer) mutateMachine(ctx context.Context, req *admissionv1.AdmissionRequest) (Verdict, error) {
	v, err := r.mutate(ctx, req, true, "spec")
	var m struct {
		metav1.ObjectMeta `json:"metadata"`
	}
	if err != nil || json.Unmarshal(req.Object.Raw, &m) != nil {
		return v, err
	}
	return r.underSet(ctx, req.Namespace, &m.ObjectMeta, v), nil
}

func (r *Reviewer) mutateMachineSet(ctx context.Context, req *admissionv1.AdmissionRequest) (Verdict, error) {
	return r.mutate(ctx, req, false, "spec", "template", "spec")
}

// mutate fills in the cluster label and the defaults of the providerSpec under
// path. It runs before the object has met its schema, so it works on the tree
// and passes on whatever has another shape than it expects: the schema's own
// complaint is the better one.
func (r *Reviewer) mutate(ctx context.Context, req *admissionv1.AdmissionRequest, label bool, path ...string) (Verdict, error) {
	var v Verdict
	if req.Operation != admissionv1.Create {
		return v, nil
	}
	var tree map[string]any
	if err := utiljson.Unmarshal(req.Object.Raw, &tree); err != nil {
		return v, fmt.Errorf("decode %s: %w", req.Kind.Kind, err)
	}
	meta, _ := tree["metadata"].(map[string]any)
	v.Annotations = stringMap(meta["annotations"])
	sc := r.specContext(ctx)
	changed := label && labelCluster(meta, sc.InfraID)
	if spec, ok := dig(tree, path...); ok && r.Codec != nil {
		value, problems, err := r.defaulted(spec, sc)
		if err != nil {
			return v, err
		}
		v.Problems = problems
		if value != nil {
			spec["providerSpec"] = map[string]any{"value": value}
			changed = true
		}
	}
	if !changed {
		return v, nil
	}
	var err error
	if v.Patched, err = json.Marshal(tree); err != nil {
		return v, fmt.Errorf("encode %s: %w", req.Kind.Kind, err)
	}
	return v, nil
}

// labelCluster sets the cluster label where there is none; an empty value is
// somebody's decision.
func labelCluster(meta map[string]any, infraID string) bool {
	if meta == nil || infraID == "" {
		return false
	}
	if meta["labels"] == nil {
		meta["labels"] = map[string]any{}
	}
	labels, ok := meta["labels"].(map[string]any)
	if !ok {
		return false
	}
	if _, has := labels[wire.LabelCluster]; has {
		return false
	}
	labels[wire.LabelCluster] = infraID
	return true
}

// defaulted returns the providerSpec's value with its defaults, as the codec
// writes it: unknown fields are gone, and told. It returns nil for a value
// that it cannot or must not rewrite, such as another cloud's.
func (r *Reviewer) defaulted(machineSpec map[string]any, sc cloud.SpecContext) (any, []cloud.Problem, error) {
	outer, isMap := machineSpec["providerSpec"].(map[string]any)
	if !isMap && machineSpec["providerSpec"] != nil {
		return nil, nil, nil
	}
	value := outer["value"]
	if value == nil {
		return nil, []cloud.Problem{specRequired()}, nil
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, nil, fmt.Errorf("encode provider spec: %w", err)
	}
	if r.foreign(raw) {
		return nil, nil, nil
	}
	spec, problems, err := r.Codec.Decode(raw)
	if err != nil {
		return nil, []cloud.Problem{specUnreadable(raw, err)}, nil
	}
	if sc.InfraID != "" {
		spec = r.Codec.Default(spec, sc)
	}
	if raw, err = r.Codec.Encode(spec); err != nil {
		return nil, nil, err
	}
	var out any
	if err := utiljson.Unmarshal(raw, &out); err != nil {
		return nil, nil, fmt.Errorf("decode provider spec: %w", err)
	}
	return out, problems, nil
}

// dig descends into maps; it makes none.
func dig(tree map[string]any, path ...string) (map[string]any, bool) {
	for _, p := range path {
		next, ok := tree[p].(map[string]any)
		if !ok {
			return nil, false
		}
		tree = next
	}
	return tree, true
}

func stringMap(v any) map[string]string {
	m, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		if s, ok := v.(string); ok {
			out[k] = s
		}
	}
	return out
}
