package render_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineconfig/generator"
	"millwright.io/millwright/internal/dialect/machineconfig/poolconfig"
	"millwright.io/millwright/internal/dialect/machineconfig/render"
	"millwright.io/millwright/internal/dialect/machineconfig/template"
	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	enginerender "millwright.io/millwright/internal/engine/render"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// eventually polls until ok or a deadline.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute for: %s", what)
		}
	}
}

// On a real API server, with its definitions and a cache without rendered
// bodies: an applied MachineConfig becomes the rendered config that rendering
// offline names, made by the field manager that people know, and hashing what
// the server gives back gives its name.
func TestAppliedConfigBecomesItsRenderedName(t *testing.T) {
	env := testenv.Start(t, testenv.WithFamilies("machineconfig", "openshift"))
	ctx := t.Context()
	scheme := env.Client.Scheme()
	for _, add := range []func(*runtime.Scheme) error{operatorv1.Install, operatorv1alpha1.Install} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	log := logr.Discard()
	mgr, err := kube.NewManager(env.Config, kube.ManagerOptions{Component: wire.Component, Scheme: scheme, Log: log,
		ByObject: map[client.Object]cache.ByObject{&machineconfigv1.MachineConfig{}: {Transform: render.StripRendered}}})
	if err != nil {
		t.Fatal(err)
	}
	c, live, clk := mgr.GetClient(), mgr.GetAPIReader(), clock.RealClock{}
	all := append([]kube.Controller{
		template.New(template.Deps{Client: c, Live: live, Clock: clk, Log: log}),
		poolconfig.New(poolconfig.Deps{Client: c, Live: live, Clock: clk, Recorder: mgr.GetEventRecorder(wire.ControllerPoolConfig), Log: log}),
		render.New(render.Deps{Client: c, Live: live, Clock: clk, Recorder: mgr.GetEventRecorder(wire.ControllerRender), Log: log}),
	}, generator.All(generator.Deps{Client: c, Live: live, Clock: clk, Log: log})...)
	for _, k := range all {
		if err := k.Setup(mgr); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Errorf("run manager: %v", err)
		}
	})
	create := func(o client.Object) {
		t.Helper()
		o.SetUID("")
		o.SetGeneration(0)
		if err := env.Client.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "openshift-config"}})
	for _, o := range installed() {
		if cc, ok := o.(*machineconfigv1.ControllerConfig); ok {
			completeForTheServer(cc)
		}
		create(o)
	}
	aim := func() string {
		var p machineconfigv1.MachineConfigPool
		_ = env.Client.Get(ctx, client.ObjectKey{Name: "worker"}, &p)
		return p.Spec.Configuration.Name
	}
	eventually(t, "a first config", func() bool { return aim() != "" })
	first := aim()
	create(file("99-worker-x", "worker", "/etc/x", "1", 0o644))
	eventually(t, "another config", func() bool { return aim() != first })

	var list machineconfigv1.MachineConfigList
	if err := env.Client.List(ctx, &list); err != nil {
		t.Fatal(err)
	}
	var fragments []enginerender.Fragment
	var made []string
	for i := range list.Items {
		switch mc := &list.Items[i]; {
		case mc.Labels[wire.LabelRole] == "worker":
			fragments = append(fragments, enginerender.FromMachineConfig(mc))
		case strings.HasPrefix(mc.Name, "rendered-worker-"):
			made = append(made, mc.Name)
		}
	}
	res, err := enginerender.RenderSelected("worker", fragments, enginerender.Base{OSImageURL: "registry.example.com/os@sha256:0"})
	if err != nil {
		t.Fatal(err)
	}
	if aim() != res.Name || len(made) != 2 || !slices.Contains(made, res.Name) {
		t.Errorf("the pool aims at %s of %v, offline it is %s", aim(), made, res.Name)
	}
	var mc machineconfigv1.MachineConfig
	if err := env.Client.Get(ctx, client.ObjectKey{Name: res.Name}, &mc); err != nil {
		t.Fatal(err)
	}
	if name, _, err := enginerender.Hash("worker", mc.Spec); err != nil || name != mc.Name {
		t.Errorf("what the server gives back hashes to %s (%v), want %s", name, err, mc.Name)
	}
	if f := mc.ManagedFields; len(f) != 1 || f[0].Manager != "machine-config-controller" || f[0].Operation != metav1.ManagedFieldsOperationUpdate {
		t.Errorf("managed fields are %+v", f)
	}
	mc.Spec.KernelArguments = []string{"tampered"}
	if err := env.Client.Update(ctx, &mc); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the tampered config mended", func() bool {
		return env.Client.Get(ctx, client.ObjectKey{Name: res.Name}, &mc) == nil && len(mc.Spec.KernelArguments) == len(res.Spec.KernelArguments)
	})
}

// completeForTheServer adds what the definition asks for.
func completeForTheServer(cc *machineconfigv1.ControllerConfig) {
	cc.Spec.Infra.TypeMeta = metav1.TypeMeta{APIVersion: "config.openshift.io/v1", Kind: "Infrastructure"}
	cc.Spec.DNS = &configv1.DNS{TypeMeta: metav1.TypeMeta{APIVersion: "config.openshift.io/v1", Kind: "DNS"}, Spec: configv1.DNSSpec{BaseDomain: "example.com"}}
	for _, m := range []*metav1.ObjectMeta{&cc.Spec.Infra.ObjectMeta, &cc.Spec.DNS.ObjectMeta} {
		m.Name = wire.Cluster
	}
	i := &cc.Spec.Infra.Status
	i.ControlPlaneTopology, i.InfrastructureTopology, i.CPUPartitioning = configv1.HighlyAvailableTopologyMode, configv1.HighlyAvailableTopologyMode, configv1.CPUPartitioningNone
	i.Platform = configv1.AzurePlatformType //nolint:staticcheck // the definition has it still
	i.PlatformStatus.Azure = &configv1.AzurePlatformStatus{ResourceGroupName: "rg", CloudName: configv1.AzurePublicCloud}
	cc.Spec.RootCAData, cc.Spec.KubeAPIServerServingCAData = []byte("none"), []byte("none")
	cc.Spec.Images, cc.Spec.IPFamilies = map[string]string{}, machineconfigv1.IPFamiliesIPv4
}
