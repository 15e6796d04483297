package act_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	machinev1 "github.com/openshift/api/machine/v1beta1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"millwright.io/millwright/internal/act"
	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/memapi"
	"millwright.io/millwright/internal/telemetry"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

type bench struct {
	t      *testing.T
	api    *memapi.API
	scheme *runtime.Scheme
	owner  *machinev1.MachineSet
}

func newBench(t *testing.T, objs ...client.Object) *bench {
	t.Helper()
	b := &bench{t: t, scheme: runtime.NewScheme()}
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, machinev1.AddToScheme} {
		if err := add(b.scheme); err != nil {
			t.Fatal(err)
		}
	}
	set := &machinev1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "set"}}
	b.api = memapi.New(b.scheme, clocktesting.NewFakePassiveClock(start), append(objs, set)...)
	b.owner = set
	b.get(b.owner)
	return b
}

func (b *bench) get(obj client.Object) {
	b.t.Helper()
	if err := b.api.Get(b.t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) machine(name string) *machinev1.Machine {
	return &machinev1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
}

func (b *bench) binding() act.Binding {
	return act.Binding{
		Make: func(a plan.ObjectAction) ([]client.Object, error) {
			m := b.machine(a.(plan.CreateMachine).Name)
			return []client.Object{m}, controllerutil.SetControllerReference(b.owner, m, b.scheme)
		},
		Target: func(a plan.ObjectAction) client.Object {
			//nolint:gochecksumtype // the actions that these tests perform
			switch a := a.(type) {
			case plan.DeleteMachine:
				return b.machine(a.Name)
			case plan.AdoptMachine:
				m := b.machine(a.Name)
				b.get(m)
				return m
			case plan.ApproveRequest:
				c := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: a.Name}}
				b.get(c)
				return c
			default:
				return nil
			}
		},
		Apply: func(obj client.Object, a plan.ObjectAction) error {
			//nolint:gochecksumtype // the actions that these tests perform
			switch a.(type) {
			case plan.AdoptMachine:
				return controllerutil.SetControllerReference(b.owner, obj, b.scheme)
			case plan.AddFinalizer:
				controllerutil.AddFinalizer(obj, "f")
			case plan.RemoveFinalizer:
				controllerutil.RemoveFinalizer(obj, "f")
			default:
			}
			return nil
		},
	}
}

func creates(n int) (out []plan.Action) {
	for i := range n {
		out = append(out, plan.CreateMachine{Name: fmt.Sprintf("m-%02d", i)})
	}
	return out
}

// gauge counts how many creations run at the same time.
type gauge struct {
	now, most atomic.Int32
	mu        sync.Mutex
	names     []string
}

func TestCreatesStartSlowly(t *testing.T) {
	for _, tc := range []struct {
		name, why string
		fail      string
		want      int
	}{
		{"first fails", "one request tells that nothing works", "m-00", 1},
		{"second fails", "its batch is finished: 1+2", "m-01", 3},
		{"sixth fails", "1+2+4", "m-05", 7},
		{"none fails", "all are made", "", 40},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, g := newBench(t), &gauge{}
			c := interceptor.NewClient(b.api, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				n := g.now.Add(1)
				defer g.now.Add(-1)
				for most := g.most.Load(); n > most && !g.most.CompareAndSwap(most, n); most = g.most.Load() {
				}
				g.mu.Lock()
				g.names = append(g.names, obj.GetName())
				g.mu.Unlock()
				if obj.GetName() == tc.fail {
					return apierrors.NewForbidden(machinev1.Resource("machines"), obj.GetName(), errors.New("quota"))
				}
				return c.Create(ctx, obj, opts...)
			}})
			out, err := act.New(c).Run(t.Context(), b.owner, b.binding(), nil, creates(40))
			if len(g.names) != tc.want {
				t.Errorf("%d requests, want %d (%s)", len(g.names), tc.want, tc.why)
			}
			if (err != nil) != (tc.fail != "") || err != nil && (!apierrors.IsForbidden(err) || !strings.HasPrefix(err.Error(), "create machine "+tc.fail)) {
				t.Errorf("got %v", err)
			}
			if want := tc.want - strings.Count(tc.fail, "m-"); len(out.Created) != want || len(out.Done) != want {
				t.Errorf("created %d, done %d, want %d", len(out.Created), len(out.Done), want)
			}
			if m := g.most.Load(); m > act.MaxParallel {
				t.Errorf("%d at once", m)
			}
		})
	}
}

