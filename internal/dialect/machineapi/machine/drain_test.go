package machine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
)

func podOn(node, name string, edit ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, Labels: map[string]string{"app": name}, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name + "-7f", UID: "r", Controller: ptr.To(true)}}},
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	for _, f := range edit {
		f(p)
	}
	return p
}

func spentBudget(app string) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: app},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
		Status:     policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, CurrentHealthy: 1, DesiredHealthy: 1},
	}
}

// deleting is a running Machine with these on its Node, deleted just now.
func deleting(t *testing.T, objs ...client.Object) *world {
	t.Helper()
	w := newWorld(t, worker(nil))
	w.running()
	for _, o := range objs {
		made := o.DeepCopyObject().(client.Object) // a create drops the status
		if err := w.api.Create(t.Context(), made); err != nil {
			t.Fatal(err)
		}
		o.SetUID(made.GetUID())
		o.SetResourceVersion(made.GetResourceVersion())
		if err := w.api.Status().Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for len(w.rec.Events) > 0 {
		<-w.rec.Events
	}
	if err := w.api.Delete(t.Context(), w.machine()); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) told(reason string) []string {
	var out []string
	for len(w.rec.Events) > 0 {
		if e := <-w.rec.Events; strings.Contains(e, " "+reason+" ") {
			out = append(out, e)
		}
	}
	return out
}

func (w *world) ops(prefix string) int {
	n := 0
	for _, op := range w.api.Log() {
		if strings.HasPrefix(op.String(), prefix) {
			n++
		}
	}
	return n
}

func TestBlockerIsNamedAtOnceToldOnceAndWaitedFor(t *testing.T) {
	pdb := spentBudget("app")
	w := deleting(t, podOn(name, "app"), pdb)
	w.step()
	const blocker = `error when evicting pods/"app" -n "a" (ReplicaSet/app-7f): Cannot evict pod as it would violate the pod's disruption budget. The disruption budget app needs 1 healthy pods and has 1 currently`
	i := slices.IndexFunc(w.machine().Status.Conditions, func(c machinev1.Condition) bool { return c.Type == "Drained" })
	if i < 0 {
		t.Fatalf("no condition Drained: %v", conditionsOf(w.machine()))
	}
	c := w.machine().Status.Conditions[i]
	if c.Status != "False" || c.Reason != "DrainError" || c.Severity != "Warning" || c.Message != "could not drain machine: "+blocker {
		t.Errorf("condition %+v", c)
	}
	writes := w.api.Writes()
	for range 20 {
		if wake := w.after(30 * time.Second); wake < 4*time.Second || wake > 34*time.Second {
			t.Fatalf("looks again in %s", wake)
		}
	}
	if got := w.told("DrainRequeued"); len(got) != 1 || !strings.Contains(got[0], blocker) {
		t.Errorf("told %d times, want once: %v", len(got), got)
	}
	if got := w.api.Writes() - writes; got != 0 {
		t.Errorf("%d writes while it waits: %v", got, w.api.Log())
	}
	if err := w.api.Delete(t.Context(), pdb); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		w.cache.Sync()
		w.clk.Step(30 * time.Second)
		if _, err := w.c.Step(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	w.gone()
}

// TestDrainOfANodeThatIsOff: budgets are honoured until the cloud vouches that
// nothing runs there.
func TestDrainOfANodeThatIsOff(t *testing.T) {
	for _, r := range []struct {
		name   string
		cloud  func(*world)
		bypass bool
	}{
		{"running", func(*world) {}, false},
		{"state unknown", func(w *world) { w.cloud.SetState(name, cloud.StateUnknown, nil) }, false},
		{"cloud does not answer", func(w *world) { w.cloud.FailEvery("observe", &cloud.Fault{Kind: cloud.Throttled}) }, false},
		{"stopping", func(w *world) { w.cloud.SetState(name, cloud.StateStopping, nil) }, false},
		{"stopped", func(w *world) { w.cloud.SetState(name, cloud.StateStopped, nil) }, true},
		{"deallocated", func(w *world) { w.cloud.SetState(name, cloud.StateDeallocated, nil) }, true},
		{"gone", func(w *world) { w.cloud.Vanish(name) }, true},
	} {
		t.Run(r.name, func(t *testing.T) {
			pdb := spentBudget("app")
			pdb.Status.CurrentHealthy = 0
			notReady := func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }
			w := deleting(t, podOn(name, "app", notReady), pdb)
			var n corev1.Node
			if err := w.api.Get(t.Context(), nodeKey, &n); err != nil {
				t.Fatal(err)
			}
			n.Status.Conditions[0].Status = corev1.ConditionUnknown
			if err := w.api.Status().Update(t.Context(), &n); err != nil {
				t.Fatal(err)
			}
			r.cloud(w)
			w.step()
			for range 10 {
				if err := w.api.Get(t.Context(), key, &machinev1.Machine{}); apierrors.IsNotFound(err) {
					break
				}
				w.after(30 * time.Second)
			}
			err := w.api.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "app"}, &corev1.Pod{})
			if got := apierrors.IsNotFound(err); got != r.bypass {
				t.Errorf("pod gone: %t, want %t; %v", got, r.bypass, w.api.Log())
			}
			if got := w.told("DrainRequeued"); !r.bypass && len(got) != 1 {
				t.Errorf("told %v", got)
			}
			if n := w.ops("create Pod/eviction"); n != 0 {
				t.Errorf("%d evictions that were known to be refused", n)
			}
		})
	}
}

