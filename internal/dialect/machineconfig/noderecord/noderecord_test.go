package noderecord

import (
	"context"
	"testing"
	"time"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/memapi"
)

func TestEveryNodeOfAPoolHasOneRecord(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, machineconfigv1.Install} {
		utilruntime.Must(add(scheme))
	}
	pool := func(name string) *machineconfigv1.MachineConfigPool {
		return &machineconfigv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: machineconfigv1.MachineConfigPoolSpec{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" + name: ""}}}}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"node-role.kubernetes.io/worker": ""}}}
	stranger := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "stranger"}}
	api := memapi.New(scheme, clocktesting.NewFakeClock(time.Unix(0, 0)), pool("worker"), pool("infra"), node, stranger)
	ctx := context.Background()
	step := func(name string) {
		t.Helper()
		if _, err := New(Deps{api}).Step(ctx, types.NamespacedName{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	record := func(name string) (*machineconfigv1.MachineConfigNode, error) {
		var m machineconfigv1.MachineConfigNode
		return &m, api.Get(ctx, client.ObjectKey{Name: name}, &m)
	}
	step("n")
	step("stranger")
	m, err := record("n")
	if err != nil || m.Spec.Pool.Name != "worker" || m.Spec.Node.Name != "n" || m.Spec.ConfigVersion.Desired != notYetSet {
		t.Fatalf("record %+v, %v", m.Spec, err)
	}
	if _, err := record("stranger"); !apierrors.IsNotFound(err) {
		t.Errorf("a node of no pool has a record: %v", err)
	}
	if err := api.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil {
		t.Fatal(err)
	}
	node.Labels["node-role.kubernetes.io/infra"] = ""
	node.Annotations = map[string]string{"machineconfiguration.openshift.io/desiredConfig": "rendered-infra-a"}
	if err := api.Update(ctx, node); err != nil {
		t.Fatal(err)
	}
	step("n")
	if m, err = record("n"); err != nil || m.Spec.Pool.Name != "infra" || m.Spec.ConfigVersion.Desired != "rendered-infra-a" {
		t.Errorf("after joining a pool: %+v, %v", m.Spec, err)
	}
	writes := api.Writes()
	step("n")
	if api.Writes() != writes {
		t.Error("an unchanged node was written")
	}
	if err := api.Delete(ctx, node); err != nil {
		t.Fatal(err)
	}
	step("n")
	if _, err := record("n"); !apierrors.IsNotFound(err) {
		t.Errorf("the record outlived its node: %v", err)
	}
}
