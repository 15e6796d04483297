package lint

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	v2types "github.com/coreos/ignition/config/v2_3/types"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"sigs.k8s.io/yaml"

	"millwright.io/millwright/internal/cloud"
)

// fields looks for names that no type has. A near miss of a known name is
// refused: somebody meant it.
func (l *linter) fields(f *Fragment) {
	w := walker{l: l, o: f.object()}
	if len(f.Manifest) > 0 {
		var tree map[string]any
		if yaml.Unmarshal(f.Manifest, &tree) == nil {
			delete(tree, "status")
			w.walk(tree, reflect.TypeFor[mcfgv1.MachineConfig](), "")
		}
	}
	var config map[string]any
	if len(f.Spec.Config.Raw) == 0 || json.Unmarshal(f.Spec.Config.Raw, &config) != nil {
		return
	}
	schema := reflect.TypeFor[types.Config]()
	if header, ok := config["ignition"].(map[string]any); ok {
		if version, ok := header["version"].(string); ok && strings.HasPrefix(version, "2.") {
			schema = reflect.TypeFor[v2types.Config]()
		}
	}
	w.lenientCase = true
	w.walk(config, schema, "spec.config")
}

// walker compares a tree with a type.
type walker struct {
	l *linter
	o object
	// lenientCase: Ignition's reader takes names in any case.
	lenientCase bool
}

func (w walker) walk(v any, t reflect.Type, at string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch v := v.(type) {
	case []any:
		if t.Kind() != reflect.Slice && t.Kind() != reflect.Array {
			return
		}
		for i, e := range v {
			w.walk(e, t.Elem(), fmt.Sprintf("%s[%d]", at, i))
		}
	case map[string]any:
		known := knownFields(w.l.schemas, t)
		if known == nil {
			return
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			child, ok := known[key]
			switch where := join(at, key); {
			case ok && opaque(child, key):
			case ok:
				w.walk(v[key], child, where)
			case !strings.HasPrefix(key, "x-"):
				w.unknown(known, key, at)
			}
		}
	}
}

// opaque are parts with a schema of their own: the config is walked apart.
func opaque(t reflect.Type, key string) bool {
	return key == "managedFields" || t.PkgPath() == "k8s.io/apimachinery/pkg/runtime"
}

func (w walker) unknown(known map[string]reflect.Type, key, at string) {
	finding := Finding{Rule: RuleUnknownField, Field: join(at, key)}
	best := cloud.Nearest(key, slices.Collect(maps.Keys(known)))
	if w.lenientCase && strings.EqualFold(best, key) {
		finding.Why = "the field's name differs in case, which other readers do not accept"
		finding.Fix = "write " + best
		w.l.add(w.o, finding)
		return
	}
	if best != "" {
		finding.Severity = Error
		finding.Why = fmt.Sprintf("field %q is not known and is ignored", key)
		finding.Fix = fmt.Sprintf("did you mean %q?", best)
	}
	w.l.add(w.o, finding)
}

func join(at, key string) string {
	if at == "" {
		return key
	}
	return at + "." + key
}

// schemas remembers the fields of types.
type schemas map[reflect.Type]map[string]reflect.Type

// knownFields maps the JSON names of a struct to their types; nil if the type is
// no struct with names.
func knownFields(cache schemas, t reflect.Type) map[string]reflect.Type {
	if t.Kind() != reflect.Struct {
		return nil
	}
	if cached, ok := cache[t]; ok {
		return cached
	}
	out := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && f.Anonymous:
			embedded := f.Type
			for embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			maps.Copy(out, knownFields(cache, embedded))
		case name == "":
			out[f.Name] = f.Type
		default:
			out[name] = f.Type
		}
	}
	cache[t] = out
	return out
}
