package act_test

import (
	"testing"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/act"
	"millwright.io/millwright/internal/engine/plan"
)

var podResource = schema.GroupResource{Resource: "pods"}

func appPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
}

func TestAnswersOfTheEvictionAPIAreOutcomes(t *testing.T) {
	for _, r := range []struct {
		name    string
		err     error
		blocked bool
	}{
		{"a webhook refuses", apierrors.NewForbidden(podResource, "p", nil), true},
		{"several budgets", apierrors.NewInternalError(plainError("This pod has more than one PodDisruptionBudget")), true},
		{"a budget is spent", apierrors.NewTooManyRequests("budget", 0), true},
		{"nobody answers in time", apierrors.NewTimeoutError("slow", 1), false},
		{"wrong credentials", apierrors.NewUnauthorized("who"), false},
		{"no connection", plainError("connection refused"), false},
	} {
		t.Run(r.name, func(t *testing.T) {
			b := newBench(t, appPod("p"))
			b.api.FailNext("create", "Pod/eviction", r.err)
			out, err := act.New(b.api).Run(t.Context(), b.owner, act.Binding{}, nil, []plan.Action{plan.EvictPod{Namespace: "ns", Name: "p", Grace: -1}})
			if got := len(out.Blocked) == 1; got != r.blocked || (err == nil) != r.blocked {
				t.Errorf("blocked %v, error %v", out.Blocked, err)
			}
		})
	}
}

type plainError string

func (e plainError) Error() string { return string(e) }

func TestDeletePodSparesTheNextBearerOfItsName(t *testing.T) {
	b := newBench(t, appPod("p"), appPod("q"))
	p := appPod("p")
	b.get(p)
	_, err := act.New(b.api).Run(t.Context(), b.owner, act.Binding{}, nil, []plan.Action{
		plan.DeletePod{Namespace: "ns", Name: "p", UID: string(p.UID), Grace: 0},
		plan.DeletePod{Namespace: "ns", Name: "q", UID: "an older one", Grace: -1},
		plan.DeletePod{Namespace: "ns", Name: "gone", Grace: -1},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.api.Get(t.Context(), client.ObjectKeyFromObject(p), p); !apierrors.IsNotFound(err) {
		t.Errorf("pod p: %v, want not found", err)
	}
	b.get(appPod("q"))
}

func TestRepairsAreRequestedMarkedAndTakenBack(t *testing.T) {
	b := newBench(t)
	m := b.machine("m")
	if err := b.api.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	request := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}}
	binding := act.Binding{
		Make: func(plan.ObjectAction) ([]client.Object, error) { return []client.Object{request.DeepCopy()}, nil },
		Target: func(a plan.ObjectAction) client.Object {
			if _, ok := a.(plan.DeleteRepair); ok {
				return request
			}
			return m
		},
		Apply: func(obj client.Object, _ plan.ObjectAction) error {
			obj.SetAnnotations(map[string]string{"repair": ""})
			return nil
		},
	}
	run := func(a plan.Action) {
		t.Helper()
		for range 2 { // each may be repeated
			if _, err := act.New(b.api).Run(t.Context(), b.owner, binding, nil, []plan.Action{a}); err != nil {
				t.Fatalf("%s: %v", a, err)
			}
		}
	}
	run(plan.CreateRepair{Name: "m"})
	b.get(request.DeepCopy())
	run(plan.MarkForRepair{Name: "m"})
	marked := &machinev1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}}
	if b.get(marked); len(marked.Annotations) != 1 {
		t.Errorf("annotations %v", marked.Annotations)
	}
	run(plan.DeleteRepair{Name: "m"})
	if err := b.api.Get(t.Context(), client.ObjectKeyFromObject(request), request.DeepCopy()); !apierrors.IsNotFound(err) {
		t.Errorf("request: %v, want not found", err)
	}
}
