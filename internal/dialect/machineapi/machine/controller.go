// Package machine is the Machine controller of the Machine API dialect. It
// translates Machines, Nodes, pods and what the cloud says into the values of
// engine/machine and engine/instance, lets act perform the decision, and
// reports it as one status patch. Its rules are all in the engine; its wire
// strings are in dialect/machineapi/wire and, for the texts that belong to
// decisions, in the engine's own table.
//
// It must never look inside a providerSpec (the codec does), name a provider,
// or write status.nodeRef (nodelink does).
package machine

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	machinev1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"millwright.io/millwright/internal/act"
	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/dialect/machineapi/authority"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	engine "millwright.io/millwright/internal/engine/machine"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/kube"
)

// The roles of this controller. Secrets are read one by one, in the Machine
// API's own namespace only.
//
//+kubebuilder:rbac:groups=machine.openshift.io,resources=machines,verbs=get;list;watch;patch,namespace=openshift-machine-api
//+kubebuilder:rbac:groups=machine.openshift.io,resources=machines/status,verbs=patch,namespace=openshift-machine-api
//+kubebuilder:rbac:groups=machine.openshift.io,resources=machines/finalizers,verbs=update,namespace=openshift-machine-api
//+kubebuilder:rbac:groups=config.openshift.io,resources=infrastructures,verbs=get;list;watch
//+kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch;delete
//+kubebuilder:rbac:groups="",resources=pods,verbs=get;list;delete
//+kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=list
//+kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
//+kubebuilder:rbac:groups="",resources=secrets,verbs=get,namespace=openshift-machine-api
//+kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch;update,namespace=openshift-machine-api
//+kubebuilder:rbac:groups="",resources=events,verbs=create;patch;update,namespace=openshift-machine-api
//+kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;create;update;patch,namespace=openshift-machine-api

// FieldNodeRef finds Machines by the name of their Node.
const FieldNodeRef = "status.nodeRef.name"

// workers is how many Machines are worked on at a time: a slow cloud call
// holds one of them. All share one connection to the API server, which takes a
// hundred requests at a time, watches among them; with as many workers a busy
// server let Leases run out.
const workers = 48

// maxRounds bounds how often one reconcile decides. The longest path takes
// drain, delete, Node and finalizer.
const maxRounds = 6

// Deps are the collaborators of the controller. All are required but
// ProviderStatus, Recorder and Metrics.
type Deps struct {
	Client client.Client // reads from the cache
	Live   client.Reader // asks the server: Secrets and pods
	Clock  clock.PassiveClock
	Opener cloud.Opener
	Codec  cloud.SpecCodec
	// ProviderStatus returns the raw status.providerStatus that follows prev;
	// prev itself when nothing changes. fault is why a create failed. Nil:
	// providerStatus is left alone.
	ProviderStatus func(prev []byte, inst *cloud.Instance, fault *cloud.Fault, now metav1.Time) ([]byte, error)
	Recorder       events.EventRecorder // nil: no events
	Metrics        *Metrics             // nil: no metrics
	Log            logr.Logger
}

// New returns the controller.
func New(d Deps) kube.Controller {
	c := &controller{d: d, act: act.New(d.Client, act.WithLiveReader(d.Live)), memory: newMemory(), specs: newSpecs(d.Codec), secrets: newSecrets(d.Live, d.Clock)}
	return kube.Controller{
		Name:    wire.ControllerMachine,
		For:     &machinev1.Machine{},
		Changed: kube.Typed(changed),
		Watches: []kube.Watch{{Object: &corev1.Node{}, Map: machinesOfNode, Changed: kube.Typed(nodeChanged)}},
		Indexes: []kube.Index{{Object: &machinev1.Machine{}, Field: FieldNodeRef, Extract: nodeRefName}},
		Workers: workers,
		Decide: func(ctx context.Context, r client.Reader, key types.NamespacedName) (plan.Erased, error) {
			w, err := c.observe(ctx, r, key)
			if err != nil || w == nil {
				return plan.Erased{}, err
			}
			return plan.Erase(w.decide()), nil
		},
		Reconcile: c.reconcile,
	}
}

type controller struct {
	d       Deps
	act     *act.Runner
	memory  *memory
	specs   *specs
	secrets *secrets
}

// reconcile moves one Machine a step towards its spec.
func (c *controller) reconcile(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	w, err := c.observe(ctx, c.d.Client, key)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("observe machine: %w", err)
	}
	if w == nil {
		return reconcile.Result{}, nil
	}
	if stop, err := authority.Yield(ctx, c.d.Client, c.d.Clock, w.machine); stop || err != nil {
		return kube.Result(0, err)
	}
	d, actErr := c.run(ctx, w)
	repErr := c.report(ctx, w, d)
	return kube.Result(d.Wake, actErr, repErr)
}

// run decides and acts until there is nothing more to do now, and returns the
// last decision.
func (c *controller) run(ctx context.Context, w *world) (plan.Decision[engine.Status], error) {
	d := w.decide()
	for range maxRounds {
		if len(d.Actions) == 0 {
			break
		}
		out, err := c.act.Run(ctx, w.machine, w.binding(), w.cloud, d.Actions)
		if err = w.fold(d.Actions, out, err); err != nil || w.over {
			return d, err
		}
		d = w.decide()
	}
	return d, nil
}

func (c *controller) report(ctx context.Context, w *world, d plan.Decision[engine.Status]) error {
	kube.LogNotes(c.d.Log, d.Notes)
	if c.d.Recorder != nil {
		kube.RecordEvents(c.d.Recorder, w.machine, d.Events)
	}
	if w.refused {
		return nil
	}
	key := client.ObjectKeyFromObject(w.machine)
	if w.gone {
		c.d.Metrics.forget(w.machine)
		c.memory.bury(key, w.machine.UID)
		return nil
	}
	c.d.Metrics.observe(w.machine, d.Status, w.own.Now)
	c.memory.keep(key, w.machine.UID, d.Status.Instance.Last)
	after := w.machine.DeepCopy()
	if err := c.fill(w, after, d); err != nil {
		return err
	}
	if err := kube.PatchStatus(ctx, c.d.Client, w.machine, after); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	c.memory.wrote(key, after)
	return nil
}
