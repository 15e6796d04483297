package spec

import (
	"encoding/json"
	"fmt"
	"reflect"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright.io/millwright/internal/cloud"
)

const (
	conditionCreated = "MachineCreated"
	reasonSucceeded  = "MachineCreationSucceeded"
	reasonFailed     = "MachineCreationFailed"
	messageCreated   = "machine successfully created"
)

// Status returns the AzureMachineProviderStatus that follows prev: what the
// cloud has (nil: nothing is known) and why creating failed (nil: it did not).
// When nothing changes it returns prev itself, so that no write follows. A
// prev that cannot be read is replaced.
func Status(prev []byte, inst *cloud.Instance, fault *cloud.Fault, now metav1.Time) ([]byte, error) {
	var before machinev1.AzureMachineProviderStatus
	if len(prev) > 0 {
		if err := json.Unmarshal(prev, &before); err != nil {
			before = machinev1.AzureMachineProviderStatus{}
		}
	}
	after := before.DeepCopy()
	after.Kind, after.APIVersion = "AzureMachineProviderStatus", apiVersion
	if inst != nil {
		if inst.ID != "" {
			after.VMID = &inst.ID
		}
		if state := VMState(inst.State); state != "" {
			after.VMState = &state
		}
	}
	switch {
	case fault != nil:
		setCreated(after, metav1.ConditionFalse, reasonFailed, fault.Error(), now)
	case inst != nil && inst.ID != "":
		setCreated(after, metav1.ConditionTrue, reasonSucceeded, messageCreated, now)
	}
	if reflect.DeepEqual(before, *after) {
		return prev, nil
	}
	raw, err := json.Marshal(after)
	if err != nil {
		return nil, fmt.Errorf("encode AzureMachineProviderStatus: %w", err)
	}
	return raw, nil
}

// VMState is a state in Azure's words; "" for the empty state.
func VMState(s cloud.State) machinev1.AzureVMState {
	switch s {
	case "":
		return ""
	case cloud.StateCreating, cloud.StateUpdating, cloud.StateStarting, cloud.StateRunning, cloud.StateStopping,
		cloud.StateStopped, cloud.StateDeallocating, cloud.StateDeallocated, cloud.StateDeleting, cloud.StateFailed:
		return machinev1.AzureVMState(s)
	case cloud.StateUnknown, cloud.StateLeftover:
		return machinev1.VMStateUnknown
	}
	return machinev1.VMStateUnknown
}

func setCreated(s *machinev1.AzureMachineProviderStatus, status metav1.ConditionStatus, reason, message string, now metav1.Time) {
	next := metav1.Condition{Type: conditionCreated, Status: status, Reason: reason, Message: message, LastTransitionTime: now}
	for i, c := range s.Conditions {
		if c.Type != conditionCreated {
			continue
		}
		if c.Status == status {
			next.LastTransitionTime = c.LastTransitionTime
		}
		next.ObservedGeneration = c.ObservedGeneration
		s.Conditions[i] = next
		return
	}
	s.Conditions = append(s.Conditions, next)
}
