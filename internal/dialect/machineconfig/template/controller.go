// Package template keeps the base configs of every role: 00-<role>,
// 01-<role>-container-runtime and 01-<role>-kubelet, made of what the
// ControllerConfig says about the cluster. What they contain is decided in
// engine/hostconf.
//
// It writes the MachineConfigs that the ControllerConfig controls, and that
// object's status. It must never touch any other MachineConfig.
package template

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

//+kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=controllerconfigs,verbs=get;list;watch
//+kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=controllerconfigs/status,verbs=get;patch;update
//+kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=controllerconfigs/finalizers,verbs=update
//+kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfigs,verbs=get;list;watch;create;patch;update;delete
//+kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch,namespace=openshift-config
//+kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;create;update;patch,namespace=openshift-machine-config-operator

const kind = "ControllerConfig"

// Deps are what the controller needs. All are required.
type Deps struct {
	Client client.Client
	Live   client.Reader
	Clock  clock.PassiveClock
	Log    logr.Logger
}

type controller struct {
	Deps
	act     *act.Runner
	overlay *observe.Overlay
}

// picture is what was seen and what is wanted.
type picture struct {
	cc   *machineconfigv1.ControllerConfig
	set  fragment.Set
	fail error // why nothing can be made of it
}

// New returns the controller.
func New(d Deps) kube.Controller {
	d.Client = client.WithFieldOwner(d.Client, wire.Component)
	overlay := observe.NewOverlay(d.Clock)
	c := &controller{Deps: d, act: act.New(d.Client, act.WithLiveReader(d.Live), act.WithMemory(overlay)), overlay: overlay}
	return kube.Controller{
		Name:    wire.ControllerTemplate,
		For:     &machineconfigv1.ControllerConfig{},
		Changed: fragment.Changed,
		Watches: []kube.Watch{
			{Object: &machineconfigv1.MachineConfig{}, Map: ofConfig, Changed: fragment.Changed},
			{Object: &corev1.Secret{}, Map: ofSecret},
		},
		Workers:   1,
		Decide:    c.preview,
		Reconcile: c.reconcile,
	}
}

func (c *controller) preview(ctx context.Context, r client.Reader, key types.NamespacedName) (plan.Erased, error) {
	p, err := c.observe(ctx, r, key)
	if p == nil || err != nil {
		return plan.Erased{}, err
	}
	d, err := decide(p)
	return plan.Erase(d), err
}

func (c *controller) reconcile(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	p, err := c.observe(ctx, c.Client, key)
	if p == nil || err != nil {
		return reconcile.Result{}, err
	}
	d, err := decide(p)
	if err == nil {
		_, err = c.act.Run(ctx, p.cc, p.set.Binding(), nil, d.Actions)
	}
	return kube.Result(0, err, c.report(ctx, p.cc, err))
}

// observe reads the ControllerConfig, the pull secret and the base configs. It
// returns nil for an object of another name and for one that goes.
func (c *controller) observe(ctx context.Context, r client.Reader, key types.NamespacedName) (*picture, error) {
	if key.Name != wire.ControllerConfig {
		return nil, nil
	}
	var cc machineconfigv1.ControllerConfig
	if err := r.Get(ctx, key, &cc); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if cc.DeletionTimestamp != nil {
		return nil, nil
	}
	p := &picture{cc: &cc}
	p.set.Owner = fragment.OwnerReference(kind, &cc)
	secret, err := pullSecret(ctx, r, cc.Spec.PullSecret)
	if err != nil {
		p.fail = err
		return p, nil
	}
	for _, role := range roles(&cc) {
		base, err := hostconf.Base(fragment.Facts(&cc, role, secret))
		if err != nil {
			p.fail = err
			return p, nil
		}
		p.set.Want = append(p.set.Want, base...)
	}
	p.set.Have, err = fragment.List(ctx, r, c.overlay, cc.UID, func(mc *machineconfigv1.MachineConfig) bool {
		return metav1.IsControlledBy(mc, &cc) || p.wants(mc.Name)
	})
	return p, err
}

func (p *picture) wants(name string) bool {
	for _, f := range p.set.Want {
		if f.Name == name {
			return true
		}
	}
	return false
}

func roles(cc *machineconfigv1.ControllerConfig) []string {
	out := []string{hostconf.RoleMaster, hostconf.RoleWorker}
	if i := cc.Spec.Infra; i != nil && i.Status.ControlPlaneTopology == configv1.HighlyAvailableArbiterMode {
		out = append(out, hostconf.RoleArbiter)
	}
	return out
}

// pullSecret returns the content of the secret that ref names; nothing when it
// names none.
func pullSecret(ctx context.Context, r client.Reader, ref *corev1.ObjectReference) ([]byte, error) {
	if ref == nil {
		return nil, nil
	}
	var s corev1.Secret
	if err := r.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &s); err != nil {
		return nil, fmt.Errorf("read pull secret %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	if s.Type != fragment.PullSecretType {
		return nil, errors.New(wire.TextSecretType(string(fragment.PullSecretType), string(s.Type)))
	}
	return s.Data[corev1.DockerConfigJsonKey], nil
}

func decide(p *picture) (plan.Decision[[]hostconf.Fragment], error) {
	d := plan.Decision[[]hostconf.Fragment]{Status: p.set.Want}
	if p.fail != nil {
		return d, p.fail
	}
	have := fragment.Existing(p.set.Have, func(mc *machineconfigv1.MachineConfig) bool { return metav1.IsControlledBy(mc, p.cc) })
	var err error
	d.Actions, err = hostconf.Plan(p.set.Want, have, fragment.Notes())
	return d, err
}

// ofConfig maps a base config to the ControllerConfig, also when somebody took
// its owner away.
func ofConfig(_ context.Context, _ client.Reader, obj client.Object) []types.NamespacedName {
	owner := metav1.GetControllerOfNoCopy(obj)
	if owner == nil || owner.Kind == kind {
		return []types.NamespacedName{{Name: wire.ControllerConfig}}
	}
	return nil
}

func ofSecret(ctx context.Context, r client.Reader, obj client.Object) []types.NamespacedName {
	cc, err := fragment.ControllerConfig(ctx, r)
	if err != nil || cc.Spec.PullSecret == nil {
		return nil
	}
	if ref := cc.Spec.PullSecret; ref.Namespace == obj.GetNamespace() && ref.Name == obj.GetName() {
		return []types.NamespacedName{{Name: wire.ControllerConfig}}
	}
	return nil
}
