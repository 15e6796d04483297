package pool_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineconfig/drain"
	"millwright.io/millwright/internal/dialect/machineconfig/pool"
	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// On a real API server, woken by watches only: agents without any work of
// their own roll a pool. It logs how long the nodes were out of service.
func TestRolloutOnAServer(t *testing.T) {
	const n = 12
	env := testenv.Start(t, testenv.WithFamilies("machineconfig"))
	ctx, c := t.Context(), env.Client
	mgr, err := kube.NewManager(env.Config, kube.ManagerOptions{Component: wire.Component, Scheme: c.Scheme(), Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	rec := mgr.GetEventRecorder(wire.ControllerNode)
	for _, k := range []kube.Controller{
		pool.New(pool.Deps{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: clock.RealClock{}, Recorder: rec, Log: logr.Discard()}),
		drain.New(drain.Deps{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: clock.RealClock{}, Recorder: rec, Log: logr.Discard()}),
	} {
		if err := k.Setup(mgr); err != nil {
			t.Fatal(err)
		}
	}
	agents := map[string]*agent{}
	for _, o := range workers(n) {
		o.SetUID("")
		o.SetGeneration(0)
		if err := c.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
		if node, ok := o.(*corev1.Node); ok {
			agents[node.Name] = &agent{disk: configA, fails: map[string]string{}}
			node.Spec.Taints, node.Status.Conditions = nil, []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			if err := c.Status().Update(ctx, node); err != nil {
				t.Fatal(err)
			}
		}
	}
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Errorf("run manager: %v", err)
		}
	})
	state := func() string {
		var p machineconfigv1.MachineConfigPool
		if err := c.Get(ctx, client.ObjectKey{Name: wire.PoolWorker}, &p); err != nil {
			return err.Error()
		}
		s := p.Status
		return fmt.Sprint(s.Configuration.Name, " ", s.MachineCount, s.ReadyMachineCount, s.UpdatedMachineCount, s.UnavailableMachineCount, s.DegradedMachineCount)
	}
	out := map[string]time.Time{}
	var took []time.Duration
	await := func(want string) {
		t.Helper()
		for deadline := time.Now().Add(90 * time.Second); state() != want; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("got %s, want %s", state(), want)
			}
			var nodes corev1.NodeList
			if err := c.List(ctx, &nodes); err != nil {
				t.Fatal(err)
			}
			for i := range nodes.Items {
				node := &nodes.Items[i]
				switch since, was := out[node.Name]; {
				case node.Spec.Unschedulable && !was:
					out[node.Name] = time.Now()
				case !node.Spec.Unschedulable && was:
					took = append(took, time.Since(since))
					delete(out, node.Name)
				}
				if before := node.DeepCopy(); agents[node.Name].step(node) {
					if err := c.Patch(ctx, node, client.MergeFrom(before)); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	await(configA + " 12 12 12 0 0")
	var p machineconfigv1.MachineConfigPool
	if err := c.Get(ctx, client.ObjectKey{Name: wire.PoolWorker}, &p); err != nil {
		t.Fatal(err)
	}
	quarter := intstr.FromString("25%")
	p.Spec.MaxUnavailable, p.Spec.Configuration.Name = &quarter, configB
	if err := c.Update(ctx, &p); err != nil {
		t.Fatal(err)
	}
	await(configB + " 12 12 12 0 0")
	slices.Sort(took)
	if len(took) != n {
		t.Fatalf("%d nodes were taken out of service, want %d", len(took), n)
	}
	t.Logf("out of service: median %s, longest %s", took[n/2], took[n-1])
}
