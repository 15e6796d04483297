package sim_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/memapi"
	"millwright.io/millwright/internal/telemetry"
)

// What runs in the cluster and what its own controllers do: a workload with a
// disruption budget, a pod per Node that no drain removes, kubelets that fall
// silent, hooks whose owners take their time.

const (
	workload    = "web"
	webReplicas = 3
	// haven is a Node of no Machine: pods go there when nothing else is left,
	// so that a set can be scaled to nothing under a disruption budget.
	haven = "haven"
	hook  = "training.example.com/backup"
	// taintAfter is how long pods stay bound to a Node that does not answer.
	taintAfter = 30 * time.Second
	// unhealthyAfter and maxUnhealthy are the health check's.
	unhealthyAfter = time.Minute
	maxUnhealthy   = "40%"
)

var apps = metav1.ObjectMeta{Namespace: "apps"}

// cluster returns the objects of this file.
func cluster() []client.Object {
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: apps, Spec: policyv1.PodDisruptionBudgetSpec{
		MaxUnavailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": workload}}}}
	budget.Name = workload
	check := &machinev1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: wire.Namespace, Name: "workers"}, Spec: machinev1.MachineHealthCheckSpec{
		Selector:     metav1.LabelSelector{MatchLabels: map[string]string{wire.LabelMachineSet: setName}},
		MaxUnhealthy: ptr.To(intstr.FromString(maxUnhealthy)),
		UnhealthyConditions: []machinev1.UnhealthyCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Timeout: metav1.Duration{Duration: unhealthyAfter}}},
	}}
	return []client.Object{budget, check, readyNode(haven, "elsewhere://haven", metav1.NewTime(start))}
}

func readyNode(name, providerID string, since metav1.Time) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: providerID},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: since}}}}
}

func (w *world) pods() []corev1.Pod {
	var l corev1.PodList
	if err := w.api.List(context.Background(), &l); err != nil {
		w.t.Fatal(err)
	}
	return l.Items
}

// operate does what kube-controller-manager and the scheduler do, and says
// whether there was anything to do. A failing API is asked again next time.
func (w *world) operate() bool {
	if len(w.silent) == 0 && w.seen == w.lengths() {
		return false
	}
	before := w.api.Writes()
	w.begin(actorCloud)
	w.silence()
	w.sweepPods()
	w.fillPods()
	w.countBudget()
	w.end()
	acted := w.api.Writes() != before
	if !acted {
		w.seen = w.lengths()
	}
	return acted
}

