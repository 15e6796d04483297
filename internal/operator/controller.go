package operator

import (
	"context"
	"fmt"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/kube"
)

//+kubebuilder:rbac:groups=config.openshift.io,resources=clusteroperators,verbs=get;list;watch;create
//+kubebuilder:rbac:groups=config.openshift.io,resources=clusteroperators/status,verbs=patch
//+kubebuilder:rbac:groups=config.openshift.io,resources=clusterversions,verbs=get;list;watch
//+kubebuilder:rbac:groups=apps,resources=deployments;daemonsets,verbs=get;list;watch
//+kubebuilder:rbac:groups="",resources=events,verbs=create;patch;update
//+kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch;update
//+kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;create;update;patch,namespace=openshift-machine-api
//+kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;create;update;patch,namespace=openshift-cloud-controller-manager-operator

// faceController keeps the ClusterOperators of one controller name.
type faceController struct {
	name   string
	faces  []Face
	client client.Client
	clock  clock.PassiveClock
}

// New returns the controller of that name; see Faces.
func New(name string, c client.Client, clk clock.PassiveClock) kube.Controller {
	f := &faceController{name: name, faces: Faces(name), client: c, clock: clk}
	out := kube.Controller{
		Name:    name,
		For:     &configv1.ClusterOperator{},
		Changed: func(_, _ client.Object) bool { return true },
		Watches: []kube.Watch{
			{Object: &appsv1.Deployment{}, Map: f.ofWorkload},
			{Object: &appsv1.DaemonSet{}, Map: f.ofWorkload},
			{Object: &configv1.ClusterVersion{}, Map: f.all},
		},
		Workers:   1,
		Decide:    f.decide,
		Reconcile: f.reconcile,
	}
	if slices.ContainsFunc(f.faces, func(x Face) bool { return x.Pools }) {
		out.Watches = append(out.Watches, kube.Watch{Object: &mcfgv1.MachineConfigPool{}, Map: f.all})
	}
	return out
}

func (f *faceController) all(context.Context, client.Reader, client.Object) []types.NamespacedName {
	var out []types.NamespacedName
	for _, face := range f.faces {
		out = append(out, types.NamespacedName{Name: face.Name})
	}
	return out
}

func (f *faceController) ofWorkload(_ context.Context, _ client.Reader, o client.Object) []types.NamespacedName {
	var out []types.NamespacedName
	for _, face := range f.faces {
		if face.Namespace == o.GetNamespace() && (slices.Contains(face.Deployments, o.GetName()) || slices.Contains(face.DaemonSets, o.GetName())) {
			out = append(out, types.NamespacedName{Name: face.Name})
		}
	}
	return out
}

func (f *faceController) face(name string) (Face, bool) {
	i := slices.IndexFunc(f.faces, func(x Face) bool { return x.Name == name })
	if i < 0 {
		return Face{}, false
	}
	return f.faces[i], true
}

// decide implements kube.Controller's preview.
func (f *faceController) decide(ctx context.Context, r client.Reader, key types.NamespacedName) (plan.Erased, error) {
	face, ok := f.face(key.Name)
	if !ok {
		return plan.Erased{}, nil
	}
	in, _, err := f.observe(ctx, r, face)
	if err != nil {
		return plan.Erased{}, err
	}
	status, wake := face.decide(in)
	return plan.Erased{Status: status, Wake: wake}, nil
}

func (f *faceController) reconcile(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	face, ok := f.face(key.Name)
	if !ok {
		return reconcile.Result{}, nil // another operator's
	}
	in, op, err := f.observe(ctx, f.client, face)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("observe cluster operator: %w", err)
	}
	status, wake := face.decide(in)
	return kube.Result(wake, f.report(ctx, op, status))
}

// observe reads the ClusterOperator (a new one when there is none), the
// version and the workloads.
func (f *faceController) observe(ctx context.Context, r client.Reader, face Face) (observed, *configv1.ClusterOperator, error) {
	in := observed{now: f.clock.Now()}
	op := &configv1.ClusterOperator{ObjectMeta: metav1.ObjectMeta{Name: face.Name}}
	if err := r.Get(ctx, client.ObjectKeyFromObject(op), op); err != nil && !apierrors.IsNotFound(err) {
		return in, nil, fmt.Errorf("read cluster operator %s: %w", face.Name, err)
	}
	in.current = op.Status
	var version configv1.ClusterVersion
	if err := r.Get(ctx, client.ObjectKey{Name: "version"}, &version); err != nil {
		return in, nil, fmt.Errorf("read cluster version: %w", err)
	}
	in.version = version.Status.Desired.Version
	var ds appsv1.DeploymentList
	if err := r.List(ctx, &ds, client.InNamespace(face.Namespace)); err != nil {
		return in, nil, fmt.Errorf("list deployments: %w", err)
	}
	var dms appsv1.DaemonSetList
	if err := r.List(ctx, &dms, client.InNamespace(face.Namespace)); err != nil {
		return in, nil, fmt.Errorf("list daemon sets: %w", err)
	}
	in.deployments, in.daemonSets = ds.Items, dms.Items
	if face.Pools {
		var pools mcfgv1.MachineConfigPoolList
		if err := r.List(ctx, &pools); err != nil {
			return in, nil, fmt.Errorf("list pools: %w", err)
		}
		in.pools = pools.Items
	}
	return in, op, nil
}

// report writes what differs; a ClusterOperator that is missing is made.
func (f *faceController) report(ctx context.Context, op *configv1.ClusterOperator, status configv1.ClusterOperatorStatus) error {
	if op.UID == "" {
		op.Annotations = map[string]string{"include.release.openshift.io/self-managed-high-availability": "true"}
		if err := f.client.Create(ctx, op); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create cluster operator %s: %w", op.Name, err)
		}
		if op.UID == "" {
			return nil // the cache does not show it yet; its event comes
		}
	}
	if equality.Semantic.DeepEqual(op.Status, status) {
		return nil
	}
	after := op.DeepCopy()
	after.Status = status
	return kube.PatchStatus(ctx, f.client, op, after)
}
