package render_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	"millwright.io/millwright/internal/engine/hostconf"
	enginerender "millwright.io/millwright/internal/engine/render"
)

func renderedFor(pool string) func(string) bool {
	return func(name string) bool { return strings.HasPrefix(name, "rendered-"+pool+"-") }
}

func TestInstalledClusterGetsItsConfigs(t *testing.T) {
	w := newWorld(t)
	w.settle()
	want := []string{
		"00-master", "00-worker", "01-master-container-runtime", "01-master-kubelet", "01-worker-container-runtime", "01-worker-kubelet",
		"97-master-generated-kubelet", "97-worker-generated-kubelet", "98-master-generated-kubelet", "98-worker-generated-kubelet",
		"99-master-generated-registries", "99-worker-generated-registries",
	}
	got := w.names(func(n string) bool { return !hostconf.IsRendered(n) })
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("configs (-want +got)\n%s", diff)
	}
	for _, pool := range []string{"master", "worker"} {
		made := w.names(renderedFor(pool))
		if len(made) != 1 || w.pool(pool).Spec.Configuration.Name != made[0] {
			t.Errorf("pool %s aims at %q of %v, want the only one", pool, w.pool(pool).Spec.Configuration.Name, made)
		}
	}
	mc := w.config(w.pool("worker").Spec.Configuration.Name)
	if diff := cmp.Diff(map[string]string{wire.AnnotationGeneratedBy: wire.Version(), wire.AnnotationRelease: "4.20.0"}, mc.Annotations); diff != "" {
		t.Errorf("annotations (-want +got)\n%s", diff)
	}
	owner := []metav1.OwnerReference{{APIVersion: "machineconfiguration.openshift.io/v1", Kind: "MachineConfigPool", Name: "worker", UID: "uid-of-worker",
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}}
	if diff := cmp.Diff(owner, mc.OwnerReferences); diff != "" {
		t.Errorf("owner (-want +got)\n%s", diff)
	}
	if len(mc.Labels) != 0 {
		t.Errorf("a rendered config has labels %v", mc.Labels)
	}
	generated := slices.Clone(w.events())
	slices.Sort(generated)
	for i, pool := range []string{"master", "worker"} {
		want := "Normal RenderedConfigGenerated " + w.pool(pool).Spec.Configuration.Name + " successfully generated (release version: 4.20.0, controller version: " + wire.Version() + ")"
		if len(generated) != 2 || generated[i] != want {
			t.Errorf("events are %q, want %q at %d", generated, want, i)
		}
	}
}

// The name is that which rendering the same objects offline gives, and
// rendering again, in a new process, gives the same and writes nothing.
func TestNameIsThatOfTheContent(t *testing.T) {
	w := newWorld(t)
	w.settle()
	w.create(file("99-worker-x", "worker", "/etc/x", "1", 0o644))
	w.settle()
	var list machineconfigv1.MachineConfigList
	if err := w.api.List(t.Context(), &list, client.MatchingLabels{wire.LabelRole: "worker"}); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(list.Items)
	var fragments []enginerender.Fragment
	for i := range list.Items {
		fragments = append(fragments, enginerender.FromMachineConfig(&list.Items[i]))
	}
	res, err := enginerender.RenderSelected("worker", fragments, enginerender.Base{OSImageURL: "registry.example.com/os@sha256:0"})
	if err != nil {
		t.Fatal(err)
	}
	if got := w.pool("worker").Spec.Configuration.Name; got != res.Name {
		t.Errorf("the pool aims at %s, offline it is %s", got, res.Name)
	}
	var sources []string
	for _, s := range w.pool("worker").Spec.Configuration.Source {
		sources = append(sources, s.Name)
	}
	if diff := cmp.Diff(res.Sources, sources); diff != "" {
		t.Errorf("sources (-want +got)\n%s", diff)
	}
	w.restart()
	before := w.api.Writes()
	w.settle()
	if n := w.api.Writes() - before; n != 0 {
		t.Errorf("a new process wrote %v, want nothing", w.api.Log()[before:])
	}
}

