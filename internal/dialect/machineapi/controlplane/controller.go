// Package controlplane holds the controllers of the ControlPlaneMachineSet of
// the Machine API: one translates the set and the control plane Machines for
// engine/controlplane and back, one generates an inactive set for a control
// plane that has none. What is replaced when, and what the counters say, is
// decided in the engine.
//
// They create, adopt, release and delete control plane Machines, write the
// set and its status, and keep the ClusterOperator control-plane-machine-set.
// They must never touch a Machine that another controller owns, any Machine
// while the set is inactive, or a Node.
//
//	for _, c := range controlplane.New(controlplane.Deps{Client: mgr.GetClient(), …}) {
//		err = c.Setup(mgr)
//	}
package controlplane

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"millwright.io/millwright/internal/act"
	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/engine/controlplane"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/observe"
)

//+kubebuilder:rbac:groups=machine.openshift.io,resources=controlplanemachinesets,verbs=get;list;watch;create;patch;update,namespace=openshift-machine-api
//+kubebuilder:rbac:groups=machine.openshift.io,resources=controlplanemachinesets/status,verbs=get;patch;update,namespace=openshift-machine-api
//+kubebuilder:rbac:groups=machine.openshift.io,resources=controlplanemachinesets/finalizers,verbs=update,namespace=openshift-machine-api
//+kubebuilder:rbac:groups=machine.openshift.io,resources=machines,verbs=get;list;watch;create;patch;update;delete,namespace=openshift-machine-api
//+kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
//+kubebuilder:rbac:groups="",resources=events,verbs=create;patch;update,namespace=openshift-machine-api
//+kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch;update,namespace=openshift-machine-api
//+kubebuilder:rbac:groups=config.openshift.io,resources=clusteroperators,verbs=get;list;watch;create
//+kubebuilder:rbac:groups=config.openshift.io,resources=clusteroperators/status,verbs=patch
//+kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;create;update;patch,namespace=openshift-machine-api

// Deps are what the controllers need. All are required.
type Deps struct {
	Client  client.Client   // writes; reads come from its cache
	Live    client.Reader   // asks the server itself
	Codec   cloud.SpecCodec // of the cluster's platform
	Clock   clock.PassiveClock
	Log     logr.Logger
	Version string // told by the ClusterOperator
}

type controller struct {
	Deps
	act     *act.Runner
	overlay *observe.Overlay
}

// New returns the controllers: of the set and of its generation. The codec
// must be a cloud.ControlPlaneCodec for anything to be compared or generated.
func New(d Deps) []kube.Controller {
	overlay := observe.NewOverlay(d.Clock)
	c := &controller{Deps: d, overlay: overlay, act: act.New(d.Client, act.WithLiveReader(d.Live), act.WithMemory(overlay))}
	sets := kube.Controller{
		Name: nameSets, For: &machinev1.ControlPlaneMachineSet{}, Changed: setChanged, Workers: 1,
		Watches: append(watches(), kube.Watch{Object: &configv1.ClusterOperator{}, Map: ofOperator}),
		Decide:  c.preview, Reconcile: c.reconcile,
	}
	generator := kube.Controller{
		Name: nameGenerator, For: &machinev1.ControlPlaneMachineSet{}, Workers: 1,
		Watches: watches(), Decide: c.previewGeneration, Reconcile: c.generate,
	}
	return []kube.Controller{sets, generator}
}

// preview observes and decides.
func (c *controller) preview(ctx context.Context, r client.Reader, key types.NamespacedName) (plan.Erased, error) {
	set, err := c.get(ctx, r, key)
	if set == nil || err != nil {
		return plan.Erased{}, err
	}
	p, err := c.observe(ctx, r, set)
	if err != nil {
		return plan.Erased{}, fmt.Errorf("observe control plane: %w", err)
	}
	d, err := c.decide(ctx, r, p)
	return plan.Erase(d), err
}

// reconcile moves the control plane a step towards its set.
func (c *controller) reconcile(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	set, err := c.get(ctx, c.Client, key)
	if err != nil || key.Name != Name {
		return reconcile.Result{}, err
	}
	if set == nil {
		return kube.Result(0, c.face(ctx, nil))
	}
	p, err := c.observe(ctx, c.Client, set)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("observe control plane: %w", err)
	}
	d, err := c.decide(ctx, c.Client, p)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("decide control plane: %w", err)
	}
	kube.LogNotes(c.Log, d.Notes)
	_, actErr := c.act.Run(ctx, set, binding(p, d.Status), nil, d.Actions)
	if set.DeletionTimestamp != nil {
		return kube.Result(d.Wake, actErr, c.face(ctx, nil))
	}
	return kube.Result(d.Wake, actErr, c.report(ctx, set, d))
}

// get returns the set, nil when there is none.
func (c *controller) get(ctx context.Context, r client.Reader, key types.NamespacedName) (*machinev1.ControlPlaneMachineSet, error) {
	var set machinev1.ControlPlaneMachineSet
	if err := r.Get(ctx, key, &set); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return &set, nil
}

// decide runs the planner, until the names it wants are nobody's, and adds
// this dialect's words.
func (c *controller) decide(ctx context.Context, r client.Reader, p picture) (plan.Decision[controlplane.Status], error) {
	for {
		d := controlplane.Decide(p.in)
		taken := len(p.in.Taken)
		for _, a := range d.Actions {
			create, ok := a.(plan.CreateMachine)
			if !ok {
				continue
			}
			var m machinev1beta1.Machine
			err := r.Get(ctx, client.ObjectKey{Namespace: p.set.Namespace, Name: create.Name}, &m, client.UnsafeDisableDeepCopy)
			switch {
			case err == nil:
				p.in.Taken = append(p.in.Taken, create.Name)
			case !apierrors.IsNotFound(err):
				return d, fmt.Errorf("get machine %s: %w", create.Name, err)
			}
		}
		if len(p.in.Taken) == taken {
			d.Notes = notes(p, d)
			return d, nil
		}
	}
}

