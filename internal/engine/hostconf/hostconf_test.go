package hostconf_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"millwright.io/millwright/internal/engine/hostconf"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/engine/render"
)

func facts(role string) hostconf.Facts {
	return hostconf.Facts{Role: role, Platform: "Azure", ExternalCloudProvider: true, APIServer: "https://api-int.example.com:6443",
		ClusterDNSIP: "172.30.0.10", CloudConfig: "{}", PullSecret: []byte(`{"auths":{}}`), RootCA: []byte("ca")}
}

func pool(role string) hostconf.PoolFacts {
	return hostconf.PoolFacts{Facts: facts(role), ControlPlane: role != "worker"}
}

// files returns the content of a fragment's files by path.
func files(t *testing.T, f hostconf.Fragment) map[string]string {
	t.Helper()
	var cfg struct {
		Storage struct {
			Files []struct {
				Path     string
				Contents struct{ Source string }
			}
		}
	}
	if err := json.Unmarshal(f.Spec.Config.Raw, &cfg); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, x := range cfg.Storage.Files {
		text, ok := strings.CutPrefix(x.Contents.Source, "data:text/plain;charset=utf-8;base64,")
		raw, err := base64.StdEncoding.DecodeString(text)
		if !ok || err != nil {
			t.Fatalf("%s has source %q (%v)", x.Path, x.Contents.Source, err)
		}
		out[x.Path] = string(raw)
	}
	return out
}

func kubelet(raw string, edit ...func(*machineconfigv1.KubeletConfigSpec)) *machineconfigv1.KubeletConfig {
	kc := &machineconfigv1.KubeletConfig{ObjectMeta: metav1.ObjectMeta{Name: "kc"}}
	if raw != "" {
		kc.Spec.KubeletConfig = &runtime.RawExtension{Raw: []byte(raw)}
	}
	for _, e := range edit {
		e(&kc.Spec)
	}
	return kc
}

// Every fragment of ours is one that render accepts, alone and merged.
func TestEveryFragmentRenders(t *testing.T) {
	for _, role := range []string{"master", "worker", "arbiter"} {
		all, err := hostconf.Base(facts(role))
		if err != nil {
			t.Fatal(err)
		}
		for _, make := range []func() (hostconf.Fragment, error){
			func() (hostconf.Fragment, error) { return hostconf.NodeConfig(pool(role), "v2") },
			func() (hostconf.Fragment, error) { return hostconf.FeatureConfig(pool(role)) },
			func() (hostconf.Fragment, error) { return hostconf.Registries(role, hostconf.RegistryFacts{}) },
			func() (hostconf.Fragment, error) { return hostconf.SSH(role, []string{"ssh-ed25519 AAAA"}) },
			func() (hostconf.Fragment, error) {
				return hostconf.Kubelet(pool(role), "99-"+role+"-generated-kubelet", kubelet(`{"maxPods":1}`))
			},
		} {
			f, err := make()
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, f)
		}
		var in []render.Fragment
		for _, f := range all {
			x := render.Fragment{Name: f.Name, Labels: map[string]string{hostconf.LabelRole: f.Role}, Spec: f.Spec}
			if bad := render.Validate(x); len(bad) > 0 {
				t.Errorf("%s: %v", f.Name, bad)
			}
			in = append(in, x)
		}
		if _, err := render.RenderSelected(role, in, render.Base{}); err != nil {
			t.Errorf("render %s: %v", role, err)
		}
	}
}

func TestBaseWantsToKnowThePlatform(t *testing.T) {
	f := facts("worker")
	f.Platform = ""
	if _, err := hostconf.Base(f); err == nil {
		t.Error("no platform is accepted")
	}
	f = facts("worker")
	f.APIServer = ""
	if _, err := hostconf.Base(f); err == nil {
		t.Error("no API server is accepted")
	}
}

