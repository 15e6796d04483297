// Package generator holds the controllers of KubeletConfigs and
// ContainerRuntimeConfigs: each object becomes one MachineConfig per pool that
// it selects. What the config contains, what it is called and what is refused
// is decided in engine/hostconf.
//
// It writes the MachineConfigs that the object controls, and the object's
// finalizers, its annotation mc-name-suffix and its status. It must never
// touch any other MachineConfig.
package generator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"millwright.io/millwright/internal/act"
	"millwright.io/millwright/internal/dialect/machineconfig/fragment"
	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	"millwright.io/millwright/internal/engine/hostconf"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/observe"
)

//+kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=kubeletconfigs;containerruntimeconfigs,verbs=get;list;watch;patch;update
//+kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=kubeletconfigs/status;containerruntimeconfigs/status,verbs=get;patch;update
//+kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=kubeletconfigs/finalizers;containerruntimeconfigs/finalizers,verbs=update

// Deps are what the controllers need. All are required.
type Deps struct {
	Client client.Client
	Live   client.Reader
	Clock  clock.PassiveClock
	Log    logr.Logger
}

type controller struct {
	Deps
	kind
	act     *act.Runner
	overlay *observe.Overlay
	recent  fragment.Recent
}

// All returns the controllers of both kinds.
func All(d Deps) []kube.Controller {
	return []kube.Controller{newController(d, kubeletConfigs()), newController(d, runtimeConfigs())}
}

func newController(d Deps, k kind) kube.Controller {
	d.Client = client.WithFieldOwner(d.Client, wire.Component)
	overlay := observe.NewOverlay(d.Clock)
	c := &controller{Deps: d, kind: k, act: act.New(d.Client, act.WithLiveReader(d.Live), act.WithMemory(overlay)), overlay: overlay}
	watches := []kube.Watch{
		{Object: &machineconfigv1.MachineConfig{}, Map: c.ofConfig, Changed: fragment.Changed},
		{Object: &configv1.FeatureGate{}, Map: c.every},
	}
	for _, o := range []client.Object{&machineconfigv1.MachineConfigPool{}, &machineconfigv1.ControllerConfig{}, &configv1.Node{}, &configv1.APIServer{}} {
		watches = append(watches, kube.Watch{Object: o, Map: c.every, Changed: fragment.Changed})
	}
	return kube.Controller{
		Name:    k.controller,
		For:     k.object(),
		Changed: fragment.Changed,
		Watches: watches,
		// One at a time: two objects must not take the same suffix.
		Workers:   1,
		Decide:    c.preview,
		Reconcile: c.reconcile,
	}
}

// picture is what was seen.
type picture struct {
	obj client.Object
	in  hostconf.GeneratedInput
	set fragment.Set
}

func (c *controller) preview(ctx context.Context, r client.Reader, key types.NamespacedName) (plan.Erased, error) {
	p, err := c.observe(ctx, r, r, key)
	if p == nil || err != nil {
		return plan.Erased{}, err
	}
	return plan.Erase(hostconf.DecideGenerated(p.in)), nil
}

func (c *controller) reconcile(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	p, err := c.observe(ctx, c.Client, c.Live, key)
	if p == nil || err != nil {
		return reconcile.Result{}, err
	}
	if c.recent.Behind(p.obj) {
		return kube.Result(fragment.CacheLag)
	}
	d := hostconf.DecideGenerated(p.in)
	p.set.Want = d.Status.Fragments
	out, err := c.act.Run(ctx, p.obj, c.binding(p, d.Status), nil, d.Actions)
	if p.in.Deleting {
		c.recent.Forget(p.obj)
		return kube.Result(0, err)
	}
	verdict := d.Status.Verdict
	var refused *hostconf.Refusal
	if verdict != nil && !errors.As(verdict, &refused) {
		err = errors.Join(err, verdict)
	}
	if err != nil && verdict == nil {
		return kube.Result(0, err) // the next try says how it went
	}
	after := out.Object.DeepCopyObject().(client.Object)
	c.verdict(after, verdict, c.Clock.Now())
	repErr := kube.PatchStatus(ctx, c.Client, out.Object, after, kube.OptimisticLock())
	c.recent.Wrote(after)
	return kube.Result(0, err, repErr)
}

