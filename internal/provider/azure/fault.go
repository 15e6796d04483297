package azure

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"millwright.io/millwright/internal/cloud"
)

// codeNotFound is the only answer that means "there is none": a missing
// resource group, for one, is a failure.
const codeNotFound = "ResourceNotFound"

func responseOf(err error) *azcore.ResponseError {
	var re *azcore.ResponseError
	if errors.As(err, &re) {
		return re
	}
	return nil
}

func isNotFound(err error) bool {
	re := responseOf(err)
	return re != nil && re.StatusCode == http.StatusNotFound && re.ErrorCode == codeNotFound
}

// fault classifies what a client returned. prefix goes before the text, in
// the words that users of the original know; op says what was tried.
func fault(op, prefix string, err error) *cloud.Fault {
	if f := cloud.FaultOf(err); f != nil {
		return f
	}
	if prefix == "" {
		prefix = op + ": "
	}
	f := &cloud.Fault{Kind: cloud.Transient, Op: op, Cause: err, Message: prefix + strings.TrimRight(err.Error(), "\n")}
	var auth *azidentity.AuthenticationFailedError
	re := responseOf(err)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		f.Reason = "Timeout"
	case errors.As(err, &auth):
		f.Kind, f.Reason, f.RetryAfter = authentication(auth)
	case re != nil:
		f.Reason = re.ErrorCode
		f.Kind, f.Quota = kindOfCode(re.ErrorCode, textOf(re), re.StatusCode)
		f.RetryAfter = retryAfter(re.RawResponse)
	}
	return f
}

// networkFault is fault for the network provider: what it calls wrong may be
// put right on its side (a subnet, a load balancer), so nothing is final.
func networkFault(op, prefix string, err error) *cloud.Fault {
	f := fault(op, prefix, err)
	if f.Kind == cloud.Invalid || f.Kind == cloud.NotFound {
		f.Kind = cloud.Transient
	}
	return f
}

// writeFault is fault for a write: that something it refers to is missing
// does not mean that the instance is.
func writeFault(op, prefix string, err error) *cloud.Fault {
	f := fault(op, prefix, err)
	if f.Kind == cloud.NotFound {
		f.Kind = cloud.Transient
	}
	return f
}

var aadsts = regexp.MustCompile(`AADSTS\d+`)

// authentication classifies a token endpoint's refusal. It may be down or
// busy too.
func authentication(err *azidentity.AuthenticationFailedError) (cloud.Kind, string, time.Duration) {
	reason := aadsts.FindString(err.Error())
	r := err.RawResponse
	if r == nil && reason == "" {
		return cloud.Transient, "AuthorityUnreachable", 0 // nobody refused anything
	}
	if r != nil {
		switch {
		case r.StatusCode == http.StatusTooManyRequests:
			return cloud.Throttled, "TooManyRequests", retryAfter(r)
		case r.StatusCode >= 500:
			return cloud.Transient, reason, retryAfter(r)
		}
	}
	if reason == "" {
		reason = "AuthenticationFailed"
	}
	return cloud.Credentials, reason, 0
}