func TestKubeletRefusals(t *testing.T) {
	auto := func(s *machineconfigv1.KubeletConfigSpec) { s.AutoSizingReserved = ptr.To(true) }
	for _, r := range []struct {
		name string
		kc   *machineconfigv1.KubeletConfig
		pool string
		want string
	}{
		{"log level", kubelet("", func(s *machineconfigv1.KubeletConfigSpec) { s.LogLevel = ptr.To(int32(11)) }), "worker", "KubeletConfig's LogLevel is not valid [0,10]: 11"},
		{"not a config", kubelet(`[]`), "worker", "KubeletConfig could not be unmarshalled, err: "},
		{"typing error", kubelet(`{"maxPodz":1}`), "worker", "KubeletConfig could not be unmarshalled, err: "},
		{"cgroup driver", kubelet(`{"cgroupDriver":"x"}`), "worker", "KubeletConfiguration: cgroupDriver is not allowed to be set, but contains: x"},
		{"domain", kubelet(`{"clusterDomain":"x"}`), "worker", "KubeletConfiguration: clusterDomain is not allowed to be set, but contains: x"},
		{"dns", kubelet(`{"clusterDNS":["1.1.1.1"]}`), "worker", "KubeletConfiguration: clusterDNS is not allowed to be set, but contains: [1.1.1.1]"},
		{"gates", kubelet(`{"featureGates":{"A":true}}`), "worker", "KubeletConfiguration: featureGates is not allowed to be set, but contains: map[A:true]"},
		{"swap", kubelet(`{"failSwapOn":false}`), "worker", "KubeletConfiguration: failSwapOn is not allowed to be set, but contains: false"},
		{"swap behaviour", kubelet(`{"memorySwap":{"swapBehavior":"LimitedSwap"}}`), "worker", "KubeletConfiguration: swapBehavior is not allowed to be set, but contains: LimitedSwap"},
		{"both reservations", kubelet(`{"systemReserved":{"cpu":"1"}}`, auto), "worker", "KubeletConfiguration: autoSizingReserved and systemdReserved cannot be set together"},
		{"cgroups", kubelet(`{"systemReservedCgroup":"/a","systemCgroups":"/b"}`), "worker", "KubeletConfiguration: systemReservedCgroup (/a) must match systemCgroups (/b)"},
		{"static pods of masters", kubelet(`{"staticPodPath":""}`), "master", `KubeletConfiguration: staticPodPath is not allowed to be set for control plane pool "master"`},
		{"static pods of workers", kubelet(`{"staticPodPath":"/x"}`), "worker", `KubeletConfiguration: staticPodPath must be empty for pool "worker", but contains: /x`},
	} {
		t.Run(r.name, func(t *testing.T) {
			_, err := hostconf.Kubelet(pool(r.pool), "n", r.kc)
			var refused *hostconf.Refusal
			if !errors.As(err, &refused) || !strings.HasPrefix(refused.Text, r.want) {
				t.Errorf("got %v, want a refusal %q", err, r.want)
			}
		})
	}
	if _, err := hostconf.Kubelet(pool("worker"), "n", kubelet(`{"staticPodPath":""}`)); err != nil {
		t.Errorf("an empty static pod path of a worker: %v", err)
	}
}

