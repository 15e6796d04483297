package act

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/telemetry"
)

// node performs one node action. A Node or pod that is gone needs nothing
// more.
func (r *run) node(ctx context.Context, a plan.NodeAction) error {
	switch a := a.(type) {
	case plan.CordonNode:
		return r.editNode(ctx, a.Node, func(n *corev1.Node) []kube.PatchOption { return cordon(n, a.By) })
	case plan.UncordonNode:
		return r.editNode(ctx, a.Node, func(n *corev1.Node) []kube.PatchOption { return uncordon(n, a.By) })
	case plan.EvictPod:
		return r.evict(ctx, a)
	case plan.DeletePod:
		return r.deletePod(ctx, a)
	case plan.LinkNode:
		return r.editNode(ctx, a.Node, func(n *corev1.Node) []kube.PatchOption { return link(n, a) })
	case plan.DeleteNode:
		return r.delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.Node}}, a.UID)
	default:
		return fmt.Errorf("unknown node action %T", a)
	}
}

// editNode sends what edit changes as one merge patch.
func (r *run) editNode(ctx context.Context, name string, edit func(*corev1.Node) []kube.PatchOption) error {
	var before corev1.Node
	if err := r.c.Get(ctx, nodeKey(name), &before); err != nil {
		return ignoreNotFound(err)
	}
	after := before.DeepCopy()
	opts := edit(after)
	if err := kube.Patch(ctx, r.c, &before, after, opts...); err != nil {
		return ignoreNotFound(err)
	}
	if own, ok := r.owner.(*corev1.Node); ok && own.Name == name {
		r.note(func(o *Outcome) { o.Object = after })
	}
	return nil
}

// cordon marks the Node and says by whom. A Node that is cordoned already
// stays as it is: that cordon is not ours. The lock keeps it so when somebody
// cordons at the same moment.
func cordon(n *corev1.Node, by string) []kube.PatchOption {
	if n.Spec.Unschedulable {
		return nil
	}
	n.Spec.Unschedulable = true
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	n.Annotations[telemetry.AnnotationCordonedBy] = by
	return []kube.PatchOption{kube.OptimisticLock()}
}

// uncordon takes back a cordon of ours.
func uncordon(n *corev1.Node, by string) []kube.PatchOption {
	if n.Annotations[telemetry.AnnotationCordonedBy] != by {
		return nil
	}
	n.Spec.Unschedulable = false
	delete(n.Annotations, telemetry.AnnotationCordonedBy)
	return []kube.PatchOption{kube.OptimisticLock()}
}

func link(n *corev1.Node, a plan.LinkNode) []kube.PatchOption {
	n.Labels = with(n.Labels, a.Labels)
	n.Annotations = with(n.Annotations, a.Annotations)
	taints := taintsWith(n.Spec.Taints, a.Taints)
	if len(taints) == len(n.Spec.Taints) {
		return nil
	}
	n.Spec.Taints = taints
	return []kube.PatchOption{kube.OptimisticLock()}
}

// with returns have with the pairs of add; have is changed if it is not nil.
func with(have, add map[string]string) map[string]string {
	if have == nil && len(add) > 0 {
		have = map[string]string{}
	}
	for k, v := range add {
		have[k] = v
	}
	return have
}

// evict asks for one eviction. That the server answers no, because of a budget
// or for another reason, is an outcome, not an error: other pods may go.
func (r *run) evict(ctx context.Context, a plan.EvictPod) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name}}
	ev := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name},
		DeleteOptions: &metav1.DeleteOptions{},
	}
	if a.UID != "" {
		id := types.UID(a.UID)
		ev.DeleteOptions.Preconditions = &metav1.Preconditions{UID: &id}
	}
	if a.Grace >= 0 {
		s := int64(a.Grace.Seconds())
		ev.DeleteOptions.GracePeriodSeconds = &s
	}
	err := r.c.SubResource("eviction").Create(ctx, pod, ev)
	switch {
	case err == nil, apierrors.IsNotFound(err), a.UID != "" && apierrors.IsConflict(err):
		return nil
	case answered(err):
		r.note(func(o *Outcome) { o.Blocked = append(o.Blocked, Blocked{Action: a, Message: reason(err)}) })
		return nil
	}
	return err
}

// answered says whether the server refused for a reason that lies in the pod;
// credentials, time and load are none.
func answered(err error) bool {
	var s apierrors.APIStatus
	if !errors.As(err, &s) {
		return false
	}
	switch s.Status().Reason {
	case metav1.StatusReasonUnauthorized, metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout, metav1.StatusReasonServiceUnavailable:
		return false
	}
	return true
}

// deletePod deletes a pod without asking its budgets.
func (r *run) deletePod(ctx context.Context, a plan.DeletePod) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name}}
	var opts []client.DeleteOption
	if a.UID != "" {
		id := types.UID(a.UID)
		opts = append(opts, client.Preconditions{UID: &id})
	}
	if a.Grace >= 0 {
		opts = append(opts, client.GracePeriodSeconds(int64(a.Grace.Seconds())))
	}
	err := r.c.Delete(ctx, pod, opts...)
	if apierrors.IsNotFound(err) || a.UID != "" && apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// reason returns the server's own words, with the budget's where it gave them.
func reason(err error) string {
	var s apierrors.APIStatus
	if !errors.As(err, &s) {
		return err.Error()
	}
	text := s.Status().Message
	if d := s.Status().Details; d != nil {
		for _, c := range d.Causes {
			if c.Message != "" {
				text += " " + c.Message
			}
		}
	}
	return text
}

// cloud performs one cloud action.
func (r *run) cloud(ctx context.Context, a plan.CloudAction) error {
	if r.cl == nil {
		return errors.New("no cloud at hand")
	}
	switch a := a.(type) {
	case plan.CreateInstance:
		if r.b.Intent == nil {
			return errors.New("the binding has no intent")
		}
		intent, err := r.b.Intent(a)
		if err != nil {
			return err
		}
		inst, err := r.cl.Create(ctx, intent)
		if err != nil {
			return err
		}
		r.note(func(o *Outcome) { o.Instance = &inst })
		return nil
	case plan.DeleteInstance:
		err := r.cl.Delete(ctx, a.Key)
		if cloud.KindOf(err) == cloud.NotFound {
			r.note(func(o *Outcome) { o.InstanceGone = true })
			return nil
		}
		return err
	default:
		return fmt.Errorf("unknown cloud action %T", a)
	}
}