func TestChangesOfManyInputsMakeOneConfig(t *testing.T) {
	w := newWorld(t)
	w.settle()
	for i, name := range []string{"99-worker-a", "99-worker-b", "99-worker-c", "99-worker-d"} {
		w.create(file(name, "worker", "/etc/"+name, "1", 0o644))
		w.step()
		w.clk.Step(time.Duration(300+100*i) * time.Millisecond)
	}
	w.create(&machineconfigv1.KubeletConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "pods", Generation: 1},
		Spec: machineconfigv1.KubeletConfigSpec{
			MachineConfigPoolSelector: &metav1.LabelSelector{MatchLabels: map[string]string{wire.LabelPoolPrefix + "worker": ""}},
			KubeletConfig:             &runtime.RawExtension{Raw: []byte(`{"maxPods":300}`)},
		},
	})
	w.settle()
	if made := w.names(renderedFor("worker")); len(made) != 2 {
		t.Errorf("there are %v, want the first and one more", made)
	}
	if made := w.names(renderedFor("master")); len(made) != 1 {
		t.Errorf("master has %v, want one", made)
	}
	if got := len(w.pool("worker").Spec.Configuration.Source); got != 11 {
		t.Errorf("made of %d configs, want 11", got)
	}
}

// Changes that never end do not put a config off for ever.
func TestRestlessInputsAreMergedAllTheSame(t *testing.T) {
	w := newWorld(t)
	w.settle()
	mc := file("99-worker-a", "worker", "/etc/a", "1", 0o644)
	w.create(mc)
	for i := range 15 {
		mc := w.config("99-worker-a")
		mc.Spec.KernelArguments = []string{strings.Repeat("x", i+1)}
		if err := w.api.Update(t.Context(), mc); err != nil {
			t.Fatal(err)
		}
		w.step()
		w.clk.Step(time.Second)
	}
	if made := w.names(renderedFor("worker")); len(made) < 2 || len(made) > 3 {
		t.Errorf("there are %v after 15 s of changes, want one or two new ones", made)
	}
}

func TestDegradedNamesTheGuiltyConfigAndField(t *testing.T) {
	w := newWorld(t)
	w.settle()
	good := w.pool("worker").Spec.Configuration.Name
	w.create(file("99-worker-good", "worker", "/etc/good", "1", 0o644), file("99-worker-bad", "worker", "/etc/bad", "1", 0o4755))
	w.settle()
	message := w.degraded("worker")
	for _, part := range []string{
		"Failed to render configuration for pool worker: could not generate rendered MachineConfig: invalid mode 04755 for /etc/bad, cannot exceed 0777",
		"MachineConfig 99-worker-bad, spec.config.storage.files.0.mode",
	} {
		if !strings.Contains(message, part) {
			t.Errorf("message %q does not say %q", message, part)
		}
	}
	if strings.Contains(message, "99-worker-good") {
		t.Errorf("message %q blames the innocent", message)
	}
	if got := w.pool("worker").Spec.Configuration.Name; got != good {
		t.Errorf("the pool aims at %s, want the last good %s", got, good)
	}
	if w.degraded("master") != "" {
		t.Error("the other pool is degraded, too")
	}
	w.delete(w.config("99-worker-bad"))
	w.settle()
	if m := w.degraded("worker"); m != "" {
		t.Errorf("still degraded: %s", m)
	}
	if w.pool("worker").Spec.Configuration.Name == good {
		t.Error("the good config did not get through")
	}
}

// What a running node cannot take is refused, naming who asked for it, and is
// forgiven when it is taken back.
func TestWhatNodesCannotTakeIsRefused(t *testing.T) {
	w := newWorld(t)
	w.settle()
	good := w.pool("worker").Spec.Configuration.Name
	fips := &machineconfigv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "99-worker-fips", Labels: map[string]string{wire.LabelRole: "worker"}},
		Spec: machineconfigv1.MachineConfigSpec{FIPS: true, Config: runtime.RawExtension{Raw: []byte(`{"ignition":{"version":"3.2.0"}}`)}}}
	w.create(fips)
	w.settle()
	want := `reconciliation failed between current config "` + good + `" and base config "99-worker-fips": detected change to FIPS flag; refusing to modify FIPS on a running cluster (MachineConfig 99-worker-fips)`
	if got := w.degraded("worker"); !strings.HasSuffix(got, want) {
		t.Errorf("got %q, want it to end in %q", got, want)
	}
	if got := w.pool("worker").Spec.Configuration.Name; got != good {
		t.Errorf("the pool aims at %s, want %s", got, good)
	}
	w.delete(fips)
	w.settle()
	if got := w.degraded("worker"); got != "" {
		t.Errorf("still degraded: %s", got)
	}
}

