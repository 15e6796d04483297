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
	best := ""
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if strings.EqualFold(name, key) {
			best = name
			if w.lenientCase {
				finding.Why = "the field's name differs in case, which other readers do not accept"
				finding.Fix = "write " + name
				w.l.add(w.o, finding)
				return
			}
			break
		}
		if best == "" && near(key, name) {
			best = name
		}
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

// near tells that one name is a slip of the other: one edit for short names, two
// from six letters on, a swap of neighbours being one edit.
func near(a, b string) bool {
	limit := 1
	if min(len(a), len(b)) >= 6 {
		limit = 2
	}
	if min(len(a), len(b)) < 3 || len(a)-len(b) > limit || len(b)-len(a) > limit {
		return false
	}
	return distance(strings.ToLower(a), strings.ToLower(b)) <= limit
}

func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