func TestCreateOfWhatExists(t *testing.T) {
	b := newBench(t)
	r := act.New(b.api)
	for range 2 {
		if _, err := r.Run(t.Context(), b.owner, b.binding(), nil, creates(1)); err != nil {
			t.Fatalf("our own counts as success: %v", err)
		}
	}
	if err := b.api.Create(t.Context(), b.machine("m-01")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Run(t.Context(), b.owner, b.binding(), nil, creates(2)); !apierrors.IsAlreadyExists(err) {
		t.Errorf("somebody else's: got %v", err)
	}
}

func TestDeleteMeansOneLife(t *testing.T) {
	m := &machinev1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
	b := newBench(t, m)
	r := act.New(b.api)
	for name, uid := range map[string]string{"another life": "old-uid"} {
		if _, err := r.Run(t.Context(), b.owner, b.binding(), nil, []plan.Action{plan.DeleteMachine{Name: "a", UID: uid}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		b.get(b.machine("a"))
	}
	have := b.machine("a")
	b.get(have)
	for range 2 { // the second finds it gone
		out, err := r.Run(t.Context(), b.owner, b.binding(), nil, []plan.Action{plan.DeleteMachine{Name: "a", UID: string(have.UID)}})
		if err != nil || len(out.Deleted) != 1 {
			t.Errorf("deleted %v, %v", out.Deleted, err)
		}
	}
	if err := b.api.Get(t.Context(), client.ObjectKeyFromObject(have), b.machine("a")); !apierrors.IsNotFound(err) {
		t.Errorf("still there: %v", err)
	}
}

func TestFinalizersAndAdoption(t *testing.T) {
	b := newBench(t, &machinev1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}})
	r := act.New(b.api)
	out, err := r.Run(t.Context(), b.owner, b.binding(), nil, []plan.Action{plan.AddFinalizer{}, plan.AdoptMachine{Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	m := b.machine("a")
	b.get(m)
	if !metav1.IsControlledBy(m, b.owner) || len(b.owner.Finalizers) != 0 || len(out.Object.GetFinalizers()) != 1 {
		t.Errorf("owner refs %v, owner's finalizers %v, outcome's %v", m.OwnerReferences, b.owner.Finalizers, out.Object.GetFinalizers())
	}
	writes := b.api.Writes()
	if _, err := r.Run(t.Context(), out.Object, b.binding(), nil, []plan.Action{plan.AddFinalizer{}, plan.AdoptMachine{Name: "a"}}); err != nil || b.api.Writes() != writes {
		t.Errorf("repeated: %d writes, %v", b.api.Writes()-writes, err)
	}
	// The stale copy has no finalizer yet: the lock refuses it.
	if _, err := r.Run(t.Context(), b.owner, b.binding(), nil, []plan.Action{plan.AddFinalizer{}}); !apierrors.IsConflict(err) {
		t.Errorf("stale copy: got %v, want a conflict", err)
	}
}

func TestNodeActions(t *testing.T) {
	taint := corev1.Taint{Key: "k", Effect: corev1.TaintEffectNoSchedule}
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		if change != nil {
			change(n)
		}
		return n
	}
	ours := func(n *corev1.Node) {
		n.Spec.Unschedulable = true
		n.Annotations = map[string]string{telemetry.AnnotationCordonedBy: "drain"}
	}
	link := plan.LinkNode{Node: "n", Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": "1"}, Taints: []corev1.Taint{taint}}
	for _, tc := range []struct {
		name, why string
		node      *corev1.Node
		do        plan.Action
		want      *corev1.Node
		writes    int
	}{
		{"cordon", "with its author, in one patch", node(nil), plan.CordonNode{Node: "n", By: "drain"}, node(ours), 1},
		{"cordoned by an admin", "it is theirs", node(func(n *corev1.Node) { n.Spec.Unschedulable = true }), plan.CordonNode{Node: "n", By: "drain"}, node(func(n *corev1.Node) { n.Spec.Unschedulable = true }), 0},
		{"uncordon", "ours", node(ours), plan.UncordonNode{Node: "n", By: "drain"}, node(nil), 1},
		{"uncordon another's", "not ours", node(ours), plan.UncordonNode{Node: "n", By: "rollout"}, node(ours), 0},
		{"link", "one patch", node(nil), link, node(func(n *corev1.Node) {
			n.Labels, n.Annotations, n.Spec.Taints = link.Labels, link.Annotations, link.Taints
		}), 1},
		{"linked", "nothing to do", node(func(n *corev1.Node) {
			n.Labels, n.Annotations = map[string]string{"l": "1", "x": "y"}, link.Annotations
			n.Spec.Taints = []corev1.Taint{{Key: "k", Value: "theirs", Effect: corev1.TaintEffectNoSchedule}}
		}), link, node(func(n *corev1.Node) {
			n.Labels, n.Annotations = map[string]string{"l": "1", "x": "y"}, link.Annotations
			n.Spec.Taints = []corev1.Taint{{Key: "k", Value: "theirs", Effect: corev1.TaintEffectNoSchedule}}
		}), 0},
		{"absent", "gone needs nothing", nil, link, nil, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var objs []client.Object
			if tc.node != nil {
				objs = append(objs, tc.node)
			}
			b := newBench(t, objs...)
			if _, err := act.New(b.api).Run(t.Context(), b.owner, act.Binding{}, nil, []plan.Action{tc.do}); err != nil {
				t.Fatal(err)
			}
			if b.api.Writes() != tc.writes {
				t.Errorf("%d writes, want %d (%s)", b.api.Writes(), tc.writes, tc.why)
			}
			if tc.want == nil {
				return
			}
			got := node(nil)
			b.get(got)
			bare := node(nil)
			bare.Labels, bare.Annotations, bare.Spec = got.Labels, got.Annotations, got.Spec
			if len(bare.Annotations) == 0 {
				bare.Annotations = nil
			}
			if d := cmp.Diff(tc.want, bare); d != "" {
				t.Errorf("node (-want +got, %s):\n%s", tc.why, d)
			}
		})
	}
}

func TestEvictionsHeldBackAreAnOutcome(t *testing.T) {
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"app": name}}}
	}
	pdb := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}}
	pdb.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "held"}}
	b := newBench(t, pod("free"), pod("held"), pdb)
	out, err := act.New(b.api).Run(t.Context(), b.owner, act.Binding{}, nil, []plan.Action{
		plan.EvictPod{Namespace: "ns", Name: "free", Grace: -1}, plan.EvictPod{Namespace: "ns", Name: "held", Grace: 0}, plan.EvictPod{Namespace: "ns", Name: "gone", Grace: -1},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Blocked) != 1 || out.Blocked[0].Action.Name != "held" || !strings.Contains(out.Blocked[0].Message, "The disruption budget web needs") {
		t.Errorf("blocked %+v", out.Blocked)
	}
	if err := b.api.Get(t.Context(), client.ObjectKeyFromObject(pod("free")), pod("free")); !apierrors.IsNotFound(err) {
		t.Errorf("the free pod is still there: %v", err)
	}
}