func TestPoolThatSelectsNothing(t *testing.T) {
	p := workerPool("infra")
	p.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{wire.LabelRole: "nobody"}}
	w := newWorld(t, p)
	w.settle()
	want := "Failed to render configuration for pool infra: no MachineConfigs found matching selector " + wire.LabelRole + "=nobody"
	if got := w.degraded("infra"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPoolThatSelectsEverythingIsLeftAlone(t *testing.T) {
	p := workerPool("all")
	p.Spec.MachineConfigSelector = &metav1.LabelSelector{}
	w := newWorld(t, p)
	w.settle()
	if got := w.pool("all").Spec.Configuration.Name; got != "" {
		t.Errorf("the pool aims at %s", got)
	}
	n := 0
	for _, e := range w.events() {
		if strings.HasPrefix(e, "Warning SelectingAll This machineconfigpool is selecting all machineconfigs.") {
			n++
		}
	}
	if n != 1 {
		t.Errorf("told %d times, want once", n)
	}
}

// Old configs go, beyond those kept; what a pool, a node or a record of one
// refers to stays.
func TestCollectionSparesWhatIsNeeded(t *testing.T) {
	w := newWorld(t)
	w.settle()
	var made []string
	mc := file("99-worker-a", "worker", "/etc/a", "0", 0o644)
	w.create(mc)
	for i := range 8 {
		mc := w.config("99-worker-a")
		mc.Spec.KernelArguments = []string{strings.Repeat("x", i+1)}
		if err := w.api.Update(t.Context(), mc); err != nil {
			t.Fatal(err)
		}
		if i == 1 { // the first two are somebody's
			w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{wire.AnnotationCurrentConfig: made[0]}}})
			pool := w.pool("worker")
			pool.Status.Configuration.Name = w.pool("worker").Spec.Configuration.Name
			if err := w.api.Status().Update(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
		}
		w.settle()
		made = append(made, w.pool("worker").Spec.Configuration.Name)
	}
	left := w.names(renderedFor("worker"))
	for _, n := range []string{made[0], w.pool("worker").Status.Configuration.Name, w.pool("worker").Spec.Configuration.Name} {
		if !slices.Contains(left, n) {
			t.Errorf("%s is gone, though it is needed", n)
		}
	}
	needed := map[string]bool{made[0]: true, w.pool("worker").Status.Configuration.Name: true, made[7]: true}
	if want := len(needed) + keep; len(left) != want {
		t.Errorf("%d are left, want %d: %v", len(left), want, left)
	}
	if master := w.names(renderedFor("master")); len(master) != 1 {
		t.Errorf("master has %v", master)
	}
}

func TestRenderedConfigIsMended(t *testing.T) {
	w := newWorld(t)
	w.settle()
	name := w.pool("worker").Spec.Configuration.Name
	mc := w.config(name)
	spec := *mc.Spec.DeepCopy()
	mc.Spec.KernelArguments = []string{"tampered"}
	mc.Generation = 2 // as a server counts
	delete(mc.Annotations, wire.AnnotationGeneratedBy)
	if err := w.api.Update(t.Context(), mc); err != nil {
		t.Fatal(err)
	}
	w.settle()
	got := w.config(name)
	if diff := cmp.Diff(spec.KernelArguments, got.Spec.KernelArguments); diff != "" {
		t.Errorf("kernel arguments (-want +got)\n%s", diff)
	}
	if got.Annotations[wire.AnnotationGeneratedBy] != wire.Version() {
		t.Errorf("annotations are %v", got.Annotations)
	}
	w.delete(got)
	w.settle()
	_ = w.config(name) // made again
}

// A person's copy of a config, with a foreign controller's annotation, freezes
// nothing.
func TestCopiedAnnotationFreezesNothing(t *testing.T) {
	w := newWorld(t)
	w.settle()
	mc := file("99-worker-copy", "worker", "/etc/copy", "1", 0o644)
	mc.Annotations = map[string]string{wire.AnnotationGeneratedBy: "0c58628362f7471071da6d0263fa65766691f28c"}
	w.create(mc)
	w.settle()
	if made := w.names(renderedFor("worker")); len(made) != 2 {
		t.Errorf("there are %v, want a new one", made)
	}
}

