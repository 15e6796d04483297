package healthcheck_test

import (
	"slices"
	"testing"
	"time"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"millwright.io/millwright/internal/dialect/machineapi/healthcheck"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
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

func rank(o client.Object) int {
	if _, ok := o.(*corev1.Node); ok {
		return 0
	}
	return 1
}

// On a real API server, with its definitions, defaults and watches: all counters
// are spelled out, a Node's condition alone wakes the check, and the deletion
// carries the right UID.
func TestCheckRepairsOnARealServer(t *testing.T) {
	env := testenv.Start(t, testenv.WithFamilies("machine"))
	ctx := t.Context()
	mgr, err := manager.New(env.Config, manager.Options{Scheme: env.Client.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	c := healthcheck.New(healthcheck.Deps{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: clock.RealClock{},
		Recorder: mgr.GetEventRecorder("machinehealthcheck-controller"), Log: kube.KlogText("machine-healthcheck-controller"),
	})
	if err := c.Setup(mgr); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Errorf("run manager: %v", err)
		}
	})
	brief := func(m *machinev1.MachineHealthCheck) {
		for i := range m.Spec.UnhealthyConditions {
			m.Spec.UnhealthyConditions[i].Timeout = metav1.Duration{Duration: time.Second}
		}
	}
	objs := append([]client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: wire.Namespace}}, check("100%", brief)}, fleet(3)...)
	slices.SortStableFunc(objs[2:], func(a, b client.Object) int { return rank(a) - rank(b) }) // a Machine without its Node is repaired
	for _, o := range objs {
		made := o.DeepCopyObject().(client.Object)
		if err := env.Client.Create(ctx, made); err != nil {
			t.Fatal(err)
		}
		o.SetUID(made.GetUID())
		o.SetResourceVersion(made.GetResourceVersion())
		switch o.(type) {
		case *machinev1.Machine, *corev1.Node:
			if err := env.Client.Status().Update(ctx, o); err != nil {
				t.Fatal(err)
			}
		}
	}
	status := func() map[string]any {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(machinev1.GroupVersion.WithKind("MachineHealthCheck"))
		if err := env.Client.Get(ctx, key, u); err != nil {
			t.Fatal(err)
		}
		s, _, _ := unstructured.NestedMap(u.Object, "status")
		return s
	}
	eventually(t, "three healthy machines in the status", func() bool {
		s := status()
		return s["expectedMachines"] == int64(3) && s["currentHealthy"] == int64(3) && s["remediationsAllowed"] == int64(3)
	})
	var n corev1.Node
	if err := env.Client.Get(ctx, client.ObjectKey{Name: "w-01"}, &n); err != nil {
		t.Fatal(err)
	}
	n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = corev1.ConditionFalse, metav1.Now()
	if err := env.Client.Status().Update(ctx, &n); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the deletion of w-01", func() bool {
		var m machinev1.Machine
		if err := env.Client.Get(ctx, client.ObjectKey{Namespace: wire.Namespace, Name: "w-01"}, &m); err != nil {
			t.Fatal(err)
		}
		return m.DeletionTimestamp != nil
	})
	eventually(t, "two healthy machines in the status", func() bool { return status()["currentHealthy"] == int64(2) })
}
