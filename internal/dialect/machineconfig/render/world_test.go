package render_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineconfig/generator"
	"millwright.io/millwright/internal/dialect/machineconfig/poolconfig"
	"millwright.io/millwright/internal/dialect/machineconfig/render"
	"millwright.io/millwright/internal/dialect/machineconfig/template"
	"millwright.io/millwright/internal/dialect/machineconfig/unsupported"
	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/memapi"
)

var start = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

const (
	keep = 2
)

// world is every controller of the process on an API in memory.
type world struct {
	t     *testing.T
	api   *memapi.API
	cache *memapi.Cache
	clk   *clocktesting.FakeClock
	log   *bytes.Buffer
	rec   *events.FakeRecorder
	all   []kube.Controller
}

func newScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, configv1.Install, machineconfigv1.Install, operatorv1.Install, operatorv1alpha1.Install} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func newWorld(t *testing.T, objs ...client.Object) *world {
	t.Helper()
	w := &world{t: t, clk: clocktesting.NewFakeClock(start), log: &bytes.Buffer{}, rec: events.NewFakeRecorder(1000)}
	w.api = memapi.New(newScheme(t), w.clk, append(installed(), objs...)...)
	w.cache = w.api.NewCache()
	w.restart()
	return w
}

// restart makes controllers without memory.
func (w *world) restart() {
	c, log := w.cache.Client(), kube.KlogTextTo("", kube.KlogOptions{Out: w.log, Clock: w.clk})
	w.all = []kube.Controller{
		template.New(template.Deps{Client: c, Live: w.api, Clock: w.clk, Log: log}),
		poolconfig.New(poolconfig.Deps{Client: c, Live: w.api, Clock: w.clk, Recorder: w.rec, Log: log}),
		render.New(render.Deps{Client: c, Live: w.api, Clock: w.clk, Recorder: w.rec, Log: log, Keep: keep}),
	}
	w.all = append(w.all, generator.All(generator.Deps{Client: c, Live: w.api, Clock: w.clk, Log: log})...)
	w.all = append(w.all, unsupported.All(unsupported.Deps{Client: c, Clock: w.clk})...)
}

// keysOf lists the objects that a controller decides.
func (w *world) keysOf(c kube.Controller) []client.ObjectKey {
	w.t.Helper()
	var list client.ObjectList
	switch c.For.(type) {
	case *machineconfigv1.MachineConfigPool:
		list = &machineconfigv1.MachineConfigPoolList{}
	case *machineconfigv1.ControllerConfig:
		list = &machineconfigv1.ControllerConfigList{}
	case *machineconfigv1.KubeletConfig:
		list = &machineconfigv1.KubeletConfigList{}
	case *machineconfigv1.ContainerRuntimeConfig:
		list = &machineconfigv1.ContainerRuntimeConfigList{}
	case *machineconfigv1.MachineOSConfig:
		list = &machineconfigv1.MachineOSConfigList{}
	case *machineconfigv1.MachineOSBuild:
		list = &machineconfigv1.MachineOSBuildList{}
	default:
		w.t.Fatalf("nothing lists %T", c.For)
	}
	if err := w.api.List(w.t.Context(), list); err != nil {
		w.t.Fatal(err)
	}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(list)
	if err != nil {
		w.t.Fatal(err)
	}
	var out []client.ObjectKey
	items, _ := raw["items"].([]any)
	for _, i := range items {
		name, _ := i.(map[string]any)["metadata"].(map[string]any)["name"].(string)
		out = append(out, client.ObjectKey{Name: name})
	}
	return out
}

// step lets every controller look at every object once.
func (w *world) step() {
	w.t.Helper()
	w.cache.Sync()
	for _, c := range w.all {
		for _, k := range w.keysOf(c) {
			if _, err := c.Step(w.t.Context(), k); err != nil {
				w.t.Fatalf("%s: %s: %v", c.Name, k, err)
			}
		}
	}
}

// settle steps, time passing, until nothing is written any more.
func (w *world) settle() {
	w.t.Helper()
	quiet := 0
	for range 60 {
		before := w.api.Writes()
		w.step()
		w.clk.Step(time.Second)
		if quiet++; w.api.Writes() != before {
			quiet = 0
		}
		if quiet > 4 {
			return
		}
	}
	w.t.Fatalf("does not settle: %v", w.api.Log()[max(0, len(w.api.Log())-10):])
}

