package kube

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/telemetry"
)

// Defaults of every controller.
const (
	// DefaultWorkers is how many objects a controller works on at a time.
	DefaultWorkers = 10
	// ErrorBackoffBase and ErrorBackoffMax bound the exponential wait after
	// errors, per object.
	ErrorBackoffBase = 5 * time.Millisecond
	ErrorBackoffMax  = 60 * time.Second
	// ReconcileTimeout ends one reconcile; every remote call inside has its
	// own, shorter limit.
	ReconcileTimeout = 2 * time.Minute
)

// Watch makes changes of other objects look at decided objects.
type Watch struct {
	Object client.Object
	// Map returns the keys of the decided objects that obj concerns. On an
	// update it is asked for the old and for the new object.
	Map func(ctx context.Context, r client.Reader, obj client.Object) []types.NamespacedName
	// Changed says whether an update matters; nil: any does.
	Changed func(old, new client.Object) bool
}

// Typed makes a Changed function of one for a type; an update of anything else
// matters.
func Typed[T client.Object](changed func(old, new T) bool) func(old, new client.Object) bool {
	return func(old, new client.Object) bool {
		a, okA := old.(T)
		b, okB := new.(T)
		return !okA || !okB || changed(a, b)
	}
}

// Index is a field of the cache by which objects are found.
type Index struct {
	Object  client.Object
	Field   string
	Extract client.IndexerFunc
}

// Controller is one controller as a value. Previews call Decide, simulations
// call Step, a manager runs it after Setup.
type Controller struct {
	// Name is also the logger's name and the reportingController of events.
	Name string
	// For is the kind that is decided.
	For client.Object
	// Changed says whether an update of the decided object matters; nil: any
	// does.
	Changed func(old, new client.Object) bool
	Watches []Watch
	Indexes []Index
	Workers int // 0: DefaultWorkers
	// Decide observes and decides; it never writes.
	Decide func(ctx context.Context, r client.Reader, key types.NamespacedName) (plan.Erased, error)
	// Reconcile observes, decides, acts and reports.
	Reconcile func(ctx context.Context, key types.NamespacedName) (reconcile.Result, error)
}

// Setup registers the controller and its indexes on a manager. Several
// controllers may name the same index, as long as they mean the same.
func (c Controller) Setup(mgr manager.Manager) error {
	if c.Name == "" || c.For == nil || c.Reconcile == nil {
		return fmt.Errorf("set up controller %q: name, kind and reconcile are required", c.Name)
	}
	if err := AddIndexes(context.Background(), mgr.GetFieldIndexer(), c.Indexes...); err != nil {
		return fmt.Errorf("set up controller %s: %w", c.Name, err)
	}
	b := builder.TypedControllerManagedBy[reconcile.Request](mgr).
		Named(c.Name).
		For(c.For, builder.WithPredicates(changed(c.Changed))).
		WithOptions(c.options())
	for _, w := range c.Watches {
		b = b.Watches(w.Object, mapped(mgr.GetClient(), w.Map), builder.WithPredicates(changed(w.Changed)))
	}
	run := reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		res, err := c.Step(ctx, req.NamespacedName)
		if res.RequeueAfter > 0 {
			res.RequeueAfter = spread(res.RequeueAfter)
		}
		return res, err
	})
	if err := b.Complete(run); err != nil {
		return fmt.Errorf("set up controller %s: %w", c.Name, err)
	}
	return nil
}

func (c Controller) options() controller.TypedOptions[reconcile.Request] {
	workers := c.Workers
	if workers == 0 {
		workers = DefaultWorkers
	}
	return controller.TypedOptions[reconcile.Request]{
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](ErrorBackoffBase, ErrorBackoffMax),
		ReconciliationTimeout:   ReconcileTimeout,
		// Several managers may live in one process; their metrics share names.
		SkipNameValidation: ptr.To(true),
	}
}

// Step reconciles one object once. A panic comes back as an error, after it
// has been counted and logged with its stack.
func (c Controller) Step(ctx context.Context, key types.NamespacedName) (res reconcile.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			panics().WithLabelValues(c.Name).Inc()
			logf.FromContext(ctx).Info("Recovering from panic", telemetry.KeyController, c.Name,
				"object", key.String(), telemetry.KeyPanic, fmt.Sprint(p), telemetry.KeyStack, string(debug.Stack()))
			res, err = reconcile.Result{}, fmt.Errorf("reconcile %s: panic: %v", key, p)
		}
	}()
	return c.Reconcile(ctx, key)
}

// AddIndexes registers indexes. An index that is there already is kept.
func AddIndexes(ctx context.Context, fi client.FieldIndexer, indexes ...Index) error {
	for _, i := range indexes {
		err := fi.IndexField(ctx, i.Object, i.Field, i.Extract)
		if err != nil && !isIndexConflict(err) {
			return fmt.Errorf("index %T by %s: %w", i.Object, i.Field, err)
		}
	}
	return nil
}

// changed lets every creation and deletion pass, and those updates that
// matter.
func changed(matters func(old, new client.Object) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		if e.ObjectOld == nil || e.ObjectNew == nil {
			return false
		}
		return matters == nil || matters(e.ObjectOld, e.ObjectNew)
	}}
}

func mapped(r client.Reader, keys func(context.Context, client.Reader, client.Object) []types.NamespacedName) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		var reqs []reconcile.Request
		for _, k := range keys(ctx, r, obj) {
			reqs = append(reqs, reconcile.Request{NamespacedName: k})
		}
		return reqs
	})
}

// panics returns the counter of recovered panics, registering it once.
func panics() *prometheus.CounterVec {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: telemetry.MetricPanics,
		Help: "Panics recovered while reconciling.",
	}, []string{telemetry.LabelController})
	return register(vec)
}

// register registers a collector with the manager's registry, or returns the
// one that is registered under its name.
func register[C prometheus.Collector](c C) C {
	err := metrics.Registry.Register(c)
	if already, ok := err.(prometheus.AlreadyRegisteredError); ok {
		if old, ok := already.ExistingCollector.(C); ok {
			return old
		}
	}
	return c
}