func TestKubeletContent(t *testing.T) {
	p := pool("worker")
	p.Gates, p.Latency = map[string]bool{"A": true}, configv1.LowUpdateSlowReaction
	kc := kubelet(`{"maxPods":300,"protectKernelDefaults":false,"systemReserved":{"cpu":"1","memory":"2Gi","pid":"100"},"reservedSystemCPUs":"0-1","enforceNodeAllocatable":["system-reserved"]}`,
		func(s *machineconfigv1.KubeletConfigSpec) {
			s.LogLevel = ptr.To(int32(5))
			s.TLSSecurityProfile = &configv1.TLSSecurityProfile{Type: configv1.TLSProfileModernType}
		})
	f, err := hostconf.Kubelet(p, "99-worker-generated-kubelet", kc)
	if err != nil {
		t.Fatal(err)
	}
	got := files(t, f)
	if want := "NODE_SIZING_ENABLED=false\nSYSTEM_RESERVED_MEMORY=2Gi\nSYSTEM_RESERVED_CPU=1\nSYSTEM_RESERVED_ES=1Gi\n"; got["/etc/node-sizing-enabled.env"] != want {
		t.Errorf("sizing is %q, want %q", got["/etc/node-sizing-enabled.env"], want)
	}
	if want := "[Service]\nEnvironment=\"KUBELET_LOG_LEVEL=5\"\n"; got["/etc/systemd/system/kubelet.service.d/20-logging.conf"] != want {
		t.Errorf("logging is %q", got["/etc/systemd/system/kubelet.service.d/20-logging.conf"])
	}
	var conf map[string]any
	if err := yaml.Unmarshal([]byte(got["/etc/kubernetes/kubelet.conf"]), &conf); err != nil {
		t.Fatal(err)
	}
	for k, want := range map[string]any{
		"maxPods": float64(300), "protectKernelDefaults": false, "systemReserved": map[string]any{"pid": "100"}, "tlsMinVersion": "VersionTLS13",
		"featureGates": map[string]any{"A": true}, "nodeStatusUpdateFrequency": "1m0s", "enforceNodeAllocatable": []any{"pods"}, "podPidsLimit": float64(4096),
		"clusterDNS": []any{"172.30.0.10"},
	} {
		if diff := cmp.Diff(want, conf[k]); diff != "" {
			t.Errorf("%s (-want +got)\n%s", k, diff)
		}
	}
}

func TestNodeConfig(t *testing.T) {
	if _, err := hostconf.NodeConfig(pool("worker"), "v1"); err == nil || err.Error() != "unknown cgroup mode found v1, failed to update the machine config resource" {
		t.Errorf("got %v", err)
	}
	for role, want := range map[string][]string{"worker": {"systemd.unified_cgroup_hierarchy=1", `cgroup_no_v1="all"`}, "infra": nil} {
		f, err := hostconf.NodeConfig(pool(role), "")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, f.Spec.KernelArguments); diff != "" || f.Name != "97-"+role+"-generated-kubelet" {
			t.Errorf("%s (-want +got)\n%s", f.Name, diff)
		}
	}
}

