package cloud_test

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millwright.io/millwright/internal/cloud"
)

type inner struct {
	Speed  int
	Budget string `json:"budget,omitempty"`
}

type Inlined struct {
	Region string `json:"region"`
}

type document struct {
	Inlined
	DataDisks []inner `json:"dataDisks"`
	Extra     *inner  `json:"extra"`
	Secret    string  `json:"-"`
}

func TestUnknownFields(t *testing.T) {
	doc := map[string]any{
		"region": "x", "Region": "y", "Secret": "s", "flavour": "big",
		"dataDisks": []any{map[string]any{"Speed": 1.0}, "not an object", map[string]any{"budgte": "b", "colour": nil}},
		"extra":     map[string]any{"sped": 1.0},
	}
	here := reflect.TypeFor[document]()
	want := []cloud.UnknownField{
		{Name: "Region", Near: "region"}, {Name: "Secret"},
		{Parent: "dataDisks[2]", Name: "budgte", Near: "budget"}, {Parent: "dataDisks[2]", Name: "colour"},
		{Parent: "extra", Name: "sped", Near: "Speed"}, {Name: "flavour"},
	}
	if d := cmp.Diff(want, cloud.UnknownFields(here, doc, here.PkgPath())); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := cloud.UnknownFields(here, doc, "another/package"); got != nil {
		t.Errorf("a struct of another package was looked into: %v", got)
	}
	if got := cloud.UnknownFields(here, []any{1}, here.PkgPath()); got != nil {
		t.Errorf("a list is no document: %v", got)
	}
}

func TestNearest(t *testing.T) {
	known := []string{"vmSize", "zone", "image", "id", "osDisk", "vmSizes"}
	for word, want := range map[string]string{
		"VMSIZE": "vmSize", "vmsise": "vmSize", "vmSiez": "vmSize", "zoen": "zone", "zne": "zone", "zo": "",
		"xd": "", "flavour": "", "image": "image", "vnSise": "vmSize", "vnSisez": "", "nose": "",
	} {
		if got := cloud.Nearest(word, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}