func TestOSImageOverrideIsTold(t *testing.T) {
	w := newWorld(t)
	w.settle()
	w.events()
	mc := file("99-worker-os", "worker", "/etc/a", "1", 0o644)
	mc.Spec.OSImageURL = "registry.example.com/mine@sha256:1"
	w.create(mc)
	w.settle()
	name := w.pool("worker").Spec.Configuration.Name
	if w.config(name).Annotations[wire.AnnotationImageOverride] != "true" {
		t.Errorf("annotations are %v", w.config(name).Annotations)
	}
	want := "Normal OSImageURLOverridden OSImageURL was overridden via machineconfig in " + name + " (was:  is: registry.example.com/mine@sha256:1)"
	if ev := w.events(); !slices.Contains(ev, want) {
		t.Errorf("events are %q, want %q among them", ev, want)
	}
}

func TestKubeletConfigLivesAndGoes(t *testing.T) {
	w := newWorld(t)
	w.settle()
	first := w.pool("worker").Spec.Configuration.Name
	kc := &machineconfigv1.KubeletConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "pods", Generation: 1, Annotations: map[string]string{"example.com/mine": "kept"}},
		Spec: machineconfigv1.KubeletConfigSpec{
			MachineConfigPoolSelector: &metav1.LabelSelector{MatchLabels: map[string]string{wire.LabelPoolPrefix + "worker": ""}},
			KubeletConfig:             &runtime.RawExtension{Raw: []byte(`{"maxPods":300}`)},
		},
	}
	w.create(kc)
	w.settle()
	got := get(w, "pods", &machineconfigv1.KubeletConfig{})
	if diff := cmp.Diff([]string{"99-worker-generated-kubelet"}, got.Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"example.com/mine": "kept", wire.AnnotationNameSuffix: ""}, got.Annotations); diff != "" {
		t.Errorf("annotations (-want +got)\n%s", diff)
	}
	if c := got.Status.Conditions; len(c) != 2 || c[0].Type != "Accepted" || c[1].Type != "Success" || got.Status.ObservedGeneration != got.Generation {
		t.Errorf("status is %+v", got.Status)
	}
	second := kc.DeepCopy()
	second.ObjectMeta = metav1.ObjectMeta{Name: "more", Generation: 1}
	w.clk.Step(time.Minute)
	w.create(second)
	w.settle()
	_ = w.config("99-worker-generated-kubelet-1")

	bad := get(w, "pods", &machineconfigv1.KubeletConfig{})
	bad.Spec.KubeletConfig.Raw = []byte(`{"clusterDNS":["1.2.3.4"]}`)
	bad.Generation = 2
	if err := w.api.Update(t.Context(), bad); err != nil {
		t.Fatal(err)
	}
	w.settle()
	got = get(w, "pods", &machineconfigv1.KubeletConfig{})
	want := "Error: KubeletConfiguration: clusterDNS is not allowed to be set, but contains: [1.2.3.4]"
	if c := got.Status.Conditions; c[len(c)-1].Type != "Failure" || c[len(c)-1].Message != want {
		t.Errorf("conditions are %+v", got.Status.Conditions)
	}
	w.create(file("99-worker-other", "worker", "/etc/other", "1", 0o644))
	w.settle()
	if n := len(w.pool("worker").Spec.Configuration.Source); n != 9 {
		t.Errorf("made of %d configs, want 9: a refused object must not freeze the pool", n)
	}
	w.delete(w.config("99-worker-other"))
	w.delete(got)
	w.delete(second)
	w.settle()
	if left := w.names(func(n string) bool { return strings.HasPrefix(n, "99-worker-generated-kubelet") }); len(left) != 0 {
		t.Errorf("left behind %v", left)
	}
	if name := w.pool("worker").Spec.Configuration.Name; name != first {
		t.Errorf("the pool aims at %s, want %s as before", name, first)
	}
}

