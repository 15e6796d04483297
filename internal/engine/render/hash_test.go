package render_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"millwright.io/millwright/internal/engine/render"
)

// sameAsLibrary compares the hashed text with what the general YAML library
// writes, and the failures with its failures.
func sameAsLibrary(t interface {
	Helper()
	Fatalf(string, ...any)
}, spec mcfgv1.MachineConfigSpec) {
	t.Helper()
	_, got, gotErr := render.Hash("worker", spec)
	want, wantErr := yaml.Marshal(spec)
	if (gotErr != nil) != (wantErr != nil) {
		t.Fatalf("got error %v, the library says %v", gotErr, wantErr)
	}
	if gotErr == nil && string(got) != string(want) {
		t.Fatalf("got (-) and library (+) differ for %+v:\n%s", spec, cmp.Diff(string(got), string(want)))
	}
}

func FuzzHash(f *testing.F) {
	long := strings.Repeat("word ", 30)
	for _, text := range []string{
		"", "plain", "0755", "yes", "~", "null", "1e3", "3.5", "3.5.0", "12:30:45", "2026-12-01", "0x1f", "1_000", ".5", "+1", "- item", "key: value", "key:", "a #b", "#c",
		" lead", "trail ", "tab\tinside", "line\nbreak", "line\n", "line\n\n", "\nlead", " lead\nbreak", "trail \nbreak", "break\n trail", "cr\r\nlf", "---", "...", "-", "?", ": x",
		long, "'" + long, long + "\t", long + "  two  spaces " + long, "\"quoted\" \\ back", "\u00a0nbsp", "\u3042かな " + long, "\U0001F600", "\u0085", "\u2028", "\ufeff", "\x7f", "\x00", "\x1b[0m", "%percent", "@at", "!bang", "*star", "&and", "{brace", "[brack", ">gt", "|bar", "`tick", ",comma",
	} {
		quoted, _ := json.Marshal(text)
		f.Add([]byte(fmt.Sprintf(`{"ignition":{"version":"3.5.0"},"k":%s,"l":[%s,[],{},[%s,{"a":%s}]]}`, quoted, quoted, quoted, quoted)), text)
	}
	for _, raw := range []string{
		`{"key10":1,"key9":2,"Key9":3,"key":4,"a-b":5,"a.b":6,"ab":7,"10":8,"9":9,"01":10}`, `{"a":{"a":1,"a":2}}`, `{"a":"\/","b":"\ud83d\ude00"}`,
		`[1,-1,-0,0,1.5,1e3,12345678901234567890,123456789012345678901234567890]`, `[[[1]],[{"a":[{"b":[]}]}]]`, `{"":{"x y":{"true":null}}}`, `"text"`, `null`, `{`, `{"a":1}{}`, ` {"a" : [ ] } `,
	} {
		f.Add([]byte(raw), "")
	}
	f.Fuzz(func(t *testing.T, raw []byte, text string) {
		sameAsLibrary(t, mcfgv1.MachineConfigSpec{
			Config:          runtime.RawExtension{Raw: raw},
			KernelArguments: []string{text, text + " " + text},
			Extensions:      []string{},
			KernelType:      text,
			OSImageURL:      text,
		})
	})
}

// TestHashedTextIsTheLibrarys draws texts from the characters that matter.
func TestHashedTextIsTheLibrarys(t *testing.T) {
	piece := rapid.SampledFrom([]string{
		"a", "word", "yes", "no", "0", "1", "9", " ", "  ", "\t", "\n", "\n\n", "\r", ":", ": ", " #", "#", "-", "- ", "?", "'", "\"", "\\", ",", "[", "]", "{", "}", "&", "*", "!", "|", ">", "%", "@", "`", "~", ".", "_", "+", "e", "x", "=", "/",
		"é", "か", "\U0001F600", "\u00a0", "\u0085", "\u2028", "\ufeff", "\x00", "\x1b", "\x7f", "averyveryverylongwordwithoutanyspace",
	})
	text := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(piece, 0, 40).Draw(t, "pieces"), "")
	})
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		return rapid.Custom(func(t *rapid.T) any {
			most := 4
			if depth == 0 {
				most = 2
			}
			switch rapid.IntRange(0, most).Draw(t, "kind") {
			case 0, 1:
				return text.Draw(t, "text")
			case 2:
				return rapid.SampledFrom([]any{true, false, nil, 0, -7, 420, 1.5}).Draw(t, "value")
			case 3:
				return rapid.SliceOfN(value(depth-1), 0, 3).Draw(t, "list")
			}
			return rapid.MapOfN(text, value(depth-1), 0, 4).Draw(t, "map")
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		raw, err := json.Marshal(value(4).Draw(t, "config"))
		if err != nil {
			t.Skip("not JSON")
		}
		sameAsLibrary(t, mcfgv1.MachineConfigSpec{
			Config:          runtime.RawExtension{Raw: raw},
			KernelArguments: rapid.SliceOfN(text, 0, 3).Draw(t, "kargs"),
			KernelType:      text.Draw(t, "kernelType"),
			OSImageURL:      text.Draw(t, "image"),
		})
	})
}

func TestHashLooksAtTheSpecOnly(t *testing.T) {
	spec := mcfgv1.MachineConfigSpec{KernelArguments: []string{"a"}, Extensions: []string{}}
	worker, _, err := render.Hash("worker", spec)
	if err != nil {
		t.Fatal(err)
	}
	infra, _, err := render.Hash("infra", spec)
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimPrefix(worker, "rendered-worker-") != strings.TrimPrefix(infra, "rendered-infra-") {
		t.Errorf("got %s and %s, want one digest for one spec", worker, infra)
	}
	spec.Extensions = nil
	if other, _, _ := render.Hash("worker", spec); other == worker {
		t.Error("a nil list and an empty one must differ")
	}
}
