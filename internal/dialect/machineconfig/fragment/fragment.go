// Package fragment translates between hostconf's fragments and the
// MachineConfigs that hold them, for every controller that generates some. It
// makes values; it reads and writes nothing, and it decides nothing.
//
//	b := fragment.Set{Want: d.Status, Have: have, Owner: ref}.Binding()
package fragment

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/act"
	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	"millwright.io/millwright/internal/engine/hostconf"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/observe"
)

// Set is what a generator wants and what there is.
type Set struct {
	// Owner becomes the controller of every config; nil: none has one.
	Owner *metav1.OwnerReference
	// OwnerOf says who controls one of them; nil: Owner does.
	OwnerOf func(name string) *metav1.OwnerReference
	Want    []hostconf.Fragment
	Have    []*machineconfigv1.MachineConfig // shared with the cache; never changed
}

// Notes are the annotations of every generated config.
func Notes() map[string]string {
	return map[string]string{wire.AnnotationGeneratedBy: wire.Version()}
}

// OwnerReference makes obj, of a kind of the Machine Config API, a controller.
func OwnerReference(kind string, obj client.Object) *metav1.OwnerReference {
	return &metav1.OwnerReference{
		APIVersion: machineconfigv1.GroupVersion.String(), Kind: kind, Name: obj.GetName(), UID: obj.GetUID(),
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}
}

// Existing reduces configs to what hostconf compares. owned says which are the
// decided object's.
func Existing(have []*machineconfigv1.MachineConfig, owned func(*machineconfigv1.MachineConfig) bool) []hostconf.Existing {
	out := make([]hostconf.Existing, 0, len(have))
	for _, mc := range have {
		out = append(out, hostconf.Existing{
			Name: mc.Name, UID: string(mc.UID), Role: mc.Labels[wire.LabelRole],
			Owned: owned(mc), Annotations: mc.Annotations, Spec: mc.Spec,
		})
	}
	return out
}

// List returns the MachineConfigs that fit, by name, own writes for owner
// included. They are the cache's own.
func List(ctx context.Context, r client.Reader, o *observe.Overlay, owner types.UID, fits func(*machineconfigv1.MachineConfig) bool) ([]*machineconfigv1.MachineConfig, error) {
	var list machineconfigv1.MachineConfigList
	if err := r.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list machine configs: %w", err)
	}
	var cached []client.Object
	for i := range list.Items {
		if fits(&list.Items[i]) {
			cached = append(cached, &list.Items[i])
		}
	}
	var out []*machineconfigv1.MachineConfig
	for _, obj := range o.Apply(owner, cached) {
		if mc, ok := obj.(*machineconfigv1.MachineConfig); ok && mc.DeletionTimestamp == nil {
			out = append(out, mc)
		}
	}
	slices.SortFunc(out, func(a, b *machineconfigv1.MachineConfig) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Binding says how the configs look.
func (s Set) Binding() act.Binding {
	return act.Binding{
		Make: func(a plan.ObjectAction) ([]client.Object, error) {
			c, ok := a.(plan.CreateConfig)
			if !ok {
				return nil, fmt.Errorf("a generator makes nothing for %s", a)
			}
			f, err := s.fragment(c.Name)
			if err != nil {
				return nil, err
			}
			mc := &machineconfigv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: f.Name}}
			s.fill(mc, f)
			return []client.Object{mc}, nil
		},
		Target: func(a plan.ObjectAction) client.Object {
			switch a := a.(type) {
			case plan.UpdateConfig:
				return s.have(a.Name)
			case plan.DeleteConfig:
				return s.have(a.Name)
			}
			return nil
		},
		Apply: func(obj client.Object, a plan.ObjectAction) error {
			u, ok := a.(plan.UpdateConfig)
			mc, isConfig := obj.(*machineconfigv1.MachineConfig)
			if !ok || !isConfig {
				return fmt.Errorf("a generator changes nothing for %s", a)
			}
			f, err := s.fragment(u.Name)
			if err != nil {
				return err
			}
			s.fill(mc, f)
			return nil
		},
	}
}

func (s Set) fragment(name string) (hostconf.Fragment, error) {
	i := slices.IndexFunc(s.Want, func(f hostconf.Fragment) bool { return f.Name == name })
	if i < 0 {
		return hostconf.Fragment{}, fmt.Errorf("no fragment %s is wanted", name)
	}
	return s.Want[i], nil
}

