// Package render points every MachineConfigPool at the rendered config that
// its MachineConfigs come to. It translates pools, configs and nodes for
// engine/target and back; how configs are merged and named is decided in
// engine/render.
//
// It creates, mends and deletes rendered configs, sets a pool's
// spec.configuration, and writes the conditions RenderDegraded and
// PinnedImageSetsDegraded. It must never touch a config that a person or
// another controller made, status.configuration, a pool's counters, or a Node.
package render

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"millwright.io/millwright/internal/act"
	"millwright.io/millwright/internal/dialect/machineconfig/fragment"
	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/engine/target"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/observe"
)

//+kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfigpools,verbs=get;list;watch;patch;update
//+kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfigpools/status,verbs=get;patch;update
//+kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfigpools/finalizers,verbs=update
//+kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfigs,verbs=get;list;watch;create;patch;update;delete
//+kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=controllerconfigs;kubeletconfigs;containerruntimeconfigs;machineconfignodes;pinnedimagesets;osimagestreams,verbs=get;list;watch
//+kubebuilder:rbac:groups=operator.openshift.io,resources=machineconfigurations,verbs=get;list;watch
//+kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
//+kubebuilder:rbac:groups="",resources=events,verbs=create;patch;update
//+kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch;update

// Deps are what the controller needs. All but Keep are required.
type Deps struct {
	Client   client.Client // writes; reads come from its cache
	Live     client.Reader // asks the server itself
	Clock    clock.PassiveClock
	Recorder events.EventRecorder
	Log      logr.Logger
	Keep     int // configs kept that nobody needs; 0: target.DefaultKeep
}

type controller struct {
	Deps
	act     *act.Runner
	overlay *observe.Overlay
	recent  fragment.Recent

	mu    sync.Mutex
	pools map[string]*memory
}

// New returns the controller.
func New(d Deps) kube.Controller {
	if d.Keep == 0 {
		d.Keep = target.DefaultKeep
	}
	d.Client = client.WithFieldOwner(d.Client, wire.Component)
	overlay := observe.NewOverlay(d.Clock)
	c := &controller{
		Deps: d, overlay: overlay, pools: map[string]*memory{},
		act: act.New(d.Client, act.WithLiveReader(d.Live), act.WithMemory(overlay)),
	}
	return kube.Controller{
		Name:      wire.ControllerRender,
		For:       &machineconfigv1.MachineConfigPool{},
		Changed:   kube.Typed(poolChanged),
		Watches:   watches(c.Log),
		Workers:   2,
		Decide:    c.preview,
		Reconcile: c.reconcile,
	}
}

// preview decides as if all inputs had settled.
func (c *controller) preview(ctx context.Context, r client.Reader, key types.NamespacedName) (plan.Erased, error) {
	p, err := c.observe(ctx, r, r, key, &memory{})
	if p == nil || err != nil {
		return plan.Erased{}, err
	}
	return plan.Erase(target.Decide(p.in)), nil
}

// reconcile moves one pool a step towards its target.
func (c *controller) reconcile(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	m := c.memory(key.Name)
	m.Lock()
	defer m.Unlock()
	p, err := c.observe(ctx, c.Client, c.Live, key, m)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("observe pool: %w", err)
	}
	if p == nil {
		c.forget(key.Name)
		overrides().DeleteLabelValues(key.Name)
		return reconcile.Result{}, nil
	}
	if c.recent.Behind(p.pool) {
		return kube.Result(fragment.CacheLag)
	}
	m.settle(p)
	d := target.Decide(p.in)
	out, actErr := c.act.Run(ctx, p.pool, p.binding(), nil, d.Actions)
	if actErr == nil {
		c.tell(p, m, d)
		measure(p)
		m.merged(p, d)
	}
	again, repErr := c.report(ctx, out.Object, p, d)
	if again == 0 {
		again = d.Wake
	}
	return kube.Result(again, actErr, repErr)
}

func (c *controller) memory(pool string) *memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.pools[pool]
	if m == nil {
		m = &memory{}
		c.pools[pool] = m
	}
	return m
}

func (c *controller) forget(pool string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pools, pool)
}

// tell records what users see happen.
func (c *controller) tell(p *picture, m *memory, d plan.Decision[target.Status]) {
	if len(d.Events) > 0 && !m.told {
		kube.RecordEvents(c.Recorder, p.pool, d.Events)
	}
	m.told = len(d.Events) > 0
	if d.Status.New == "" {
		return
	}
	res := &p.in.Outcome.Result
	if res.OSImageOverridden {
		kube.RecordEvents(c.Recorder, p.rendered(res.Name), []plan.Event{{Type: plan.Normal, Reason: wire.ReasonOSImageURLOverridden,
			Message: wire.TextOverridden(res.Name, p.osImageURL, res.Spec.OSImageURL)}})
	}
	kube.RecordEvents(c.Recorder, p.pool, []plan.Event{{Type: plan.Normal, Reason: wire.ReasonRenderedConfigGenerated,
		Message: wire.TextGenerated(res.Name, p.release, wire.Version())}})
}
