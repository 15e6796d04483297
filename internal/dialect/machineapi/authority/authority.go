// Package authority honours authoritativeAPI: a Machine or MachineSet that says it is
// led by Cluster API, or on its way there, is left alone and says so. Definitions of a
// cluster's default feature set do not have the field; then nothing is left alone. It
// never decides who should lead.
package authority

import (
	"context"
	"fmt"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/kube"
)

// Condition and its reasons, as the original's users know them.
const (
	conditionPaused  = "Paused"
	reasonElsewhere  = "AuthoritativeAPINotMachineAPI"
	reasonMachineAPI = "AuthoritativeAPIMachineAPI"
)

// claim is what an object says about who leads it.
type claim struct {
	spec       machinev1beta1.MachineAuthority
	status     *machinev1beta1.MachineAuthority
	conditions *[]machinev1beta1.Condition
}

func claimOf(obj client.Object) (claim, bool) {
	switch o := obj.(type) {
	case *machinev1beta1.Machine:
		return claim{o.Spec.AuthoritativeAPI, &o.Status.AuthoritativeAPI, &o.Status.Conditions}, true
	case *machinev1beta1.MachineSet:
		return claim{o.Spec.AuthoritativeAPI, &o.Status.AuthoritativeAPI, &o.Status.Conditions}, true
	}
	return claim{}, false
}

// Yield tells whether a Machine or MachineSet is to be left alone, and writes what it
// then says. An object that names nobody is ours.
func Yield(ctx context.Context, c client.Client, clk clock.PassiveClock, obj client.Object) (bool, error) {
	after, ok := obj.DeepCopyObject().(client.Object)
	if !ok {
		return false, nil
	}
	said, ok := claimOf(after)
	if !ok || said.spec == "" && *said.status == "" {
		return false, nil
	}
	if *said.status == "" {
		// Whoever migrates moves on from here.
		*said.status = said.spec
		return true, kube.PatchStatus(ctx, c, obj, after)
	}
	leave := true
	switch *said.status {
	case machinev1beta1.MachineAuthorityMachineAPI:
		leave = false
		set(said.conditions, corev1.ConditionFalse, reasonMachineAPI, *said.status, clk)
	case machinev1beta1.MachineAuthorityClusterAPI, machinev1beta1.MachineAuthorityMigrating:
		set(said.conditions, corev1.ConditionTrue, reasonElsewhere, *said.status, clk)
	default:
		return true, nil // a word of a later version
	}
	if equality.Semantic.DeepEqual(obj, after) {
		return leave, nil
	}
	// The write comes back as an event; what follows would act on an old object.
	return true, kube.PatchStatus(ctx, c, obj, after, kube.OptimisticLock())
}

// set writes the condition; its time moves only with its status.
func set(list *[]machinev1beta1.Condition, status corev1.ConditionStatus, reason string, leader machinev1beta1.MachineAuthority, clk clock.PassiveClock) {
	want := machinev1beta1.Condition{
		Type: conditionPaused, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(clk.Now()),
		Message: fmt.Sprintf("The AuthoritativeAPI status is set to '%s'", leader),
	}
	if status == corev1.ConditionFalse {
		want.Severity = machinev1beta1.ConditionSeverityInfo
	}
	for i, have := range *list {
		if have.Type != conditionPaused {
			continue
		}
		if have.Status == status {
			want.LastTransitionTime = have.LastTransitionTime
		}
		(*list)[i] = want
		return
	}
	*list = append(*list, want)
}
