package hostconf

import (
	"time"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// keptAccepted is how many verdicts a KubeletConfig remembers.
const keptAccepted = 3

// KubeletConditions adds a verdict to a KubeletConfig's conditions: nil is
// success. A verdict that says what the last one said changes nothing, so that
// looking again writes nothing. The last element of the list is always the
// present verdict, which is what renderers wait for.
func KubeletConditions(have []machineconfigv1.KubeletConfigCondition, verdict error, now time.Time) []machineconfigv1.KubeletConfigCondition {
	at := metav1.NewTime(now.UTC().Truncate(time.Second))
	accepted := machineconfigv1.KubeletConfigCondition{Type: machineconfigv1.KubeletConfigAccepted, Status: corev1.ConditionTrue, Message: "Success", LastTransitionTime: at}
	legacy := machineconfigv1.KubeletConfigCondition{Type: machineconfigv1.KubeletConfigSuccess, Status: corev1.ConditionTrue, Message: "Success", LastTransitionTime: at}
	if verdict != nil {
		accepted.Status, accepted.Message = corev1.ConditionFalse, "Error: "+verdict.Error()
		legacy.Type, legacy.Message = machineconfigv1.KubeletConfigFailure, accepted.Message
	}
	if n := len(have); n > 0 && have[n-1].Type == legacy.Type && have[n-1].Status == legacy.Status && have[n-1].Message == legacy.Message {
		return have
	}
	var old []machineconfigv1.KubeletConfigCondition
	for _, c := range have {
		if c.Type == machineconfigv1.KubeletConfigAccepted && c.Message != accepted.Message {
			old = append(old, c)
		}
	}
	old = old[max(0, len(old)-(keptAccepted-1)):]
	return append(append([]machineconfigv1.KubeletConfigCondition{}, old...), accepted, legacy)
}

// RuntimeConditions adds a verdict to a ContainerRuntimeConfig's conditions:
// nil is success. It is appended unless the last one says the same.
func RuntimeConditions(have []machineconfigv1.ContainerRuntimeConfigCondition, verdict error, now time.Time) []machineconfigv1.ContainerRuntimeConfigCondition {
	next := machineconfigv1.ContainerRuntimeConfigCondition{
		Type: machineconfigv1.ContainerRuntimeConfigSuccess, Status: corev1.ConditionTrue, Message: "Success",
		LastTransitionTime: metav1.NewTime(now.UTC().Truncate(time.Second)),
	}
	if verdict != nil {
		next.Type, next.Message = machineconfigv1.ContainerRuntimeConfigFailure, "Error: "+verdict.Error()
	}
	if n := len(have); n > 0 && have[n-1].Type == next.Type && have[n-1].Message == next.Message {
		return have
	}
	out := append([]machineconfigv1.ContainerRuntimeConfigCondition{}, have...)
	// The original has no bound, and such lists grow for years.
	out = out[max(0, len(out)-9):]
	return append(out, next)
}
