// Package drain answers the agents of Machine Config: a Node whose agent asks
// for a drain is cordoned and emptied, one that asks to be put back is
// uncordoned. What is done in which order is decided in engine/rollout and
// engine/drain.
//
// It writes a Node's cordon and the annotations that go with it, evicts pods,
// and tells a MachineConfigNode's conditions. It must never undo a cordon that
// somebody else made, nor answer a drain that is not over.
package drain

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"millwright.io/millwright/internal/act"
	"millwright.io/millwright/internal/dialect/machineconfig/fragment"
	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	"millwright.io/millwright/internal/engine/drain"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/engine/rollout"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/observe"
	"millwright.io/millwright/internal/telemetry"
)

//+kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
//+kubebuilder:rbac:groups="",resources=pods,verbs=list;delete
//+kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
//+kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=list
//+kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfignodes,verbs=get;list;watch
//+kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfignodes/status,verbs=patch
//+kubebuilder:rbac:groups="",resources=events,verbs=create;patch;update
//+kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch;update

// workers is how many Nodes are drained at the same time at most; the evictions
// of one run side by side.
const workers = 16

// Deps are what the controller needs. All are required.
type Deps struct {
	Client   client.Client // writes; reads come from its cache
	Live     client.Reader // asks the server itself: pods and budgets
	Clock    clock.PassiveClock
	Recorder events.EventRecorder
	Log      logr.Logger
}

type controller struct {
	Deps
	act    *act.Runner
	recent fragment.Recent

	mu    sync.Mutex
	nodes map[string]*memory
}

// memory is what is remembered of one drain. What is lost with it is told once
// more.
type memory struct {
	asked   string    // the drain that this is about
	started time.Time // for a Node whose own record is missing
	since   time.Time // first found blocked
	told    string    // the blockers told last
	slow    bool
	late    bool
	unknown string
	long    bool // pods had to go, and people may watch
}

// New returns the controller.
func New(d Deps) kube.Controller {
	d.Client = client.WithFieldOwner(d.Client, wire.Component)
	c := &controller{Deps: d, act: act.New(d.Client, act.WithLiveReader(d.Live)), nodes: map[string]*memory{}}
	return kube.Controller{
		Name:      wire.ControllerDrain,
		For:       &corev1.Node{},
		Changed:   kube.Typed(nodeChanged),
		Watches:   []kube.Watch{{Object: &machineconfigv1.MachineConfigNode{}, Map: nobody}},
		Workers:   workers,
		Decide:    c.preview,
		Reconcile: c.reconcile,
	}
}

// nobody: the records of nodes are read, and wake nobody.
func nobody(context.Context, client.Reader, client.Object) []types.NamespacedName { return nil }

// nodeChanged sees what agents ask for and who cordons.
func nodeChanged(a, b *corev1.Node) bool {
	if a.Spec.Unschedulable != b.Spec.Unschedulable {
		return true
	}
	for _, k := range []string{wire.AnnotationDesiredDrain, wire.AnnotationLastAppliedDrain, telemetry.AnnotationCordonedBy} {
		if a.Annotations[k] != b.Annotations[k] {
			return true
		}
	}
	return false
}

// preview observes and decides.
func (c *controller) preview(ctx context.Context, r client.Reader, key types.NamespacedName) (plan.Erased, error) {
	var node corev1.Node
	if err := r.Get(ctx, key, &node); err != nil {
		return plan.Erased{}, client.IgnoreNotFound(err)
	}
	in, err := c.observe(ctx, r, &node, &memory{})
	if err != nil {
		return plan.Erased{}, err
	}
	return plan.Erase(rollout.DecideDrain(in)), nil
}

// reconcile takes one step with one Node.
func (c *controller) reconcile(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	var node corev1.Node
	if err := c.Client.Get(ctx, key, &node); err != nil {
		if apierrors.IsNotFound(err) {
			c.forget(key.Name)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("read node %s: %w", key.Name, err)
	}
	if c.recent.Behind(&node) {
		return kube.Result(fragment.CacheLag)
	}
	m := c.memory(&node)
	in, err := c.observe(ctx, c.Live, &node, m)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("observe node %s: %w", key.Name, err)
	}
	d := rollout.DecideDrain(in)
	if d.Status.Phase == rollout.PhaseIdle {
		c.settled(key.Name)
		return reconcile.Result{}, nil
	}
	out, actErr := c.act.Run(ctx, &node, binding(c.Clock), nil, d.Actions)
	if apierrors.IsConflict(actErr) {
		return kube.Result(fragment.CacheLag) // somebody else wrote the Node
	}
	if actErr == nil {
		kube.LogNotes(c.Log, c.fresh(m, d))
	}
	d.Status = c.again(in, d.Status, out)
	repErr := c.report(ctx, &node, out, m, d, actErr)
	return kube.Result(wake(d, out), actErr, repErr)
}

