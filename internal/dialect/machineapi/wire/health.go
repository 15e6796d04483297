package wire

import "time"

// Annotations of health checks and repairs.
const (
	// AnnotationRemediationStrategy on a check says who repairs.
	AnnotationRemediationStrategy = "machine.openshift.io/remediation-strategy"
	// RemediationExternalBaremetal is its value for somebody else.
	RemediationExternalBaremetal = "external-baremetal"
	// AnnotationExternalRemediation on a Machine asks for that.
	AnnotationExternalRemediation = "host.metal3.io/external-remediation"
	// AnnotationClonedFromName and AnnotationClonedFromGroupKind on a repair
	// object name its template.
	AnnotationClonedFromName      = "machine.openshift.io/cloned-from-name"
	AnnotationClonedFromGroupKind = "machine.openshift.io/cloned-from-groupkind"
)

// DefaultNodeStartupTimeout is how long a Machine may be without a Node.
const DefaultNodeStartupTimeout = 10 * time.Minute

// Metrics of health checks, as alerts name them. Labels: name, namespace.
const (
	MetricNodesCovered = "mapi_machinehealthcheck_nodes_covered"
	MetricRemediations = "mapi_machinehealthcheck_remediation_success_total"
	MetricShortCircuit = "mapi_machinehealthcheck_short_circuit"
)