func TestApprovalIsGivenOnce(t *testing.T) {
	b := newBench(t, &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr-1"}})
	for range 2 {
		if _, err := act.New(b.api).Run(t.Context(), b.owner, b.binding(), nil, []plan.Action{plan.ApproveRequest{Name: "csr-1", Reason: "R", Message: "M"}}); err != nil {
			t.Fatal(err)
		}
	}
	if b.api.Writes() != 1 {
		t.Errorf("%d writes, want 1", b.api.Writes())
	}
}

type brokenCloud struct{ cloud.Cloud }

func (brokenCloud) Create(context.Context, cloud.Intent) (cloud.Instance, error) { panic("nil map") }
func (brokenCloud) Delete(context.Context, cloud.Key) error {
	return &cloud.Fault{Kind: cloud.NotFound}
}

func TestCloudActions(t *testing.T) {
	b := newBench(t)
	r := act.New(b.api)
	bind := act.Binding{Intent: func(a plan.CreateInstance) (cloud.Intent, error) { return cloud.Intent{Key: a.Key}, nil }}
	out, err := r.Run(t.Context(), b.owner, bind, brokenCloud{}, []plan.Action{plan.DeleteInstance{}})
	if err != nil || !out.InstanceGone {
		t.Errorf("gone %v, %v", out.InstanceGone, err)
	}
	if _, err := r.Run(t.Context(), b.owner, bind, brokenCloud{}, []plan.Action{plan.CreateInstance{Key: cloud.Key{Name: "a"}}, plan.AddFinalizer{}}); err == nil || err.Error() != "create instance a: panic: nil map" {
		t.Errorf("a panic: got %v", err)
	}
	if _, err := r.Run(t.Context(), b.owner, bind, nil, []plan.Action{plan.DeleteInstance{}}); err == nil {
		t.Error("no cloud, no error")
	}
}
