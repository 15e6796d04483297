package ignition_test

import (
	"bytes"
	"encoding/json"
	"testing"

	v3_5 "github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"

	"millwright.io/millwright/internal/engine/ignition"
)

// FuzzParseIgnition compares the verdict on spec 3 and what was understood with
// the official parser, and reads back what is written.
func FuzzParseIgnition(f *testing.F) {
	for _, v := range []string{"2.0.0", "2.2.0", "2.4.0", "3.0.0", "3.4.0", "3.5.0", "3.6.0", ""} {
		f.Add(config(v, ""))
		f.Add(config(v, rich))
	}
	for _, rest := range []string{
		`"storage":{"files":[{"path":"/a","contents":{"source":"data:text/plain;charset=utf-8;base64,aGk="}},{"path":"/a"}]}`,
		`"storage":{"files":[{"path":"/a","path":"/b"}]}`, `"storage":{"files":[{"Path":"/a"}]}`, `"storage":{"files":[{"path":"/a/../b"}]}`,
		`"storage":{"files":[{"path":"/l/x"}],"links":[{"path":"/l","target":"/t"}]}`, `"storage":{"files":[{"path":"/a","mode":1e2}]}`,
		`"storage":{"files":[{"path":"/a","contents":{"source":"data:,%zz"}}]}`, `"storage":{"files":null}`, `"storage":{"files":[{"path":"/etc/systemd/system/a.service"}]},"systemd":{"units":[{"name":"a.service","contents":"[Unit]"}]}`,
		`"systemd":{"units":[{"name":"a.service","contents":"[Unit]\nA=1\\\n  more\n# comment \\\n[Install"}]}`, `"systemd":{"units":[{"name":"a.service","contents":"A=1"}]}`, `"systemd":{"units":[{"name":"a.service","contents":"[Unit]\nno option"}]}`,
		`"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["a","a"]}]}`, `"x":1`, `"kernelArguments":{"shouldExist":["a"],"shouldNotExist":["a"]}`,
	} {
		f.Add(config("3.5.0", rest))
		f.Add(config("3.1.0", rest))
	}
	f.Add([]byte(`{"ignition":{"version":"3.5.0","version":"3.1.0"}}`))
	f.Add([]byte("{\"ignition\":{\"version\":\"3.5.0\"},\"storage\":{\"files\":[{\"path\":\"/\xff\"}]}}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := ignition.Parse(raw)
		version, verr := ignition.Version(raw)
		if err == nil && verr != nil {
			t.Fatalf("parsed without a version: %v", verr)
		}
		if verr == nil && len(version) == 5 && version[0] == '3' && version <= "3.5.0" {
			want, _, wantErr := v3_5.ParseCompatibleVersion(raw)
			if (err != nil) != (wantErr != nil) {
				t.Fatalf("got error %v, the official parser says %v", err, wantErr)
			}
			if err == nil && !bytes.Equal(ignition.Marshal(got), ignition.Marshal(want)) {
				t.Fatalf("got %s, the official parser has %s", ignition.Marshal(got), ignition.Marshal(want))
			}
		}
		if err != nil {
			return
		}
		out := ignition.Marshal(got)
		var back types.Config
		if err := json.Unmarshal(out, &back); err != nil {
			t.Fatalf("wrote bad JSON %s: %v", out, err)
		}
		if !bytes.Equal(ignition.Marshal(back), out) {
			t.Fatalf("got %s back, want %s", ignition.Marshal(back), out)
		}
	})
}

// FuzzContents asserts a bound and agreement of the short cut with the official
// decoder.
func FuzzContents(f *testing.F) {
	for _, s := range []string{"data:,a%20b", "data:;base64,aGk=", "data:text/plain;charset=utf-8,x", "data:,a b", "data:,%", "data:;base64,a", "DATA:,x", "data:"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, source string) {
		got, err := ignition.Contents(types.Resource{Source: &source})
		if err == nil && len(got) > len(source) {
			t.Fatalf("%d bytes from %d", len(got), len(source))
		}
		cfg := ignition.Config{Ignition: types.Ignition{Version: "3.5.0"}}
		cfg.Storage.Files = []types.File{{Node: types.Node{Path: "/a"}, FileEmbedded1: types.FileEmbedded1{Contents: types.Resource{Source: &source}}}}
		if ignition.Clean(&cfg) && err != nil {
			t.Fatalf("%q is clean, but %v", source, err)
		}
	})
}
