// Package machineset is the MachineSet controller of the Machine API: it
// translates a MachineSet and its Machines for engine/fleet and back. How many
// to make, which to remove and what the counters say is decided there.
//
// It creates, adopts and deletes Machines and writes a MachineSet's status. It
// must never touch a Machine that another controller owns, a Machine's spec or
// status, or a Node.
//
//	c := machineset.New(machineset.Deps{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), …})
//	err := c.Setup(mgr)
package machineset

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"millwright.io/millwright/internal/act"
	"millwright.io/millwright/internal/dialect/machineapi/authority"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/engine/fleet"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/observe"
)

//+kubebuilder:rbac:groups=machine.openshift.io,resources=machinesets,verbs=get;list;watch,namespace=openshift-machine-api
//+kubebuilder:rbac:groups=machine.openshift.io,resources=machinesets/status,verbs=get;patch;update,namespace=openshift-machine-api
//+kubebuilder:rbac:groups=machine.openshift.io,resources=machinesets/finalizers,verbs=update,namespace=openshift-machine-api
//+kubebuilder:rbac:groups=machine.openshift.io,resources=machines,verbs=get;list;watch;create;patch;delete,namespace=openshift-machine-api
//+kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
//+kubebuilder:rbac:groups="",resources=events,verbs=create;patch;update,namespace=openshift-machine-api
//+kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch;update,namespace=openshift-machine-api

// Deps are what the controller needs. All are required.
type Deps struct {
	Client   client.Client // writes; reads come from its cache
	Live     client.Reader // asks the server itself
	Clock    clock.PassiveClock
	Recorder events.EventRecorder
	Log      logr.Logger
}

type controller struct {
	Deps
	act     *act.Runner
	overlay *observe.Overlay

	mu   sync.Mutex
	said map[types.NamespacedName][]plan.Event // troubles told and not over yet
	// wrote holds when the statuses of the last moment were written.
	wrote map[types.UID]time.Time
}

// New returns the controller.
func New(d Deps) kube.Controller {
	overlay := observe.NewOverlay(d.Clock)
	c := &controller{
		Deps:    d,
		act:     act.New(d.Client, act.WithLiveReader(d.Live), act.WithMemory(overlay)),
		overlay: overlay,
		said:    map[types.NamespacedName][]plan.Event{},
		wrote:   map[types.UID]time.Time{},
	}
	return kube.Controller{
		Name:      wire.ControllerMachineSet,
		For:       &machinev1beta1.MachineSet{},
		Changed:   setChanged,
		Watches:   watches(),
		Indexes:   Indexes(),
		Decide:    c.preview,
		Reconcile: c.reconcile,
	}
}

// preview observes and decides.
func (c *controller) preview(ctx context.Context, r client.Reader, key types.NamespacedName) (plan.Erased, error) {
	set, err := get(ctx, r, key)
	if set == nil || err != nil {
		return plan.Erased{}, err
	}
	p, err := c.observe(ctx, r, set)
	if err != nil {
		return plan.Erased{}, fmt.Errorf("observe fleet: %w", err)
	}
	d, err := c.decide(ctx, r, set, p)
	return plan.Erase(d), err
}

// reconcile moves one MachineSet a step towards its spec.
func (c *controller) reconcile(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	set, err := get(ctx, c.Client, key)
	if set == nil || err != nil {
		c.tell(nil, key, nil)
		return reconcile.Result{}, err
	}
	if stop, err := authority.Yield(ctx, c.Client, c.Clock, set); stop || err != nil {
		return kube.Result(0, err)
	}
	p, err := c.observe(ctx, c.Client, set)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("observe fleet: %w", err)
	}
	d, err := c.decide(ctx, c.Client, set, p)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("decide fleet: %w", err)
	}
	moved, actErr := c.run(ctx, set, p, d)
	wait, repErr := c.report(ctx, set, d.Status, moved && actErr == nil)
	c.tell(set, key, append(d.Events, failures(actErr, repErr)...))
	if wait > 0 && (d.Wake == 0 || wait < d.Wake) {
		d.Wake = wait
	}
	return kube.Result(d.Wake, actErr, repErr)
}

// get returns the set, nil when there is none or it is going: the garbage
// collector takes its Machines then.
func get(ctx context.Context, r client.Reader, key types.NamespacedName) (*machinev1beta1.MachineSet, error) {
	var set machinev1beta1.MachineSet
	if err := r.Get(ctx, key, &set); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if set.DeletionTimestamp != nil {
		return nil, nil
	}
	return &set, nil
}

