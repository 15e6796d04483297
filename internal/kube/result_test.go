package kube_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/kube"
)

func TestResultMapsFaultsToWaits(t *testing.T) {
	plain := errors.New("connection reset")
	fault := func(k cloud.Kind, after time.Duration) error {
		return fmt.Errorf("create instance a: %w", &cloud.Fault{Kind: k, RetryAfter: after})
	}
	for _, tc := range []struct {
		name, why string
		wake      time.Duration
		errs      []error
		want      time.Duration // before jitter
		wantErr   bool
	}{
		{name: "nothing", why: "a watch event decides", errs: []error{nil, nil}},
		{name: "wake", why: "the planner asked", wake: time.Minute, want: time.Minute},
		{name: "quota", why: "people raise quotas slowly", wake: time.Second, errs: []error{fault(cloud.Quota, 0)}, want: 20 * time.Second},
		{name: "capacity", why: "comes and goes", errs: []error{nil, fault(cloud.NoCapacity, 0)}, want: 30 * time.Second},
		{name: "throttled", why: "the default", errs: []error{fault(cloud.Throttled, 0)}, want: 10 * time.Second},
		{name: "throttled, told", why: "the cloud knows best", errs: []error{fault(cloud.Throttled, 42*time.Second)}, want: 42 * time.Second},
		{name: "credentials", why: "a person has to act", errs: []error{fault(cloud.Credentials, 0)}, want: 30 * time.Second},
		{name: "denied", why: "a person has to act", errs: []error{fault(cloud.Denied, 0)}, want: time.Minute},
		{name: "invalid", why: "only a change of the spec helps", errs: []error{fault(cloud.Invalid, 0)}, want: 10 * time.Minute},
		{name: "transient", why: "try again soon", errs: []error{fault(cloud.Transient, 0)}, wantErr: true},
		{name: "not found", why: "try again soon", errs: []error{fault(cloud.NotFound, 0)}, wantErr: true},
		{name: "conflict", why: "try again soon", errs: []error{fault(cloud.Conflict, 0)}, wantErr: true},
		{name: "plain", why: "no fault is transient", errs: []error{plain}, wantErr: true},
		{name: "quota, unreported", why: "the status must get out", errs: []error{fault(cloud.Quota, 0), plain}, wantErr: true},
		{name: "two faults", why: "the first wins", errs: []error{fault(cloud.Denied, 0), fault(cloud.Quota, 0)}, want: time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			res, err := kube.Result(tc.wake, tc.errs...)
			if (err != nil) != tc.wantErr {
				t.Fatalf("got error %v, want one: %v (%s)", err, tc.wantErr, tc.why)
			}
			if res.RequeueAfter != tc.want {
				t.Errorf("got %v, want %v (%s)", res.RequeueAfter, tc.want, tc.why)
			}
		})
	}
}
