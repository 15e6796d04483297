package machineset

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A first status of zero replicas is written out, or CURRENT would stay blank;
// later ones are compared with what is there.
func TestFirstStatusTellsZero(t *testing.T) {
	set := &machinev1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "workers", Generation: 2}}
	for _, r := range []struct {
		name     string
		observed int64
		want     map[string]any
	}{
		{"first", 0, map[string]any{"status": map[string]any{"replicas": 0.0, "observedGeneration": 2.0}}},
		{"later", 1, map[string]any{"status": map[string]any{"observedGeneration": 2.0}}},
	} {
		set.Status.ObservedGeneration = r.observed
		before, err := written(set)
		if err != nil {
			t.Fatal(err)
		}
		after := set.DeepCopy()
		after.Status.ObservedGeneration = 2
		raw, err := client.MergeFrom(before).Data(after)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		delete(got, "metadata")
		delete(got, "spec")
		if diff := cmp.Diff(r.want, got); diff != "" {
			t.Errorf("%s: patch (-want +got)\n%s", r.name, diff)
		}
	}
}
