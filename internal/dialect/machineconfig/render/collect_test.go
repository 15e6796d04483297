package render_test

import (
	"slices"
	"strings"
	"testing"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright.io/millwright/internal/dialect/machineconfig/wire"
)

// TestCollectionSparesEveryReference: what an annotation of a Node, a node's
// record of its disk or another pool names stays, however old it is.
func TestCollectionSparesEveryReference(t *testing.T) {
	w := newWorld(t)
	w.settle()
	mc := file("99-worker-a", "worker", "/etc/a", "0", 0o644)
	w.create(mc)
	var made []string
	again := func() {
		t.Helper()
		mc := w.config("99-worker-a")
		mc.Spec.KernelArguments = []string{strings.Repeat("x", len(made)+1)}
		if err := w.api.Update(t.Context(), mc); err != nil {
			t.Fatal(err)
		}
		w.settle()
		made = append(made, w.pool("worker").Spec.Configuration.Name)
	}
	again()
	for i, key := range []string{wire.AnnotationCurrentConfig, wire.AnnotationDesiredConfig, wire.AnnotationFirstPivotConfig} {
		w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: key[strings.Index(key, "/")+1:], Annotations: map[string]string{key: made[i]}}})
		again()
	}
	record := &machineconfigv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	record.Spec.ConfigVersion.Desired = made[3]
	w.create(record)
	again()
	record.Status.ConfigVersion = &machineconfigv1.MachineConfigNodeStatusMachineConfigVersion{Current: made[4], Desired: made[3]}
	if err := w.api.Status().Update(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	needed := slices.Clone(made)
	for range keep + 4 {
		again()
	}
	left := w.names(renderedFor("worker"))
	for _, n := range needed {
		if !slices.Contains(left, n) {
			t.Errorf("%s is gone, though somebody names it", n)
		}
	}
	if want := len(needed) + keep + 1; len(left) != want {
		t.Errorf("%d are left, want %d", len(left), want)
	}
}
