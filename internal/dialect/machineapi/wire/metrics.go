package wire

// Metrics of Machines and their sets, as alerts name them.
const (
	MetricMachineItems      = "mapi_machine_items"
	MetricMachineSetItems   = "mapi_machineset_items"
	MetricMachineCreated    = "mapi_machine_created_timestamp_seconds"
	MetricMachineSetCreated = "mapi_machineset_created_timestamp_seconds"
	MetricSetReplicas       = "mapi_machine_set_status_replicas"
	MetricSetReady          = "mapi_machine_set_status_replicas_ready"
	MetricSetAvailable      = "mapi_machine_set_status_replicas_available"
	MetricCollectorUp       = "mapi_mao_collector_up"
	MetricPhaseSeconds      = "mapi_machine_phase_transition_seconds"
	MetricCreateFailed      = "mapi_instance_create_failed"
	MetricUpdateFailed      = "mapi_instance_update_failed"
	MetricDeleteFailed      = "mapi_instance_delete_failed"
)

// FailureReasons are the reasons of failed creates and deletes that dashboards
// know. A failure that bears none of them in its text has its kind for a
// reason.
func FailureReasons() []string {
	return []string{
		"failed to create VM network interface", "failed to create VM", "failed to create public IP",
		"failed to obtain instance type information", "accelerated networking not supported on instance type",
		"failed to delete OS disk", "failed to delete data disk", "failed to delete network interface", "failed to delete Public IP",
	}
}