// wake looks again soon when pods were sent away just now: most go quickly.
func wake(d plan.Decision[rollout.DrainStatus], out act.Outcome) time.Duration {
	const soon = time.Second
	for _, a := range out.Done {
		if _, ok := a.(plan.EvictPod); ok && d.Wake > soon {
			return soon
		}
	}
	return d.Wake
}

// again returns the status with what the server refused.
func (c *controller) again(in rollout.DrainInput, s rollout.DrainStatus, out act.Outcome) rollout.DrainStatus {
	if len(out.Blocked) == 0 {
		return s
	}
	for _, b := range out.Blocked {
		in.Refused = append(in.Refused, drain.Refusal{Namespace: b.Action.Namespace, Name: b.Action.Name, Message: b.Message})
	}
	return rollout.DecideDrain(in).Status
}

// observe reads what the decision needs: of most Nodes, nothing beyond
// themselves.
func (c *controller) observe(ctx context.Context, live client.Reader, node *corev1.Node, m *memory) (rollout.DrainInput, error) {
	in := rollout.DrainInput{Now: c.Clock.Now(), Since: m.since, Node: Facts(node)}
	if in.Node.Started.IsZero() {
		in.Node.Started = m.started
	}
	if !in.Node.NeedsPods() {
		return in, nil
	}
	if in.Node.Started.IsZero() {
		m.started = in.Now
		in.Node.Started = in.Now
	}
	pods, err := observe.PodsOnNode(ctx, live, node.Name)
	if err != nil {
		return in, err
	}
	in.Pods = observe.Drainees(pods)
	in.Budgets, err = observe.Budgets(ctx, live, in.Pods)
	return in, err
}

// Facts reduces a Node to what its drain depends on.
func Facts(node *corev1.Node) rollout.Drainee {
	a := node.Annotations
	f := rollout.Drainee{
		Name: node.Name, Unreachable: kube.NodeReady(node) == corev1.ConditionUnknown && len(node.Status.Conditions) > 0,
		Cordoned: node.Spec.Unschedulable, CordonedBy: a[telemetry.AnnotationCordonedBy],
		Desired: a[wire.AnnotationDesiredDrain], Last: a[wire.AnnotationLastAppliedDrain], Blocked: a[wire.AnnotationDrainBlocked],
	}
	if t, err := time.Parse(time.RFC3339, a[wire.AnnotationDrainStarted]); err == nil {
		f.Started = t
	}
	return f
}

// binding says how a drain's actions look on a Node.
func binding(clk clock.PassiveClock) act.Binding {
	return act.Binding{Apply: func(obj client.Object, a plan.ObjectAction) error {
		n, ok := obj.(*corev1.Node)
		if !ok {
			return fmt.Errorf("a drain changes no %T", obj)
		}
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		switch a := a.(type) {
		case plan.BeginDrain:
			n.Annotations[telemetry.AnnotationCordonedBy] = a.By
			if a.Keep {
				return nil
			}
			n.Spec.Unschedulable = true
			n.Annotations[wire.AnnotationDrainStarted] = clk.Now().UTC().Format(time.RFC3339)
			return nil
		case plan.AnswerDrain:
			answer(n, a)
			return nil
		}
		return fmt.Errorf("a drain changes nothing for %s", a)
	}}
}

func answer(n *corev1.Node, a plan.AnswerDrain) {
	delete(n.Annotations, wire.AnnotationDrainStarted)
	delete(n.Annotations, wire.AnnotationDrainBlocked)
	if a.Uncordon {
		n.Spec.Unschedulable = false
		by, last := n.Annotations[telemetry.AnnotationCordonedBy], n.Annotations[wire.AnnotationLastAppliedDrain]
		if a.Answer != "" {
			last = a.Answer
		}
		if by = rollout.Forget(by, last); by == "" {
			delete(n.Annotations, telemetry.AnnotationCordonedBy)
		} else {
			n.Annotations[telemetry.AnnotationCordonedBy] = by
		}
	}
	if a.Answer != "" {
		n.Annotations[wire.AnnotationLastAppliedDrain] = a.Answer
	}
}
