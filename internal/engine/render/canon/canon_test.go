package canon_test

import (
	"fmt"
	"strings"
	"testing"

	"millwright.io/millwright/internal/engine/render/canon"
)

func ExampleDocument() {
	d := canon.New(0)
	d.Text("osImageURL", "")
	d.Texts("kernelArguments", []string{"quiet", "yes"})
	d.Texts("extensions", nil)
	d.Bool("fips", false)
	d.JSON("config", `{"units":[{"name":"a.service","contents":"[Unit]\nA=1\n"}],"key10":1,"key9":[]}`)
	out, ok := d.YAML()
	fmt.Print(ok, "\n", string(out))
	// Output:
	// true
	// config:
	//   key9: []
	//   key10: 1
	//   units:
	//   - contents: |
	//       [Unit]
	//       A=1
	//     name: a.service
	// extensions: null
	// fips: false
	// kernelArguments:
	// - quiet
	// - "yes"
	// osImageURL: ""
}

func TestScalarsAreWrittenAsTheOriginalWritesThem(t *testing.T) {
	long := strings.Repeat("a", 80)
	for _, c := range []struct{ why, text, want string }{
		{"a number", "0755", `"0755"`},
		{"two dots are no number", "3.5.0", "3.5.0"},
		{"base 60", "12:30:45", `"12:30:45"`},
		{"a date", "2026-12-01", `"2026-12-01"`},
		{"an indicator", "@reboot", "'@reboot'"},
		{"a quote inside", "- it's", "'- it''s'"},
		{"a comment", "a #b", "'a #b'"},
		{"a tab", "a\tb", `"a\tb"`},
		{"no final newline", "a\nb", "|-\n  a\n  b"},
		{"several final newlines", "a\n\n", "|+\n  a\n"},
		{"a leading space", " a\nb\n", "|2\n   a\n  b"},
		{"a space before a break", "a \nb", `"a \nb"`},
		{"folded after column 80", long + " " + long + " b", long + "\n  " + long + "\n  b"},
		{"not folded without a space", long + long, long + long},
		{"beyond the basic plane", "\U0001F600", `"\U0001F600"`},
		{"kana", "かな", "かな"},
	} {
		d := canon.New(0)
		d.Text("k", c.text)
		out, ok := d.YAML()
		if got := strings.TrimSuffix(strings.TrimPrefix(string(out), "k: "), "\n"); !ok || got != c.want {
			t.Errorf("%s: got %v %q, want %q", c.why, ok, got, c.want)
		}
	}
}

// TestUnknownThingsAreLeftToTheLibrary: being asked is better than being wrong.
func TestUnknownThingsAreLeftToTheLibrary(t *testing.T) {
	for _, src := range []string{
		`{`, `{"a":1,"a":2}`, `1.5`, `1e3`, `-0`, `"\/"`, `"\ud83d\ude00"`, "\"\u2028\"", "\"\ufeff\"", `{"a\nb":1}`,
		`{"` + strings.Repeat("k", 200) + `":1}`, strings.Repeat("[", 100) + strings.Repeat("]", 100), `[] []`, "\"\xff\"",
	} {
		d := canon.New(len(src))
		d.JSON("k", src)
		if out, ok := d.YAML(); ok {
			t.Errorf("%q: got %q, want no answer", src, out)
		}
	}
}