// run performs a decision's actions and says whether Machines came or went.
func (c *controller) run(ctx context.Context, set *machinev1beta1.MachineSet, p picture, d plan.Decision[fleet.Status]) (moved bool, err error) {
	if err := c.mayAdopt(ctx, set, d.Actions); err != nil {
		return false, err
	}
	kube.LogNotes(c.Log, d.Notes)
	out, err := c.act.Run(ctx, set, binding(set, p.machines), nil, d.Actions)
	return len(out.Created)+len(out.Deleted)+len(out.Adopted) > 0, err
}

// mayAdopt asks the server before the first adoption whether the set is still
// there. A Machine adopted by a set that is gone would be collected as
// garbage, and its instance with it.
func (c *controller) mayAdopt(ctx context.Context, set *machinev1beta1.MachineSet, actions []plan.Action) error {
	i := slices.IndexFunc(actions, func(a plan.Action) bool { _, ok := a.(plan.AdoptMachine); return ok })
	if i < 0 {
		return nil
	}
	adopt, _ := actions[i].(plan.AdoptMachine)
	var now machinev1beta1.MachineSet
	err := c.Live.Get(ctx, client.ObjectKeyFromObject(set), &now)
	switch {
	case err != nil:
	case now.UID != set.UID:
		err = fmt.Errorf("the set is %s now, not %s", now.UID, set.UID)
	case now.DeletionTimestamp != nil:
		err = fmt.Errorf("the set is being deleted")
	}
	if err != nil {
		return adoptError{text: textAdoptFailed(adopt.Name, set.Name, err), err: err}
	}
	return nil
}

// adoptError says it in the original's words.
type adoptError struct {
	text string
	err  error
}

func (e adoptError) Error() string { return e.text }
func (e adoptError) Unwrap() error { return e.err }

// reportEvery is how far apart two writes of a set's status are at least. When
// many Machines become ready at once, each would be a write of its own; a
// change that comes alone is written at once.
const reportEvery = time.Second

// report writes the status, unless it says all of this already. It waits, and
// says how long, while counts are on the move: after Machines came or went
// they are about to be counted anew, and so they are a moment after a write.
func (c *controller) report(ctx context.Context, set *machinev1beta1.MachineSet, st fleet.Status, moved bool) (wait time.Duration, err error) {
	after := set.DeepCopy()
	after.Status.Replicas = st.Replicas
	after.Status.FullyLabeledReplicas = st.FullyLabeled
	after.Status.ReadyReplicas = st.Ready
	after.Status.AvailableReplicas = st.Available
	after.Status.ObservedGeneration = st.Generation
	after.Status.LabelSelector = metav1.FormatLabelSelector(&set.Spec.Selector)
	if equality.Semantic.DeepEqual(set.Status, after.Status) && set.Status.ObservedGeneration != 0 {
		return 0, nil
	}
	if moved {
		return reportEvery, nil
	}
	now := c.Clock.Now()
	if left := reportEvery - now.Sub(c.reported(set.UID)); left > 0 {
		return left, nil
	}
	before, err := written(set)
	if err != nil {
		return 0, err
	}
	if err := kube.PatchStatus(ctx, c.Client, before, after); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.wrote, func(_ types.UID, at time.Time) bool { return now.Sub(at) > reportEvery })
	c.wrote[set.UID] = now
	return 0, nil
}

// reported returns when a set's status was last written, as far as it matters.
func (c *controller) reported(set types.UID) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wrote[set]
}

// written returns set as the server stores it. Before the first status a zero
// counter is not there at all, and CURRENT would stay blank.
func written(set *machinev1beta1.MachineSet) (client.Object, error) {
	if set.Status.ObservedGeneration != 0 {
		return set, nil
	}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(set)
	if err != nil {
		return nil, fmt.Errorf("convert machine set: %w", err)
	}
	delete(raw, "status")
	return &unstructured.Unstructured{Object: raw}, nil
}

// failures turns errors into the event users know. That somebody else wrote
// at the same moment is none of their business; the retry sees to it.
func failures(errs ...error) []plan.Event {
	var out []plan.Event
	for _, err := range errs {
		if err != nil && !apierrors.IsConflict(err) {
			out = append(out, plan.Event{Type: plan.Warning, Reason: ReasonReconcileError, Action: ActionReconcile, Message: err.Error()})
		}
	}
	return out
}

// tell records and logs what is wrong with a set, once as long as it lasts.
func (c *controller) tell(set *machinev1beta1.MachineSet, key types.NamespacedName, evs []plan.Event) {
	c.mu.Lock()
	known := c.said[key]
	if len(evs) == 0 {
		delete(c.said, key)
	} else {
		c.said[key] = evs
	}
	c.mu.Unlock()
	for _, e := range evs {
		if slices.Contains(known, e) {
			continue
		}
		kube.LogNotes(c.Log, []plan.Note{{Message: textFailed(key.String(), e.Message)}})
		kube.RecordEvents(c.Recorder, set, []plan.Event{e})
	}
}
