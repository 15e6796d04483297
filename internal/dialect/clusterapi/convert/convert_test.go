package convert_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"millwright.io/millwright/config"
	"millwright.io/millwright/internal/dialect/clusterapi/convert"
)

func versions(_, kind string) string {
	if strings.HasPrefix(kind, "x") {
		return ""
	}
	return "v1beta2"
}

func converter(t testing.TB) (*convert.Converter, []*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	crds, err := config.CRDs("clusterapi")
	if err != nil {
		t.Fatal(err)
	}
	c, err := convert.New(crds, versions)
	if err != nil {
		t.Fatal(err)
	}
	var ours []*apiextensionsv1.CustomResourceDefinition
	for _, kind := range convert.Kinds() {
		for _, crd := range crds {
			if crd.Spec.Group+"/"+crd.Spec.Names.Kind == kind {
				ours = append(ours, crd)
			}
		}
	}
	if len(ours) != len(convert.Kinds()) {
		t.Fatalf("definitions of %d of %d kinds", len(ours), len(convert.Kinds()))
	}
	return c, ours
}

func object(crd *apiextensionsv1.CustomResourceDefinition, version string) map[string]any {
	return map[string]any{"apiVersion": crd.Spec.Group + "/" + version, "kind": crd.Spec.Names.Kind,
		"metadata": map[string]any{"name": "a", "namespace": "ns", "uid": "1", "generation": int64(3)}}
}

func schemaOf(crd *apiextensionsv1.CustomResourceDefinition, version string) *apiextensionsv1.JSONSchemaProps {
	for _, v := range crd.Spec.Versions {
		if v.Name == version {
			return v.Schema.OpenAPIV3Schema
		}
	}
	return nil
}

// chooser makes the choices of a generated value.
type chooser interface {
	pick(label string, n int) int // 0..n-1
}

type drawn struct{ t *rapid.T }

func (d drawn) pick(label string, n int) int { return rapid.IntRange(0, n-1).Draw(d.t, label) }

// everything chooses every field, and texts that mean something.
type everything struct{ n int }

func (e everything) pick(label string, n int) int {
	switch label {
	case "have":
		return 1
	case "len":
		return n - 1
	}
	return e.n % n
}

var texts = []string{"90s", "x/v1", "5m", "1500ms", "", "Updating", "x", "infra.x-k8s.io/v1beta2", "-3s", "999999h", "b"}

// value makes a value that the schema does not cut.
func value(c chooser, s *apiextensionsv1.JSONSchemaProps) any {
	switch {
	case s.XIntOrString:
		if c.pick("intstr", 2) == 0 {
			return int64(7)
		}
		return "30%"
	case s.Type == "boolean":
		return c.pick("bool", 2) == 1
	case s.Type == "integer" || s.Type == "number":
		return int64(c.pick("int", 4)) * 61
	case s.Type == "string":
		return texts[c.pick("text", len(texts))]
	case s.Type == "array":
		out := []any{}
		for range c.pick("len", 3) {
			out = append(out, value(c, s.Items.Schema))
		}
		return out
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		out := map[string]any{}
		for i := range c.pick("len", 3) {
			out[fmt.Sprint("k", i)] = value(c, s.AdditionalProperties.Schema)
		}
		return out
	case s.Type == "object":
		out := map[string]any{}
		for _, name := range names(s.Properties) {
			if p := s.Properties[name]; c.pick("have", 2) == 1 {
				out[name] = value(c, &p)
			}
		}
		return out
	}
	return map[string]any{"free": []any{"form", int64(1)}}
}

func names(m map[string]apiextensionsv1.JSONSchemaProps) []string {
	var out []string
	for name := range m {
		out = append(out, name)
	}
	// The order decides what rapid draws for which field.
	for i := range out {
		for j := i; j > 0 && out[j] < out[j-1]; j-- {
			out[j], out[j-1] = out[j-1], out[j]
		}
	}
	return out
}

