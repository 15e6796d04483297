package machine_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/memapi"
	"millwright.io/millwright/internal/provider/fake"
)

// TestCrashesAndFaultsLeakNoInstance kills the controller around random
// writes, lets the cloud refuse at random and the cache lag, and deletes the
// Machine of every second life half-way.
func TestCrashesAndFaultsLeakNoInstance(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t, worker(nil))
		w.cloud.Slow(fake.OpCreate, 4*time.Second)
		killed := errors.New("killed")
		dice := func(memapi.Op) error {
			if rnd.IntN(4) == 0 {
				return killed
			}
			return nil
		}
		w.api.Hook(dice, dice)
		deleted := false
		for n := range 60 {
			w.clk.Step(time.Duration(rnd.IntN(20)) * time.Second)
			if rnd.IntN(3) > 0 {
				w.cache.Sync()
			}
			if rnd.IntN(5) == 0 {
				op := []string{fake.OpObserve, fake.OpCreateVM, fake.OpCreateNIC, fake.OpDeleteVM, fake.OpDeleteNIC}[rnd.IntN(5)]
				w.cloud.FailNext(op, &cloud.Fault{Kind: cloud.Transient, Message: "try again"})
			}
			if seed%2 == 1 && n == 10+int(seed) && !deleted {
				w.api.Hook(nil, nil)
				if err := w.api.Delete(t.Context(), w.machine()); client.IgnoreNotFound(err) != nil {
					t.Fatal(err)
				}
				w.api.Hook(dice, dice)
				deleted = true
			}
			if len(w.cloud.Instances()) > 1 {
				t.Fatalf("seed %d: two instances", seed)
			}
			if _, err := w.c.Step(t.Context(), key); err != nil {
				w.restart()
			}
		}
		w.api.Hook(nil, nil)
		w.cloud.FailEvery(fake.OpObserve, nil)
		for range 20 {
			w.cache.Sync()
			w.clk.Step(2 * time.Minute)
			_, _ = w.c.Step(t.Context(), key)
		}
		var m machinev1.Machine
		err := w.api.Get(t.Context(), key, &m)
		switch {
		case deleted && (!apierrors.IsNotFound(err) || len(w.cloud.Parts()) > 0):
			t.Errorf("seed %d: deleted, but %v, parts %v", seed, err, w.cloud.Parts())
		case !deleted && (len(w.cloud.Instances()) != 1 || ptr.Deref(m.Status.Phase, "") != wire.PhaseProvisioned):
			t.Errorf("seed %d: %d instances, phase %v, error %q", seed, len(w.cloud.Instances()), ptr.Deref(m.Status.Phase, ""), ptr.Deref(m.Status.ErrorMessage, ""))
		case !deleted && !hasAddress(&m):
			t.Errorf("seed %d: no address", seed)
		}
	}
}

func hasAddress(m *machinev1.Machine) bool {
	for _, a := range m.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return true
		}
	}
	return false
}
