package kube

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"millwright.io/millwright/internal/cloud"
)

// Waits after a cloud fault that only time or a person ends.
const (
	WaitQuota       = 20 * time.Second
	WaitNoCapacity  = 30 * time.Second
	WaitThrottled   = 10 * time.Second // unless the cloud says how long
	WaitCredentials = 30 * time.Second
	WaitDenied      = 60 * time.Second
	WaitInvalid     = 10 * time.Minute
)

// jitter spreads waits over ±10 %, so that objects that failed together do
// not come back together.
const jitter = 0.10

// Result turns the outcome of a reconcile into what the queue does next.
//
// An error that only a retry can cure (no fault, or a fault of kind Transient,
// NotFound or Conflict) is returned and retried with exponential back-off;
// several are joined, and they win over everything else because something is
// unreported. Otherwise the first fault decides how long to wait. Without an
// error, wake decides; 0 waits for a watch event. Setup adds jitter to waits
// on their way into the queue, so that stepping a controller stays exact.
func Result(wake time.Duration, errs ...error) (reconcile.Result, error) {
	var retry []error
	var pause time.Duration
	for _, err := range errs {
		if err == nil {
			continue
		}
		d, known := Backoff(err)
		switch {
		case !known:
			retry = append(retry, err)
		case pause == 0:
			pause = d
		}
	}
	switch {
	case len(retry) == 1:
		return reconcile.Result{}, retry[0]
	case len(retry) > 1:
		return reconcile.Result{}, errors.Join(retry...)
	case pause > 0:
		return reconcile.Result{RequeueAfter: pause}, nil
	case wake > 0:
		return reconcile.Result{RequeueAfter: wake}, nil
	}
	return reconcile.Result{}, nil
}

// Backoff returns how long to wait after err, and false when only the
// exponential back-off of errors fits.
func Backoff(err error) (time.Duration, bool) {
	switch k := cloud.KindOf(err); k {
	case cloud.Quota:
		return WaitQuota, true
	case cloud.NoCapacity:
		return WaitNoCapacity, true
	case cloud.Throttled:
		if d := cloud.RetryAfter(err); d > 0 {
			return d, true
		}
		return WaitThrottled, true
	case cloud.Credentials:
		return WaitCredentials, true
	case cloud.Denied:
		return WaitDenied, true
	case cloud.Invalid:
		return WaitInvalid, true
	case cloud.Transient, cloud.NotFound, cloud.Conflict:
		return 0, false
	case "":
		return 0, true
	default:
		panic(fmt.Sprintf("unknown fault kind %q", k))
	}
}

func spread(d time.Duration) time.Duration {
	low := float64(d) * (1 - jitter)
	return wait.Jitter(time.Duration(low), 2*jitter/(1-jitter))
}

// isIndexConflict reports that an index is registered already. client-go has
// no type for it.
func isIndexConflict(err error) bool { return strings.Contains(err.Error(), "indexer conflict") }