// cut is what the API server drops from v, as paths; written apart from the
// package's own pruning, to judge it.
func cut(path string, v any, s *apiextensionsv1.JSONSchemaProps) []string {
	var out []string
	switch v := v.(type) {
	case map[string]any:
		for name, item := range v {
			p, ok := s.Properties[name]
			switch {
			case ok:
				out = append(out, cut(path+"."+name, item, &p)...)
			case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
				out = append(out, cut(path+"."+name, item, s.AdditionalProperties.Schema)...)
			case s.XPreserveUnknownFields == nil && s.Type == "object":
				out = append(out, path+"."+name)
			}
		}
	case []any:
		for _, item := range v {
			if s.Items != nil {
				out = append(out, cut(path+"[]", item, s.Items.Schema)...)
			}
		}
	}
	return out
}

type fataler interface {
	Fatalf(string, ...any)
	Helper()
}

func roundTrip(t fataler, c *convert.Converter, crd *apiextensionsv1.CustomResourceDefinition, obj map[string]any, other string) {
	t.Helper()
	there, err := c.Convert(obj, crd.Spec.Group+"/"+other)
	if err != nil {
		t.Fatalf("there: %v", err)
	}
	s := schemaOf(crd, other)
	for _, part := range []string{"spec", "status"} {
		p := s.Properties[part]
		if lost := cut(part, there[part], &p); len(lost) > 0 {
			t.Fatalf("the API server would drop %v", lost)
		}
	}
	back, err := c.Convert(there, obj["apiVersion"].(string))
	if err != nil {
		t.Fatalf("back: %v", err)
	}
	if diff := cmp.Diff(obj, back); diff != "" {
		t.Fatalf("there and back (-was +is):\n%s", diff)
	}
	again, err := c.Convert(back, crd.Spec.Group+"/"+other)
	if err != nil {
		t.Fatalf("again: %v", err)
	}
	if diff := cmp.Diff(there, again); diff != "" {
		t.Fatalf("there again (-was +is):\n%s", diff)
	}
}

func eachWay(t *testing.T, do func(t *testing.T, c *convert.Converter, crd *apiextensionsv1.CustomResourceDefinition, from, to string)) {
	t.Helper()
	c, crds := converter(t)
	for _, crd := range crds {
		for _, way := range [][2]string{{"v1beta1", "v1beta2"}, {"v1beta2", "v1beta1"}} {
			t.Run(crd.Spec.Names.Kind+"/"+way[0], func(t *testing.T) { do(t, c, crd, way[0], way[1]) })
		}
	}
}

func fill(c chooser, crd *apiextensionsv1.CustomResourceDefinition, version string) map[string]any {
	obj, s := object(crd, version), schemaOf(crd, version)
	for _, part := range []string{"spec", "status"} {
		if p, ok := s.Properties[part]; ok {
			obj[part] = value(c, &p)
		}
	}
	return obj
}

func TestTablesAreOfTheDefinitionsThatConvert(t *testing.T) {
	crds, err := config.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range crds {
		name := crd.Spec.Group + "/" + crd.Spec.Names.Kind
		if has := crd.Spec.Conversion != nil; has != slices.Contains(convert.Kinds(), name) {
			t.Errorf("%s: definition has a conversion: %v; a table: %v", name, has, !has)
		}
	}
}

func TestEveryFieldComesBack(t *testing.T) {
	eachWay(t, func(t *testing.T, c *convert.Converter, crd *apiextensionsv1.CustomResourceDefinition, from, to string) {
		for n := range len(texts) {
			roundTrip(t, c, crd, fill(everything{n}, crd, from), to)
		}
	})
}

func TestGeneratedObjectsComeBack(t *testing.T) {
	eachWay(t, func(t *testing.T, c *convert.Converter, crd *apiextensionsv1.CustomResourceDefinition, from, to string) {
		rapid.Check(t, func(r *rapid.T) { roundTrip(r, c, crd, fill(drawn{r}, crd, from), to) })
	})
}

