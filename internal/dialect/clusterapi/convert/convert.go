// Package convert turns objects of cluster.x-k8s.io and
// bootstrap.cluster.x-k8s.io from v1beta1 to v1beta2 and back, on raw maps.
//
// One table per kind says which field is which; the definitions' own schemas
// say what the other version cannot hold. Whatever a way there and back would
// lose is kept in an annotation of the result and comes back with the way back,
// unless the field it hangs on was changed meanwhile. It must never talk to an
// API server, and never change the object it is given.
//
//	c, err := convert.New(definitions, versions)
//	stored, err := c.Convert(object, "cluster.x-k8s.io/v1beta2")
package convert

import (
	"fmt"
	"maps"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
)

const (
	// AnnotationOld keeps, on a v1beta2 object, what only v1beta1 can say.
	AnnotationOld = "millwright.io/v1beta1-data"
	// AnnotationNew keeps, on a v1beta1 object, what only v1beta2 can say.
	AnnotationNew = "millwright.io/v1beta2-data"
	// AnnotationOriginal is where the original keeps, on a v1beta1 object, the
	// whole v1beta2 object without its metadata.
	AnnotationOriginal = "cluster.x-k8s.io/conversion-data"
)

const (
	oldVersion = "v1beta1"
	newVersion = "v1beta2"
)

// Versions tells which version of a kind keeps the contract, "" when that is
// not known. It must be quick and safe for concurrent use.
type Versions func(group, kind string) string

// Converter converts objects of the kinds that it has both a table and a
// definition of. It is safe for concurrent use.
type Converter struct {
	kinds    map[string]kind // by group/kind
	versions Versions
}

type kind struct {
	steps    []step
	old, new *schema
}

// New takes schemas from the definitions; kinds without a table are ignored,
// a kind with a table and without both versions is an error.
func New(crds []*apiextensionsv1.CustomResourceDefinition, versions Versions) (*Converter, error) {
	c := &Converter{kinds: map[string]kind{}, versions: versions}
	for _, crd := range crds {
		name := crd.Spec.Group + "/" + crd.Spec.Names.Kind
		steps, ok := tables[name]
		if !ok {
			continue
		}
		k := kind{steps: steps}
		for i := range crd.Spec.Versions {
			v := &crd.Spec.Versions[i]
			if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
				continue
			}
			switch v.Name {
			case oldVersion:
				k.old = compileRoot(v.Schema.OpenAPIV3Schema)
			case newVersion:
				k.new = compileRoot(v.Schema.OpenAPIV3Schema)
			}
		}
		if k.old == nil || k.new == nil {
			return nil, fmt.Errorf("definition %s: schemas of both %s and %s are needed", crd.Name, oldVersion, newVersion)
		}
		c.kinds[name] = k
	}
	return c, nil
}

// Kinds lists the kinds with a table, as group/kind.
func Kinds() []string { return sortedKeys(tables) }

// Convert returns obj in the version that apiVersion (group/version) names, as
// a new map that shares with obj only what is below its metadata. An object
// already of that version comes back as it is. Errors: a kind or version that
// has no table, or metadata that are no object.
func (c *Converter) Convert(obj map[string]any, apiVersion string) (map[string]any, error) {
	from, _ := obj["apiVersion"].(string)
	kindName, _ := obj["kind"].(string)
	group, have, _ := strings.Cut(from, "/")
	wantGroup, want, _ := strings.Cut(apiVersion, "/")
	k, ok := c.kinds[group+"/"+kindName]
	if !ok || group != wantGroup {
		return nil, fmt.Errorf("convert %s %s to %s: no such conversion; known kinds are %s",
			from, kindName, apiVersion, strings.Join(Kinds(), ", "))
	}
	if have == want {
		return obj, nil
	}
	meta, ok := obj["metadata"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("convert %s %s: metadata: %T is no object", from, kindName, obj["metadata"])
	}
	out := maps.Clone(obj)
	meta = maps.Clone(meta)
	out["metadata"] = meta
	if annotations, ok := meta["annotations"].(map[string]any); ok {
		meta["annotations"] = maps.Clone(annotations)
	}
	namespace, _ := meta["namespace"].(string)
	w := way{kind: k, env: env{namespace: namespace, versions: c.versions}}
	switch {
	case have == oldVersion && want == newVersion:
		w.forward = true
	case have == newVersion && want == oldVersion:
	default:
		return nil, fmt.Errorf("convert %s %s to %s: versions are %s and %s", from, kindName, apiVersion, oldVersion, newVersion)
	}
	res, err := w.run(out, meta)
	if err != nil {
		return nil, fmt.Errorf("convert %s %s to %s: %w", from, kindName, apiVersion, err)
	}
	res["apiVersion"] = apiVersion
	return res, nil
}

