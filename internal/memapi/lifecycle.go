package memapi

import (
	"context"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// delete deletes one object if the preconditions hold. With finalizers it is
// only marked.
func (a *API) delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	var o client.DeleteOptions
	o.ApplyOptions(opts)
	have := obj.DeepCopyObject().(client.Object)
	if err := a.raw.Get(ctx, client.ObjectKeyFromObject(obj), have); err != nil {
		return err
	}
	if p := o.Preconditions; p != nil {
		if p.UID != nil && *p.UID != have.GetUID() {
			return a.precondition(obj, "UID", string(*p.UID), string(have.GetUID()))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != have.GetResourceVersion() {
			return a.precondition(obj, "ResourceVersion", *p.ResourceVersion, have.GetResourceVersion())
		}
	}
	if o.PropagationPolicy != nil && *o.PropagationPolicy == metav1.DeletePropagationOrphan {
		if err := a.orphan(ctx, have.GetUID()); err != nil {
			return err
		}
	}
	return a.raw.Delete(ctx, have)
}

func (a *API) precondition(obj client.Object, field, want, have string) error {
	r, err := resourceOf(a.scheme, obj)
	if err != nil {
		return err
	}
	return apierrors.NewConflict(r, obj.GetName(),
		fmt.Errorf("Precondition failed: %s in precondition: %s, %s in object meta: %s", field, want, field, have))
}

// orphan takes an owner off its dependents.
func (a *API) orphan(ctx context.Context, owner types.UID) error {
	for _, ref := range a.dependents(func(k known) bool { return slices.Contains(k.owners, owner) }) {
		u := ref.object()
		if err := a.raw.Get(ctx, ref.key, u); err != nil {
			return client.IgnoreNotFound(err)
		}
		u.SetOwnerReferences(slices.DeleteFunc(u.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == owner }))
		if err := a.raw.Update(ctx, u); err != nil {
			return err
		}
	}
	return nil
}

// collect deletes, until none is left, what only removed objects owned.
func (a *API) collect(ctx context.Context) {
	for a.t.fresh {
		a.t.fresh = false
		dead := a.dependents(func(k known) bool {
			return len(k.owners) > 0 && !k.deleting &&
				!slices.ContainsFunc(k.owners, func(u types.UID) bool { return !a.t.removed[u] })
		})
		for _, ref := range dead {
			// It is there: writes are serialised.
			_ = a.raw.Delete(ctx, ref.object())
		}
	}
}

// dependents returns what fits, in a stable order.
func (a *API) dependents(fits func(known) bool) []objectRef {
	var out []objectRef
	for ref, k := range a.t.known {
		if fits(k) {
			out = append(out, ref)
		}
	}
	slices.SortFunc(out, func(x, y objectRef) int {
		return strings.Compare(x.gvk.String()+"/"+x.key.String(), y.gvk.String()+"/"+y.key.String())
	})
	return out
}

func (r objectRef) object() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(r.gvk)
	u.SetNamespace(r.key.Namespace)
	u.SetName(r.key.Name)
	return u
}

// evict deletes a pod if no disruption budget objects, and charges the
// budgets it falls under.
func (a *API) evict(ctx context.Context, obj, body client.Object) error {
	ev, ok := body.(*policyv1.Eviction)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("got %T, want an Eviction of policy/v1", body))
	}
	var pod corev1.Pod
	if err := a.raw.Get(ctx, client.ObjectKeyFromObject(obj), &pod); err != nil {
		return err
	}
	var opts []client.DeleteOption
	if d := ev.DeleteOptions; d != nil && d.Preconditions != nil {
		opts = append(opts, client.Preconditions(*d.Preconditions))
	}
	var charged []*policyv1.PodDisruptionBudget
	if a.scheme.Recognizes(policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget")) && pod.DeletionTimestamp == nil {
		var all policyv1.PodDisruptionBudgetList
		if err := a.raw.List(ctx, &all, client.InNamespace(pod.Namespace)); err != nil {
			return err
		}
		for i := range all.Items {
			b := &all.Items[i]
			sel, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
			if err != nil || !sel.Matches(labels.Set(pod.Labels)) {
				continue
			}
			if b.Status.DisruptionsAllowed <= 0 {
				return spent(b)
			}
			charged = append(charged, b)
		}
	}
	if err := a.delete(ctx, &pod, opts...); err != nil {
		return err
	}
	for _, b := range charged {
		b.Status.DisruptionsAllowed--
		if err := a.raw.Status().Update(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

func spent(b *policyv1.PodDisruptionBudget) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: policyv1.DisruptionBudgetCause,
		Message: fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently",
			b.Name, b.Status.DesiredHealthy, b.Status.CurrentHealthy),
	})
	return err
}

// approve stores the conditions of a signing request, and nothing else of it.
func (a *API) approve(ctx context.Context, obj client.Object) error {
	csr, ok := obj.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("got %T, want a CertificateSigningRequest", obj))
	}
	var have certificatesv1.CertificateSigningRequest
	if err := a.raw.Get(ctx, client.ObjectKeyFromObject(obj), &have); err != nil {
		return err
	}
	now := a.t.now()
	for _, c := range csr.Status.Conditions {
		if slices.ContainsFunc(have.Status.Conditions, func(h certificatesv1.CertificateSigningRequestCondition) bool { return h.Type == c.Type }) {
			continue
		}
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		if c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = now
		}
		have.Status.Conditions = append(have.Status.Conditions, c)
	}
	have.ResourceVersion = csr.ResourceVersion
	if err := a.raw.Status().Update(ctx, &have); err != nil {
		return err
	}
	have.DeepCopyInto(csr)
	return nil
}