// lengths tell whether anything changed that operate looks at.
func (w *world) lengths() [3]int {
	return [3]int{
		w.api.Length(corev1.SchemeGroupVersion.WithKind("Node")),
		w.api.Length(corev1.SchemeGroupVersion.WithKind("Pod")),
		w.api.Length(policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget")),
	}
}

// silence brings the Nodes' Ready conditions in line with who answers.
func (w *world) silence() {
	for _, n := range w.nodes() {
		c := readyOf(&n)
		want := corev1.ConditionTrue
		if w.silent[n.Spec.ProviderID] {
			want = corev1.ConditionUnknown
		}
		if c == nil || c.Status == want {
			continue
		}
		c.Status, c.LastTransitionTime = want, metav1.NewTime(w.clk.Now())
		_ = w.api.Status().Update(context.Background(), &n)
	}
}

func readyOf(n *corev1.Node) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == corev1.NodeReady {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

// sweepPods deletes the pods of Nodes that are gone or were silent too long,
// and calls those back from the haven that have a better place.
func (w *world) sweepPods() {
	nodes, keep := w.nodes(), map[string]bool{}
	for _, n := range nodes {
		c := readyOf(&n)
		keep[n.Name] = c == nil || c.Status == corev1.ConditionTrue || w.clk.Now().Sub(c.LastTransitionTime.Time) < taintAfter
	}
	keep[haven] = emptiest(nodes, nil) == haven
	for _, p := range w.pods() {
		daemon := strings.HasPrefix(p.Name, "daemon-")
		if _, known := keep[p.Spec.NodeName]; p.Spec.NodeName != "" && (!known || !keep[p.Spec.NodeName] && !daemon) {
			_ = w.api.Delete(context.Background(), &p)
		}
	}
}

// fillPods makes the pods that are missing, on the emptiest Node that takes
// any, and moves those that wait there.
func (w *world) fillPods() {
	nodes := w.nodes()
	load, have := map[string]int{}, map[string]bool{}
	var waiting []corev1.Pod
	for _, p := range w.pods() {
		have[p.Name] = true
		if strings.HasPrefix(p.Name, workload) {
			load[p.Spec.NodeName]++
		}
		if p.Spec.NodeName == "" {
			waiting = append(waiting, p)
		}
	}
	total := 0
	for _, n := range load {
		total += n
	}
	for ; total < webReplicas; total++ {
		w.podNumber++
		p := pod(fmt.Sprintf("%s-%d", workload, w.podNumber), workload, "ReplicaSet")
		if w.api.Create(context.Background(), p) == nil {
			waiting = append(waiting, *p)
		}
	}
	for i := range waiting {
		if to := emptiest(nodes, load); to != "" {
			load[to]++
			w.place(&waiting[i], to)
		}
	}
	for _, n := range nodes {
		if name := "daemon-" + n.Name; !have[name] && n.Name != haven {
			p := pod(name, "daemon", "DaemonSet")
			if w.api.Create(context.Background(), p) == nil {
				w.place(p, n.Name)
			}
		}
	}
}

func pod(name, app, owner string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: apps}
	p.Name, p.Labels = name, map[string]string{"app": app}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: owner, Name: app, UID: types.UID(app), Controller: ptr.To(true)}}
	p.Status.Phase = corev1.PodPending
	return p
}

func (w *world) place(p *corev1.Pod, node string) {
	p.Spec.NodeName = node
	if w.api.Update(context.Background(), p) != nil {
		return
	}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	_ = w.api.Status().Update(context.Background(), p)
}

func emptiest(nodes []corev1.Node, load map[string]int) string {
	best := ""
	for _, n := range nodes {
		c := readyOf(&n)
		if n.Spec.Unschedulable || c == nil || c.Status != corev1.ConditionTrue || n.Name == haven {
			continue
		}
		if best == "" || load[n.Name] < load[best] {
			best = n.Name
		}
	}
	if best == "" {
		return haven
	}
	return best
}

// countBudget is the disruption controller.
func (w *world) countBudget() {
	var b policyv1.PodDisruptionBudget
	if w.api.Get(context.Background(), client.ObjectKey{Namespace: apps.Namespace, Name: workload}, &b) != nil {
		return
	}
	want := b.Status
	want.ExpectedPods, want.DesiredHealthy, want.ObservedGeneration = webReplicas, webReplicas-int32(b.Spec.MaxUnavailable.IntValue()), b.Generation
	want.CurrentHealthy = 0
	silent := map[string]bool{}
	for _, n := range w.nodes() {
		silent[n.Name] = w.silent[n.Spec.ProviderID]
	}
	for _, p := range w.pods() {
		if p.Labels["app"] == workload && p.Status.Phase == corev1.PodRunning && !silent[p.Spec.NodeName] {
			want.CurrentHealthy++
		}
	}
	want.DisruptionsAllowed = max(0, want.CurrentHealthy-want.DesiredHealthy)
	if fmt.Sprint(want) != fmt.Sprint(b.Status) {
		b.Status = want
		_ = w.api.Status().Update(context.Background(), &b)
	}
}

// freezeBudget lets the workload's owner forbid every eviction, or allow one
// again.
func (w *world) freezeBudget(allowed int32) {
	var b policyv1.PodDisruptionBudget
	if w.api.Get(context.Background(), client.ObjectKey{Namespace: apps.Namespace, Name: workload}, &b) != nil {
		return
	}
	if int32(b.Spec.MaxUnavailable.IntValue()) == allowed {
		return
	}
	b.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(allowed))
	w.begin(actorUser)
	err := w.api.Update(context.Background(), &b)
	if w.end(); err == nil {
		w.print("user: the workload may lose %d pods", allowed)
	}
}

