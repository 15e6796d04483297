package vm

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vincent-petithory/dataurl"
)

func openRoot(t testing.TB) (*os.Root, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root, dir
}

// config wraps storage and systemd sections into a config.
func config(version, sections string) []byte {
	return []byte(`{"ignition":{"version":"` + version + `"}` + sections + `}`)
}

func gzipped(t *testing.T, body string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(body))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return dataurl.EncodeBytes(b.Bytes())
}

func TestApplyIgnitionWritesWhatItSays(t *testing.T) {
	quoted, err := json.Marshal(gzipped(t, "squeezed"))
	if err != nil {
		t.Fatal(err)
	}
	raw := config("3.2.0", `,"storage":{
	  "directories":[{"path":"/var/lib/app","mode":448}],
	  "files":[
	    {"path":"/etc/plain","mode":384,"contents":{"source":"data:,hello%20world"}},
	    {"path":"/etc/zip","contents":{"source":`+string(quoted)+`,"compression":"gzip"}},
	    {"path":"/etc/more","contents":{"source":"data:,a"},"append":[{"source":"data:,b"}]}],
	  "links":[{"path":"/etc/link","target":"/etc/plain"}]},
	"systemd":{"units":[
	  {"name":"a.service","enabled":true,"contents":"[Install]\nWantedBy=multi-user.target\n","dropins":[{"name":"10.conf","contents":"[Service]\n"}]},
	  {"name":"b.service","mask":true}]}`)
	root, dir := openRoot(t)
	said, err := ApplyIgnition(t.Context(), root, raw)
	if err != nil {
		t.Fatal(err)
	}
	if want := "wrote 1 directories, 3 files, 1 links, 2 units"; said != want {
		t.Errorf("got %q, want %q", said, want)
	}
	for name, want := range map[string]string{
		"etc/plain": "hello world", "etc/zip": "squeezed", "etc/more": "ab",
		"etc/systemd/system/a.service": "[Install]\nWantedBy=multi-user.target\n", "etc/systemd/system/a.service.d/10.conf": "[Service]\n",
	} {
		got, err := root.ReadFile(name)
		if err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
		}
	}
	for name, want := range map[string]string{
		"etc/link": "/etc/plain", "etc/systemd/system/b.service": "/dev/null",
		"etc/systemd/system/multi-user.target.wants/a.service": "/etc/systemd/system/a.service",
	} {
		if got, err := os.Readlink(filepath.Join(dir, name)); err != nil || got != want {
			t.Errorf("link %s: got %q, %v; want %q", name, got, err, want)
		}
	}
	for name, want := range map[string]fs.FileMode{"etc/plain": 0o600, "etc/zip": 0o644, "var/lib/app": 0o700} {
		if i, err := root.Stat(name); err != nil || i.Mode().Perm() != want {
			t.Errorf("mode of %s: got %v, %v; want %v", name, i.Mode(), err, want)
		}
	}
}

func TestApplyIgnitionRefusesInWords(t *testing.T) {
	for _, row := range []struct{ name, raw, want string }{
		{"nothing", " ", "no user data"},
		{"no JSON", "#cloud-config", "parse user data"},
		{"future version", `{"ignition":{"version":"9.0.0"}}`, "parse user data"},
		{"remote source", string(config("3.2.0", `,"storage":{"files":[{"path":"/a","contents":{"source":"https://example.com/x"}}]}`)), "write file /a: source https://…: only data URLs"},
		{"root itself", string(config("3.2.0", `,"storage":{"directories":[{"path":"/"}]}`)), "names the root itself"},
	} {
		t.Run(row.name, func(t *testing.T) {
			root, _ := openRoot(t)
			_, err := ApplyIgnition(t.Context(), root, []byte(row.raw))
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want it to say %q", err, row.want)
			}
		})
	}
}

func TestHollowDiskHoldsTheSameFiles(t *testing.T) {
	raw := config("3.2.0", `,"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,x"}},{"path":"/etc/b"}]}`)
	got, err := ignitionFiles(raw)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string][]byte{"etc/a": []byte("x")}, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// FuzzApplyIgnition asserts that nothing is written beside the root, through
// links or dots, whatever the config says.
func FuzzApplyIgnition(f *testing.F) {
	f.Add(config("3.2.0", `,"storage":{"links":[{"path":"/out","target":"../.."}],"files":[{"path":"/out/x","contents":{"source":"data:,x"}}]}`))
	f.Add(config("3.2.0", `,"storage":{"files":[{"path":"/../../x","contents":{"source":"data:,x"}}]}`))
	f.Add(config("3.0.0", `,"systemd":{"units":[{"name":"../x.service","contents":"x"},{"name":"y.service","dropins":[{"name":"../../../../z.conf","contents":"z"}]}]}`))
	f.Add(config("3.5.0", `,"storage":{"links":[{"path":"/etc","target":"/tmp"},{"path":"/h","target":"/../../etc/passwd","hard":true}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		root, dir := openRoot(t)
		_, _ = ApplyIgnition(t.Context(), root, raw)
		entries, err := os.ReadDir(filepath.Dir(dir))
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) != 1 {
			t.Fatalf("got %v beside the root, want only the root", entries)
		}
	})
}
