package pool_test

import (
	"slices"
	"testing"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineconfig/wire"
)

// woken are the pools that a change looks at, as a manager maps it.
func (w *world) woken(old, new client.Object) []string {
	w.t.Helper()
	var out []string
	for _, watch := range w.pools.Watches {
		if obj := new; !sameKind(watch.Object, obj) || old != nil && watch.Changed != nil && !watch.Changed(old, obj) {
			continue
		}
		for _, obj := range []client.Object{old, new} {
			if obj == nil {
				continue
			}
			for _, k := range watch.Map(w.t.Context(), w.cache, obj) {
				out = append(out, k.Name)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func sameKind(a, b client.Object) bool {
	switch a.(type) {
	case *corev1.Node:
		_, ok := b.(*corev1.Node)
		return ok
	case *machineconfigv1.MachineConfigPool:
		_, ok := b.(*machineconfigv1.MachineConfigPool)
		return ok
	}
	return false
}

func TestChangesWakeThePoolsTheyConcern(t *testing.T) {
	infra := poolNamed("infra", configB)
	w := newWorld(t, append(workers(1), infra, poolNamed(wire.PoolMaster, configA), poolNamed(wire.PoolArbiter, configA))...)
	node := func(edits ...func(*corev1.Node)) *corev1.Node { return nodeOf("w-0", "worker", configA, edits...) }
	inInfra := func(n *corev1.Node) { n.Labels[wire.NodeRolePrefix+"infra"] = "" }
	inMaster := func(n *corev1.Node) { n.Labels[wire.NodeRolePrefix+"master"] = "" }
	rows := []struct {
		name     string
		old, new client.Object
		want     []string
	}{
		{"heartbeat", node(), node(func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(start) }), nil},
		{"not ready", node(), node(func(n *corev1.Node) { n.Status.Conditions[0].Status = "False" }), []string{"worker"}},
		{"state", node(), node(func(n *corev1.Node) { n.Annotations[wire.AnnotationState] = "Working" }), []string{"worker"}},
		{"a wish for a drain", node(), node(func(n *corev1.Node) { n.Annotations[wire.AnnotationDesiredDrain] = "drain-x" }), nil},
		{"a node changes pools", node(), node(inInfra), []string{"infra", "worker"}},
		{"a member of the control plane", node(inMaster), node(inMaster, func(n *corev1.Node) { n.Spec.Unschedulable = true }), []string{"arbiter", "master"}},
		{"a new pool", nil, infra, []string{"arbiter", "infra", "master", "worker"}},
		{"another target", infra, poolNamed("infra", configC), nil},
		{"another selector", infra, poolNamed("infra", configB, func(p *machineconfigv1.MachineConfigPool) { p.Spec.NodeSelector = nil }), []string{"arbiter", "infra", "master", "worker"}},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			if got := w.woken(r.old, r.new); !slices.Equal(got, r.want) {
				t.Errorf("woken %v, want %v", got, r.want)
			}
		})
	}
}