// some returns a random Machine that pleases, nil when none does.
func (w *world) some(pleases func(*machinev1.Machine) bool) *machinev1.Machine {
	all := slices.DeleteFunc(w.machines(), func(m machinev1.Machine) bool { return !pleases(&m) })
	if len(all) == 0 {
		return nil
	}
	return &all[w.rng.IntN(len(all))]
}

// hookSome puts a hook on a Machine, or forbids its drain.
func (w *world) hookSome() {
	m := w.some(func(m *machinev1.Machine) bool { return m.DeletionTimestamp == nil && !hooked(m) })
	if m == nil {
		return
	}
	hooks := []machinev1.LifecycleHook{{Name: "backup", Owner: hook}}
	switch w.rng.IntN(3) {
	case 0:
		m.Spec.LifecycleHooks.PreDrain = hooks
		w.update(m, "preDrain hook on %s", m.Name)
	case 1:
		m.Spec.LifecycleHooks.PreTerminate = hooks
		w.update(m, "preTerminate hook on %s", m.Name)
	default:
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, wire.AnnotationExcludeDrain, "")
		w.update(m, "no drain of %s", m.Name)
	}
}

// unhook lets the owners of hooks on deleted Machines be done.
func (w *world) unhook() bool {
	m := w.some(func(m *machinev1.Machine) bool { return m.DeletionTimestamp != nil && hooked(m) })
	if m == nil {
		return false
	}
	m.Spec.LifecycleHooks = machinev1.LifecycleHooks{}
	w.update(m, "hooks of %s are done", m.Name)
	return true
}

func hooked(m *machinev1.Machine) bool {
	return len(m.Spec.LifecycleHooks.PreDrain)+len(m.Spec.LifecycleHooks.PreTerminate) > 0
}

func (w *world) update(m *machinev1.Machine, format string, args ...any) {
	w.begin(actorUser)
	err := w.api.Update(context.Background(), m)
	if w.end(); err == nil {
		w.print("user: "+format, args...)
	}
}

// sicken lets a kubelet fall silent, or an instance vanish.
func (w *world) sicken() {
	m := w.some(func(m *machinev1.Machine) bool { return m.DeletionTimestamp == nil && m.Status.NodeRef != nil })
	if m == nil {
		return
	}
	w.sick[m.Name] = true
	if w.rng.IntN(3) == 0 {
		w.print("the instance of %s vanishes", m.Name)
		w.cloud.Vanish(m.Name)
		return
	}
	w.print("the kubelet of %s falls silent", m.Name)
	w.silent[ptr.Deref(m.Spec.ProviderID, "")] = true
}

// recover lets every silent kubelet answer again.
func (w *world) recover() {
	if len(w.silent) > 0 {
		w.print("all kubelets answer")
		clear(w.silent)
		w.seen = [3]int{}
	}
}

// relieve is the admin, when the world is at rest: what the check may not
// repair is theirs. It reports whether there was anything, and fails when the
// check could have done it.
func (w *world) relieve() bool {
	var failed []machinev1.Machine
	silent, all := 0, w.machines()
	for i := range all {
		switch {
		case ptr.Deref(all[i].Status.Phase, "") == wire.PhaseFailed:
			failed = append(failed, all[i])
		case w.silent[ptr.Deref(all[i].Spec.ProviderID, "")]:
			silent++
		}
	}
	if len(failed)+silent == 0 {
		return false
	}
	// 40 % of the Machines, rounded down; and most Nodes of three or more
	// silent at once look like a blind observer.
	short, frozen := len(failed)+silent > len(all)*40/100, len(all)-len(failed) >= 3 && 2*silent > len(all)-len(failed)
	if !short && !frozen {
		w.fail("%d failed and %d silent of %d machines were not repaired", len(failed), silent, len(all))
	}
	w.recover()
	for i := range failed {
		w.print("user: deletes %s", failed[i].Name)
		w.begin(actorUser)
		_ = w.api.Delete(context.Background(), &failed[i])
		w.end()
	}
	return true
}

