package cloud

import (
	"errors"
	"fmt"
	"time"
)

// Kind classifies a fault. Only providers know HTTP codes and vendor texts;
// everybody else branches on Kind.
type Kind string

// Kinds of faults. The zero Kind is Transient.
const (
	NotFound    Kind = "NotFound"    // it does not exist (any more)
	Conflict    Kind = "Conflict"    // it exists and belongs to somebody else, or is busy
	Throttled   Kind = "Throttled"   // too many requests; RetryAfter says when
	Quota       Kind = "Quota"       // a limit of the account is used up; see Fault.Quota
	NoCapacity  Kind = "NoCapacity"  // the cloud has none left here
	Credentials Kind = "Credentials" // missing, wrong or expired
	Denied      Kind = "Denied"      // known, but not allowed (RBAC, policy)
	Invalid     Kind = "Invalid"     // can never succeed as written
	Transient   Kind = "Transient"   // anything else: try again
)

// Fault is a classified failure of a cloud operation.
type Fault struct {
	Kind Kind
	Op   string // what was tried, e.g. "create vm trainee-x7k2p"
	// Reason is the cloud's own code, e.g. OperationNotAllowed.
	Reason string
	// Message is the text for users, in the shape they know from the
	// original product; may have several lines.
	Message    string
	RetryAfter time.Duration // 0: the caller's back-off decides
	Quota      *QuotaUse     // with Kind Quota, when the cloud told
	Cause      error         // may be nil
}

// QuotaUse says which limit was hit. Units are those of the limit (vCPUs).
type QuotaUse struct {
	Scope               string // e.g. "Total Regional Cores", "standardDSv3Family"
	Needed, Used, Limit int
}

func (f *Fault) Error() string {
	switch {
	case f.Message != "":
		return f.Message
	case f.Cause != nil:
		return fmt.Sprintf("%s: %v", f.Op, f.Cause)
	case f.Reason != "":
		return fmt.Sprintf("%s: %s (%s)", f.Op, f.Kind, f.Reason)
	default:
		return fmt.Sprintf("%s: %s", f.Op, f.Kind)
	}
}

// Unwrap returns the cause.
func (f *Fault) Unwrap() error { return f.Cause }

// FaultOf returns the first Fault in err's chain, or nil.
func FaultOf(err error) *Fault {
	var f *Fault
	if errors.As(err, &f) {
		return f
	}
	return nil
}

// KindOf returns the kind of err: "" for nil, Transient when err carries no
// Fault or a Fault without a kind.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	if f := FaultOf(err); f != nil && f.Kind != "" {
		return f.Kind
	}
	return Transient
}
