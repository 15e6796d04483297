package wire

// Metrics of the machine approver, under the names that alerts use.
const (
	MetricPendingCSR    = "mapi_current_pending_csr"
	MetricMaxPendingCSR = "mapi_max_pending_csr"
)

// MaxPendingDiff is how many more pending requests than machines are normal.
const MaxPendingDiff = 100