// deleting checks, at the moment the cloud is told to remove an instance, that
// nobody still has a claim on it.
func (w *world) deleting(name string) {
	complain := func(format string, args ...any) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.broken = append(w.broken, fmt.Sprintf(format, args...))
	}
	for _, m := range w.machines() {
		if m.Name != name {
			continue
		}
		_, excluded := m.Annotations[wire.AnnotationExcludeDrain]
		switch {
		case m.DeletionTimestamp == nil:
			return // what a failed create left is taken away again
		case len(m.Spec.LifecycleHooks.PreTerminate) > 0:
			complain("instance of %s is deleted ahead of a preTerminate hook", name)
		case m.Status.NodeRef == nil || w.early[name]:
			return // nobody knew of a Node to drain
		case len(m.Spec.LifecycleHooks.PreDrain) > 0 && !excluded:
			complain("instance of %s is deleted ahead of a preDrain hook", name)
		case excluded || w.silent[ptr.Deref(m.Spec.ProviderID, "")] || w.sick[name]:
			return
		}
	}
	for _, p := range w.pods() {
		if p.Spec.NodeName == name && p.Labels["app"] == workload {
			complain("instance of %s is deleted under pod %s", name, p.Name)
		}
	}
}

// checkCluster fails when the cluster suffered from us: cordons and evictions
// ahead of a hook, deletions by a check that had no reason.
func (w *world) checkCluster() {
	w.t.Helper()
	w.mu.Lock()
	broken := w.broken
	w.mu.Unlock()
	if len(broken) > 0 {
		w.fail("%s", broken[0])
	}
	cordoned := map[string]string{}
	for _, n := range w.nodes() {
		if by := n.Annotations[telemetry.AnnotationCordonedBy]; n.Spec.Unschedulable || by != "" {
			cordoned[n.Name] = by
		}
	}
	for _, m := range w.machines() {
		w.going[m.Name] = w.going[m.Name] || m.DeletionTimestamp != nil
		w.early[m.Name] = w.early[m.Name] || m.DeletionTimestamp != nil && m.Status.NodeRef == nil
		by, ok := cordoned[m.Name]
		delete(cordoned, m.Name)
		switch {
		case !ok:
		case m.DeletionTimestamp == nil:
			w.fail("node %s is cordoned and its machine is not going", m.Name)
		case by != "machine/"+m.Name:
			w.fail("node %s is cordoned by %q, want its machine", m.Name, by)
		case len(m.Spec.LifecycleHooks.PreDrain) > 0:
			w.fail("node %s is cordoned ahead of a preDrain hook", m.Name)
		}
	}
	for n := range cordoned {
		if w.hasInstance(n) {
			w.fail("node %s is left cordoned, and its machine is gone", n)
		}
	}
}

func (w *world) hasInstance(name string) bool {
	return slices.ContainsFunc(w.cloud.Instances(), func(i cloud.Instance) bool { return i.Key.Name == name })
}

// judge looks at a write on its way: whether the health check deletes what was
// never sick, and whether a drain goes past the budgets although every kubelet
// answers. It must not ask the API.
func (w *world) judge(o memapi.Op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch by, _, _ := strings.Cut(w.actor, " "); {
	case by == actorHealth && o.Verb == "delete" && o.Kind == "Machine" && !w.sick[o.Key.Name] && !w.going[o.Key.Name]:
		w.broken = append(w.broken, fmt.Sprintf("the health check deletes %s, which was never sick", o.Key.Name))
	case by == "machine" && o.Verb == "delete" && o.Kind == "Pod" && len(w.sick) == 0:
		w.broken = append(w.broken, fmt.Sprintf("a drain deletes %s past its budget", o.Key.Name))
	}
}