// kindOfCode classifies a code with its text and status. One code may mean
// several things: OperationNotAllowed is a used-up quota, throttling or a
// wrong moment.
func kindOfCode(code, text string, status int) (cloud.Kind, *cloud.QuotaUse) {
	if status == http.StatusTooManyRequests {
		return cloud.Throttled, nil
	}
	if isQuota(code, text) {
		return cloud.Quota, quotaUse(text)
	}
	switch code {
	case codeNotFound:
		return cloud.NotFound, nil
	case "TooManyRequests", "SubscriptionRequestsThrottled":
		return cloud.Throttled, nil
	case "AuthorizationFailed", "LinkedAuthorizationFailed", "RequestDisallowedByPolicy", "ReadOnlyDisabledSubscription",
		"MarketplacePurchaseEligibilityFailed", "ScopeLocked":
		return cloud.Denied, nil
	case "SkuNotAvailable", "AllocationFailed", "ZonalAllocationFailed", "OverconstrainedAllocationRequest",
		"OverconstrainedZonalAllocationRequest", "CapacityReservationAllocationFailed", "SubnetIsFull":
		return cloud.NoCapacity, nil
	case "NicReservedForAnotherVm", "NicInUse", "OperationNotAllowed", "Conflict", "AnotherOperationInProgress", "RetryableError",
		"OperationPreempted", "ResourceGroupNotFound", "ResourceGroupBeingDeleted", "PreconditionFailed", "SubscriptionNotRegistered":
		return cloud.Transient, nil
	case "PropertyChangeNotAllowed":
		return cloud.Invalid, nil
	}
	switch {
	case status == http.StatusUnauthorized:
		return cloud.Credentials, nil
	case status == http.StatusForbidden:
		return cloud.Denied, nil
	case strings.HasSuffix(code, "ImageNotFound"), code == "ImageVersionNotFound":
		return cloud.Invalid, nil
	case status == http.StatusBadRequest:
		return cloud.Invalid, nil
	}
	return cloud.Transient, nil
}

func isQuota(code, text string) bool {
	switch code {
	case "QuotaExceeded", "ResourceQuotaExceeded", "PublicIPCountLimitReached", "SubscriptionQuotaReached":
		return true
	case "OperationNotAllowed":
		return strings.Contains(strings.ToLower(text), "quota")
	}
	return strings.Contains(text, `"QuotaExceeded"`)
}

var (
	quotaScope = regexp.MustCompile(`exceeding approved (\S.*?) quota`)
	quotaLimit = regexp.MustCompile(`Current Limit: (\d+)`)
	quotaUsed  = regexp.MustCompile(`Current Usage: (\d+)`)
	quotaNeed  = regexp.MustCompile(`Additional Required: (\d+)`)
)

// quotaUse reads the figures out of the text, the only place that has them;
// nil when it has none.
func quotaUse(text string) *cloud.QuotaUse {
	number := func(re *regexp.Regexp) int {
		m := re.FindStringSubmatch(text)
		if m == nil {
			return 0
		}
		n, err := strconv.Atoi(m[1])
		if err != nil {
			return 0
		}
		return n
	}
	scope := quotaScope.FindStringSubmatch(text)
	if scope == nil {
		return nil
	}
	q := &cloud.QuotaUse{Scope: scope[1], Needed: number(quotaNeed), Used: number(quotaUsed), Limit: number(quotaLimit)}
	if !strings.HasPrefix(q.Scope, "Total Regional") {
		q.Scope = strings.TrimSuffix(q.Scope, " Cores") // of a family
	}
	return q
}

// textOf is the message of an ARM error, its nested details included.
func textOf(re *azcore.ResponseError) string {
	if re.RawResponse == nil || re.RawResponse.Body == nil {
		return ""
	}
	// The SDK has read the body and put a rewindable copy in its place.
	raw, err := io.ReadAll(re.RawResponse.Body)
	if err != nil {
		return ""
	}
	if s, ok := re.RawResponse.Body.(io.Seeker); ok {
		_, _ = s.Seek(0, io.SeekStart)
	}
	var body struct {
		Error struct {
			Message string          `json:"message"`
			Details json.RawMessage `json:"details"`
		} `json:"error"`
	}
	if json.Unmarshal(raw, &body) != nil {
		return string(raw)
	}
	return body.Error.Message + " " + string(body.Error.Details)
}

// retryAfter reads how long the service asks to wait.
func retryAfter(r *http.Response) time.Duration {
	if r == nil {
		return 0
	}
	for _, h := range []struct {
		name string
		unit time.Duration
	}{{"retry-after-ms", time.Millisecond}, {"x-ms-retry-after-ms", time.Millisecond}, {"Retry-After", time.Second}} {
		if n, err := strconv.Atoi(r.Header.Get(h.name)); err == nil && n > 0 && n < 24*3600*1000 {
			return time.Duration(n) * h.unit
		}
	}
	return 0
}