// notes are the log lines of what a decision is about to do.
func notes(p picture, d plan.Decision[controlplane.Status]) []plan.Note {
	var out []plan.Note
	for _, a := range d.Actions {
		switch a := a.(type) {
		case plan.CreateMachine:
			out = append(out, plan.Note{Message: fmt.Sprintf("%s index=%d namespace=%s name=%s", textCreated, controlplane.IndexOf(a.Name), p.set.Namespace, a.Name)})
		case plan.DeleteMachine:
			out = append(out, plan.Note{Message: fmt.Sprintf("%s index=%d namespace=%s name=%s", textRemoving, controlplane.IndexOf(a.Name), p.set.Namespace, a.Name)})
		}
	}
	return out
}

// binding says how the actions look in this dialect.
func binding(p picture, st controlplane.Status) act.Binding {
	target := func(name string) client.Object {
		if m := p.machines[name]; m != nil {
			return m
		}
		return &machinev1beta1.Machine{ObjectMeta: metaOf(p.set.Namespace, name)}
	}
	return act.Binding{
		Make: func(a plan.ObjectAction) ([]client.Object, error) {
			create, ok := a.(plan.CreateMachine)
			if !ok {
				return nil, fmt.Errorf("a control plane machine set makes nothing for %s", a)
			}
			m, err := newMachine(p, create.Name, st.Placed[create.Name])
			return []client.Object{m}, err
		},
		Target: func(a plan.ObjectAction) client.Object {
			switch a := a.(type) {
			case plan.DeleteMachine:
				return target(a.Name)
			case plan.AdoptMachine:
				return target(a.Name)
			case plan.ReleaseMachine:
				return target(a.Name)
			}
			return nil
		},
		Apply: func(obj client.Object, a plan.ObjectAction) error {
			switch a.(type) {
			case plan.AddFinalizer:
				controllerutil.AddFinalizer(obj, Finalizer)
			case plan.RemoveFinalizer:
				controllerutil.RemoveFinalizer(obj, Finalizer)
			case plan.AdoptMachine:
				obj.SetOwnerReferences(append(obj.GetOwnerReferences(), ownerReference(p.set)))
			case plan.ReleaseMachine:
				obj.SetOwnerReferences(without(obj.GetOwnerReferences(), p.set.UID))
			default:
				return fmt.Errorf("a control plane machine set changes nothing for %s", a)
			}
			return nil
		},
	}
}

// report writes the status, unless it says all of this already, and the
// ClusterOperator.
func (c *controller) report(ctx context.Context, set *machinev1.ControlPlaneMachineSet, d plan.Decision[controlplane.Status]) error {
	// The finalizer may just have been added: the lock needs what is there now.
	var now machinev1.ControlPlaneMachineSet
	if err := c.Live.Get(ctx, client.ObjectKeyFromObject(set), &now); err != nil {
		return client.IgnoreNotFound(err)
	}
	after := now.DeepCopy()
	after.Status.Replicas = int32(d.Status.Replicas)
	after.Status.ReadyReplicas = int32(d.Status.Ready)
	after.Status.UpdatedReplicas = int32(d.Status.Updated)
	after.Status.UnavailableReplicas = int32(d.Status.Unavailable)
	after.Status.ObservedGeneration = d.Status.Generation
	after.Status.Conditions = kube.SetConditions(now.Status.Conditions, explained(d), d.Status.Generation, c.Clock.Now())
	if err := kube.PatchStatus(ctx, c.Client, &now, after, kube.OptimisticLock()); err != nil {
		return err
	}
	return c.face(ctx, after)
}

// explained appends to the progress what it waits for.
func explained(d plan.Decision[controlplane.Status]) []plan.Condition {
	out := make([]plan.Condition, 0, len(d.Conditions))
	for _, c := range d.Conditions {
		if c.Type == controlplane.Progressing && c.Status == corev1.ConditionTrue && d.Status.Waits != "" {
			c.Message += "; " + d.Status.Waits
		}
		if c.Reason == "" {
			c.Reason = reasonAsExpected
		}
		out = append(out, c)
	}
	return out
}

// watches are what wakes the set beside itself: control plane Machines and
// Nodes.
func watches() []kube.Watch {
	return []kube.Watch{
		{Object: &machinev1beta1.Machine{}, Map: ofMachine, Changed: kube.Typed(machineMatters)},
		{Object: &corev1.Node{}, Map: ofNode, Changed: kube.Typed(nodeMatters)},
	}
}

var theSet = []types.NamespacedName{{Namespace: wire.Namespace, Name: Name}}

func ofMachine(_ context.Context, _ client.Reader, o client.Object) []types.NamespacedName {
	if o.GetNamespace() != wire.Namespace || o.GetLabels()[wire.LabelMachineRole] != wire.RoleMaster {
		return nil
	}
	return theSet
}

func ofNode(_ context.Context, _ client.Reader, o client.Object) []types.NamespacedName {
	if !isControlPlane(o) {
		return nil
	}
	return theSet
}

func ofOperator(_ context.Context, _ client.Reader, o client.Object) []types.NamespacedName {
	if o.GetName() != ClusterOperator {
		return nil
	}
	return theSet
}

func isControlPlane(node client.Object) bool {
	_, master := node.GetLabels()[wire.NodeRoleMaster]
	_, plane := node.GetLabels()[wire.NodeRoleControlPlane]
	return master || plane
}
