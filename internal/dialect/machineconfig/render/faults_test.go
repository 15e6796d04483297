package render_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	enginerender "millwright.io/millwright/internal/engine/render"
	"millwright.io/millwright/internal/version"
)

// offline renders what the pool selects now, without a controller.
func (w *world) offline(pool string) string {
	w.t.Helper()
	var list machineconfigv1.MachineConfigList
	if err := w.api.List(w.t.Context(), &list, client.MatchingLabels{wire.LabelRole: pool}); err != nil {
		w.t.Fatal(err)
	}
	var in []enginerender.Fragment
	for i := range list.Items {
		in = append(in, enginerender.FromMachineConfig(&list.Items[i]))
	}
	res, err := enginerender.RenderSelected(pool, in, enginerender.Base{OSImageURL: "registry.example.com/os@sha256:0"})
	if err != nil {
		w.t.Fatal(err)
	}
	return res.Name
}

// Whatever the caches show, whatever fails, whenever the process dies: when
// that stops, each pool aims at what its configs come to, the target exists,
// and a target was never deleted.
func TestConvergesUnderFaults(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			w := newWorld(t)
			for round := range 40 {
				w.disturb(r, round)
				for _, c := range w.all {
					for _, k := range w.keysOf(c) {
						_, _ = c.Step(t.Context(), k)
					}
				}
				w.clk.Step(time.Duration(r.IntN(2500)) * time.Millisecond)
				for _, pool := range []string{"master", "worker"} {
					if name := w.pool(pool).Spec.Configuration.Name; name != "" {
						_ = w.config(name)
					}
				}
			}
			for range 40 { // uses up scripted failures
				w.cache.Sync()
				for _, c := range w.all {
					for _, k := range w.keysOf(c) {
						_, _ = c.Step(t.Context(), k)
					}
				}
			}
			w.settle()
			for _, pool := range []string{"master", "worker"} {
				if got, want := w.pool(pool).Spec.Configuration.Name, w.offline(pool); got != want {
					t.Errorf("pool %s aims at %s, want %s", pool, got, want)
				}
				if n := len(w.names(renderedFor(pool))); n > keep+1 {
					t.Errorf("pool %s has %d rendered configs, want %d at most", pool, n, keep+1)
				}
			}
		})
	}
}

// disturb does one thing that happens to clusters.
func (w *world) disturb(r *rand.Rand, round int) {
	switch r.IntN(9) {
	case 0:
		mc := file(fmt.Sprintf("99-worker-%d", r.IntN(4)), "worker", fmt.Sprintf("/etc/x%d", r.IntN(3)), fmt.Sprint(round), 0o644)
		_ = w.api.Create(w.t.Context(), mc)
	case 1:
		_ = w.api.Delete(w.t.Context(), &machineconfigv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("99-worker-%d", r.IntN(4))}})
	case 2:
		w.api.FailNext([]string{"create", "delete", "patch"}[r.IntN(3)], "*", errors.New("connection reset"))
	case 3:
		w.restart()
		w.cache.Sync() // a new process lists first
	case 4:
		_ = w.api.Create(w.t.Context(), &machineconfigv1.KubeletConfig{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("k", r.IntN(2)), Generation: 1},
			Spec: machineconfigv1.KubeletConfigSpec{
				MachineConfigPoolSelector: &metav1.LabelSelector{MatchLabels: map[string]string{wire.LabelPoolPrefix + "worker": ""}},
				KubeletConfig:             &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"maxPods":%d}`, 100+r.IntN(3))},
			}})
	case 5:
		_ = w.api.Delete(w.t.Context(), &machineconfigv1.KubeletConfig{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("k", r.IntN(2))}})
	default:
		for _, gvk := range w.cache.Behind() {
			w.cache.Advance(gvk, 1+r.IntN(4))
		}
	}
}

// An upgrade of the controller with equal content changes no name: generated
// configs and the rendered one get the new version, and nothing is made.
func TestUpgradeChangesNoName(t *testing.T) {
	w := newWorld(t)
	w.settle()
	before := w.pool("worker").Spec.Configuration.Name
	was := version.Commit
	version.Commit = "0123456789abcdef"
	t.Cleanup(func() { version.Commit = was })
	w.restart()
	w.settle()
	if made := w.names(renderedFor("worker")); len(made) != 1 || made[0] != before {
		t.Errorf("there are %v, want %s alone", made, before)
	}
	for _, name := range []string{before, "00-worker", "98-worker-generated-kubelet"} {
		if got := w.config(name).Annotations[wire.AnnotationGeneratedBy]; got != version.Commit {
			t.Errorf("%s is of version %q", name, got)
		}
	}
}
