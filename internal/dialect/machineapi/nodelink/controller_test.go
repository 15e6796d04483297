package nodelink_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	machinev1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineapi/nodelink"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/memapi"
)

const (
	ns         = wire.Namespace
	providerID = "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/w-1"
)

type world struct {
	t     *testing.T
	api   *memapi.API
	cache *memapi.Cache
	c     kube.Controller
}

func newWorld(t *testing.T, objs ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{machinev1.Install, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	clk := clocktesting.NewFakeClock(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))
	w := &world{t: t, api: memapi.New(scheme, clk, objs...)}
	w.cache = w.api.NewCache()
	w.c = nodelink.New(nodelink.Deps{Client: w.cache.Client(), Clock: clk, Log: logr.Discard()})
	if err := kube.AddIndexes(t.Context(), w.cache, w.c.Indexes...); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) step() error {
	w.t.Helper()
	w.cache.Sync()
	_, err := w.c.Step(w.t.Context(), client.ObjectKey{Name: "w-1"})
	return err
}

func machineNamed(name, id, ip string) *machinev1.Machine {
	m := &machinev1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{wire.LabelMachineRole: "worker"}}}
	if id != "" {
		m.Spec.ProviderID = ptr.To(id)
	}
	if ip != "" {
		m.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalDNS, Address: name}, {Type: corev1.NodeInternalIP, Address: ip}}
	}
	return m
}

func nodeWith(id, ip string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "w-1", UID: "n1"},
		Spec:       corev1.NodeSpec{ProviderID: id},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}},
	}
}

func (w *world) ref(name string) *corev1.ObjectReference {
	w.t.Helper()
	var m machinev1.Machine
	if err := w.api.Get(w.t.Context(), client.ObjectKey{Namespace: ns, Name: name}, &m); err != nil {
		w.t.Fatal(err)
	}
	return m.Status.NodeRef
}

func TestLinkTakesTwoWritesAndIsStable(t *testing.T) {
	for _, r := range []struct {
		name string
		m    *machinev1.Machine
		n    *corev1.Node
	}{
		{"by provider ID", machineNamed("w-1", providerID, ""), nodeWith(providerID, "10.0.0.5")},
		{"by address", machineNamed("w-1", "", "10.0.0.5"), nodeWith("", "10.0.0.5")},
	} {
		t.Run(r.name, func(t *testing.T) {
			w := newWorld(t, r.m, r.n)
			for range 3 {
				if err := w.step(); err != nil {
					t.Fatal(err)
				}
			}
			want := &corev1.ObjectReference{Kind: "Node", Name: "w-1", UID: "n1"}
			if diff := cmp.Diff(w.ref("w-1"), want); diff != "" {
				t.Errorf("nodeRef (-got +want):\n%s", diff)
			}
			if got := w.api.Writes(); got != 2 {
				t.Errorf("%d writes, want 2: %v", got, w.api.Log())
			}
		})
	}
}

func TestLaggingCacheRepeatsNoWrite(t *testing.T) {
	w := newWorld(t, machineNamed("w-1", providerID, ""), nodeWith(providerID, "10.0.0.5"))
	for range 4 {
		if _, err := w.c.Step(t.Context(), client.ObjectKey{Name: "w-1"}); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.api.Writes(); got != 2 {
		t.Errorf("%d writes, want 2: %v", got, w.api.Log())
	}
}

func TestCaseOfProviderIDMatters(t *testing.T) {
	w := newWorld(t, machineNamed("w-1", providerID+"X", ""), nodeWith(providerID, ""))
	if err := w.step(); err != nil || w.api.Writes() != 0 {
		t.Errorf("error %v, %d writes", err, w.api.Writes())
	}
}

func TestTwoMachinesForOneNodeAreAnError(t *testing.T) {
	w := newWorld(t, machineNamed("a", providerID, ""), machineNamed("b", providerID, ""), nodeWith(providerID, ""))
	if err := w.step(); err == nil || w.api.Writes() != 0 {
		t.Errorf("error %v, %d writes", err, w.api.Writes())
	}
}

func TestNodeRefOutlivesItsNodeAndFollowsTheNext(t *testing.T) {
	n := nodeWith(providerID, "10.0.0.5")
	w := newWorld(t, machineNamed("w-1", providerID, ""), n)
	if err := w.step(); err != nil {
		t.Fatal(err)
	}
	if err := w.api.Delete(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if err := w.step(); err != nil || w.ref("w-1") == nil {
		t.Fatalf("error %v, nodeRef %v", err, w.ref("w-1"))
	}
	next := nodeWith(providerID, "10.0.0.5")
	next.UID = "n2"
	if err := w.api.Create(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	if err := w.step(); err != nil || w.ref("w-1").UID != next.UID {
		t.Errorf("error %v, nodeRef %v, want UID %s", err, w.ref("w-1"), next.UID)
	}
}

func TestLabelRemovedByHandComesBack(t *testing.T) {
	m := machineNamed("w-1", providerID, "")
	m.Spec.ObjectMeta.Labels = map[string]string{"training/trainee": "t1"}
	w := newWorld(t, m, nodeWith(providerID, ""))
	if err := w.step(); err != nil {
		t.Fatal(err)
	}
	var n corev1.Node
	get := func() {
		if err := w.api.Get(t.Context(), client.ObjectKey{Name: "w-1"}, &n); err != nil {
			t.Fatal(err)
		}
	}
	get()
	delete(n.Labels, "training/trainee")
	n.Labels["mine"] = "1"
	if err := w.api.Update(t.Context(), &n); err != nil {
		t.Fatal(err)
	}
	if err := w.step(); err != nil {
		t.Fatal(err)
	}
	get()
	if n.Labels["training/trainee"] != "t1" || n.Labels["mine"] != "1" {
		t.Errorf("labels %v", n.Labels)
	}
}

func TestRolesOfTheNode(t *testing.T) {
	for _, r := range []struct {
		role string
		want []string
	}{
		{"", nil},
		{"worker", []string{wire.NodeRoleWorker}},
		{"infra", []string{wire.NodeRoleWorker}}, // it boots as a worker; its own role is a label of its spec
		{"master", []string{wire.NodeRoleControlPlane, wire.NodeRoleMaster}},
	} {
		t.Run(r.role, func(t *testing.T) {
			m := machineNamed("w-1", providerID, "")
			m.Labels[wire.LabelMachineRole] = r.role
			w := newWorld(t, m, nodeWith(providerID, ""))
			if err := w.step(); err != nil {
				t.Fatal(err)
			}
			var n corev1.Node
			if err := w.api.Get(t.Context(), client.ObjectKey{Name: "w-1"}, &n); err != nil {
				t.Fatal(err)
			}
			var got []string
			for label := range n.Labels {
				if strings.HasPrefix(label, "node-role.kubernetes.io/") {
					got = append(got, label)
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(got, r.want); diff != "" {
				t.Errorf("roles (-got +want):\n%s", diff)
			}
		})
	}
}
