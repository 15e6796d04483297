package agent

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestDecodeConfig(t *testing.T) {
	mc := must(json.Marshal(rendered("rendered-worker-a", etc)))
	for _, row := range []struct{ name, raw, want, problem string }{
		{"as written", string(mc), "rendered-worker-a", ""},
		{"a list of one", "[" + string(mc) + "]\n", "rendered-worker-a", ""},
		{"keys in another order, keys of others", `{"x":1,"spec":{"fips":false},"metadata":{"managedFields":null,"name":"n"}}`, "n", ""},
		{"empty", " \n", "", "EOF"},
		{"torn", string(mc[:40]), "", "unexpected end of JSON input"},
		{"two", "[" + string(mc) + "," + string(mc) + "]", "", "want one MachineConfig, found a list of 2"},
		{"none", "[]", "", "want one MachineConfig, found a list of 0"},
		{"no name", "{}", "", "the MachineConfig has no metadata.name"},
		{"nothing", "null", "", "the MachineConfig has no metadata.name"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, err := decodeConfig([]byte(row.raw))
			switch {
			case row.problem == "" && (err != nil || c.Name != row.want):
				t.Errorf("got %v, %v; want %s", c, err, row.want)
			case row.problem != "" && (err == nil || !strings.Contains(err.Error(), row.problem)):
				t.Errorf("error %v, want %s", err, row.problem)
			}
		})
	}
}

func FuzzDecodeConfig(f *testing.F) {
	f.Add(must(json.Marshal(rendered("rendered-worker-a", etc))))
	for _, s := range []string{"", "[]", "[{}]", "null", `{"metadata":{"name":"x"}}`, `{"spec":{"config":[1]}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := decodeConfig(raw)
		if err == nil && (c == nil || c.Name == "") {
			t.Errorf("a config without a name from %q", raw)
		}
	})
}