func TestRuntime(t *testing.T) {
	q := func(s string) *resource.Quantity { return ptr.To(resource.MustParse(s)) }
	rc := func(c machineconfigv1.ContainerRuntimeConfiguration) *machineconfigv1.ContainerRuntimeConfig {
		return &machineconfigv1.ContainerRuntimeConfig{Spec: machineconfigv1.ContainerRuntimeConfigSpec{ContainerRuntimeConfig: &c}}
	}
	type conf = machineconfigv1.ContainerRuntimeConfiguration
	for want, c := range map[string]conf{
		"invalid PidsLimit 19": {PidsLimit: ptr.To(int64(19))},
		`invalid LogLevel "loud", must be one of error, fatal, panic, warn, info, debug, or trace`: {LogLevel: "loud"},
		`invalid LogSizeMax "8Ki", cannot be less than 8kB`:                                        {LogSizeMax: q("8Ki")},
		`invalid overlaySize "-1", cannot be less than 0`:                                          {OverlaySize: q("-1")},
		`invalid additionalLayerStores path "rel"`:                                                 {AdditionalLayerStores: []machineconfigv1.AdditionalLayerStore{{Path: "rel"}}},
	} {
		if err := hostconf.CheckRuntime(rc(c)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	f, err := hostconf.Runtime("worker", "n", rc(conf{PidsLimit: ptr.To(int64(2048)), LogLevel: "debug", LogSizeMax: q("16Ki"), OverlaySize: q("8G"), DefaultRuntime: "runc",
		AdditionalLayerStores: []machineconfigv1.AdditionalLayerStore{{Path: "/a"}}}))
	if err != nil {
		t.Fatal(err)
	}
	got := files(t, f)
	for path, want := range map[string]string{
		"/etc/crio/crio.conf.d/01-ctrcfg-pidsLimit":      "[crio]\n[crio.runtime]\npids_limit = 2048\n",
		"/etc/crio/crio.conf.d/01-ctrcfg-logLevel":       "[crio]\n[crio.runtime]\nlog_level = \"debug\"\n",
		"/etc/crio/crio.conf.d/01-ctrcfg-logSizeMax":     "[crio]\n[crio.runtime]\nlog_size_max = 16384\n",
		"/etc/crio/crio.conf.d/01-ctrcfg-defaultRuntime": "[crio]\n[crio.runtime]\ndefault_runtime = \"runc\"\n",
	} {
		if diff := cmp.Diff(want, got[path]); diff != "" {
			t.Errorf("%s (-want +got)\n%s", path, diff)
		}
	}
	for _, part := range []string{`size = "8G"`, `additionallayerstores = ["/a:ref"]`, `driver = "overlay"`} {
		if !strings.Contains(got["/etc/containers/storage.conf"], part) {
			t.Errorf("storage.conf lacks %s:\n%s", part, got["/etc/containers/storage.conf"])
		}
	}
	if f, err := hostconf.Runtime("worker", "n", rc(conf{})); err != nil || string(f.Spec.Config.Raw) != `{"ignition":{"version":"3.5.0"}}` {
		t.Errorf("nothing set makes %s (%v)", f.Spec.Config.Raw, err)
	}
}

func TestRegistries(t *testing.T) {
	digest := func(name, source string, mirrors ...configv1.ImageMirror) configv1.ImageDigestMirrorSet {
		return configv1.ImageDigestMirrorSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: configv1.ImageDigestMirrorSetSpec{
			ImageDigestMirrors: []configv1.ImageDigestMirrors{{Source: source, Mirrors: mirrors}}}}
	}
	tags := []configv1.ImageTagMirrorSet{{ObjectMeta: metav1.ObjectMeta{Name: "t"}, Spec: configv1.ImageTagMirrorSetSpec{
		ImageTagMirrors: []configv1.ImageTagMirrors{{Source: "quay.io/a", Mirrors: []configv1.ImageMirror{"tags.example.com"}, MirrorSourcePolicy: configv1.NeverContactSource}}}}}
	old := []operatorv1alpha1.ImageContentSourcePolicy{{Spec: operatorv1alpha1.ImageContentSourcePolicySpec{
		RepositoryDigestMirrors: []operatorv1alpha1.RepositoryDigestMirrors{{Source: "quay.io/b", Mirrors: []string{"old.example.com"}}}}}}
	image := &configv1.Image{Spec: configv1.ImageSpec{RegistrySources: configv1.RegistrySources{
		InsecureRegistries: []string{"m2.example.com"}, BlockedRegistries: []string{"bad.example.com"}, ContainerRuntimeSearchRegistries: []string{"search.example.com"}}}}
	a, b := digest("a", "quay.io/a", "m1.example.com"), digest("b", "quay.io/a", "m2.example.com")
	f, err := hostconf.Registries("worker", hostconf.RegistryFacts{Image: image, Digests: []configv1.ImageDigestMirrorSet{b, a}, Tags: tags, Policies: old})
	if err != nil {
		t.Fatal(err)
	}
	again, _ := hostconf.Registries("worker", hostconf.RegistryFacts{Image: image, Digests: []configv1.ImageDigestMirrorSet{a, b}, Tags: tags, Policies: old})
	if diff := cmp.Diff(f, again); diff != "" {
		t.Errorf("the order of objects matters\n%s", diff)
	}
	got := files(t, f)
	want := `unqualified-search-registries = ["registry.access.redhat.com", "docker.io"]
short-name-mode = ""

[[registry]]
prefix = ""
location = "bad.example.com"
blocked = true

[[registry]]
prefix = ""
location = "m2.example.com"
insecure = true

[[registry]]
prefix = ""
location = "quay.io/a"
blocked = true

[[registry.mirror]]
location = "m1.example.com"
pull-from-mirror = "digest-only"

[[registry.mirror]]
location = "m2.example.com"
insecure = true
pull-from-mirror = "digest-only"

[[registry.mirror]]
location = "tags.example.com"
pull-from-mirror = "tag-only"

[[registry]]
prefix = ""
location = "quay.io/b"

[[registry.mirror]]
location = "old.example.com"
pull-from-mirror = "digest-only"
`
	if diff := cmp.Diff(want, got["/etc/containers/registries.conf"]); diff != "" {
		t.Errorf("registries.conf (-want +got)\n%s", diff)
	}
	if !strings.Contains(got["/etc/containers/policy.json"], `"bad.example.com"`) {
		t.Errorf("policy.json is %s", got["/etc/containers/policy.json"])
	}
	image.Spec.RegistrySources.AllowedRegistries = []string{"x"}
	var refused *hostconf.Refusal
	if _, err := hostconf.Registries("worker", hostconf.RegistryFacts{Image: image}); !errors.As(err, &refused) {
		t.Errorf("allowed and blocked together: %v", err)
	}
}

func TestNamesOfGeneratedConfigs(t *testing.T) {
	at := func(min int) time.Time { return time.Date(2026, 1, 1, 0, min, 0, 0, time.UTC) }
	sib := func(name string, min int, suffix *string, fin ...string) hostconf.Sibling {
		return hostconf.Sibling{Name: name, Created: at(min), Suffix: suffix, Finalizers: fin}
	}
	g := hostconf.GeneratorKubelet
	never := func(string) bool { return false }
	always := func(string) bool { return true }
	for _, r := range []struct {
		name, own string
		all       []hostconf.Sibling
		exists    func(string) bool
		want      string
	}{
		{"alone", "a", []hostconf.Sibling{sib("a", 0, nil)}, never, "99-worker-generated-kubelet"},
		{"annotated", "a", []hostconf.Sibling{sib("a", 0, ptr.To("4")), sib("b", 1, nil)}, never, "99-worker-generated-kubelet-4"},
		{"annotated empty", "a", []hostconf.Sibling{sib("a", 0, ptr.To("")), sib("b", 1, nil)}, never, "99-worker-generated-kubelet"},
		{"second", "b", []hostconf.Sibling{sib("a", 0, ptr.To("")), sib("b", 1, nil)}, never, "99-worker-generated-kubelet-1"},
		{"older with finalizers", "a", []hostconf.Sibling{sib("a", 0, nil, "99-worker-generated-kubelet", "99-worker-generated-kubelet-2"), sib("b", 1, nil)}, always, "99-worker-generated-kubelet-2"},
		{"finalizers of what is gone", "a", []hostconf.Sibling{sib("a", 0, nil, "99-worker-generated-kubelet"), sib("b", 1, nil)}, never, "99-worker-generated-kubelet-1"},
		{"too many", "b", []hostconf.Sibling{sib("a", 0, ptr.To("9")), sib("b", 1, nil)}, never, ""},
	} {
		got, err := g.Name("worker", r.own, r.all, r.exists)
		if got != r.want || (r.want == "") != (err != nil) {
			t.Errorf("%s: got %q (%v), want %q", r.name, got, err, r.want)
		}
	}
}

func TestConditionsRemember(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cs := hostconf.KubeletConditions(nil, nil, now)
	if again := hostconf.KubeletConditions(cs, nil, now.Add(time.Hour)); !cmp.Equal(cs, again) {
		t.Error("the same verdict changes the list")
	}
	for i := range 6 {
		cs = hostconf.KubeletConditions(cs, errors.New(strings.Repeat("x", i+1)), now)
	}
	accepted := 0
	for _, c := range cs {
		if c.Type == machineconfigv1.KubeletConfigAccepted {
			accepted++
		}
	}
	if last := cs[len(cs)-1]; accepted != 3 || len(cs) != 4 || last.Type != machineconfigv1.KubeletConfigFailure || last.Message != "Error: xxxxxx" {
		t.Errorf("conditions are %+v", cs)
	}
	rs := hostconf.RuntimeConditions(hostconf.RuntimeConditions(nil, errors.New("x"), now), nil, now)
	if len(rs) != 2 || rs[1].Type != machineconfigv1.ContainerRuntimeConfigSuccess {
		t.Errorf("conditions are %+v", rs)
	}
}

// Acting on a plan, then planning again, comes to nothing, whatever was there.
func TestPlanConverges(t *testing.T) {
	spec := func(n int) machineconfigv1.MachineConfigSpec {
		return machineconfigv1.MachineConfigSpec{KernelArguments: []string{strings.Repeat("k", n+1)}}
	}
	note := map[string]string{"v": "1"}
	rapid.Check(t, func(rt *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 0, 4, rapid.ID[string])
		var want []hostconf.Fragment
		for _, n := range names.Draw(rt, "want") {
			want = append(want, hostconf.Fragment{Name: n, Role: "worker", Spec: spec(rapid.IntRange(0, 2).Draw(rt, "spec"))})
		}
		have := map[string]hostconf.Existing{}
		for _, n := range names.Draw(rt, "have") {
			have[n] = hostconf.Existing{Name: n, UID: n, Role: "worker", Owned: rapid.Bool().Draw(rt, "owned"), Spec: spec(rapid.IntRange(0, 2).Draw(rt, "spec"))}
		}
		list := func() (out []hostconf.Existing) {
			for _, h := range have {
				out = append(out, h)
			}
			return out
		}
		actions, err := hostconf.Plan(want, list(), note)
		if err != nil {
			rt.Fatal(err)
		}
		set := func(name string) {
			for _, w := range want {
				if w.Name == name {
					have[name] = hostconf.Existing{Name: name, UID: name, Role: w.Role, Owned: true, Annotations: note, Spec: w.Spec}
				}
			}
		}
		for _, a := range actions {
			switch a := a.(type) {
			case plan.CreateConfig:
				set(a.Name)
			case plan.UpdateConfig:
				set(a.Name)
			case plan.DeleteConfig:
				if !have[a.Name].Owned {
					rt.Fatalf("deletes %s, which is somebody else's", a.Name)
				}
				delete(have, a.Name)
			}
		}
		if left, err := hostconf.Plan(want, list(), note); err != nil || len(left) != 0 {
			rt.Fatalf("left to do: %v (%v)", left, err)
		}
	})
}

// Whatever a KubeletConfig carries, it is refused or becomes a config that
// render accepts.
func FuzzKubelet(f *testing.F) {
	for _, s := range []string{`{"maxPods":300}`, `{"evictionHard":{"memory.available":"1Gi"}}`, `maxPods: 3`, `[]`, `null`, `{"systemReserved":null}`,
		`{"kind":"KubeletConfiguration","apiVersion":"kubelet.config.k8s.io/v1beta1","systemReserved":{"cpu":"1"}}`, `{"enforceNodeAllocatable":[]}`, "a: &a [*a]"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		frag, err := hostconf.Kubelet(pool("worker"), "99-worker-generated-kubelet", kubelet(string(raw)))
		if err != nil {
			var refused *hostconf.Refusal
			if !errors.As(err, &refused) {
				t.Fatalf("%v is no refusal", err)
			}
			return
		}
		if bad := render.Validate(render.Fragment{Name: frag.Name, Spec: frag.Spec}); len(bad) > 0 {
			t.Fatalf("made a config that cannot be used: %v", bad)
		}
	})
}
