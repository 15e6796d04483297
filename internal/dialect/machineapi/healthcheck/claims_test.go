package healthcheck_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/telemetry"
)

func setOf(n int32) *machinev1.MachineSet {
	s := &machinev1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "set", UID: "set"}}
	s.Spec.Replicas = ptr.To(n)
	s.Spec.Template.Labels = map[string]string{wire.LabelMachineRole: "worker"}
	return s
}

// claims is what an account's object carries.
func (w *world) claims(o client.Object) string {
	w.t.Helper()
	if err := w.api.Get(w.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		w.t.Fatal(err)
	}
	return o.GetAnnotations()[telemetry.AnnotationClaims]
}

// bury lets a deleted Machine and its Node go.
func (w *world) bury(name string) {
	w.t.Helper()
	m := &machinev1.Machine{}
	if err := w.api.Get(w.t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: name}, m); err != nil {
		w.t.Fatal(err)
	}
	m.Finalizers = nil
	if err := w.api.Update(w.t.Context(), m); err != nil {
		w.t.Fatal(err)
	}
	if err := w.api.Delete(w.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		w.t.Fatal(err)
	}
}

// create makes objects with their status.
func (w *world) create(objs ...client.Object) {
	w.t.Helper()
	for _, o := range objs {
		whole, ok := o.DeepCopyObject().(client.Object)
		if err := w.api.Create(w.t.Context(), o); err != nil || !ok {
			w.t.Fatal(err)
		}
		whole.SetResourceVersion(o.GetResourceVersion())
		if err := w.api.Status().Update(w.t.Context(), whole); err != nil {
			w.t.Fatal(err)
		}
	}
}

func TestRepairClaimsTheNodeUntilItsReplacementIsBack(t *testing.T) {
	for _, tt := range []struct {
		name    string
		account client.Object
		more    []client.Object
	}{
		{"of the set", setOf(10), nil},
		{"of the pool", &machineconfigv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}, []client.Object{workerPool(3)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, append(append(workers(10), check("40%"), setOf(10)), tt.more...)...)
			w.turn(1, corev1.ConditionFalse)
			w.clk.Step(6 * time.Minute)
			w.step()
			if got := w.claims(tt.account); !strings.Contains(got, `"node":"w-00","by":"machinehealthcheck/mhc"`) {
				t.Fatalf("claims after the repair: %q", got)
			}
			var order []string
			for _, op := range w.api.Log() {
				if op.Verb == "delete" || op.Verb == "patch" && (op.Kind == "MachineSet" || op.Kind == "MachineConfigPool") {
					order = append(order, op.Verb)
				}
			}
			if !slices.Equal(order, []string{"patch", "delete"}) {
				t.Errorf("claim and delete came as %v", order)
			}
			w.bury("w-00")
			w.step()
			if got := w.claims(tt.account); !strings.Contains(got, "w-00") {
				t.Errorf("claim dropped before the replacement is back: %q", got)
			}
			next := workers(1)
			for _, o := range next {
				o.SetName("w-10")
				if m, ok := o.(*machinev1.Machine); ok {
					m.Status.NodeRef.Name = "w-10"
				}
			}
			w.create(next...)
			w.step()
			if got := w.claims(tt.account); got != "" {
				t.Errorf("claims after the replacement came back: %q", got)
			}
		})
	}
}

func workers(n int) []client.Object {
	out := fleet(n)
	for _, o := range out {
		if node, ok := o.(*corev1.Node); ok {
			node.Labels = map[string]string{"node-role.kubernetes.io/worker": ""}
		}
	}
	return out
}

func workerPool(maxUnavailable int) *machineconfigv1.MachineConfigPool {
	p := &machineconfigv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/worker": ""}}
	p.Spec.MaxUnavailable = ptr.To(intstr.FromInt(maxUnavailable))
	return p
}

// TestRepairWaitsForTheBudgetOfItsPool: a Node that serves although it is
// broken is not taken away while another one is out; a Node that is out already
// costs nothing.
func TestRepairWaitsForTheBudgetOfItsPool(t *testing.T) {
	broken := check("100%", func(m *machinev1.MachineHealthCheck) {
		m.Spec.UnhealthyConditions = append(m.Spec.UnhealthyConditions, machinev1.UnhealthyCondition{Type: "DiskBroken", Status: corev1.ConditionTrue, Timeout: metav1.Duration{Duration: time.Minute}})
	})
	objs := append(workers(6), broken, setOf(6), workerPool(1))
	for _, o := range objs {
		if n, ok := o.(*corev1.Node); ok && (n.Name == "w-04" || n.Name == "w-05") {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "DiskBroken", Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(start.Add(-time.Hour))})
		}
	}
	w := newWorld(t, objs...)
	res := w.step()
	if n := w.living(); n != 5 {
		t.Fatalf("%d of 6 Machines live, want 5: one may be out", n)
	}
	if res.RequeueAfter == 0 {
		t.Error("a refused repair is not tried again")
	}
	told := fmt.Sprint(w.events())
	if !strings.Contains(told, "MachineDeletionFailed") || !strings.Contains(told, "budget is spent: 1 of 1 nodes may be unavailable: w-04 (machinehealthcheck/mhc)") {
		t.Errorf("events: %s", told)
	}
	w.step()
	if n := w.living(); n != 5 {
		t.Errorf("%d Machines live after another look, want 5", n)
	}
}

// TestClaimOfASetWithoutMachinesIsSettled: the only Machine of a set is
// repaired. Its claim holds while the set waits for the next one, and goes when
// the set wants none any more, which is no event of the check.
func TestClaimOfASetWithoutMachinesIsSettled(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(w *world, set *machinev1.MachineSet)
	}{
		{"it is scaled to nothing", func(w *world, set *machinev1.MachineSet) {
			set.Spec.Replicas = ptr.To[int32](0)
			if err := w.api.Update(w.t.Context(), set); err != nil {
				w.t.Fatal(err)
			}
		}},
		{"its Machines are another check's", func(w *world, set *machinev1.MachineSet) {
			set.Spec.Template.Labels = map[string]string{wire.LabelMachineRole: "infra"}
			if err := w.api.Update(w.t.Context(), set); err != nil {
				w.t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, append(workers(1), check("100%"), setOf(1))...)
			w.turn(1, corev1.ConditionFalse)
			w.clk.Step(6 * time.Minute)
			w.step()
			w.bury("w-00")
			res := w.step()
			set := setOf(1)
			if got := w.claims(set); !strings.Contains(got, "w-00") {
				t.Fatalf("claims while the set has no Machine but wants one: %q", got)
			}
			if res.RequeueAfter == 0 || res.RequeueAfter > time.Minute {
				t.Errorf("a check with claims looks again after %v", res.RequeueAfter)
			}
			tt.edit(w, set)
			res = w.step()
			if got := w.claims(setOf(1)); got != "" {
				t.Errorf("claims at the end: %q", got)
			}
			if res.RequeueAfter != 0 {
				t.Errorf("a check at rest looks again after %v", res.RequeueAfter)
			}
		})
	}
}
