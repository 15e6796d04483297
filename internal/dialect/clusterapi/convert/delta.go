package convert

import (
	"reflect"
	"sort"
	"strconv"
)

// delta is the difference between a value and what it was meant to be. A leaf
// has neither Keys nor Items: where the value is still Was, it becomes Is.
// Was and Is hold one value, or none for a field that is absent.
type delta struct {
	Was   []any             `json:"was,omitempty"`
	Is    []any             `json:"is,omitempty"`
	Keys  map[string]*delta `json:"keys,omitempty"`
	Items map[string]*delta `json:"items,omitempty"` // by index
	Len   int               `json:"len,omitempty"`   // of the list that Items index
}

// difference returns what turns was into is, nil when they are equal.
func difference(was, is any) *delta {
	switch w := was.(type) {
	case map[string]any:
		if i, ok := is.(map[string]any); ok {
			return mapDifference(w, i)
		}
	case []any:
		if i, ok := is.([]any); ok && len(i) == len(w) {
			return listDifference(w, i)
		}
	}
	if reflect.DeepEqual(was, is) {
		return nil
	}
	return &delta{Was: []any{was}, Is: []any{is}}
}

func mapDifference(was, is map[string]any) *delta {
	var keys map[string]*delta
	add := func(k string, d *delta) {
		if d == nil {
			return
		}
		if keys == nil {
			keys = map[string]*delta{}
		}
		keys[k] = d
	}
	for k, w := range was {
		if i, ok := is[k]; ok {
			add(k, difference(w, i))
		} else {
			add(k, &delta{Was: []any{w}})
		}
	}
	for k, i := range is {
		if _, ok := was[k]; !ok {
			add(k, &delta{Is: []any{i}})
		}
	}
	if keys == nil {
		return nil
	}
	return &delta{Keys: keys}
}

func listDifference(was, is []any) *delta {
	var items map[string]*delta
	for n := range was {
		if d := difference(was[n], is[n]); d != nil {
			if items == nil {
				items = map[string]*delta{}
			}
			items[strconv.Itoa(n)] = d
		}
	}
	if items == nil {
		return nil
	}
	return &delta{Items: items, Len: len(was)}
}

// apply returns v with the difference made good wherever v is still what the
// difference was computed from. It may change v.
func (d *delta) apply(v any) (any, bool) { return d.applyTo(v, true) }

func (d *delta) applyTo(v any, present bool) (any, bool) {
	switch {
	case d == nil:
		return v, present
	case d.Keys != nil:
		m, ok := v.(map[string]any)
		if !ok {
			return v, present
		}
		for k, child := range d.Keys {
			old, had := m[k]
			if now, keep := child.applyTo(old, had); keep {
				m[k] = now
			} else {
				delete(m, k)
			}
		}
		return m, true
	case d.Items != nil:
		return d.applyItems(v, present)
	}
	if present != (len(d.Was) == 1) || present && !reflect.DeepEqual(v, d.Was[0]) {
		return v, present
	}
	if len(d.Is) == 0 {
		return nil, false
	}
	return d.Is[0], true
}

func (d *delta) applyItems(v any, present bool) (any, bool) {
	list, ok := v.([]any)
	if !ok || len(list) != d.Len {
		return v, present
	}
	for key, child := range d.Items {
		n, err := strconv.Atoi(key)
		if err != nil || n < 0 || n >= len(list) {
			continue
		}
		if now, keep := child.applyTo(list[n], true); keep {
			list[n] = now
		}
	}
	return list, present
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