// observe reads an object, the pools it selects, and its configs. It returns
// nil when there is no such object, or no ControllerConfig yet: its arrival is
// watched. fresh answers who took which suffix.
func (c *controller) observe(ctx context.Context, r, fresh client.Reader, key types.NamespacedName) (*picture, error) {
	obj := c.object()
	if err := r.Get(ctx, key, obj); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	p := &picture{obj: obj}
	p.set.Owner = fragment.OwnerReference(c.name, obj)
	p.in = hostconf.GeneratedInput{
		Generator: c.generator, Own: obj.GetName(), Deleting: obj.GetDeletionTimestamp() != nil,
		Finalizers: obj.GetFinalizers(), Suffix: suffix(obj), NoPool: c.noPool, Note: fragment.Notes(),
		Check: c.check(obj),
		Make: func(f hostconf.PoolFacts, name string) (hostconf.Fragment, error) {
			return c.fragment(obj, f, name)
		},
	}
	ready, err := c.pools(ctx, r, fresh, p)
	if err != nil || !ready {
		return nil, err
	}
	p.set.Have, err = fragment.List(ctx, r, c.overlay, obj.GetUID(), func(mc *machineconfigv1.MachineConfig) bool {
		return metav1.IsControlledBy(mc, obj) || (c.generator.Owns(mc.Name) && metav1.GetControllerOfNoCopy(mc) == nil)
	})
	p.in.Have = fragment.Existing(p.set.Have, func(mc *machineconfigv1.MachineConfig) bool { return metav1.IsControlledBy(mc, obj) })
	return p, err
}

// pools reads the pools that the object selects; false when the cluster is not
// ready for it.
func (c *controller) pools(ctx context.Context, r, fresh client.Reader, p *picture) (bool, error) {
	if p.in.Deleting || p.in.Check != nil || nothing(c.selector(p.obj)) {
		return true, nil
	}
	cc, err := fragment.ControllerConfig(ctx, r)
	if apierrors.IsNotFound(err) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	var pools machineconfigv1.MachineConfigPoolList
	if err := r.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list pools: %w", err)
	}
	all, err := c.siblings(ctx, r, fresh, p)
	if err != nil {
		return false, err
	}
	slices.SortFunc(pools.Items, func(a, b machineconfigv1.MachineConfigPool) int { return strings.Compare(a.Name, b.Name) })
	for i := range pools.Items {
		pool := &pools.Items[i]
		if !selects(c.selector(p.obj), pool.Labels) {
			continue
		}
		facts, err := fragment.PoolFacts(ctx, r, cc, pool)
		if err != nil {
			return false, err
		}
		s := hostconf.SelectedPool{Facts: facts}
		for _, o := range all {
			if selects(c.selector(o), pool.Labels) {
				s.Siblings = append(s.Siblings, hostconf.Sibling{
					Name: o.GetName(), Created: o.GetCreationTimestamp().Time, Suffix: suffix(o), Finalizers: o.GetFinalizers(),
				})
			}
		}
		p.in.Pools = append(p.in.Pools, s)
	}
	return true, nil
}

// siblings lists the objects of the kind. While this one has no suffix, the
// server is asked: the cache may not show yet what was taken a moment ago.
func (c *controller) siblings(ctx context.Context, r, fresh client.Reader, p *picture) ([]client.Object, error) {
	if p.in.Suffix == nil {
		r = fresh
	}
	list, items := c.list()
	if err := r.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list %ss: %w", c.name, err)
	}
	return items(), nil
}

// binding adds what is written onto the object itself.
func (c *controller) binding(p *picture, d hostconf.Generated) act.Binding {
	b := p.set.Binding()
	configs := b.Apply
	b.Apply = func(obj client.Object, a plan.ObjectAction) error {
		switch a.(type) {
		case plan.Annotate:
			if d.Suffix == nil {
				return nil
			}
			notes := map[string]string{}
			for k, v := range obj.GetAnnotations() {
				notes[k] = v
			}
			notes[wire.AnnotationNameSuffix] = *d.Suffix
			obj.SetAnnotations(notes)
			return nil
		case plan.AddFinalizer, plan.RemoveFinalizer:
			obj.SetFinalizers(d.Finalizers)
			return nil
		}
		return configs(obj, a)
	}
	return b
}

func suffix(obj client.Object) *string {
	if s, ok := obj.GetAnnotations()[wire.AnnotationNameSuffix]; ok {
		return &s
	}
	return nil
}

func nothing(s *metav1.LabelSelector) bool {
	return s == nil || (len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0)
}

// selects: a missing and an empty selector match no pool.
func selects(s *metav1.LabelSelector, set map[string]string) bool {
	if nothing(s) {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(set))
}

// every maps a cluster-wide change to all objects of the kind.
func (c *controller) every(ctx context.Context, r client.Reader, _ client.Object) []types.NamespacedName {
	list, items := c.list()
	if err := r.List(ctx, list); err != nil {
		return nil // the cache answers; it fails only while the process ends
	}
	var out []types.NamespacedName
	for _, o := range items() {
		out = append(out, client.ObjectKeyFromObject(o))
	}
	return out
}

// ofConfig maps a generated config to its object.
func (c *controller) ofConfig(_ context.Context, _ client.Reader, obj client.Object) []types.NamespacedName {
	if o := metav1.GetControllerOfNoCopy(obj); o != nil && o.Kind == c.name {
		return []types.NamespacedName{{Name: o.Name}}
	}
	return nil
}
