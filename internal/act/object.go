package act

import (
	"context"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/kube"
)

// object performs one object action.
func (r *run) object(ctx context.Context, a plan.ObjectAction) error {
	switch a := a.(type) {
	case plan.CreateMachine:
		return r.createMachine(ctx, a)
	case plan.DeleteMachine:
		return r.deleteMachine(ctx, a)
	case plan.AdoptMachine:
		return r.adoptMachine(ctx, a)
	case plan.ReleaseMachine:
		return r.releaseMachine(ctx, a)
	case plan.AddFinalizer:
		return r.change(ctx, a, kube.OptimisticLock())
	case plan.RemoveFinalizer:
		// Gone already is what we want.
		return ignoreNotFound(r.change(ctx, a, kube.OptimisticLock()))
	case plan.ApproveRequest, plan.DenyRequest:
		return r.request(ctx, a)
	case plan.CreateRepair:
		return r.createRepair(ctx, a)
	case plan.DeleteRepair:
		obj, _ := r.target(a)
		return r.delete(ctx, obj, "")
	case plan.CreateConfig, plan.UpdateConfig, plan.DeleteConfig:
		return r.config(ctx, a)
	case plan.SetDesiredConfig, plan.AnswerDrain:
		return ignoreNotFound(r.change(ctx, a))
	case plan.BeginDrain:
		// The lock keeps a cordon that somebody makes at the same moment.
		return ignoreNotFound(r.change(ctx, a, kube.OptimisticLock()))
	case plan.RecordInstance, plan.MarkForRepair, plan.SetTarget, plan.Annotate:
		return r.change(ctx, a)
	default:
		return fmt.Errorf("unknown object action %T", a)
	}
}

// request answers a certificate signing request.
func (r *run) request(ctx context.Context, a plan.ObjectAction) error {
	if d, ok := a.(plan.DenyRequest); ok {
		return r.answer(ctx, d, condition(certificatesv1.CertificateDenied, d.Reason, d.Message))
	}
	if p, ok := a.(plan.ApproveRequest); ok {
		return r.answer(ctx, p, condition(certificatesv1.CertificateApproved, p.Reason, p.Message))
	}
	return fmt.Errorf("unknown action %T on a request", a)
}

// config performs one action on a config.
func (r *run) config(ctx context.Context, a plan.ObjectAction) error {
	if c, ok := a.(plan.CreateConfig); ok {
		return r.createConfig(ctx, c)
	}
	if u, ok := a.(plan.UpdateConfig); ok {
		return r.updateConfig(ctx, u)
	}
	if d, ok := a.(plan.DeleteConfig); ok {
		return r.deleteConfig(ctx, d)
	}
	return fmt.Errorf("unknown config action %T", a)
}