func TestEmptySelectorFreezesNobody(t *testing.T) {
	w := newWorld(t)
	w.settle()
	w.create(&machineconfigv1.ContainerRuntimeConfig{ObjectMeta: metav1.ObjectMeta{Name: "all", Generation: 1},
		Spec: machineconfigv1.ContainerRuntimeConfigSpec{MachineConfigPoolSelector: &metav1.LabelSelector{}}})
	w.create(file("99-worker-a", "worker", "/etc/a", "1", 0o644))
	w.settle()
	if made := w.names(renderedFor("worker")); len(made) != 2 {
		t.Errorf("there are %v, want a new one", made)
	}
	got := get(w, "all", &machineconfigv1.ContainerRuntimeConfig{})
	if c := got.Status.Conditions; len(c) != 1 || c[0].Type != "Failure" || c[0].Message != "Error: "+wire.TextNoPoolForRuntime {
		t.Errorf("conditions are %+v", c)
	}
}

func TestMirrorsReachBuiltInPools(t *testing.T) {
	w := newWorld(t, &configv1.ImageDigestMirrorSet{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: configv1.ImageDigestMirrorSetSpec{
		ImageDigestMirrors: []configv1.ImageDigestMirrors{{Source: "quay.io/a", Mirrors: []configv1.ImageMirror{"mirror.example.com/a"}}}}})
	w.settle()
	if raw := string(w.config("99-worker-generated-registries").Spec.Config.Raw); !strings.Contains(raw, "/etc/containers/registries.conf") {
		t.Errorf("config is %s", raw)
	}
}

func TestPullSecretOfAnotherTypeIsRefused(t *testing.T) {
	w := newWorld(t)
	w.settle()
	var s corev1.Secret
	key := client.ObjectKey{Namespace: "openshift-config", Name: "pull-secret"}
	if err := w.api.Get(t.Context(), key, &s); err != nil {
		t.Fatal(err)
	}
	s.Type = corev1.SecretTypeOpaque
	if err := w.api.Update(t.Context(), &s); err != nil {
		t.Fatal(err)
	}
	w.cache.Sync()
	if _, err := w.all[0].Step(t.Context(), client.ObjectKey{Name: wire.ControllerConfig}); err == nil {
		t.Error("the failure is not returned")
	}
	cc := get(w, wire.ControllerConfig, &machineconfigv1.ControllerConfig{})
	want := "failed to syncing towards (1) generation using controller version " + wire.Version() + ": expected secret type kubernetes.io/dockerconfigjson found Opaque"
	for _, c := range cc.Status.Conditions {
		if c.Type == machineconfigv1.TemplateControllerFailing && (c.Status != corev1.ConditionTrue || c.Message != want) {
			t.Errorf("got %+v, want %q", c, want)
		}
	}
}

func TestUnsupportedKindsSaySo(t *testing.T) {
	w := newWorld(t)
	w.create(&machineconfigv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker", Generation: 1}},
		&machineconfigv1.PinnedImageSet{ObjectMeta: metav1.ObjectMeta{Name: "pinned", Labels: map[string]string{wire.LabelRole: "worker"}}})
	w.settle()
	os := get(w, "worker", &machineconfigv1.MachineOSConfig{})
	if c := os.Status.Conditions; len(c) != 1 || c[0].Status != metav1.ConditionFalse || c[0].Reason != wire.ReasonNotSupported {
		t.Errorf("conditions are %+v", c)
	}
	found := false
	for _, c := range w.pool("worker").Status.Conditions {
		found = found || c.Type == machineconfigv1.MachineConfigPoolPinnedImageSetsDegraded && c.Status == corev1.ConditionTrue && strings.Contains(c.Message, "pinned")
	}
	if !found {
		t.Errorf("conditions are %+v", w.pool("worker").Status.Conditions)
	}
}

func TestRegistriesBelongToTheImageSettings(t *testing.T) {
	w := newWorld(t)
	w.settle()
	if c := metav1.GetControllerOfNoCopy(w.config("99-worker-generated-registries")); c == nil || c.Kind != "Image" {
		t.Errorf("controlled by %+v, want the image settings", c)
	}
	if c := metav1.GetControllerOfNoCopy(w.config("98-worker-generated-kubelet")); c != nil {
		t.Errorf("controlled by %+v, want nobody", c)
	}
}
