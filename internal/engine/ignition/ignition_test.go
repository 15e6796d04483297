package ignition_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v3_1 "github.com/coreos/ignition/v2/config/v3_1"
	v3_5 "github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/google/go-cmp/cmp"

	"millwright.io/millwright/internal/engine/ignition"
)

func config(version, rest string) []byte {
	if rest != "" {
		rest = "," + rest
	}
	return []byte(fmt.Sprintf(`{"ignition":{"version":%q}%s}`, version, rest))
}

func TestParseAcceptsEveryVersion(t *testing.T) {
	for _, v := range []string{"2.0.0", "2.1.0", "2.2.0", "2.3.0", "2.4.0", "3.0.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0"} {
		got, err := ignition.Parse(config(v, `"storage":{"files":[{"filesystem":"root","path":"/a","mode":420,"contents":{"source":"data:,x"}}]}`))
		if err != nil {
			t.Errorf("%s: got %v, want no error", v, err)
			continue
		}
		if got.Ignition.Version != "3.5.0" || len(got.Storage.Files) != 1 || got.Storage.Files[0].Path != "/a" {
			t.Errorf("%s: got %s", v, ignition.Marshal(got))
		}
		if named, err := ignition.Version(config(v, "")); err != nil || named != v {
			t.Errorf("got version %s (%v), want %s", named, err, v)
		}
	}
}

// TestErrorsNameFieldValueAndRemedy also holds the original's words.
func TestErrorsNameFieldValueAndRemedy(t *testing.T) {
	const versions = "Supported spec versions: 2.2,3.0,3.1,3.2,3.3,3.4,3.5"
	for _, c := range []struct{ name, raw, want, wire string }{
		{"empty", "", `parse Ignition config: the config is empty; the least one is {"ignition":{"version":"3.5.0"}}`, "parsing Ignition config spec v3 failed with error: not a config (empty)\nReport: "},
		{"no version", `{}`, "parse Ignition config: ignition.version: no version is given; want one of 2.0.0 to 2.4.0 or 3.0.0 to 3.5.0", "parsing Ignition config failed: invalid version. " + versions},
		{"no semver", `{"ignition":{"version":"3.5"}}`, `parse Ignition config: ignition.version: "3.5": this is not a version; want one of 2.0.0 to 2.4.0 or 3.0.0 to 3.5.0`, "parsing Ignition config failed: invalid version. " + versions},
		{"too new", `{"ignition":{"version":"3.6.0"}}`, `parse Ignition config: ignition.version: "3.6.0": this version is not known; want one of 2.0.0 to 2.4.0 or 3.0.0 to 3.5.0`, "parsing Ignition config failed: unknown version. " + versions},
		{"2.4 in a MachineConfig", `{"ignition":{"version":"2.4.0"}}`, `parse Ignition config: ignition.version: "2.4.0": MachineConfigs may not use this version; want 2.0.0, 2.1.0, 2.2.0 or 3.0.0 to 3.5.0`, "parsing Ignition config failed: unknown version. " + versions},
		{"relative path", `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"a"}]}}`, `parse Ignition config: storage.files.0.path: "a": path not absolute; start the path with /`, "parsing Ignition config spec v3 failed with error: config is not valid\nReport: error at $.storage.files.0.path, line 1 col 61: path not absolute\n"},
		{"duplicate", `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/a"},{"path":"/a"}]}}`, `parse Ignition config: storage.files.1: "/a": duplicate entry defined; remove one of the two entries, or merge them`, ""},
		{"secret source", `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/a","contents":{"source":"foo:secret"}}]}}`, `parse Ignition config: storage.files.0.contents.source: "foo:…": invalid url scheme; use data:, http:, https:, tftp:, s3:, arn: or gs:`, ""},
		{"illegal mode", `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/a","mode":64400}]}}`, `parse Ignition config: storage.files.0.mode: "64400 (0175620)": illegal file mode; give permission bits in decimal: 420 is 0644, 493 is 0755`, ""},
		{"v2 unit", `{"ignition":{"version":"2.2.0"},"systemd":{"units":[{"name":"foo"}]}}`, `parse Ignition config: systemd.units.0.name: "foo": invalid systemd unit extension; end the name with .service, .socket, .device, .mount, .automount, .swap, .target, .path, .timer, .snapshot, .slice or .scope`, ""},
		{"v2 user", `{"ignition":{"version":"2.2.0"},"passwd":{"users":[{"name":"bob"}]}}`, `parse Ignition config: passwd.users.0.name: "bob": only user core is supported; put the keys under core`, "unexpected user with name: bob. Only core user is supported"},
	} {
		t.Run(c.name, func(t *testing.T) {
			source, err := ignition.ReadMachineConfig([]byte(c.raw))
			if err == nil {
				_, err = source.Config()
			}
			var e *ignition.Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v, want an *ignition.Error", err)
			}
			if e.Error() != c.want {
				t.Errorf("got  %s\nwant %s", e, c.want)
			}
			if c.wire != "" && e.Wire != c.wire {
				t.Errorf("got wire %q, want %q", e.Wire, c.wire)
			}
		})
	}
}

