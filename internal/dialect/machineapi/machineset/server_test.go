package machineset_test

import (
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"millwright.io/millwright/internal/dialect/machineapi/machineset"
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

// On a real API server, with its definitions, watches and garbage collector:
// zero is told, scaling works, a node's readiness arrives, a copied machine is
// adopted and one goes.
func TestSetLivesOnARealServer(t *testing.T) {
	env := testenv.Start(t, testenv.WithFamilies("machine"))
	ctx := t.Context()
	mgr, err := manager.New(env.Config, manager.Options{Scheme: env.Client.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	c := machineset.New(machineset.Deps{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: clock.RealClock{}, Recorder: mgr.GetEventRecorder("machineset-controller"), Log: kube.KlogText("machineset-controller")})
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
	set := machineSet(0)
	set.UID, set.Generation = "", 0
	for _, o := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, set} {
		if err := env.Client.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "status.replicas spelled out as 0", func() bool {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(machinev1beta1.GroupVersion.WithKind("MachineSet"))
		if env.Client.Get(ctx, key, u) != nil {
			return false
		}
		n, found, _ := unstructured.NestedInt64(u.Object, "status", "replicas")
		return found && n == 0
	})
	scale := func(n int32) {
		t.Helper()
		patch := client.MergeFrom(set.DeepCopy())
		set.Spec.Replicas = ptr.To(n)
		if err := env.Client.Patch(ctx, set, patch); err != nil {
			t.Fatal(err)
		}
	}
	living := func() []machinev1beta1.Machine {
		var list machinev1beta1.MachineList
		if err := env.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return nil
		}
		var out []machinev1beta1.Machine
		for _, m := range list.Items {
			if m.DeletionTimestamp == nil {
				out = append(out, m)
			}
		}
		return out
	}
	status := func() machinev1beta1.MachineSetStatus {
		var s machinev1beta1.MachineSet
		_ = env.Client.Get(ctx, key, &s)
		return s.Status
	}
	scale(40)
	eventually(t, "forty machines, counted", func() bool { return len(living()) == 40 && status().Replicas == 40 })
	scale(1)
	eventually(t, "one machine, counted", func() bool { return len(living()) == 1 && status().Replicas == 1 })

	m := living()[0]
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Name}}
	if err := env.Client.Create(ctx, node); err != nil {
		t.Fatal(err)
	}
	m.Status.NodeRef = &corev1.ObjectReference{Kind: "Node", Name: m.Name}
	if err := env.Client.Status().Update(ctx, &m); err != nil {
		t.Fatal(err)
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now())}}
	if err := env.Client.Status().Update(ctx, node); err != nil {
		t.Fatal(err)
	}
	eventually(t, "one ready", func() bool { return status().ReadyReplicas == 1 && status().AvailableReplicas == 1 })

	orphan := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-copy", Labels: m.Labels, Finalizers: m.Finalizers}, Spec: m.Spec}
	if err := env.Client.Create(ctx, orphan); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the copy adopted and going", func() bool {
		var o machinev1beta1.Machine
		return env.Client.Get(ctx, client.ObjectKeyFromObject(orphan), &o) == nil && o.DeletionTimestamp != nil && metav1.IsControlledBy(&o, set)
	})
	if got := living(); len(got) != 1 || got[0].Name != m.Name {
		t.Errorf("left are %d machines, want %s alone", len(got), m.Name)
	}
}
