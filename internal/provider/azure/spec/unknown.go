package spec

import (
	"fmt"
	"reflect"
	"sort"
	"strconv"
	"strings"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"

	"millwright.io/millwright/internal/cloud"
)

// Rules of Decode.
const (
	RuleNearMiss = "unknown-field-near-miss"
	RuleUnknown  = "unknown-field"
)

var (
	rootType = reflect.TypeFor[machinev1.AzureMachineProviderSpec]()
	// walked are the packages whose structs are looked into; what lies in
	// others (metadata, quantities) has decoders of its own.
	walked = map[string]bool{rootType.PkgPath(): true, reflect.TypeFor[corev1.SecretReference]().PkgPath(): true}
)

// unknownFields lists the fields of tree that an AzureMachineProviderSpec does
// not have, sorted by path.
func unknownFields(tree any) []cloud.Problem {
	var out []cloud.Problem
	walk(rootType, tree, "", &out)
	sort.SliceStable(out, func(i, j int) bool { return out[i].Field+out[i].Value < out[j].Field+out[j].Value })
	return out
}

func walk(t reflect.Type, v any, path string, out *[]cloud.Problem) {
	switch t.Kind() {
	case reflect.Pointer:
		walk(t.Elem(), v, path, out)
	case reflect.Slice:
		items, _ := v.([]any)
		for i, item := range items {
			walk(t.Elem(), item, fmt.Sprintf("%s[%d]", path, i), out)
		}
	case reflect.Struct:
		m, isMap := v.(map[string]any)
		if !isMap || !walked[t.PkgPath()] {
			return
		}
		known := fieldsOf(t)
		for name, child := range m {
			at := strings.TrimPrefix(path+"."+name, ".")
			if ft, ok := known[name]; ok {
				walk(ft, child, at, out)
				continue
			}
			*out = append(*out, unknown(path, name, at, known))
		}
	}
}

// fieldsOf returns the JSON names of a struct, those of inlined structs
// included.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for f := range t.NumField() {
		sf := t.Field(f)
		name, _, _ := strings.Cut(sf.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && sf.Anonymous:
			for n, ft := range fieldsOf(sf.Type) {
				out[n] = ft
			}
		case name != "":
			out[name] = sf.Type
		}
	}
	return out
}

func unknown(parent, name, at string, known map[string]reflect.Type) cloud.Problem {
	names := make([]string, 0, len(known))
	for n := range known {
		names = append(names, n)
	}
	if near := nearest(name, names); near != "" {
		return cloud.Problem{Rule: RuleNearMiss, Type: cloud.ProblemUnsupported,
			Field: strings.TrimSuffix("providerSpec.value."+parent, "."), Value: strconv.Quote(name),
			Detail: fmt.Sprintf("unknown field, did you mean %q?", near)}
	}
	return cloud.Problem{Rule: RuleUnknown, Type: cloud.ProblemUnsupported, Field: "providerSpec.value",
		Value: strconv.Quote(at), Detail: "Unknown field (" + at + ") will be ignored", Warning: true}
}

// nearest returns the known name that word most likely means: one that
// differs only in case, else the closest of those at most two edits and at
// most half their length away; "" when none is near.
func nearest(word string, known []string) string {
	sort.Strings(known)
	best, found := 3, ""
	for _, k := range known {
		if strings.EqualFold(word, k) {
			return k
		}
		if d := distance(strings.ToLower(word), strings.ToLower(k), 2); d < best && d*2 <= len(k) {
			best, found = d, k
		}
	}
	return found
}

// distance is the number of letters to insert, delete, replace or swap with
// their neighbour to make b of a; limit+1 when it is more than limit.
func distance(a, b string, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	var prev2 []int
	prev := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur := make([]int, len(b)+1)
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev = prev, cur
	}
	return min(prev[len(b)], limit+1)
}