func (w *world) create(objs ...client.Object) {
	w.t.Helper()
	for _, o := range objs {
		if err := w.api.Create(w.t.Context(), o); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) delete(o client.Object) {
	w.t.Helper()
	if err := w.api.Delete(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

func get[T client.Object](w *world, name string, obj T) T {
	w.t.Helper()
	if err := w.api.Get(w.t.Context(), client.ObjectKey{Name: name}, obj); err != nil {
		w.t.Fatal(err)
	}
	return obj
}

func (w *world) pool(name string) *machineconfigv1.MachineConfigPool {
	w.t.Helper()
	return get(w, name, &machineconfigv1.MachineConfigPool{})
}

func (w *world) config(name string) *machineconfigv1.MachineConfig {
	w.t.Helper()
	return get(w, name, &machineconfigv1.MachineConfig{})
}

// names lists the MachineConfigs that fit.
func (w *world) names(fits func(string) bool) []string {
	w.t.Helper()
	var list machineconfigv1.MachineConfigList
	if err := w.api.List(w.t.Context(), &list); err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, mc := range list.Items {
		if fits(mc.Name) {
			out = append(out, mc.Name)
		}
	}
	return out
}

func (w *world) events() []string {
	var out []string
	for {
		select {
		case e := <-w.rec.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}

// degraded returns the message of a True RenderDegraded, empty when it is not.
func (w *world) degraded(pool string) string {
	for _, c := range w.pool(pool).Status.Conditions {
		if c.Type == machineconfigv1.MachineConfigPoolRenderDegraded && c.Status == corev1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

// installed is what an installer leaves.
func installed() []client.Object {
	named := func(n string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: n} }
	cc := &machineconfigv1.ControllerConfig{
		ObjectMeta: metav1.ObjectMeta{Name: wire.ControllerConfig, UID: "cc-uid", Generation: 1, Annotations: map[string]string{wire.AnnotationRelease: "4.20.0"}},
		Spec: machineconfigv1.ControllerConfigSpec{
			ClusterDNSIP: "172.30.0.10", BaseOSContainerImage: "registry.example.com/os@sha256:0",
			Infra: &configv1.Infrastructure{Status: configv1.InfrastructureStatus{
				APIServerInternalURL: "https://api-int.example.com:6443", PlatformStatus: &configv1.PlatformStatus{Type: configv1.AzurePlatformType}}},
			PullSecret: &corev1.ObjectReference{Namespace: "openshift-config", Name: "pull-secret"},
		},
	}
	return []client.Object{
		cc, workerPool("worker"), workerPool("master"),
		&configv1.Node{ObjectMeta: named(wire.Cluster)}, &configv1.FeatureGate{ObjectMeta: named(wire.Cluster)}, &configv1.Image{ObjectMeta: named(wire.Cluster)},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-config", Name: "pull-secret"}, Type: corev1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)}},
	}
}

func workerPool(name string) *machineconfigv1.MachineConfigPool {
	return &machineconfigv1.MachineConfigPool{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name), Generation: 1, Labels: map[string]string{
			wire.LabelBuiltIn: "", wire.LabelPoolPrefix + name: ""}},
		Spec: machineconfigv1.MachineConfigPoolSpec{
			MachineConfigSelector: &metav1.LabelSelector{MatchLabels: map[string]string{wire.LabelRole: name}},
			NodeSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{wire.NodeRolePrefix + name: ""}},
		},
	}
}

// file is a MachineConfig with one file.
func file(name, role, path, content string, mode int) *machineconfigv1.MachineConfig {
	raw, err := json.Marshal(map[string]any{
		"ignition": map[string]any{"version": "3.2.0"},
		"storage": map[string]any{"files": []any{map[string]any{
			"path": path, "mode": mode, "overwrite": true, "contents": map[string]any{"source": fmt.Sprintf("data:,%s", content)}}}},
	})
	if err != nil {
		panic(err)
	}
	return &machineconfigv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{wire.LabelRole: role}},
		Spec:       machineconfigv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: raw}},
	}
}
