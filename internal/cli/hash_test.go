package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type vector struct {
	Mode, Pool, ExpectedName string
	ControllerConfig         struct {
		BaseOSContainerImage           string
		BaseOSExtensionsContainerImage string
	}
}

func vectors(t *testing.T, mode string) map[string]vector {
	t.Helper()
	files, err := filepath.Glob("testdata/mco-hash/*.expected.json")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]vector{}
	for _, f := range files {
		var v vector
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &v); err != nil {
			t.Fatal(err)
		}
		if v.Mode == mode {
			out[strings.TrimSuffix(f, ".expected.json")] = v
		}
	}
	if len(out) == 0 {
		t.Fatalf("no vectors of mode %s", mode)
	}
	return out
}

func TestHashGivesTheNamesOfTheVectors(t *testing.T) {
	for stem, v := range vectors(t, "hash-spec") {
		t.Run(filepath.Base(stem), func(t *testing.T) {
			got := call(t, "", "hash", stem+".input.yaml", "--pool", v.Pool)
			if got.code != 0 || got.stdout != v.ExpectedName+"\n" {
				t.Errorf("got %+v, want %s", got, v.ExpectedName)
			}
		})
	}
}

// edited is a rendered config as people take it from a cluster and change it.
const edited = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  annotations:
    machineconfiguration.openshift.io/generated-by-controller-version: 0c58628362f7471071da6d0263fa65766691f28c
    kubectl.kubernetes.io/last-applied-configuration: |
      {"kind":"MachineConfig"}
  creationTimestamp: "2025-11-28T06:00:00Z"
  generation: 1
  managedFields:
  - apiVersion: machineconfiguration.openshift.io/v1
    fieldsType: FieldsV1
    fieldsV1: {"f:metadata": {"f:annotations": {}}, "f:spec": {".": {}}}
    manager: machine-config-controller
    operation: Update
    time: "2025-11-28T06:00:00Z"
  name: %s
%s  resourceVersion: "370770"
  uid: 10f15d2b-342a-4406-8573-3306f397b211
spec:
  baseOSExtensionsContainerImage: quay.example.com/ext@sha256:0000000000000000000000000000000000000000000000000000000000000002
  config:
    ignition: {version: 3.5.0}
    storage:
      files:
      - mode: 420
        overwrite: false
        path: /usr/local/bin/mc-test
  extensions: []
  fips: false
  kernelArguments: []
  kernelType: default
  osImageURL: quay.example.com/os@sha256:0000000000000000000000000000000000000000000000000000000000000001
`

const editedHash = "d18dab2bd68627f4d84f92082bb637ef" // that of vector 03

func TestHashFindsThePool(t *testing.T) {
	const owner = `  ownerReferences:
  - {apiVersion: machineconfiguration.openshift.io/v1, kind: MachineConfigPool, name: infra-gpu, uid: x, controller: true, blockOwnerDeletion: true}
