package ostree

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func newTree(t testing.TB) (*Tree, string) {
	t.Helper()
	root := t.TempDir()
	tree, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tree.Close() })
	if err := tree.Install(Deployment{Version: FirstVersion, Arguments: []string{"root=x", "rw"}}); err != nil {
		t.Fatal(err)
	}
	return tree, root
}

// run does one command and returns code and texts.
func run(t *Tree, line string) (int, string) {
	var out bytes.Buffer
	code := t.Run(strings.Fields(line), &out, &out)
	return code, out.String()
}

func read(t *testing.T, root, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestKernelArguments(t *testing.T) {
	for _, row := range []struct{ name, commands, want, says string }{
		{"append", "kargs --append=a --append b=1", "root=x rw a b=1", "Staging deployment...done"},
		{"append if missing", "kargs --append-if-missing=rw --append-if-missing=q", "root=x rw q", ""},
		{"delete", "kargs --delete=rw", "root=x", ""},
		{"delete by key", "kargs --delete=root", "rw", ""},
		{"delete what is not there", "kargs --delete=foo", "root=x rw", "error: No key 'foo' found"},
		{"delete if present", "kargs --delete-if-present=foo --delete-if-present=rw", "root=x", ""},
		{"deletions come first", "kargs --append=rw --delete-if-present=rw", "root=x rw", ""},
		{"replace", "kargs --replace=root=y", "root=y rw", ""},
		{"replace a value", "kargs --replace=root=x=z", "root=z rw", ""},
		{"unknown", "kargs --frobnicate=1", "root=x rw", "error: Unknown option --frobnicate"},
		{"no value", "kargs --append", "root=x rw", "error: Missing argument for --append"},
	} {
		t.Run(row.name, func(t *testing.T) {
			tree, _ := newTree(t)
			code, said := run(tree, row.commands)
			if strings.HasPrefix(row.says, "error") != (code != 0) || !strings.Contains(said, row.says) {
				t.Errorf("got code %d and %q, want it to say %q", code, said, row.says)
			}
			if _, got := run(tree, "kargs"); got != row.want+"\n" {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}

func TestStagedBecomesBootedAtTheBoot(t *testing.T) {
	tree, root := newTree(t)
	for _, c := range []string{"kargs --append=nosmt", "rebase --experimental ostree-unverified-registry:q/a@sha256:abcdef0123456789", "update --install usbguard", "override remove kernel --install kernel-rt-core"} {
		if code, said := run(tree, c); code != 0 {
			t.Fatalf("%s: %s", c, said)
		}
	}
	r, err := tree.Boot()
	if err != nil || !r.Finalized || r.Lost != nil {
		t.Fatalf("got %+v, %v; want a finalized deployment", r, err)
	}
	want := Deployment{
		Image: "q/a@sha256:abcdef0123456789", Origin: "ostree-unverified-registry:q/a@sha256:abcdef0123456789", Version: "9.6.abcdef01",
		Arguments: []string{"root=x", "rw", "nosmt"}, Packages: []string{"kernel-rt-core", "usbguard"}, Removals: []string{"kernel"},
		Timestamp: r.Booted.Timestamp,
	}
	if diff := cmp.Diff(want, r.Booted); diff != "" {
		t.Errorf("booted (-want +got):\n%s", diff)
	}
	if got := read(t, root, "proc/cmdline"); !strings.HasSuffix(got, " root=x rw nosmt\n") {
		t.Errorf("command line: got %q", got)
	}
	if got := read(t, root, "usr/lib/os-release"); !strings.Contains(got, `PRETTY_NAME="Red Hat Enterprise Linux CoreOS 9.6.abcdef01"`) {
		t.Errorf("os-release: got %q", got)
	}
	if got := read(t, root, "boot/loader/entries/ostree-2.conf"); !strings.Contains(got, "options root=x rw nosmt\n") {
		t.Errorf("boot entry: got %q", got)
	}
	if got := read(t, root, "boot/loader/entries/ostree-1.conf"); !strings.Contains(got, "options root=x rw\n") {
		t.Errorf("boot entry of the rollback: got %q", got)
	}
	again, err := tree.Boot()
	if err != nil || again.Finalized || again.Booted.Image != want.Image {
		t.Errorf("second boot: got %+v, %v; want the same deployment", again, err)
	}
}

func TestWhatCannotBeFinalizedIsLost(t *testing.T) {
	tree, root := newTree(t)
	if err := os.MkdirAll(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, FailingPath), []byte(FinalizeUnit+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, said := run(tree, "kargs --append=nosmt"); code != 0 {
		t.Fatal(said)
	}
	r, err := tree.Boot()
	if err != nil || r.Finalized || r.Lost == nil {
		t.Fatalf("got %+v, %v; want a lost deployment", r, err)
	}
	if _, got := run(tree, "kargs"); got != "root=x rw\n" {
		t.Errorf("got %q, want the arguments from before", got)
	}
}

func TestStatusIsThatOfTheOriginal(t *testing.T) {
	tree, _ := newTree(t)
	if code, said := run(tree, "rebase ostree-image-signed:docker://q/a@sha256:ab"); code != 0 {
		t.Fatal(said)
	}
	_, raw := run(tree, "status --json")
	var got struct {
		Deployments []map[string]any `json:"deployments"`
	}
	if err := json.Unmarshal([]byte(raw), &got); err != nil {
		t.Fatal(err)
	}
	var short []map[string]any
	for _, d := range got.Deployments {
		short = append(short, map[string]any{"i": d["container-image-reference"], "d": d["container-image-reference-digest"], "b": d["booted"], "s": d["staged"], "p": d["requested-packages"]})
	}
	want := []map[string]any{
		{"i": "ostree-image-signed:docker://q/a@sha256:ab", "d": "sha256:ab", "b": false, "s": true, "p": []any{}},
		{"i": nil, "d": nil, "b": true, "s": false, "p": []any{}},
	}
	if diff := cmp.Diff(want, short); diff != "" {
		t.Errorf("deployments (-want +got):\n%s", diff)
	}
	if _, text := run(tree, "status"); !strings.Contains(text, "Digest: sha256:ab") || !strings.Contains(text, "\n* \n") {
		t.Errorf("got %q, want both deployments, the booted one starred", text)
	}
	if code, _ := run(tree, "cleanup -p"); code != 0 {
		t.Error("cleanup went wrong")
	}
	if s, err := tree.Load(); err != nil || s.Staged != nil {
		t.Errorf("after cleanup: got %+v, %v; want nothing staged", s, err)
	}
}

func TestRefusals(t *testing.T) {
	for _, row := range []struct{ command, want string }{
		{"rebase q/a", "error: Invalid container image reference 'q/a'"},
		{"rebase", "error: rebase needs one image"},
		{"update --uninstall usbguard", "error: Package/capability 'usbguard' is not currently requested"},
		{"override reset kernel", "error: No overrides for package 'kernel'"},
		{"override remove", "error: No packages specified"},
		{"frobnicate", "error: Unknown command 'frobnicate'"},
		{"kargs --deploy-index=4", "error: Out of range deployment index 4, expected < 1"},
	} {
		t.Run(row.command, func(t *testing.T) {
			tree, _ := newTree(t)
			if code, said := run(tree, row.command); code == 0 || strings.TrimSpace(said) != row.want {
				t.Errorf("got code %d and %q, want %q", code, said, row.want)
			}
			if s, err := tree.Load(); err != nil || s.Staged != nil {
				t.Errorf("got %+v, %v; want nothing staged", s, err)
			}
		})
	}
}

func TestProvisionIsTheFirstDeploymentAtOnce(t *testing.T) {
	tree, root := newTree(t)
	if err := tree.Provision("q/a:4.20", []string{"nosmt"}, []string{"usbguard"}, nil); err != nil {
		t.Fatal(err)
	}
	s, err := tree.Load()
	if err != nil || s.Staged != nil || s.Rollback != nil || s.Booted.Image != "q/a:4.20" || s.Booted.Version != "4.20" {
		t.Errorf("got %+v, %v; want the image booted and nothing else", s.Booted, err)
	}
	if got := read(t, root, "proc/cmdline"); !strings.HasSuffix(got, " root=x rw nosmt\n") {
		t.Errorf("command line: got %q", got)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"booted":{"image":"a","kernelArguments":["x"]},"staged":{}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := decode(raw)
		if err != nil {
			return
		}
		if s.Next() == nil || len(s.report()) == 0 {
			t.Fatalf("got %+v, want something that boots", s)
		}
	})
}
