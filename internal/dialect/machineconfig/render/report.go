package render

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/act"
	"millwright.io/millwright/internal/dialect/machineconfig/fragment"
	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/engine/target"
	"millwright.io/millwright/internal/kube"
)

// notes are the annotations of the rendered config.
func (p *picture) notes() map[string]string {
	out := map[string]string{wire.AnnotationGeneratedBy: wire.Version(), wire.AnnotationRelease: p.release}
	if p.in.Outcome.Result.OSImageOverridden {
		out[wire.AnnotationImageOverride] = "true"
	}
	return out
}

// rendered returns the config of that name as it is known.
func (p *picture) rendered(name string) *machineconfigv1.MachineConfig {
	if mc := p.configs[name]; mc != nil {
		return mc
	}
	return &machineconfigv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// fill brings a config to what was rendered. It has no labels, so that no pool
// selects it.
func (p *picture) fill(mc *machineconfigv1.MachineConfig) {
	if mc.Annotations == nil {
		mc.Annotations = map[string]string{}
	}
	maps.Copy(mc.Annotations, p.notes())
	if !p.in.Outcome.Result.OSImageOverridden {
		delete(mc.Annotations, wire.AnnotationImageOverride)
	}
	mc.OwnerReferences = []metav1.OwnerReference{*fragment.OwnerReference("MachineConfigPool", p.pool)}
	mc.Spec = *p.in.Outcome.Result.Spec.DeepCopy()
}

// binding says how a pool's actions look in this dialect.
func (p *picture) binding() act.Binding {
	return act.Binding{
		Make: func(a plan.ObjectAction) ([]client.Object, error) {
			c, ok := a.(plan.CreateConfig)
			if !ok || c.Name != p.in.Outcome.Result.Name {
				return nil, fmt.Errorf("a pool makes nothing for %s", a)
			}
			mc := &machineconfigv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: c.Name}}
			p.fill(mc)
			p.configs[c.Name] = mc // its UID, for the events about it
			return []client.Object{mc}, nil
		},
		Target: func(a plan.ObjectAction) client.Object {
			switch a := a.(type) {
			case plan.UpdateConfig:
				return p.rendered(a.Name)
			case plan.DeleteConfig:
				return p.rendered(a.Name)
			}
			return nil
		},
		Apply: func(obj client.Object, a plan.ObjectAction) error {
			switch o := obj.(type) {
			case *machineconfigv1.MachineConfig:
				p.fill(o)
				return nil
			case *machineconfigv1.MachineConfigPool:
				if t, ok := a.(plan.SetTarget); ok {
					o.Spec.Configuration.Name = t.Name
					o.Spec.Configuration.Source = sources(t.Sources)
					return nil
				}
			}
			return fmt.Errorf("a pool changes nothing for %s", a)
		},
	}
}

func sources(names []string) []corev1.ObjectReference {
	out := make([]corev1.ObjectReference, 0, len(names))
	for _, n := range names {
		out = append(out, corev1.ObjectReference{APIVersion: machineconfigv1.GroupVersion.String(), Kind: "MachineConfig", Name: n})
	}
	return out
}

// report writes what the pool is told, unless it says all of this already. obj
// is the pool after the actions. The result is when to look again.
func (c *controller) report(ctx context.Context, obj client.Object, p *picture, d plan.Decision[target.Status]) (time.Duration, error) {
	pool, ok := obj.(*machineconfigv1.MachineConfigPool)
	if !ok {
		return 0, fmt.Errorf("report to a %T", obj)
	}
	after := pool.DeepCopy()
	owned := d.Conditions
	if len(owned) == 0 && d.Status.Waiting != "" && len(p.in.Waits) > 0 && !p.in.Pool.Degraded {
		owned = []plan.Condition{{Type: target.ConditionRenderDegraded, Status: corev1.ConditionFalse, Message: d.Status.Waiting}}
	}
	for _, o := range append(owned, p.pinnedCondition()...) {
		after.Status.Conditions = fragment.WithPoolCondition(after.Status.Conditions, o, c.Clock.Now())
	}
	// Others write conditions of the same list.
	err := kube.PatchStatus(ctx, c.Client, pool, after, kube.OptimisticLock())
	if apierrors.IsConflict(err) {
		return fragment.CacheLag, nil // somebody else was first
	}
	c.recent.Wrote(after)
	return 0, err
}

// pinnedCondition says that pinned images are not pulled. A pool without any
// keeps silent.
func (p *picture) pinnedCondition() []plan.Condition {
	kind := string(machineconfigv1.MachineConfigPoolPinnedImageSetsDegraded)
	if len(p.pinned) > 0 {
		return []plan.Condition{{Type: kind, Status: corev1.ConditionTrue, Reason: wire.ReasonNotSupported,
			Message: wire.TextNotSupported("PinnedImageSet") + ": " + strings.Join(p.pinned, ", ")}}
	}
	if fragment.PoolCondition(p.pool, machineconfigv1.MachineConfigPoolPinnedImageSetsDegraded) == nil {
		return nil
	}
	return []plan.Condition{{Type: kind, Status: corev1.ConditionFalse}}
}
