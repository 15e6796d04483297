// Package poolconfig keeps the configs that every pool gets from cluster-wide
// settings: 97-<pool>-generated-kubelet from the node settings,
// 98-<pool>-generated-kubelet from the feature gates and, for built-in pools,
// 99-<pool>-generated-registries from the image settings and mirror sets. What
// they contain is decided in engine/hostconf.
//
// It writes MachineConfigs of these names only, and no status.
package poolconfig

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
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

//+kubebuilder:rbac:groups=config.openshift.io,resources=nodes;featuregates;images;apiservers;imagedigestmirrorsets;imagetagmirrorsets,verbs=get;list;watch
//+kubebuilder:rbac:groups=config.openshift.io,resources=images/finalizers,verbs=update
//+kubebuilder:rbac:groups=operator.openshift.io,resources=imagecontentsourcepolicies,verbs=get;list;watch

// reasonRefused is the event of a setting that cannot be used.
const reasonRefused = "ConfigRefused"

// Deps are what the controller needs. All are required.
type Deps struct {
	Client   client.Client
	Live     client.Reader
	Clock    clock.PassiveClock
	Recorder events.EventRecorder
	Log      logr.Logger
}

type controller struct {
	Deps
	act     *act.Runner
	overlay *observe.Overlay
}

// New returns the controller.
func New(d Deps) kube.Controller {
	d.Client = client.WithFieldOwner(d.Client, wire.Component)
	overlay := observe.NewOverlay(d.Clock)
	c := &controller{Deps: d, act: act.New(d.Client, act.WithLiveReader(d.Live), act.WithMemory(overlay)), overlay: overlay}
	watches := []kube.Watch{{Object: &machineconfigv1.MachineConfig{}, Map: ofConfig, Changed: fragment.Changed}}
	for _, o := range []client.Object{
		&machineconfigv1.ControllerConfig{}, &configv1.Node{}, &configv1.FeatureGate{}, &configv1.Image{}, &configv1.APIServer{},
		&configv1.ImageDigestMirrorSet{}, &configv1.ImageTagMirrorSet{}, &operatorv1alpha1.ImageContentSourcePolicy{},
	} {
		w := kube.Watch{Object: o, Map: allPools, Changed: fragment.Changed}
		if _, ok := o.(*configv1.FeatureGate); ok {
			w.Changed = nil // the gates of a version stand in its status
		}
		watches = append(watches, w)
	}
	return kube.Controller{
		Name:      wire.ControllerPoolConfig,
		For:       &machineconfigv1.MachineConfigPool{},
		Changed:   fragment.Changed,
		Watches:   watches,
		Workers:   2,
		Decide:    c.preview,
		Reconcile: c.reconcile,
	}
}

// picture is what was seen.
type picture struct {
	pool *machineconfigv1.MachineConfigPool
	in   hostconf.PoolInput
	set  fragment.Set
}

func (c *controller) preview(ctx context.Context, r client.Reader, key types.NamespacedName) (plan.Erased, error) {
	p, err := c.observe(ctx, r, key)
	if p == nil || err != nil {
		return plan.Erased{}, err
	}
	d, errs := hostconf.DecidePool(p.in)
	return plan.Erase(d), errors.Join(errs...)
}

func (c *controller) reconcile(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	p, err := c.observe(ctx, c.Client, key)
	if p == nil || err != nil {
		return reconcile.Result{}, err
	}
	d, errs := hostconf.DecidePool(p.in)
	p.set.Want = d.Status
	_, err = c.act.Run(ctx, p.pool, p.set.Binding(), nil, d.Actions)
	for _, e := range errs {
		var refused *hostconf.Refusal
		if !errors.As(e, &refused) {
			err = errors.Join(err, e)
			continue
		}
		kube.RecordEvents(c.Recorder, p.pool, []plan.Event{{Type: plan.Warning, Reason: reasonRefused, Message: e.Error()}})
	}
	return kube.Result(0, err)
}

