package manager

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"millwright.io/millwright/config"
	"millwright.io/millwright/internal/dialect/clusterapi/convert"
	"millwright.io/millwright/internal/operator"
	"millwright.io/millwright/internal/testenv"
	"millwright.io/millwright/internal/webhook"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const machineDeployment = `
apiVersion: cluster.x-k8s.io/v1beta1
kind: MachineDeployment
metadata: {name: md}
spec:
  clusterName: c
  replicas: 3
  revisionHistoryLimit: 4
  selector: {matchLabels: null}
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}
  template:
    spec:
      bootstrap:
        configRef: {apiVersion: bootstrap.cluster.x-k8s.io/v1beta1, kind: KubeadmConfigTemplate, name: kct, namespace: elsewhere}
      clusterName: c
      infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: DCSMachineTemplate, name: t}
      nodeDrainTimeout: 1m
      nodeDeletionTimeout: 5m
      version: v1.33.1
`

func wait(t *testing.T, what string, done func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err = done(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

func definition(name string) *unstructured.Unstructured {
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(webhook.DefinitionKind)
	crd.SetName(name)
	return crd
}

// serveConversion lets the API server of env convert by our handler.
func serveConversion(t *testing.T, env *testenv.Env) {
	t.Helper()
	crds, err := config.CRDs("clusterapi")
	if err != nil {
		t.Fatal(err)
	}
	contracts := &convert.Contracts{}
	for _, crd := range crds {
		contracts.Set(crd.Name, crd.Labels)
	}
	c, err := convert.New(crds, contracts.Version)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewTLSServer(http.HandlerFunc(c.ServeHTTP))
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	patch := fmt.Sprintf(`{"spec":{"conversion":{"webhook":{"clientConfig":{"service":null,"url":%q,"caBundle":%q}}}}}`,
		server.URL+pathConvert, base64.StdEncoding.EncodeToString(ca))
	for _, crd := range crds {
		if crd.Labels[webhook.LabelInject] == "true" {
			if err := env.Client.Patch(t.Context(), definition(crd.Name), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// injectAuthority waits until the authority is known to all definitions that
// ask for it.
func injectAuthority(t *testing.T, env *testenv.Env, namespace string) {
	t.Helper()
	a := webhook.NewAuthority(webhook.AuthorityDeps{Client: env.Client, Live: env.Client, Namespace: namespace, Definitions: true, Log: logr.Discard(),
		Service: client.ObjectKey{Namespace: operator.NamespaceMachineAPI, Name: operator.WebhookService}, Clock: clock.RealClock{}})
	go func() { _ = a.Start(t.Context()) }()
	wait(t, "authority in definitions", func() error {
		for _, name := range []string{"machines.cluster.x-k8s.io", "kubeadmconfigtemplates.bootstrap.cluster.x-k8s.io"} {
			crd := definition(name)
			if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(crd), crd); err != nil {
				return err
			}
			if b, _, _ := unstructured.NestedString(crd.Object, "spec", "conversion", "webhook", "clientConfig", "caBundle"); b == "" {
				return fmt.Errorf("%s has no bundle", name)
			}
		}
		return a.Ready(nil)
	})
}

func read(t *testing.T, env *testenv.Env, namespace, version string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	obj.SetAPIVersion("cluster.x-k8s.io/" + version)
	obj.SetKind("MachineDeployment")
	if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "md"}, obj); err != nil {
		t.Fatal(err)
	}
	return obj
}

func TestBothVersionsAreServedAndReapply(t *testing.T) {
	env := testenv.Start(t, testenv.WithFamilies("clusterapi"))
	namespace := env.Namespace(t)
	injectAuthority(t, env, namespace)
	serveConversion(t, env)

	manifest := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(machineDeployment), &manifest.Object); err != nil {
		t.Fatal(err)
	}
	manifest.SetNamespace(namespace)
	applied, err := json.Marshal(manifest.Object)
	if err != nil {
		t.Fatal(err)
	}
	wait(t, "create as v1beta1", func() error { return env.Client.Create(t.Context(), manifest.DeepCopy()) })

	stored := read(t, env, namespace, "v1beta2")
	if n, _, _ := unstructured.NestedInt64(stored.Object, "spec", "template", "spec", "deletion", "nodeDrainTimeoutSeconds"); n != 60 {
		t.Errorf("v1beta2: nodeDrainTimeoutSeconds is %d in %v", n, stored.Object["spec"])
	}
	old := read(t, env, namespace, "v1beta1")
	_ = unstructured.SetNestedField(manifest.Object, map[string]any{}, "spec", "selector")
	want, _ := json.Marshal(manifest.Object["spec"])
	got, _ := json.Marshal(old.Object["spec"])
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("v1beta1 spec as read (-applied +read):\n%s", diff)
	}

	for name, apply := range map[string]func() error{
		"the manifest": func() error {
			return env.Client.Patch(t.Context(), old.DeepCopy(), client.RawPatch(types.MergePatchType, applied))
		},
		"v1beta1 as read": func() error { return env.Client.Update(t.Context(), old.DeepCopy()) },
		"v1beta2 as read": func() error { return env.Client.Update(t.Context(), stored.DeepCopy()) },
	} {
		if err := apply(); err != nil {
			t.Errorf("apply %s: %v", name, err)
		}
		if now := read(t, env, namespace, "v1beta2"); now.GetGeneration() != stored.GetGeneration() {
			t.Errorf("apply %s: generation %d, was %d", name, now.GetGeneration(), stored.GetGeneration())
		}
	}

	for i, version := range []string{"v1beta1", "v1beta2"} {
		obj := read(t, env, namespace, version)
		scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: int32(5 + i)}}
		scale.Name, scale.Namespace = "md", namespace
		if err := env.Client.SubResource("scale").Update(t.Context(), obj, client.WithSubResourceBody(scale)); err != nil {
			t.Errorf("scale %s: %v", version, err)
		}
		if n, _, _ := unstructured.NestedInt64(read(t, env, namespace, "v1beta1").Object, "spec", "replicas"); n != int64(5+i) {
			t.Errorf("scale %s: replicas %d", version, n)
		}
		if columns := printed(t, env, namespace, version); !strings.Contains(columns, `"name":"Cluster"`) || !strings.Contains(columns, `"cells":["md","c",`) {
			t.Errorf("columns of %s: %s", version, columns)
		}
	}
}

// printed is what kubectl get would print.
func printed(t *testing.T, env *testenv.Env, namespace, version string) string {
	t.Helper()
	hc, err := rest.HTTPClientFor(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		env.Config.Host+"/apis/cluster.x-k8s.io/"+version+"/namespaces/"+namespace+"/machinedeployments", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	resp, err := hc.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