func TestSyntaxErrorsNameTheirPlace(t *testing.T) {
	_, err := ignition.Parse([]byte("{\"ignition\":{\"version\":\"3.5.0\"},\n \"storage\": nonsense}"))
	if err == nil || !strings.Contains(err.Error(), "(line 2 col ") {
		t.Errorf("got %v, want the line", err)
	}
	_, err = ignition.Parse([]byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":3}}`))
	if err == nil || !strings.Contains(err.Error(), "line 1 col") {
		t.Errorf("got %v, want the column", err)
	}
}

// TestSpec2KeepsTheLast pins what the original does with repeated entries.
func TestSpec2KeepsTheLast(t *testing.T) {
	got, err := ignition.Parse(config("2.2.0", `
		"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["one","two"]},{"name":"core","sshAuthorizedKeys":["two","three"]}]},
		"storage":{"files":[{"filesystem":"root","path":"/a","contents":{"source":"data:,old"}},{"filesystem":"root","path":"/b","mode":384},{"filesystem":"root","path":"/a","contents":{"source":"data:,new"}},{"filesystem":"root","path":"/log","append":true,"contents":{"source":"data:,x"}}]},
		"systemd":{"units":[{"name":"u.service","enable":true,"dropins":[{"name":"10.conf"},{"name":"20.conf"}]},{"name":"u.service","enabled":false,"dropins":[{"name":"20.conf","contents":"[Unit]\nA=1"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"ignition":{"version":"3.5.0"},` +
		`"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["two","three","one"]}]},` +
		`"storage":{"files":[` +
		`{"overwrite":false,"path":"/log","append":[{"source":"data:,x"}]},` +
		`{"overwrite":true,"path":"/a","contents":{"source":"data:,new"}},` +
		`{"overwrite":true,"path":"/b","contents":{"source":""},"mode":384}]},` +
		`"systemd":{"units":[{"dropins":[{"contents":"[Unit]\nA=1","name":"20.conf"},{"name":"10.conf"}],"enabled":false,"name":"u.service"}]}}`
	if diff := cmp.Diff(string(ignition.Marshal(got)), want); diff != "" {
		t.Errorf("got (-) want (+):\n%s", diff)
	}
}

func TestSpec2RefusesWhatSpec3CannotSay(t *testing.T) {
	const prefix = "failed to convert Ignition config spec v2 to v3: unable to convert Ignition spec v2 config to v3: "
	for _, c := range []struct{ name, rest, wire string }{
		{"networkd", `"networkd":{"units":[{"name":"a.network"}]}`, prefix + "config includes deprecated networkd section - use Files instead"},
		{"filesystem", `"storage":{"filesystems":[{"name":"data","path":"/x"}]}`, prefix + `Config defined filesystem "data" but no mapping was defined.Please specify a path to be used as the filesystem mountpoint.`},
		{"inodes", `"storage":{"files":[{"filesystem":"root","path":"/a"}],"directories":[{"filesystem":"root","path":"/a"}]}`, prefix + "Config has conflicting inodes: \"File: /a\" and \"Directory: /a\".  All files, directories and links must specify a unique `path`."},
		{"own link", `"storage":{"files":[{"filesystem":"root","path":"/a/b"}],"links":[{"filesystem":"root","path":"/a","target":"/c"}]}`, prefix + `File: /a/b uses link defined in config "/a". Please use a link not defined in Storage:Links`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ignition.Parse(config("2.2.0", c.rest))
			var e *ignition.Error
			if !errors.As(err, &e) || e.Wire != c.wire {
				t.Fatalf("got %v, want wire %q", err, c.wire)
			}
			if len(e.Problems) != 1 || e.Problems[0].Path == "" {
				t.Errorf("got %v, want one problem with its path", e.Problems)
			}
		})
	}
}

const rich = `"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["k"],"shouldExist":true}]},` +
	`"storage":{"directories":[{"path":"/d","mode":493}],"files":[{"path":"/a","mode":420,"overwrite":true,"contents":{"source":"data:,x","compression":""},"append":[{"source":"data:,y"}]},{"path":"/b","user":{"name":"core"}}],"links":[{"path":"/l","target":"/a"}]},` +
	`"systemd":{"units":[{"name":"a.service","enabled":true,"contents":"[Unit]\nA=1\n\n[Install]\nWantedBy=x\n","dropins":[{"name":"a.conf","contents":"[Unit]"}]}]}`

func TestEncodeRoundTripsThroughOlderVersions(t *testing.T) {
	cfg, err := ignition.Parse(config("3.5.0", rich))
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"3.5.0", "3.4.0", "3.3.0", "3.2.0", "3.1.0"} {
		raw, err := ignition.Encode(cfg, version)
		if err != nil {
			t.Errorf("%s: %v", version, err)
			continue
		}
		if _, rpt, err := v3_5.ParseCompatibleVersion(raw); err != nil {
			t.Errorf("%s: the official parser says %v %v", version, err, rpt)
		}
		back, err := ignition.Parse(raw)
		if err != nil {
			t.Errorf("%s: %v", version, err)
			continue
		}
		want := cfg
		if version == "3.1.0" {
			// 3.1 has no word for it, and it is the default.
			want.Passwd.Users = append([]types.PasswdUser(nil), cfg.Passwd.Users...)
			want.Passwd.Users[0].ShouldExist = nil
			if _, _, err := v3_1.Parse(raw); err != nil {
				t.Errorf("the parser of 3.1 says %v", err)
			}
		}
		if diff := cmp.Diff(string(ignition.Marshal(back)), string(ignition.Marshal(want))); diff != "" {
			t.Errorf("%s: got (-) want (+):\n%s", version, diff)
		}
	}
}

func TestEncodeSpec2SpellsOutOverwrite(t *testing.T) {
	cfg, err := ignition.Parse(config("3.5.0", rich))
	if err != nil {
		t.Fatal(err)
	}
	got, err := ignition.Encode(cfg, "2.2.0")
	if err != nil {
		t.Fatal(err)
	}
	// A file without contents, only with an owner, has no form in spec 2.
	want := `"files":[{"filesystem":"root","overwrite":true,"path":"/a","contents":{"source":"data:,x","verification":{}},"mode":420},` +
		`{"filesystem":"root","overwrite":false,"path":"/a","append":true,"contents":{"source":"data:,y","verification":{}},"mode":420}]`
	if !strings.Contains(string(got), want) {
		t.Errorf("got %s, want it to contain %s", got, want)
	}
}

func TestEncodeNamesWhatAVersionCannotSay(t *testing.T) {
	for _, c := range []struct{ name, version, rest, want string }{
		{"kargs in 3.2", "3.2.0", `"kernelArguments":{"shouldExist":["a"]}`, "kernelArguments.shouldExist: this needs spec 3.3.0 or later"},
		{"setuid in 3.3", "3.3.0", `"storage":{"files":[{"path":"/a","mode":2541}]}`, `storage.files.0.mode: "/a": this needs spec 3.4.0 or later`},
		{"proxy in 2.2", "2.2.0", ``, "ignition.proxy: this needs spec 3.1.0 or later"},
		{"luks in 3.1", "3.1.0", `"storage":{"luks":[{"name":"l","device":"/dev/l"}]}`, `storage.luks.0: "l": this needs spec 3.2.0 or later`},
	} {
		t.Run(c.name, func(t *testing.T) {
			raw := config("3.5.0", c.rest)
			if c.rest == "" {
				raw = []byte(`{"ignition":{"version":"3.5.0","proxy":{"httpsProxy":"https://p"}}}`)
			}
			cfg, err := ignition.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			_, err = ignition.Encode(cfg, c.version)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	for _, version := range []string{"3.0.0", "2.4.0", "3.6.0", "1.0.0", "x"} {
		_, err := ignition.Encode(ignition.Config{Ignition: types.Ignition{Version: "3.5.0"}}, version)
		var e *ignition.UnsupportedError
		if !errors.As(err, &e) || e.Version != version {
			t.Errorf("%s: got %v, want *UnsupportedError", version, err)
		}
	}
}

func TestContentsDecodes(t *testing.T) {
	var zipped bytes.Buffer
	zw := gzip.NewWriter(&zipped)
	if _, err := zw.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	gz := "data:;base64," + base64.StdEncoding.EncodeToString(zipped.Bytes())
	for _, c := range []struct{ source, compression, want, err string }{
		{"data:,a%20b", "", "a b", ""},
		{"data:,a b", "", "", "decode data URL: "},
		{"data:text/plain;charset=utf-8;base64,aGVsbG8=", "", "hello", ""},
		{"data:application/octet-stream;base64,aGVsbG8=", "", "hello", ""},
		{"data:,plus+", "", "plus+", ""},
		{"", "", "", ""},
		{gz, "gzip", "hello", ""},
		{"data:,x", "gzip", "", "decompress: "},
		{"data:,x", "zstd", "", `decompress: compression "zstd" is unknown; want "" or "gzip"`},
		{"https://example.com", "", "", "the source is not a data URL"},
	} {
		got, err := ignition.Contents(types.Resource{Source: &c.source, Compression: &c.compression})
		if string(got) != c.want || (err != nil) != (c.err != "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%s: got %q, %v, want %q, %q", c.source, got, err, c.want, c.err)
		}
	}
	if got, err := ignition.Contents(types.Resource{}); got != nil || err != nil {
		t.Errorf("no source: got %q, %v", got, err)
	}
}

func TestContentsIsBounded(t *testing.T) {
	var zipped bytes.Buffer
	zw := gzip.NewWriter(&zipped)
	zeros := make([]byte, 1<<20)
	for range ignition.MaxContents>>20 + 1 {
		if _, err := zw.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	source, gz := "data:;base64,"+base64.StdEncoding.EncodeToString(zipped.Bytes()), "gzip"
	if _, err := ignition.Contents(types.Resource{Source: &source, Compression: &gz}); err == nil {
		t.Error("a bomb went off")
	}
}

func TestParseIsBounded(t *testing.T) {
	if _, err := ignition.Parse(make([]byte, ignition.MaxSize+1)); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("got %v, want a size limit", err)
	}
}

func TestValidateWarns(t *testing.T) {
	cfg, err := ignition.Parse(config("3.5.0", `"systemd":{"units":[{"name":"a.service","enabled":true,"contents":"[Unit]\nA=1\n"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	got := ignition.Validate(cfg)
	if len(got) != 1 || !got[0].Warning || got[0].Path != "systemd.units.0.contents" {
		t.Errorf("got %v, want one warning about the missing install section", got)
	}
}

// pairs reads a file of which each line is followed by its answer.
func pairs(t *testing.T, name string) (rows [][2]string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		rows = append(rows, [2]string{lines[i], lines[i+1]})
	}
	if len(rows) == 0 {
		t.Fatalf("%s is empty", name)
	}
	return rows
}

// TestSpec2BecomesWhatTheOfficialConverterMakes has the answers of ign-converter
// and the official translations.
func TestSpec2BecomesWhatTheOfficialConverterMakes(t *testing.T) {
	for _, row := range pairs(t, "spec2.jsonl") {
		cfg, err := ignition.Parse([]byte(row[0]))
		if err != nil {
			t.Errorf("%s: %v", row[0], err)
			continue
		}
		var want ignition.Config
		if err := json.Unmarshal([]byte(row[1]), &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(ignition.Marshal(cfg)), string(ignition.Marshal(want))); diff != "" {
			t.Errorf("%s: got (-) want (+):\n%s", row[0], diff)
		}
	}
}

// TestSpec3BecomesTheSpec2OfTheOfficialConverter has the answers of
// ign-converter for 3.2 to 2.2.
func TestSpec3BecomesTheSpec2OfTheOfficialConverter(t *testing.T) {
	for _, row := range pairs(t, "spec3to2.jsonl") {
		cfg, err := ignition.Parse([]byte(row[0]))
		if err != nil {
			t.Errorf("%s: %v", row[0], err)
			continue
		}
		raw, err := ignition.Encode(cfg, "2.2.0")
		if err != nil {
			t.Errorf("%s: %v", row[0], err)
			continue
		}
		var got, want any
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(row[1]), &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(stripEmpty(got), stripEmpty(want)); diff != "" {
			t.Errorf("%s: got (-) want (+):\n%s", row[0], diff)
		}
	}
}

// stripEmpty removes empty objects, which encoders of structs leave behind.
func stripEmpty(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		if list, ok := v.([]any); ok {
			for i := range list {
				list[i] = stripEmpty(list[i])
			}
		}
		return v
	}
	for k, item := range m {
		item = stripEmpty(item)
		if inner, ok := item.(map[string]any); ok && len(inner) == 0 {
			delete(m, k)
		}
	}
	return m
}