const deploymentOld = `
apiVersion: cluster.x-k8s.io/v1beta1
kind: MachineDeployment
metadata: {name: md, namespace: ns}
spec:
  clusterName: c
  replicas: 3
  minReadySeconds: 10
  revisionHistoryLimit: 4
  rolloutAfter: "2030-01-01T00:00:00Z"
  selector: {}
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxSurge: 0, maxUnavailable: 1, deletePolicy: Oldest}
    remediation: {maxInFlight: 30%}
  template:
    spec:
      bootstrap:
        configRef: {apiVersion: bootstrap.cluster.x-k8s.io/v1beta1, kind: KubeadmConfigTemplate, name: kct, namespace: ns}
      clusterName: c
      infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: DCSMachineTemplate, name: t}
      nodeDrainTimeout: 1m
      nodeDeletionTimeout: 5m
      version: v1.33.1
status:
  readyReplicas: 1
  conditions: [{type: Ready, status: "True", severity: Info}]
  v1beta2: {readyReplicas: 2, conditions: [{type: Available, status: "True"}]}
`

const deploymentNew = `
clusterName: c
replicas: 3
deletion: {order: Oldest}
remediation: {maxInFlight: 30%}
rollout:
  after: "2030-01-01T00:00:00Z"
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}
selector: {}
template:
  spec:
    bootstrap: {configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfigTemplate, name: kct}}
    clusterName: c
    deletion: {nodeDrainTimeoutSeconds: 60, nodeDeletionTimeoutSeconds: 300}
    infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DCSMachineTemplate, name: t}
    minReadySeconds: 10
    version: v1.33.1
`

const statusNew = `
readyReplicas: 2
conditions: [{type: Available, status: "True"}]
deprecated: {v1beta1: {readyReplicas: 1, conditions: [{type: Ready, status: "True", severity: Info}]}}
`

