// Package healthcheck is the MachineHealthCheck controller of the Machine
// API: it translates a check, the Machines it selects and their Nodes for
// engine/health, and performs and reports what is decided there. Its wire
// strings are in dialect/machineapi/wire and in the engine's own table.
//
// It deletes Machines, marks them for somebody else's repair, and writes a
// MachineHealthCheck's status. It must never touch a Node, or a Machine that
// engine/health did not name.
//
//	c := healthcheck.New(healthcheck.Deps{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), …})
//	err := c.Setup(mgr)
package healthcheck

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	machinev1 "github.com/openshift/api/machine/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"millwright.io/millwright/internal/act"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/engine/health"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/observe"
)

// The roles of this controller. Whose repair templates it may use beside
// these is the administrator's to grant.
//
//+kubebuilder:rbac:groups=machine.openshift.io,resources=machinehealthchecks,verbs=get;list;watch,namespace=openshift-machine-api
//+kubebuilder:rbac:groups=machine.openshift.io,resources=machinehealthchecks/status,verbs=patch,namespace=openshift-machine-api
//+kubebuilder:rbac:groups=machine.openshift.io,resources=machines,verbs=get;list;watch;patch;delete,namespace=openshift-machine-api
//+kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
//+kubebuilder:rbac:groups=machine.openshift.io,resources=machinesets,verbs=get;list;patch,namespace=openshift-machine-api
//+kubebuilder:rbac:groups=machine.openshift.io,resources=controlplanemachinesets,verbs=get;patch,namespace=openshift-machine-api
//+kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfigpools,verbs=get;list;patch
//+kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3remediationtemplates,verbs=get;list,namespace=openshift-machine-api
//+kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3remediations,verbs=get;list;create;delete,namespace=openshift-machine-api
//+kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch;update,namespace=openshift-machine-api
//+kubebuilder:rbac:groups="",resources=events,verbs=create;patch;update,namespace=openshift-machine-api
//+kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;create;update;patch,namespace=openshift-machine-api

// Deps are what the controller needs. All but Metrics and Recorder are
// required.
type Deps struct {
	Client   client.Client // writes; reads come from its cache
	Live     client.Reader // asks the server itself: templates, repairs, Nodes that seem gone
	Clock    clock.PassiveClock
	Recorder events.EventRecorder // nil: no events
	Metrics  *Metrics             // nil: no metrics
	Log      logr.Logger
}

type controller struct {
	Deps
	act     *act.Runner
	overlay *observe.Overlay
	said    *said
	claims  *claimed
}

// New returns the controller.
func New(d Deps) kube.Controller {
	overlay := observe.NewOverlay(d.Clock)
	c := &controller{Deps: d, overlay: overlay, said: newSaid(), claims: newClaimed(), act: act.New(d.Client, act.WithLiveReader(d.Live), act.WithMemory(overlay))}
	return kube.Controller{
		Name:      wire.ControllerHealthCheck,
		For:       &machinev1.MachineHealthCheck{},
		Changed:   checkChanged,
		Watches:   watches(),
		Indexes:   Indexes(),
		Decide:    c.preview,
		Reconcile: c.reconcile,
	}
}

// preview observes and decides.
func (c *controller) preview(ctx context.Context, r client.Reader, key types.NamespacedName) (plan.Erased, error) {
	mhc, err := get(ctx, r, key)
	if mhc == nil || err != nil {
		return plan.Erased{}, err
	}
	p, err := c.observe(ctx, r, r, mhc)
	if err != nil {
		return plan.Erased{}, fmt.Errorf("observe machines: %w", err)
	}
	return plan.Erase(health.Decide(p.in)), nil
}

// reconcile repairs what one check finds broken.
func (c *controller) reconcile(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	mhc, err := get(ctx, c.Client, key)
	if mhc == nil || err != nil {
		if err == nil {
			c.said.forget(key)
			c.Metrics.forget(key)
		}
		return reconcile.Result{}, err
	}
	p, err := c.observe(ctx, c.Client, c.Live, mhc)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("observe machines: %w", err)
	}
	d := health.Decide(p.in)
	done, actErr := c.run(ctx, p, &d)
	repErr := c.report(ctx, p, d, done)
	return kube.Result(d.Wake, actErr, repErr)
}

// get returns the check; nil when there is none, it is going or it is paused.
func get(ctx context.Context, r client.Reader, key types.NamespacedName) (*machinev1.MachineHealthCheck, error) {
	var mhc machinev1.MachineHealthCheck
	if err := r.Get(ctx, key, &mhc); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if _, paused := mhc.Annotations[wire.AnnotationPaused]; paused || mhc.DeletionTimestamp != nil {
		return nil, nil
	}
	return &mhc, nil
}

// run performs the actions. Machines do not depend on each other: deletions
// go together, and one refusal does not keep the rest from being repaired. It
// adds to d what came of them, and returns those that were performed.
func (c *controller) run(ctx context.Context, p picture, d *plan.Decision[health.Status]) ([]plan.Action, error) {
	var done []plan.Action
	var errs []error
	allowed, err := c.claim(ctx, p, d)
	if err != nil {
		errs = append(errs, err)
	}
	for _, batch := range batches(allowed) {
		out, err := c.act.Run(ctx, p.mhc, p.binding(), nil, batch)
		done = append(done, out.Done...)
		if err == nil {
			continue
		}
		errs = append(errs, err)
		for _, a := range batch {
			if contains(out.Done, a) {
				continue
			}
			if e, cond := health.Told(p.in, a, err.Error()); e != nil {
				d.Events = append(d.Events, *e)
			} else if cond != nil {
				d.Conditions = append(d.Conditions, *cond)
			}
		}
	}
	return done, errors.Join(errs...)
}

// batches groups deletions, up to what runs side by side, and leaves every
// other action alone.
func batches(actions []plan.Action) [][]plan.Action {
	var out [][]plan.Action
	var deletes []plan.Action
	for _, a := range actions {
		if _, ok := a.(plan.DeleteMachine); !ok {
			out = append(out, []plan.Action{a})
			continue
		}
		if deletes = append(deletes, a); len(deletes) == act.MaxParallel {
			out, deletes = append(out, deletes), nil
		}
	}
	if len(deletes) > 0 {
		out = append(out, deletes)
	}
	return out
}

func contains(actions []plan.Action, a plan.Action) bool {
	for _, b := range actions {
		if a.String() == b.String() {
			return true
		}
	}
	return false
}