func TestRefusedEvictionHoldsUpNoOtherPod(t *testing.T) {
	w := deleting(t, podOn(name, "app"), podOn(name, "other"))
	w.api.FailNext("create", "Pod/eviction", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "app", fmt.Errorf("the owner said no")))
	w.step()
	var pods corev1.PodList
	if err := w.api.List(t.Context(), &pods); err != nil || len(pods.Items) != 1 {
		t.Fatalf("%v, %d pods left, want the refused one", err, len(pods.Items))
	}
	if got := w.told("DrainRequeued"); len(got) != 1 || !strings.Contains(got[0], "the owner said no") {
		t.Errorf("told %v", got)
	}
	for range 8 {
		w.cache.Sync()
		w.clk.Step(30 * time.Second)
		if _, err := w.c.Step(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	w.gone()
}

// TestHundredDrainsWaitForNobodyElse steps a hundred blocked Machines as a
// queue would: each when its own wake is due. The last is gone soon after the
// last budget, however long the others waited.
func TestHundredDrainsWaitForNobodyElse(t *testing.T) {
	const n = 100
	var objs []client.Object
	var keys []client.ObjectKey
	for i := range n {
		id := fmt.Sprintf("w-%03d", i)
		m := worker(func(m *machinev1.Machine) {
			m.Name = id
			m.Status.Phase, m.Status.NodeRef = ptr.To(wire.PhaseRunning), &corev1.ObjectReference{Kind: "Node", Name: id}
		})
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: id}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
		objs = append(objs, m, node, podOn(id, "app-"+id), spentBudget("app-"+id))
		keys = append(keys, client.ObjectKeyFromObject(m))
	}
	w := newWorld(t, objs...)
	for i := range n {
		if err := w.api.Delete(t.Context(), objs[4*i]); err != nil {
			t.Fatal(err)
		}
	}
	due := make([]time.Time, n)
	for i := range due {
		due[i] = start
	}
	slowest := start
	left := n
	for left > 0 && w.clk.Now().Before(start.Add(time.Hour)) {
		w.cache.Sync()
		for i := range n {
			free := start.Add(time.Duration(i/2) * time.Second)
			if b := objs[4*i+3]; b != nil && !w.clk.Now().Before(free) {
				if err := w.api.Delete(t.Context(), b); err != nil {
					t.Fatal(err)
				}
				objs[4*i+3], slowest = nil, free
			}
			if due[i].IsZero() || w.clk.Now().Before(due[i]) {
				continue
			}
			res, err := w.c.Step(t.Context(), keys[i])
			if err != nil {
				t.Fatal(err)
			}
			due[i] = w.clk.Now().Add(max(res.RequeueAfter, time.Second))
			if err := w.api.Get(t.Context(), keys[i], &machinev1.Machine{}); apierrors.IsNotFound(err) {
				due[i] = time.Time{}
				left--
			}
		}
		w.clk.Step(time.Second)
	}
	if late := w.clk.Now().Sub(slowest); left > 0 || late > 45*time.Second {
		t.Errorf("%d left; the last is gone %s after its budget", left, late)
	}
	if got := w.ops("create Pod/eviction"); got != n {
		t.Errorf("%d evictions, want %d", got, n)
	}
}