func parse(t testing.TB, text string) map[string]any {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func mustConvert(t testing.TB, c *convert.Converter, obj map[string]any, to string) map[string]any {
	t.Helper()
	out, err := c.Convert(obj, to)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestMachineDeploymentMeansTheSame(t *testing.T) {
	c, _ := converter(t)
	old := parse(t, deploymentOld)
	got := mustConvert(t, c, old, "cluster.x-k8s.io/v1beta2")
	if diff := cmp.Diff(parse(t, deploymentNew), got["spec"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(parse(t, statusNew), got["status"]); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	// What is changed in one version is not undone by what was kept for it.
	deletion := got["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["deletion"].(map[string]any)
	deletion["nodeDrainTimeoutSeconds"] = int64(90)
	back := mustConvert(t, c, got, "cluster.x-k8s.io/v1beta1")
	spec := back["spec"].(map[string]any)
	want := parse(t, deploymentOld)["spec"].(map[string]any)
	want["template"].(map[string]any)["spec"].(map[string]any)["nodeDrainTimeout"] = "1m30s"
	if diff := cmp.Diff(want, spec); diff != "" {
		t.Errorf("after a change (-want +got):\n%s", diff)
	}
}

func TestKubeletArgumentsAreListedByName(t *testing.T) {
	c, _ := converter(t)
	got := mustConvert(t, c, parse(t, `
apiVersion: bootstrap.cluster.x-k8s.io/v1beta1
kind: KubeadmConfigTemplate
metadata: {name: t, namespace: ns}
spec: {template: {spec: {users: [], joinConfiguration: {discovery: {timeout: 5m}, nodeRegistration: {taints: [], kubeletExtraArgs: {b: "2", a: ""}}}}}}
`), "bootstrap.cluster.x-k8s.io/v1beta2")
	want := parse(t, `template: {spec: {joinConfiguration: {timeouts: {tlsBootstrapSeconds: 300},
  nodeRegistration: {taints: [], kubeletExtraArgs: [{name: a, value: ""}, {name: b, value: "2"}]}}}}`)
	if diff := cmp.Diff(want, got["spec"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

func TestWhatTheOriginalKeptIsTakenOver(t *testing.T) {
	c, _ := converter(t)
	got := mustConvert(t, c, parse(t, `
apiVersion: cluster.x-k8s.io/v1beta1
kind: Machine
metadata: {name: m, namespace: ns, annotations: {cluster.x-k8s.io/conversion-data: '{"spec":{"minReadySeconds":5,"clusterName":"c"}}'}}
spec: {clusterName: d}
`), "cluster.x-k8s.io/v1beta2")
	if diff := cmp.Diff(parse(t, `{minReadySeconds: 5, clusterName: d}`), got["spec"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if got["metadata"].(map[string]any)["annotations"] != nil {
		t.Errorf("metadata: %v", got["metadata"])
	}
}

func TestConvertRefusesWhatItDoesNotKnow(t *testing.T) {
	c, _ := converter(t)
	for text, want := range map[string]string{
		`{apiVersion: cluster.x-k8s.io/v1beta1, kind: Cow, metadata: {}}`:                                                   "no such conversion; known kinds are",
		`{apiVersion: cluster.x-k8s.io/v1alpha4, kind: Machine, metadata: {}}`:                                              "versions are v1beta1 and v1beta2",
		`{apiVersion: cluster.x-k8s.io/v1beta1, kind: Machine, metadata: word}`:                                             "metadata: string is no object",
		`{apiVersion: cluster.x-k8s.io/v1beta1, kind: Machine, metadata: {annotations: {millwright.io/v1beta2-data: '{'}}}`: "remove it if it was edited",
	} {
		if _, err := c.Convert(parse(t, text), "cluster.x-k8s.io/v1beta2"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

func TestContractsPreferTheNewestContract(t *testing.T) {
	var c convert.Contracts
	c.Set("dcsmachinetemplates.infrastructure.cluster.x-k8s.io", map[string]string{
		"cluster.x-k8s.io/v1beta1": "v1beta1_v1beta2", "other": "v9"})
	if got := c.Version("infrastructure.cluster.x-k8s.io", "DCSMachineTemplate"); got != "v1beta2" {
		t.Errorf("got %q", got)
	}
	c.Set("dcsmachinetemplates.infrastructure.cluster.x-k8s.io", map[string]string{
		"cluster.x-k8s.io/v1beta1": "v1beta3", "cluster.x-k8s.io/v1beta2": "v1beta2"})
	if got := c.Version("infrastructure.cluster.x-k8s.io", "DCSMachineTemplate"); got != "v1beta2" {
		t.Errorf("got %q", got)
	}
	c.Forget("dcsmachinetemplates.infrastructure.cluster.x-k8s.io")
	if got := c.Version("infrastructure.cluster.x-k8s.io", "DCSMachineTemplate"); got != "" {
		t.Errorf("got %q", got)
	}
}

func FuzzConvert(f *testing.F) {
	c, _ := converter(f)
	raw, err := yaml.YAMLToJSON([]byte(deploymentOld))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte(`{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Machine","metadata":{"annotations":{"millwright.io/v1beta1-data":"{\"keys\":{\"spec\":null}}"}},"spec":[]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var obj map[string]any
		if json.Unmarshal(raw, &obj) != nil || obj == nil {
			return
		}
		for _, version := range []string{"v1beta1", "v1beta2"} {
			there, err := c.Convert(obj, "cluster.x-k8s.io/"+version)
			if err != nil {
				continue
			}
			if _, err := c.Convert(there, obj["apiVersion"].(string)); err != nil {
				t.Fatalf("there but not back: %v", err)
			}
		}
	})
}

func BenchmarkMachineDeployment(b *testing.B) {
	c, _ := converter(b)
	old := parse(b, deploymentOld)
	stored := mustConvert(b, c, old, "cluster.x-k8s.io/v1beta2")
	for name, obj := range map[string]map[string]any{"up": old, "down": stored} {
		to := map[string]string{"up": "cluster.x-k8s.io/v1beta2", "down": "cluster.x-k8s.io/v1beta1"}[name]
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				mustConvert(b, c, obj, to)
			}
		})
	}
}
