// Package telemetry holds the names that logs, metrics and events of all
// parts agree on. Constants only: it imports nothing and does nothing. Texts
// that a dialect promises on the wire stand in that dialect's own table.
package telemetry

// Log keys. Kinds are UpperCamel and take klog.KObj or klog.KRef; the rest
// is lowerCamel.
const (
	KeyMachine           = "Machine"
	KeyMachineSet        = "MachineSet"
	KeyMachineConfigPool = "MachineConfigPool"
	KeyNode              = "Node"
	KeyPod               = "Pod"
	KeySecret            = "Secret"
	KeyRequest           = "CertificateSigningRequest"

	KeyAction     = "action"
	KeyController = "controller"
	KeyErr        = "err"
	KeyFile       = "file"
	KeyInstance   = "instance"
	KeyKind       = "kind"
	KeyOwner      = "owner"
	KeyPanic      = "panic"
	KeyProviderID = "providerID"
	KeyReason     = "reason"
	KeyStack      = "stack"
	KeyTook       = "took"
	KeyWake       = "wake"
)

// Metric names: millwright_<area>_<thing>_<unit>, base units, labels from
// closed sets.
const (
	// MetricPanics counts recovered panics. Label: controller.
	MetricPanics = "millwright_controller_panics_total"
	// MetricActions counts performed actions. Labels: action, result
	// (done, blocked, failed).
	MetricActions = "millwright_act_actions_total"
	// MetricActionSeconds is how long an action took. Label: action.
	MetricActionSeconds = "millwright_act_action_duration_seconds"
	// MetricAdmissions counts admission answers. Labels: route, result
	// (allowed, warned, denied, failed).
	MetricAdmissions = "millwright_webhook_admissions_total"
	// MetricAdmissionSeconds is how long an answer took. Label: route.
	MetricAdmissionSeconds = "millwright_webhook_admission_duration_seconds"
	// MetricCertificateExpiry is when the serving certificate ends.
	MetricCertificateExpiry = "millwright_webhook_certificate_expiry_seconds"
)

// Metric labels.
const (
	LabelAction     = "action"
	LabelCloud      = "cloud"
	LabelController = "controller"
	LabelKind       = "kind"
	LabelOp         = "op"
	LabelResult     = "result"
	LabelRoute      = "route"
)

// Metric label values.
const (
	ResultAllowed = "allowed"
	ResultBlocked = "blocked"
	ResultDenied  = "denied"
	ResultDone    = "done"
	ResultFailed  = "failed"
	ResultWarned  = "warned"
)

// Event reasons of parts that belong to no dialect.
const (
	// ReasonPanicked says that reconciling an object panicked.
	ReasonPanicked = "ReconcilePanicked"
	// ReasonBlocked says that an eviction has to wait.
	ReasonBlocked = "EvictionBlocked"
)

// Annotations of ours.
const (
	// AnnotationCordonedBy names who cordoned a Node; without it the cordon
	// is somebody else's.
	AnnotationCordonedBy = "millwright.io/cordoned-by"
	// AnnotationAcceptRisk lists admission rules, separated by commas, that
	// shall only warn on this object.
	AnnotationAcceptRisk = "millwright.io/accept-risk"
	// AnnotationClaims on a pool or a set lists the Nodes that somebody is
	// taking out of service, as engine/budget encodes it.
	AnnotationClaims = "millwright.io/claims"
	// AnnotationAppliedDigest is the digest of what server-side apply last
	// sent, so that an unchanged object is not sent again.
	AnnotationAppliedDigest = "millwright.io/applied-digest"
)
