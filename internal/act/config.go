package act

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"millwright.io/millwright/internal/engine/plan"
)

// createConfig makes what the binding says. A config that exists already is
// success if the decided object controls it.
func (r *run) createConfig(ctx context.Context, a plan.CreateConfig) error {
	if r.b.Make == nil {
		return errors.New("the binding makes no objects")
	}
	objs, err := r.b.Make(a)
	if err != nil {
		return err
	}
	for _, obj := range objs {
		err := r.c.Create(ctx, obj)
		if apierrors.IsAlreadyExists(err) {
			err = r.ours(ctx, obj, err)
		}
		if err != nil {
			return err
		}
		if r.memory != nil {
			r.memory.Created(r.owner.GetUID(), obj)
		}
	}
	r.note(func(o *Outcome) { o.Created = append(o.Created, a.Name) })
	return nil
}

// updateConfig patches a config that the binding names.
func (r *run) updateConfig(ctx context.Context, a plan.UpdateConfig) error {
	obj, own := r.target(a)
	if own {
		return fmt.Errorf("the binding does not know config %s", a.Name)
	}
	return r.patch(ctx, obj, a)
}

func (r *run) deleteConfig(ctx context.Context, a plan.DeleteConfig) error {
	obj, own := r.target(a)
	if own {
		return fmt.Errorf("the binding does not know config %s", a.Name)
	}
	if err := r.delete(ctx, obj, a.UID); err != nil {
		return err
	}
	if r.memory != nil {
		r.memory.Deleted(r.owner.GetUID(), obj)
	}
	r.note(func(o *Outcome) { o.Deleted = append(o.Deleted, a.Name) })
	return nil
}
