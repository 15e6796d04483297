package memapi_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright.io/millwright/internal/memapi"
)

const twoMachines = `# a comment only
---
apiVersion: machine.openshift.io/v1beta1
kind: Machine
metadata: {namespace: ns, name: a}
---
apiVersion: machine.openshift.io/v1beta1
kind: Machine
metadata: {namespace: ns, name: b}
`

func TestReaderReadsATreeOfManifests(t *testing.T) {
	tree := fstest.MapFS{
		"cluster-scoped-resources/core/nodes/n1.yaml": {Data: []byte("apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n")},
		"namespaces/ns/machines.yaml": {Data: []byte(`apiVersion: machine.openshift.io/v1beta1
kind: MachineList
items:
- metadata: {namespace: ns, name: c}
- metadata: {namespace: ns, name: d}
`)},
		"list.json":                         {Data: []byte(`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"example.com/v1","kind":"Odd","metadata":{"name":"o"},"spec":{"n":3}}]}`)},
		"two.yml":                           {Data: []byte(twoMachines)},
		"namespaces/ns/pods/x/logs/log.txt": {Data: []byte("not: a manifest")},
		"broken.yaml":                       {Data: []byte("a: [")},
		"version.yaml":                      {Data: []byte("foo: bar")},
	}
	r, err := memapi.Reader(newScheme(t), tree)
	if err != nil {
		t.Fatal(err)
	}
	var machines machinev1beta1.MachineList
	if err := r.List(t.Context(), &machines); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range machines.Items {
		names = append(names, m.Name)
	}
	if d := cmp.Diff([]string{"a", "b", "c", "d"}, names); d != "" {
		t.Errorf("machines (-want +got):\n%s", d)
	}
	var nodes corev1.NodeList
	if err := r.List(t.Context(), &nodes); err != nil || len(nodes.Items) != 1 {
		t.Errorf("nodes: %d, %v", len(nodes.Items), err)
	}
	odd := &unstructured.UnstructuredList{}
	odd.SetAPIVersion("example.com/v1")
	odd.SetKind("OddList")
	if err := r.List(t.Context(), odd); err != nil || len(odd.Items) != 1 {
		t.Errorf("unknown kind: %d, %v", len(odd.Items), err)
	}
	if n, _, _ := unstructured.NestedInt64(odd.Items[0].Object, "spec", "n"); n != 3 {
		t.Errorf("an integer became %v", odd.Items[0].Object["spec"])
	}
	if got := strings.Join(r.Problems(), "\n"); strings.Count(got, "\n") != 1 || !strings.Contains(got, "broken.yaml: document 1: ") || !strings.Contains(got, "version.yaml: document 1: apiVersion and kind are missing") {
		t.Errorf("problems:\n%s", got)
	}
}

func TestReaderRefusesABrokenFileOfTheUser(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.txt")
	if err := os.WriteFile(bad, []byte("kind: Machine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := memapi.Path(bad, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := memapi.Reader(newScheme(t), f); err == nil || !strings.Contains(err.Error(), "bad.txt: document 1") {
		t.Errorf("got %v", err)
	}
	in, err := memapi.Path("-", strings.NewReader(twoMachines))
	if err != nil {
		t.Fatal(err)
	}
	s, err := memapi.Reader(newScheme(t), in)
	if err != nil || len(s.Objects()) != 2 {
		t.Errorf("standard input: %d objects, %v", len(s.Objects()), err)
	}
	if _, err := memapi.Path(filepath.Join(dir, "absent"), nil); err == nil {
		t.Error("an absent path was accepted")
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte(twoMachines))
	f.Add([]byte(`{"apiVersion":"v1","kind":"List","items":[{"items":[1]}]}`))
	f.Add([]byte("apiVersion: v1\nkind: NodeList\nitems: {}\n"))
	f.Add([]byte("apiVersion: v1\nkind: Node\nmetadata: {name: [x]}\n"))
	scheme := runtime.NewScheme()
	if err := machinev1beta1.AddToScheme(scheme); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := memapi.Reader(scheme, fstest.MapFS{"x.yaml": {Data: data}})
		if err != nil {
			t.Fatalf("a tree must be readable, whatever is in it: %v", err)
		}
		for _, o := range s.Objects() {
			if o.GetName() == "" {
				t.Errorf("an object without a name: %v", o)
			}
		}
	})
}