// target returns a copy of the object an action means, and whether that is
// the decided object itself.
func (r *run) target(a plan.ObjectAction) (client.Object, bool) {
	if r.b.Target != nil {
		if obj := r.b.Target(a); obj != nil {
			own := r.owner.GetUID() != "" && obj.GetUID() == r.owner.GetUID()
			if !own {
				return obj.DeepCopyObject().(client.Object), false
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.Object.DeepCopyObject().(client.Object), true
}

func (r *run) createMachine(ctx context.Context, a plan.CreateMachine) error {
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

// createRepair makes what asks for a Machine's repair. It bears the Machine's
// name, so one that is there is the one.
func (r *run) createRepair(ctx context.Context, a plan.CreateRepair) error {
	if r.b.Make == nil {
		return errors.New("the binding makes no objects")
	}
	objs, err := r.b.Make(a)
	if err != nil {
		return err
	}
	for _, obj := range objs {
		if err := r.c.Create(ctx, obj); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// ours reads the existing object into obj and returns nil if the decided
// object controls it, else exists.
func (r *run) ours(ctx context.Context, obj client.Object, exists error) error {
	have := obj.DeepCopyObject().(client.Object)
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(obj), have); err != nil {
		return fmt.Errorf("read what exists already: %w", err)
	}
	if !metav1.IsControlledBy(have, r.owner) {
		return exists
	}
	obj.SetUID(have.GetUID())
	obj.SetResourceVersion(have.GetResourceVersion())
	obj.SetDeletionTimestamp(have.GetDeletionTimestamp())
	return nil
}

func (r *run) deleteMachine(ctx context.Context, a plan.DeleteMachine) error {
	obj, _ := r.target(a)
	if err := r.delete(ctx, obj, a.UID); err != nil {
		return err
	}
	if r.memory != nil {
		if a.UID != "" {
			obj.SetUID(types.UID(a.UID))
		}
		r.memory.Deleted(r.owner.GetUID(), obj)
	}
	r.note(func(o *Outcome) { o.Deleted = append(o.Deleted, a.Name) })
	return nil
}

// delete deletes obj if it still has this UID. That it is gone, or that its
// name has a new bearer, is success.
func (r *run) delete(ctx context.Context, obj client.Object, uid string) error {
	var opts []client.DeleteOption
	if uid != "" {
		id := types.UID(uid)
		opts = append(opts, client.Preconditions{UID: &id})
	}
	err := r.c.Delete(ctx, obj, opts...)
	if apierrors.IsNotFound(err) || (uid != "" && apierrors.IsConflict(err)) {
		return nil
	}
	return err
}

func (r *run) adoptMachine(ctx context.Context, a plan.AdoptMachine) error {
	obj, _ := r.target(a)
	if a.UID != "" && string(obj.GetUID()) != a.UID {
		return fmt.Errorf("it is %s now, not %s", obj.GetUID(), a.UID)
	}
	if err := r.patch(ctx, obj, a, kube.OptimisticLock()); err != nil {
		return err
	}
	r.note(func(o *Outcome) { o.Adopted = append(o.Adopted, a.Name) })
	return nil
}

func (r *run) releaseMachine(ctx context.Context, a plan.ReleaseMachine) error {
	obj, _ := r.target(a)
	if a.UID != "" && string(obj.GetUID()) != a.UID {
		return nil // another one bears the name now
	}
	return ignoreNotFound(r.patch(ctx, obj, a, kube.OptimisticLock()))
}

// change patches what the action means, by default the decided object.
func (r *run) change(ctx context.Context, a plan.ObjectAction, opts ...kube.PatchOption) error {
	obj, own := r.target(a)
	if err := r.patch(ctx, obj, a, opts...); err != nil {
		return err
	}
	if own {
		r.note(func(o *Outcome) { o.Object = obj })
	}
	return nil
}

// patch lets the binding change obj and sends the difference.
func (r *run) patch(ctx context.Context, obj client.Object, a plan.ObjectAction, opts ...kube.PatchOption) error {
	if r.b.Apply == nil {
		return errors.New("the binding applies no actions")
	}
	before := obj.DeepCopyObject().(client.Object)
	if err := r.b.Apply(obj, a); err != nil {
		return err
	}
	return kube.Patch(ctx, r.c, before, obj, opts...)
}

// answer approves or denies a signing request that has no answer yet.
func (r *run) answer(ctx context.Context, a plan.ObjectAction, c certificatesv1.CertificateSigningRequestCondition) error {
	obj, _ := r.target(a)
	csr, ok := obj.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return fmt.Errorf("the target is a %T, not a signing request", obj)
	}
	if slices.ContainsFunc(csr.Status.Conditions, func(h certificatesv1.CertificateSigningRequestCondition) bool { return h.Type == c.Type }) {
		return nil
	}
	csr.Status.Conditions = append(csr.Status.Conditions, c)
	return ignoreNotFound(r.c.SubResource("approval").Update(ctx, csr))
}

func condition(kind certificatesv1.RequestConditionType, reason, message string) certificatesv1.CertificateSigningRequestCondition {
	// The server stamps the times.
	return certificatesv1.CertificateSigningRequestCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message}
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