func (s Set) have(name string) client.Object {
	for _, mc := range s.Have {
		if mc.Name == name {
			return mc
		}
	}
	return &machineconfigv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// fill brings a config to what the fragment says. Labels and annotations of
// others stay.
func (s Set) fill(mc *machineconfigv1.MachineConfig, f hostconf.Fragment) {
	mc.Labels = with(mc.Labels, map[string]string{wire.LabelRole: f.Role})
	mc.Annotations = with(mc.Annotations, Notes())
	owner := s.Owner
	if s.OwnerOf != nil {
		owner = s.OwnerOf(f.Name)
	}
	if owner != nil {
		mc.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	mc.Spec = *f.Spec.DeepCopy()
}

func with(have, want map[string]string) map[string]string {
	out := maps.Clone(have)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, want)
	return out
}

// Facts reads what base configs depend on from a ControllerConfig. role may be
// a pool's name; the pull secret's content is the caller's.
func Facts(cc *machineconfigv1.ControllerConfig, role string, pullSecret []byte) hostconf.Facts {
	f := hostconf.Facts{
		Role: role, ClusterDNSIP: cc.Spec.ClusterDNSIP, CloudConfig: cc.Spec.CloudProviderConfig,
		MetricsProxyImage: cc.Spec.Images["kubeRbacProxy"],
		PullSecret:        pullSecret, RootCA: cc.Spec.RootCAData, TrustBundle: cc.Spec.AdditionalTrustBundle,
	}
	if infra := cc.Spec.Infra; infra != nil {
		f.APIServer = infra.Status.APIServerInternalURL
		if p := infra.Status.PlatformStatus; p != nil {
			f.Platform = string(p.Type)
		}
	}
	switch configv1.PlatformType(f.Platform) {
	case configv1.NonePlatformType, configv1.BareMetalPlatformType, "":
	default:
		f.ExternalCloudProvider = true
	}
	if p := cc.Spec.Proxy; p != nil {
		f.HTTPProxy, f.HTTPSProxy, f.NoProxy = p.HTTPProxy, p.HTTPSProxy, p.NoProxy
	}
	return f
}

// PoolFacts reads what the fragments of a pool depend on.
func PoolFacts(ctx context.Context, r client.Reader, cc *machineconfigv1.ControllerConfig, pool *machineconfigv1.MachineConfigPool) (hostconf.PoolFacts, error) {
	p := hostconf.PoolFacts{Facts: Facts(cc, pool.Name, nil), ControlPlane: hostconf.IsControlPlane(pool)}
	gate, err := Singleton(ctx, r, &configv1.FeatureGate{})
	if err != nil {
		return p, err
	}
	p.Gates = hostconf.Gates(gate, cc.Annotations[wire.AnnotationRelease])
	node, err := Singleton(ctx, r, &configv1.Node{})
	if err != nil {
		return p, err
	}
	if node != nil {
		p.Latency = node.Spec.WorkerLatencyProfile
	}
	server, err := Singleton(ctx, r, &configv1.APIServer{})
	if err != nil {
		return p, err
	}
	if server != nil {
		p.TLS = server.Spec.TLSSecurityProfile
	}
	return p, nil
}

// Singleton reads the one object named cluster of obj's kind; nil when there
// is none.
func Singleton[T client.Object](ctx context.Context, r client.Reader, obj T) (T, error) {
	var none T
	err := r.Get(ctx, client.ObjectKey{Name: wire.Cluster}, obj)
	switch {
	case err == nil:
		return obj, nil
	case client.IgnoreNotFound(err) == nil:
		return none, nil
	}
	return none, fmt.Errorf("read %T %s: %w", obj, wire.Cluster, err)
}

// ControllerConfig reads the one there is.
func ControllerConfig(ctx context.Context, r client.Reader) (*machineconfigv1.ControllerConfig, error) {
	var cc machineconfigv1.ControllerConfig
	if err := r.Get(ctx, client.ObjectKey{Name: wire.ControllerConfig}, &cc); err != nil {
		return nil, fmt.Errorf("read controller config: %w", err)
	}
	return &cc, nil
}

// Changed lets status writes and heartbeats pass by: only what people and
// other controllers write about an object counts.
func Changed(old, new client.Object) bool {
	return old.GetGeneration() != new.GetGeneration() ||
		(old.GetDeletionTimestamp() == nil) != (new.GetDeletionTimestamp() == nil) ||
		!maps.Equal(old.GetLabels(), new.GetLabels()) ||
		!maps.Equal(old.GetAnnotations(), new.GetAnnotations())
}

// PullSecretType is the type that a pull secret must have.
const PullSecretType = corev1.SecretTypeDockerConfigJson
