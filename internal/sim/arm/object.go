package arm

import (
	"encoding/json"
	"slices"
	"strings"
)

// object is a JSON object. Resources are kept as the caller wrote them, so
// that fields of every API version survive; the getters below never panic on
// foreign shapes.
type object = map[string]any

func dig(o object, path ...string) any {
	var v any = o
	for _, p := range path {
		m, ok := v.(object)
		if !ok {
			return nil
		}
		v = m[p]
	}
	return v
}

func str(o object, path ...string) string {
	s, _ := dig(o, path...).(string)
	return s
}

func sub(o object, path ...string) object {
	m, _ := dig(o, path...).(object)
	return m
}

func number(o object, path ...string) (int64, bool) {
	switch n := dig(o, path...).(type) {
	case float64:
		return int64(n), true
	case int:
		return int64(n), true
	case int64:
		return n, true
	}
	return 0, false
}

func truth(o object, path ...string) bool {
	b, _ := dig(o, path...).(bool)
	return b
}

// objects returns the objects of an array, without anything else in it.
func objects(o object, path ...string) []object {
	l, _ := dig(o, path...).([]any)
	out := make([]object, 0, len(l))
	for _, e := range l {
		if m, ok := e.(object); ok {
			out = append(out, m)
		}
	}
	return out
}

func texts(o object, path ...string) []string {
	l, _ := dig(o, path...).([]any)
	var out []string
	for _, e := range l {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// put sets a value, making the objects on the way.
func put(o object, v any, path ...string) {
	for _, p := range path[:len(path)-1] {
		next, ok := o[p].(object)
		if !ok {
			next = object{}
			o[p] = next
		}
		o = next
	}
	o[path[len(path)-1]] = v
}

// clone copies an object deeply.
func clone(o object) object {
	c, _ := cloneValue(o).(object)
	return c
}

func cloneValue(v any) any {
	switch t := v.(type) {
	case object:
		c := make(object, len(t))
		for k, e := range t {
			c[k] = cloneValue(e)
		}
		return c
	case []any:
		c := make([]any, len(t))
		for i, e := range t {
			c[i] = cloneValue(e)
		}
		return c
	}
	return v
}

func anys[T any](in []T) []any {
	out := make([]any, len(in))
	for i, v := range in {
		out[i] = v
	}
	return out
}

// same compares two JSON values, object order aside.
func same(a, b any) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && slices.Equal(x, y)
}

// Identifiers.

func lower(id string) string { return strings.ToLower(strings.TrimSuffix(id, "/")) }

// segment returns the value after a name in an identifier, whatever the case.
func segment(id, name string) string {
	parts := strings.Split(id, "/")
	for i := 0; i+1 < len(parts); i++ {
		if strings.EqualFold(parts[i], name) {
			return parts[i+1]
		}
	}
	return ""
}

func lastSegment(id string) string { return id[strings.LastIndexByte(id, '/')+1:] }

func parentID(id string) string {
	p := strings.Split(id, "/")
	if len(p) < 3 {
		return ""
	}
	return strings.Join(p[:len(p)-2], "/")
}
