package kube_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"millwright.io/millwright/internal/act"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/memapi"
	"millwright.io/millwright/internal/testenv"
)

// The sample controller keeps one ConfigMap per key of a source ConfigMap,
// named <source>-<key>, and counts them on the source. It uses the plumbing as
// the dialects do: an index, a watch, actions, a patch.
const (
	sampleLabel  = "sample.millwright.io/source"
	sampleCount  = "sample.millwright.io/count"
	sampleOwner  = "sample.owner"
	sampleSource = "source"
)

type sample struct{ c client.Client }

func (s sample) controller() kube.Controller {
	return kube.Controller{
		Name:      "sample",
		For:       &corev1.ConfigMap{},
		Workers:   2,
		Reconcile: s.reconcile,
		Decide: func(ctx context.Context, r client.Reader, key types.NamespacedName) (plan.Erased, error) {
			_, d, err := s.decide(ctx, r, key)
			return plan.Erase(d), err
		},
		Indexes: []kube.Index{{Object: &corev1.ConfigMap{}, Field: sampleOwner, Extract: func(o client.Object) []string {
			if ref := metav1.GetControllerOf(o); ref != nil {
				return []string{ref.Name}
			}
			return nil
		}}},
		Watches: []kube.Watch{{Object: &corev1.ConfigMap{}, Map: func(_ context.Context, _ client.Reader, o client.Object) []types.NamespacedName {
			if ref := metav1.GetControllerOf(o); ref != nil {
				return []types.NamespacedName{{Namespace: o.GetNamespace(), Name: ref.Name}}
			}
			return nil
		}}},
	}
}

func (s sample) decide(ctx context.Context, r client.Reader, key types.NamespacedName) (*corev1.ConfigMap, plan.Decision[int], error) {
	var src corev1.ConfigMap
	var d plan.Decision[int]
	if err := r.Get(ctx, key, &src); err != nil || src.Labels[sampleLabel] == "" {
		return nil, d, client.IgnoreNotFound(err)
	}
	var have corev1.ConfigMapList
	if err := r.List(ctx, &have, client.InNamespace(key.Namespace), client.MatchingFields{sampleOwner: key.Name}); err != nil {
		return nil, d, err
	}
	present := map[string]bool{}
	for _, h := range have.Items {
		k := strings.TrimPrefix(h.Name, src.Name+"-")
		if _, want := src.Data[k]; !want && h.DeletionTimestamp == nil {
			d.Actions = append(d.Actions, plan.DeleteMachine{Name: h.Name, UID: string(h.UID)})
		}
		present[k] = true
	}
	for _, k := range slices.Sorted(maps.Keys(src.Data)) {
		if !present[k] {
			d.Actions = append(d.Actions, plan.CreateMachine{Name: src.Name + "-" + k})
		}
	}
	d.Status = len(src.Data)
	return &src, d, nil
}

func (s sample) reconcile(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	src, d, err := s.decide(ctx, s.c, key)
	if err != nil || src == nil {
		return reconcile.Result{}, err
	}
	bind := act.Binding{
		Make: func(a plan.ObjectAction) ([]client.Object, error) {
			o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: src.Namespace, Name: a.(plan.CreateMachine).Name}}
			return []client.Object{o}, controllerutil.SetControllerReference(src, o, s.c.Scheme())
		},
		Target: func(a plan.ObjectAction) client.Object {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: src.Namespace, Name: a.(plan.DeleteMachine).Name}}
		},
	}
	_, actErr := act.New(s.c).Run(ctx, src, bind, nil, d.Actions)
	after := src.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, sampleCount, fmt.Sprint(d.Status))
	return kube.Result(d.Wake, actErr, kube.Patch(ctx, s.c, src, after))
}

// sampleStory is what people do to the source, one step after the other.
var sampleStory = []map[string]string{
	{"a": "1", "b": "1", "c": "1", "d": "1"},
	{"a": "1", "d": "2"},
	{"a": "1", "e": "1"},
}

func sampleSourceMap(ns string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: sampleSource, Labels: map[string]string{sampleLabel: "yes"}}}
}

// sampleState prints what is there: names, owners and the count.
func sampleState(ctx context.Context, r client.Reader, ns string) (string, error) {
	var l corev1.ConfigMapList
	if err := r.List(ctx, &l, client.InNamespace(ns)); err != nil {
		return "", err
	}
	var out []string
	for _, c := range l.Items {
		if c.Name != sampleSource && metav1.GetControllerOf(&c) == nil {
			continue // kube-root-ca.crt and the like
		}
		line := c.Name + " count=" + c.Annotations[sampleCount]
		if ref := metav1.GetControllerOf(&c); ref != nil {
			line += " owner=" + ref.Kind + "/" + ref.Name
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return strings.Join(out, "\n"), nil
}

func TestSampleControllerDoesTheSameInMemoryAndOnAServer(t *testing.T) {
	stepped := sampleStepped(t)
	env := testenv.Start(t, testenv.WithFamilies())
	ns := env.Namespace(t)
	mgr, err := kube.NewManager(env.Config, kube.ManagerOptions{Component: "sample", Scheme: clientgoscheme.Scheme, Namespaces: []string{ns}, Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	if err := (sample{mgr.GetClient()}).controller().Setup(mgr); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	src := sampleSourceMap(ns)
	if err := env.Client.Create(ctx, src); err != nil {
		t.Fatal(err)
	}
	for i, data := range sampleStory {
		before := src.DeepCopy()
		src.Data = data
		if err := kube.Patch(ctx, env.Client, before, src); err != nil {
			t.Fatal(err)
		}
		got := ""
		for deadline := time.Now().Add(30 * time.Second); got != stepped[i] && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			if got, err = sampleState(ctx, env.Client, ns); err != nil {
				t.Fatal(err)
			}
		}
		if d := cmp.Diff(stepped[i], got); d != "" {
			t.Errorf("step %d: the server differs (-memory +server):\n%s", i, d)
		}
	}
}

// sampleStepped returns the state after each step of the story, in memory.
func sampleStepped(t *testing.T) []string {
	t.Helper()
	api := memapi.New(newScheme(t), clocktesting.NewFakePassiveClock(start), sampleSourceMap("ns"))
	c := sample{api}.controller()
	if err := kube.AddIndexes(t.Context(), api, c.Indexes...); err != nil {
		t.Fatal(err)
	}
	key := types.NamespacedName{Namespace: "ns", Name: sampleSource}
	var out []string
	for _, data := range sampleStory {
		src := &corev1.ConfigMap{}
		if err := api.Get(t.Context(), key, src); err != nil {
			t.Fatal(err)
		}
		src.Data = data
		if err := api.Update(t.Context(), src); err != nil {
			t.Fatal(err)
		}
		for writes := -1; writes != api.Writes(); {
			writes = api.Writes()
			if _, err := c.Step(t.Context(), key); err != nil && !apierrors.IsConflict(err) {
				t.Fatal(err)
			}
		}
		state, err := sampleState(t.Context(), api, "ns")
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, state)
	}
	if !strings.Contains(out[2], "source-e count= owner=ConfigMap/source") || strings.Contains(out[2], "source-d ") {
		t.Fatalf("the story ended as\n%s", out[2])
	}
	return out
}
