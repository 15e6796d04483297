package dcs

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"millwright.io/millwright/internal/cloud"
)

// Codes of VRM that mean something to us.
const (
	codeNoSession = "10000002"
	codeVersion   = "10000022"
	codeLicence   = "10000040"
	codeLocked    = "10100116"
	codeNotOff    = "102212808" // delete: only stopped VMs
	codeVolGone   = "10420004"
)

// busyCodes say that something else works on the object, or worked too
// recently: later it may go.
var busyCodes = []string{codeNotOff, "10300057", "10420005", "10420009", "10410154", "10420137", "10420138", "10430058", "10410023",
	"10000009", "10430050", "10430056", "10430057", "10300026", "10300162", "10300318", "10300421"}

func classify(op string, status int, code, text string) *cloud.Fault {
	f := &cloud.Fault{Kind: cloud.Transient, Op: op, Reason: code, Message: op + ": " + strings.TrimSpace(text+" ("+code+")")}
	if code == "" {
		f.Reason, f.Message = http.StatusText(status), op+": HTTP status "+http.StatusText(status)
	}
	switch {
	case code == codeNoSession, status == http.StatusUnauthorized:
		f.Kind = cloud.Credentials
		if code == "" {
			f.Reason = codeNoSession
		}
	case code == codeLocked:
		f.Kind, f.RetryAfter = cloud.Credentials, loginPause
	case code == codeVersion:
		f.Kind = cloud.Invalid
	case code == codeLicence:
		f.Kind = cloud.Denied
	case code == codeVolGone, status == http.StatusNotFound:
		f.Kind = cloud.NotFound
	case status == http.StatusTooManyRequests:
		f.Kind = cloud.Throttled
	case status == http.StatusForbidden:
		f.Kind = cloud.Denied
	case slices.Contains(busyCodes, code):
	default:
		f.Kind = kindOfText(text, status)
	}
	return f
}

func reason(err error) string {
	if f := cloud.FaultOf(err); f != nil {
		return f.Reason
	}
	return ""
}

func busy(err error) bool { return slices.Contains(busyCodes, reason(err)) }

// written is the fault of a write: that something it refers to is missing
// does not mean that the instance is.
func written(err error) error {
	f := cloud.FaultOf(err)
	if f == nil || f.Kind != cloud.NotFound {
		return err
	}
	g := *f
	g.Kind = cloud.Transient
	return &g
}

func unreachable(op string, err error) *cloud.Fault {
	f := &cloud.Fault{Kind: cloud.Transient, Op: op, Reason: "SiteUnreachable", Cause: err}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		f.Reason = "Timeout"
	}
	return f
}

func invalid(op, reason, text string) *cloud.Fault {
	return &cloud.Fault{Kind: cloud.Invalid, Op: op, Reason: reason, Message: op + ": " + text}
}