`
	for _, tt := range []struct {
		name, why   string
		object, own string
		args        []string
		want        string
		code        int
	}{
		{"flag", "the flag wins over everything", "rendered-worker-0", owner, []string{"--pool", "edge"}, "edge", 0},
		{"owner", "the owner is what the cluster will see", "rendered-worker-0", owner, nil, "infra-gpu", 0},
		{"name", "a name as the cluster makes it", "rendered-worker-2bc1dfd10eba3b11a558e7b8edddd605", "", nil, "worker", 0},
		{"name with dashes", "custom pools have dashes in their names", "rendered-infra-gpu-CHANGEME", "", nil, "infra-gpu", 0},
		{"nowhere", "nothing says for which pool", "99-worker-ssh", "", nil, "", 2},
		{"half a name", "no pool stands between the dashes", "rendered-x", "", nil, "", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := call(t, fmt.Sprintf(edited, tt.object, tt.own), append([]string{"hash", "-"}, tt.args...)...)
			want := ""
			if tt.want != "" {
				want = "rendered-" + tt.want + "-" + editedHash + "\n"
			}
			if got.code != tt.code || got.stdout != want {
				t.Errorf("%s: got %+v, want %q and code %d", tt.why, got, want, tt.code)
			}
			if tt.code == 2 && !strings.Contains(got.stderr, "give --pool") {
				t.Errorf("the way out is missing: %s", got.stderr)
			}
		})
	}
}

func TestHashTellsWhenTheNameIsStale(t *testing.T) {
	got := call(t, fmt.Sprintf(edited, "rendered-worker-2bc1dfd10eba3b11a558e7b8edddd605", ""), "hash", "-", "-o", "json")
	var r HashReport
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil {
		t.Fatal(err, got)
	}
	want := HashReport{Name: "rendered-worker-" + editedHash, Pool: "worker", PoolFrom: "name", Object: "rendered-worker-2bc1dfd10eba3b11a558e7b8edddd605"}
	if r != want {
		t.Errorf("got %+v, want %+v", r, want)
	}
	if !strings.Contains(got.stderr, "calls itself rendered-worker-2bc1") {
		t.Errorf("stderr: %s", got.stderr)
	}
}

func TestHashRefusesBadInput(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		name, text string
		code       int
		want       string
	}{
		{"no config", "apiVersion: v1\nkind: Node\nmetadata: {name: w}\n", 2, "holds no MachineConfig"},
		{"two configs", "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigList\nitems: [{metadata: {name: a}}, {metadata: {name: b}}]\n", 2, "holds 2 MachineConfigs (a, b, …)"},
		{"wrong type", "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: rendered-worker-1}\nspec: {fips: maybe}\n", 1, "document 1: MachineConfig rendered-worker-1: spec.fips: a string stands where true or false is wanted"},
		{"twice", "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: rendered-worker-1}\nspec: {fips: true}\nspec: {}\n", 1, `key "spec" already set`},
		{"yes and no", "apiVersion: v1\nkind: Node\nmetadata: {name: n}\n", 1, "metadata.name: a bool stands where a string is wanted; put it in quotes"},
		{"no yaml", "a: [", 1, "document 1: "},
		{"no kind", "metadata: {name: x}\n", 1, "apiVersion and kind are missing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := write(t, dir, strings.ReplaceAll(tt.name, " ", "-")+".yaml", tt.text)
			got := call(t, "", "hash", f)
			if got.code != tt.code || !strings.Contains(got.stderr, tt.want) || got.stdout != "" {
				t.Errorf("got %+v, want code %d and %q", got, tt.code, tt.want)
			}
			if tt.code == 1 && !strings.Contains(got.stderr, f) {
				t.Errorf("the file is not named: %s", got.stderr)
			}
		})
	}
	if got := call(t, "", "hash"); got.code != 2 {
		t.Errorf("without a file: %+v", got)
	}
	if got := call(t, "", "hash", filepath.Join(dir, "absent")); got.code != 1 || !strings.Contains(got.stderr, "absent") {
		t.Errorf("absent file: %+v", got)
	}
}

func FuzzParseManifests(f *testing.F) {
	f.Add([]byte(fmt.Sprintf(edited, "rendered-worker-1", "")))
	f.Add([]byte("apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Node, metadata: {name: a}}\n---\n# nothing\n"))
	f.Add([]byte(`{"apiVersion":"v1","kind":"NodeList","items":[{"metadata":{"name":"a"}},1]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		ms, err := parseManifests("f", data)
		for _, m := range ms {
			if m.Name == "" || m.Kind.Kind == "" || !json.Valid(m.Raw) {
				t.Errorf("a manifest without name, kind or JSON: %+v", m)
			}
			if strings.Contains(m.Source.String(), "\n") {
				t.Errorf("source %q", m.Source)
			}
		}
		if err != nil && !strings.HasPrefix(err.Error(), "f: document ") {
			t.Errorf("the error does not say where: %v", err)
		}
	})
}
