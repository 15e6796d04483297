package memapi_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestCacheShowsAPrefixOfEachKind(t *testing.T) {
	api, _ := newAPI(t)
	c := api.NewCache()
	cl := c.Client()
	for _, n := range []string{"a", "b", "c"} {
		if err := cl.Create(t.Context(), machine(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := cl.Delete(t.Context(), machine("a")); err != nil {
		t.Fatal(err)
	}
	names := func() (out []string) {
		var l machinev1beta1.MachineList
		if err := cl.List(t.Context(), &l, client.InNamespace("ns")); err != nil {
			t.Fatal(err)
		}
		for _, m := range l.Items {
			out = append(out, m.Name)
		}
		return out
	}
	gvk := machinev1beta1.GroupVersion.WithKind("Machine")
	if err := cl.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "a"}, machine("a")); !apierrors.IsNotFound(err) {
		t.Errorf("before any event: got %v, want not found", err)
	}
	var got [][]string
	for len(c.Behind()) > 0 {
		c.Advance(gvk, 2)
		got = append(got, names())
	}
	if d := cmp.Diff([][]string{{"a", "b"}, {"b", "c"}}, got); d != "" {
		t.Errorf("shown (-want +got):\n%s", d)
	}
}

func TestCacheReadersGetCopies(t *testing.T) {
	api, _ := newAPI(t, machine("a"))
	c := api.NewCache()
	m := get(t, c, machine("a"))
	m.Labels = map[string]string{"x": "1"}
	if l := get(t, c, machine("a")).Labels; len(l) > 0 {
		t.Errorf("a reader changed the cache: %v", l)
	}
}

func TestCacheServesEveryForm(t *testing.T) {
	m := machine("a")
	m.Labels = map[string]string{"x": "1"}
	api, _ := newAPI(t, m)
	c := api.NewCache()
	gvk := machinev1beta1.GroupVersion.WithKind("Machine")
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(m), u); err != nil || u.GetLabels()["x"] != "1" {
		t.Errorf("unstructured: %v, %v", u.GetLabels(), err)
	}
	p := &metav1.PartialObjectMetadataList{}
	p.SetGroupVersionKind(gvk)
	if err := c.List(t.Context(), p, client.MatchingLabels{"x": "1"}); err != nil || len(p.Items) != 1 {
		t.Errorf("metadata: %d items, %v", len(p.Items), err)
	}
}
