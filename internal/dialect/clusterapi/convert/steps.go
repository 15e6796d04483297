package convert

import (
	"math"
	"strings"
	"time"
)

// env is what steps may know besides the object.
type env struct {
	namespace string
	versions  Versions
}

// step is one difference between the versions. Steps run in order from v1beta1
// to v1beta2 and in reverse order back, each on its own part of the object.
type step interface {
	up(m map[string]any, e env)
	down(m map[string]any, e env)
}

// change turns a value into the other version's; false means there is none.
type change func(v any, e env) (any, bool)

// field moves a value between paths; nil changes leave it as it is.
type field struct {
	old, new     []string
	toNew, toOld change
}

func (f field) up(m map[string]any, e env)   { move(m, f.old, f.new, f.toNew, e) }
func (f field) down(m map[string]any, e env) { move(m, f.new, f.old, f.toOld, e) }

func moved(old, new string) step { return changed(old, new, nil, nil) }

func changed(old, new string, toNew, toOld change) step {
	return field{old: strings.Split(old, "."), new: strings.Split(new, "."), toNew: toNew, toOld: toOld}
}

// seconds is a duration text in v1beta1 and a count of seconds in v1beta2.
func seconds(old, new string) step { return changed(old, new, toSeconds, toDuration) }

// within runs steps on the object at a path; a part that ends in [] stands for
// every item of a list.
type within struct {
	path  []string
	steps []step
}

func in(path string, steps ...step) step {
	return within{path: strings.Split(path, "."), steps: steps}
}

func (w within) up(m map[string]any, e env) {
	each(m, w.path, func(part map[string]any) {
		for _, s := range w.steps {
			s.up(part, e)
		}
	})
}

func (w within) down(m map[string]any, e env) {
	each(m, w.path, func(part map[string]any) {
		for i := len(w.steps) - 1; i >= 0; i-- {
			w.steps[i].down(part, e)
		}
	})
}

func each(m map[string]any, path []string, do func(map[string]any)) {
	if len(path) == 0 {
		do(m)
		return
	}
	name, isList := strings.CutSuffix(path[0], "[]")
	if !isList {
		if next, ok := m[name].(map[string]any); ok {
			each(next, path[1:], do)
		}
		return
	}
	list, _ := m[name].([]any)
	for _, item := range list {
		if next, ok := item.(map[string]any); ok {
			each(next, path[1:], do)
		}
	}
}

// move takes the value at from and puts it at to, if there is one.
func move(m map[string]any, from, to []string, c change, e env) {
	v, ok := take(m, from)
	if !ok {
		return
	}
	if c != nil {
		if v, ok = c(v, e); !ok {
			return
		}
	}
	for _, name := range to[:len(to)-1] {
		next, isMap := m[name].(map[string]any)
		if !isMap {
			if _, other := m[name]; other {
				return
			}
			next = map[string]any{}
			m[name] = next
		}
		m = next
	}
	m[to[len(to)-1]] = v
}

// take removes the value at a path, and the objects that it leaves empty.
func take(m map[string]any, path []string) (any, bool) {
	if len(path) == 1 {
		v, ok := m[path[0]]
		delete(m, path[0])
		return v, ok
	}
	next, ok := m[path[0]].(map[string]any)
	if !ok {
		return nil, false
	}
	v, ok := take(next, path[1:])
	if ok && len(next) == 0 {
		delete(m, path[0])
	}
	return v, ok
}

func toSeconds(v any, _ env) (any, bool) {
	text, ok := v.(string)
	if !ok {
		return nil, false
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return nil, false
	}
	return min(max(int64(d/time.Second), 0), math.MaxInt32), true
}

func toDuration(v any, _ env) (any, bool) {
	n, ok := v.(int64)
	if !ok || n < 0 || n > math.MaxInt64/int64(time.Second) {
		return nil, false
	}
	return (time.Duration(n) * time.Second).String(), true
}

// reference is an ObjectReference in v1beta1, and group, kind and name in
// v1beta2.
func reference(path string) step { return changed(path, path, refToNew, refToOld) }

func refToNew(v any, _ env) (any, bool) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, false
	}
	out := picked(m, "kind", "name")
	if apiVersion, _ := m["apiVersion"].(string); apiVersion != "" {
		group, _, ok := strings.Cut(apiVersion, "/")
		if !ok {
			group = ""
		}
		out["apiGroup"] = group
	}
	return out, true
}

// contractUnknown is the version shown for kinds whose definition is not
// installed, or has no contract label.
const contractUnknown = oldVersion

func refToOld(v any, e env) (any, bool) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, false
	}
	out := picked(m, "kind", "name")
	group, _ := m["apiGroup"].(string)
	kindName, _ := m["kind"].(string)
	if group != "" {
		version := e.versions(group, kindName)
		if version == "" {
			version = contractUnknown
		}
		out["apiVersion"] = group + "/" + version
	}
	e.place(out)
	return out, true
}

// place puts the object's own namespace into a reference.
func (e env) place(ref map[string]any) {
	if e.namespace != "" {
		ref["namespace"] = e.namespace
	}
}

// templateRef keeps its apiVersion in both versions.
func templateRef(old, new string) step {
	return changed(old, new,
		func(v any, _ env) (any, bool) {
			m, ok := v.(map[string]any)
			return picked(m, "apiVersion", "kind", "name"), ok
		},
		func(v any, e env) (any, bool) {
			m, ok := v.(map[string]any)
			out := picked(m, "apiVersion", "kind", "name")
			e.place(out)
			return out, ok
		})
}

func picked(m map[string]any, names ...string) map[string]any {
	out := make(map[string]any, len(names)+2)
	for _, name := range names {
		if v, ok := m[name]; ok {
			out[name] = v
		}
	}
	return out
}

// arguments are a map in v1beta1, and in v1beta2 a list sorted by name.
func arguments(path string) step { return changed(path, path, argsToList, argsToMap) }

func argsToList(v any, _ env) (any, bool) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, false
	}
	out := make([]any, 0, len(m))
	for _, name := range sortedKeys(m) {
		out = append(out, map[string]any{"name": name, "value": m[name]})
	}
	return out, true
}

func argsToMap(v any, _ env) (any, bool) {
	list, ok := v.([]any)
	if !ok {
		return nil, false
	}
	out := make(map[string]any, len(list))
	for _, item := range list {
		m, _ := item.(map[string]any)
		name, _ := m["name"].(string)
		value, ok := m["value"].(string)
		if name == "" && !ok {
			continue
		}
		out[name] = value
	}
	return out, true
}

// failureDomains are a map by name in v1beta1, and a list in v1beta2.
func failureDomains(path string) step {
	return changed(path, path,
		func(v any, _ env) (any, bool) {
			m, ok := v.(map[string]any)
			if !ok {
				return nil, false
			}
			out := make([]any, 0, len(m))
			for _, name := range sortedKeys(m) {
				domain, _ := m[name].(map[string]any)
				item := picked(domain, "attributes", "controlPlane")
				item["name"] = name
				out = append(out, item)
			}
			return out, true
		},
		func(v any, _ env) (any, bool) {
			list, ok := v.([]any)
			out := make(map[string]any, len(list))
			for _, item := range list {
				m, _ := item.(map[string]any)
				if name, ok := m["name"].(string); ok {
					out[name] = picked(m, "attributes", "controlPlane")
				}
			}
			return out, ok
		})
}
