package cloud

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// UnknownField is a field of a document that its type does not have.
type UnknownField struct {
	// Parent is the path of what holds it, "" for the document itself, as in
	// dataDisks[1].
	Parent string
	Name   string
	// Near is the field that was most likely meant; "" when none is near.
	Near string
}

// Path is the field's own path, as in dataDisks[1].speed.
func (u UnknownField) Path() string { return strings.TrimPrefix(u.Parent+"."+u.Name, ".") }

// UnknownFields lists the fields of a decoded JSON document that t does not
// have, sorted by path. Structs of packages that are not in packages are not
// looked into: what lies in them (metadata, quantities) has decoders of its own.
func UnknownFields(t reflect.Type, doc any, packages ...string) []UnknownField {
	var out []UnknownField
	walkFields(t, doc, "", packages, &out)
	slices.SortFunc(out, func(a, b UnknownField) int { return cmp.Compare(a.Path(), b.Path()) })
	return out
}

func walkFields(t reflect.Type, v any, path string, packages []string, out *[]UnknownField) {
	switch t.Kind() {
	case reflect.Pointer:
		walkFields(t.Elem(), v, path, packages, out)
	case reflect.Slice:
		items, _ := v.([]any)
		for i, item := range items {
			walkFields(t.Elem(), item, fmt.Sprintf("%s[%d]", path, i), packages, out)
		}
	case reflect.Struct:
		m, isMap := v.(map[string]any)
		if !isMap || !slices.Contains(packages, t.PkgPath()) {
			return
		}
		known := fieldsOf(t)
		for name, child := range m {
			if ft, ok := known[name]; ok {
				walkFields(ft, child, strings.TrimPrefix(path+"."+name, "."), packages, out)
				continue
			}
			names := make([]string, 0, len(known))
			for n := range known {
				names = append(names, n)
			}
			*out = append(*out, UnknownField{Parent: path, Name: name, Near: Nearest(name, names)})
		}
	}
}

// fieldsOf returns the JSON names of a struct, those of inlined structs
// included.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for sf := range t.Fields() {
		name, _, _ := strings.Cut(sf.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && sf.Anonymous:
			for n, ft := range fieldsOf(sf.Type) {
				out[n] = ft
			}
		default:
			out[cmp.Or(name, sf.Name)] = sf.Type
		}
	}
	return out
}
