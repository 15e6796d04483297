package controlplane

import (
	"context"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	machinev1 "github.com/openshift/api/machine/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/engine/controlplane"
	"millwright.io/millwright/internal/kube"
)

// face keeps the ClusterOperator: it says what an active set says; without
// one it is simply available.
func (c *controller) face(ctx context.Context, set *machinev1.ControlPlaneMachineSet) error {
	op := &configv1.ClusterOperator{ObjectMeta: metav1.ObjectMeta{Name: ClusterOperator}}
	err := c.Client.Get(ctx, client.ObjectKeyFromObject(op), op)
	if apierrors.IsNotFound(err) {
		if err = c.Client.Create(ctx, op); apierrors.IsAlreadyExists(err) {
			err = c.Live.Get(ctx, client.ObjectKeyFromObject(op), op)
		}
	}
	if err != nil {
		return fmt.Errorf("read cluster operator %s: %w", ClusterOperator, err)
	}
	after := op.DeepCopy()
	after.Status.Versions = []configv1.OperandVersion{{Name: "operator", Version: c.Version}}
	after.Status.RelatedObjects = []configv1.ObjectReference{
		{Resource: "namespaces", Name: wire.Namespace},
		{Group: wire.Group, Resource: "controlplanemachinesets", Namespace: wire.Namespace, Name: Name},
		{Group: wire.Group, Resource: "machines", Namespace: wire.Namespace},
	}
	now := metav1.NewTime(c.Clock.Now())
	for _, want := range faceOf(set) {
		after.Status.Conditions = setFace(after.Status.Conditions, want, now)
	}
	return kube.PatchStatus(ctx, c.Client, op, after, kube.OptimisticLock())
}

// faceOf returns the ClusterOperator's conditions.
func faceOf(set *machinev1.ControlPlaneMachineSet) []configv1.ClusterOperatorStatusCondition {
	out := []configv1.ClusterOperatorStatusCondition{
		{Type: configv1.OperatorAvailable, Status: configv1.ConditionTrue, Reason: reasonAsExpected, Message: textOperatorFine},
		{Type: configv1.OperatorProgressing, Status: configv1.ConditionFalse, Reason: reasonAsExpected},
		{Type: configv1.OperatorDegraded, Status: configv1.ConditionFalse, Reason: reasonAsExpected},
		{Type: configv1.OperatorUpgradeable, Status: configv1.ConditionTrue, Reason: reasonAsExpected, Message: textOperatorUpgradable},
	}
	if set == nil || set.Spec.State != machinev1.ControlPlaneMachineSetStateActive {
		return out
	}
	for i, kind := range []string{controlplane.Available, controlplane.Progressing, controlplane.Degraded} {
		if c := kube.Condition(set.Status.Conditions, kind); c != nil {
			out[i].Status, out[i].Reason, out[i].Message = configv1.ConditionStatus(c.Status), c.Reason, c.Message
		}
	}
	return out
}

// setFace brings one condition up to date; its time moves only with its
// status.
func setFace(all []configv1.ClusterOperatorStatusCondition, want configv1.ClusterOperatorStatusCondition, now metav1.Time) []configv1.ClusterOperatorStatusCondition {
	want.LastTransitionTime = now
	for i := range all {
		if all[i].Type != want.Type {
			continue
		}
		if all[i].Status == want.Status {
			want.LastTransitionTime = all[i].LastTransitionTime
		}
		all[i] = want
		return all
	}
	return append(all, want)
}