// way is one conversion of one object.
type way struct {
	kind
	env
	forward bool
}

// run converts obj, whose top level and annotations it owns. meta is obj's
// metadata.
func (w way) run(obj, meta map[string]any) (map[string]any, error) {
	kept, err := w.takeKept(meta)
	if err != nil {
		return nil, err
	}
	body := parts(obj)
	res := w.convert(body, w.forward)
	for _, d := range kept {
		res = asMap(d.apply(res))
	}
	back := w.convert(res, !w.forward)
	for _, part := range bodyParts {
		delete(obj, part)
		if v, ok := res[part]; ok {
			obj[part] = v
		}
	}
	return obj, w.keep(meta, difference(back, body))
}

// bodyParts are the top-level fields that differ by version.
var bodyParts = []string{"spec", "status"}

func parts(obj map[string]any) map[string]any {
	out := map[string]any{}
	for _, part := range bodyParts {
		if v, ok := obj[part]; ok {
			out[part] = v
		}
	}
	return out
}

// convert returns a copy of body in the other version, cut to what the other
// version's schema can hold.
func (w way) convert(body map[string]any, forward bool) map[string]any {
	out := runtime.DeepCopyJSON(body)
	target := w.new
	if forward {
		for _, s := range w.steps {
			s.up(out, w.env)
		}
	} else {
		target = w.old
		for i := len(w.steps) - 1; i >= 0; i-- {
			w.steps[i].down(out, w.env)
		}
	}
	target.prune(out)
	return out
}

// takeKept removes from meta what earlier conversions kept there for this one.
func (w way) takeKept(meta map[string]any) ([]*delta, error) {
	annotations, ok := meta["annotations"].(map[string]any)
	if !ok {
		return nil, nil
	}
	defer func() {
		if len(annotations) == 0 {
			delete(meta, "annotations")
		}
	}()
	mine, stray := AnnotationNew, AnnotationOld
	if !w.forward {
		mine, stray = stray, mine
	}
	delete(annotations, stray)
	var out []*delta
	if w.forward {
		if d := w.original(annotations); d != nil {
			out = append(out, d)
		}
	}
	text, ok := annotations[mine].(string)
	if !ok {
		return out, nil
	}
	delete(annotations, mine)
	var d delta
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return nil, fmt.Errorf("annotation %s: %w; remove it if it was edited", mine, err)
	}
	return append(out, &d), nil
}

// original consumes what the original kept on a v1beta1 object: the parts of
// the v1beta2 object that v1beta1 cannot say. What cannot be read stays.
func (w way) original(annotations map[string]any) *delta {
	text, ok := annotations[AnnotationOriginal].(string)
	if !ok {
		return nil
	}
	var whole map[string]any
	if err := json.Unmarshal([]byte(text), &whole); err != nil {
		return nil
	}
	delete(annotations, AnnotationOriginal)
	whole = parts(whole)
	return difference(w.convert(w.convert(whole, false), true), whole)
}

// keep writes what would be lost into the annotation for the way back.
func (w way) keep(meta map[string]any, lost *delta) error {
	if lost == nil {
		return nil
	}
	raw, err := json.Marshal(lost)
	if err != nil {
		return fmt.Errorf("keep what the version lacks: %w", err)
	}
	annotations, ok := meta["annotations"].(map[string]any)
	if !ok {
		annotations = map[string]any{}
		meta["annotations"] = annotations
	}
	key := AnnotationOld
	if !w.forward {
		key = AnnotationNew
	}
	annotations[key] = string(raw)
	return nil
}

func asMap(v any, _ bool) map[string]any {
	m, ok := v.(map[string]any)
	if !ok {
		return map[string]any{}
	}
	return m
}
