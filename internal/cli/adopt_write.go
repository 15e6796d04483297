package cli

import (
	"context"
	"encoding/json"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// create makes the rendered config, as its controller would, unless there is one.
func (o *operator) create(ctx context.Context, a *adoption) error {
	mc := a.after.config.DeepCopy()
	err := o.Create(ctx, mc, client.FieldOwner(controllerConfig))
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case err != nil:
		return fmt.Errorf("create MachineConfig %s: %w", mc.Name, err)
	}
	a.created = true
	return nil
}

// forget removes the rendered config again if it was made here.
func (o *operator) forget(ctx context.Context, a *adoption) error {
	if !a.created {
		return nil
	}
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: a.after.Name}}
	if err := client.IgnoreNotFound(o.Delete(ctx, mc)); err != nil {
		return fmt.Errorf("delete MachineConfig %s: %w", mc.Name, err)
	}
	return nil
}

// put creates a MachineConfig or replaces its spec, its labels and annotations added.
func (o *operator) put(ctx context.Context, mc *mcfgv1.MachineConfig, dry ...client.CreateOption) error {
	existing, err := o.config(ctx, mc.Name)
	if err != nil {
		return err
	}
	if existing == nil {
		if err := o.Create(ctx, mc.DeepCopy(), dry...); err != nil {
			return fmt.Errorf("create MachineConfig %s: %w", mc.Name, err)
		}
		return nil
	}
	after := existing.DeepCopy()
	after.Spec = *mc.Spec.DeepCopy()
	after.Labels, after.Annotations = overlaid(existing.Labels, mc.Labels), overlaid(existing.Annotations, mc.Annotations)
	var opts []client.UpdateOption
	if len(dry) > 0 {
		opts = append(opts, client.DryRunAll)
	}
	if err := o.Update(ctx, after, opts...); err != nil {
		return fmt.Errorf("update MachineConfig %s: %w", mc.Name, err)
	}
	return nil
}

func overlaid(base, over map[string]string) map[string]string {
	out := cloneMap(base)
	for k, v := range over {
		out[k] = v
	}
	return out
}

// annoAdopting on a pool names the config that an adoption paused it for, so that one
// which ended half-way can be run again and ends the pause.
const annoAdopting = "millwright.io/adopting"

// pausedByOthers tells that somebody paused a pool who was not an adoption.
func pausedByOthers(pool *mcfgv1.MachineConfigPool) bool {
	return pool.Spec.Paused && pool.Annotations[annoAdopting] == ""
}

// pause keeps the pool's controller from moving nodes.
func (o *operator) pause(ctx context.Context, a *adoption) error {
	if pausedByOthers(a.pool) {
		return nil
	}
	return o.patchPool(ctx, a.pool.Name, &a.after.Name, map[string]any{"paused": true})
}

// point makes the rendered config the pool's, and takes our pause away, in one write.
func (o *operator) point(ctx context.Context, a *adoption) error {
	sources := make([]corev1.ObjectReference, 0, len(a.after.Sources))
	for _, name := range a.after.Sources {
		sources = append(sources, corev1.ObjectReference{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfig", Name: name})
	}
	return o.patchPool(ctx, a.pool.Name, nil, map[string]any{
		"paused":        pausedByOthers(a.pool),
		"configuration": map[string]any{"name": a.after.Name, "source": sources},
	})
}

// patchPool changes a pool's spec and the note of who paused it; nil: nobody.
func (o *operator) patchPool(ctx context.Context, name string, adopting *string, spec map[string]any) error {
	raw, err := json.Marshal(map[string]any{"spec": spec, "metadata": map[string]any{"annotations": map[string]*string{annoAdopting: adopting}}})
	if err != nil {
		return fmt.Errorf("encode the patch of pool %s: %w", name, err)
	}
	p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := o.Patch(ctx, p, client.RawPatch(types.MergePatchType, raw)); err != nil {
		return fmt.Errorf("write to MachineConfigPool %s: %w", name, err)
	}
	return nil
}