// observe reads a pool and the settings that concern it. It returns nil when
// there is no such pool, or no ControllerConfig yet: its arrival is watched.
func (c *controller) observe(ctx context.Context, r client.Reader, key types.NamespacedName) (*picture, error) {
	pool := &machineconfigv1.MachineConfigPool{}
	if err := r.Get(ctx, key, pool); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if pool.DeletionTimestamp != nil {
		return nil, nil
	}
	cc, err := fragment.ControllerConfig(ctx, r)
	if apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	p := &picture{pool: pool}
	if p.in.Pool, err = fragment.PoolFacts(ctx, r, cc, pool); err != nil {
		return nil, err
	}
	node, err := fragment.Singleton(ctx, r, &configv1.Node{})
	if err != nil {
		return nil, err
	}
	if node != nil {
		p.in.CgroupMode = ptr.To(string(node.Spec.CgroupMode))
	}
	gate, err := fragment.Singleton(ctx, r, &configv1.FeatureGate{})
	if err != nil {
		return nil, err
	}
	p.in.Gates = gate != nil
	_, p.in.BuiltIn = pool.Labels[wire.LabelBuiltIn]
	if p.in.Registries, err = registries(ctx, r); err != nil {
		return nil, err
	}
	p.set.Have, err = fragment.List(ctx, r, c.overlay, pool.UID, func(mc *machineconfigv1.MachineConfig) bool { return hostconf.OfPool(pool.Name, mc.Name) })
	p.in.Have = fragment.Existing(p.set.Have, func(*machineconfigv1.MachineConfig) bool { return true })
	if p.in.Registries != nil {
		p.set.OwnerOf = func(name string) *metav1.OwnerReference { return ownerOf(name, p.in.Registries.Image) }
	}
	p.in.Note = fragment.Notes()
	return p, err
}

// ownerOf makes the image settings the controller of what is made of them; the
// other configs have none.
func ownerOf(name string, image *configv1.Image) *metav1.OwnerReference {
	if !strings.HasSuffix(name, "-generated-registries") {
		return nil
	}
	return &metav1.OwnerReference{APIVersion: configv1.GroupVersion.String(), Kind: "Image", Name: image.Name, UID: image.UID,
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}
}

// registries reads all image settings; nil when there is no Image object.
func registries(ctx context.Context, r client.Reader) (*hostconf.RegistryFacts, error) {
	image, err := fragment.Singleton(ctx, r, &configv1.Image{})
	if image == nil || err != nil {
		return nil, err
	}
	var digests configv1.ImageDigestMirrorSetList
	var tags configv1.ImageTagMirrorSetList
	var policies operatorv1alpha1.ImageContentSourcePolicyList
	for _, l := range []client.ObjectList{&digests, &tags, &policies} {
		if err := r.List(ctx, l); err != nil {
			return nil, fmt.Errorf("list %T: %w", l, err)
		}
	}
	return &hostconf.RegistryFacts{Image: image, Digests: digests.Items, Tags: tags.Items, Policies: policies.Items}, nil
}

// allPools maps a cluster-wide setting to every pool.
func allPools(ctx context.Context, r client.Reader, _ client.Object) []types.NamespacedName {
	var pools machineconfigv1.MachineConfigPoolList
	if err := r.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache answers; it fails only while the process ends
	}
	var out []types.NamespacedName
	for i := range pools.Items {
		out = append(out, client.ObjectKeyFromObject(&pools.Items[i]))
	}
	return out
}

// ofConfig maps one of our configs to its pool.
func ofConfig(ctx context.Context, r client.Reader, obj client.Object) []types.NamespacedName {
	var out []types.NamespacedName
	for _, k := range allPools(ctx, r, obj) {
		if hostconf.OfPool(k.Name, obj.GetName()) {
			out = append(out, k)
		}
	}
	return out
}
