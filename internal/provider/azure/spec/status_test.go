package spec_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/provider/azure/spec"
)

func TestStatusFollowsTheInstance(t *testing.T) {
	at := func(min int) metav1.Time { return metav1.NewTime(time.Date(2026, 11, 30, 12, min, 0, 0, time.UTC)) }
	quota := &cloud.Fault{Kind: cloud.Quota, Message: "no cores left"}
	running := &cloud.Instance{ID: "/subscriptions/s/x", State: cloud.StateRunning}
	creating := &cloud.Instance{ID: "/subscriptions/s/x", State: cloud.StateCreating}
	var raw []byte
	for _, step := range []struct {
		why   string
		inst  *cloud.Instance
		fault *cloud.Fault
		same  bool
		want  string
	}{
		{why: "nothing is known", want: `{"kind":"AzureMachineProviderStatus","apiVersion":"machine.openshift.io/v1beta1","metadata":{}}`},
		{why: "creating failed", fault: quota, want: `{"kind":"AzureMachineProviderStatus","apiVersion":"machine.openshift.io/v1beta1","metadata":{},"conditions":[` +
			`{"type":"MachineCreated","status":"False","lastTransitionTime":"2026-11-30T12:01:00Z","reason":"MachineCreationFailed","message":"no cores left"}]}`},
		{why: "it failed again in the same way", fault: quota, same: true},
		{why: "it is being made", inst: creating, want: `{"kind":"AzureMachineProviderStatus","apiVersion":"machine.openshift.io/v1beta1","metadata":{},"vmId":"/subscriptions/s/x","vmState":"Creating","conditions":[` +
			`{"type":"MachineCreated","status":"True","lastTransitionTime":"2026-11-30T12:03:00Z","reason":"MachineCreationSucceeded","message":"machine successfully created"}]}`},
		{why: "it runs", inst: running, want: `{"kind":"AzureMachineProviderStatus","apiVersion":"machine.openshift.io/v1beta1","metadata":{},"vmId":"/subscriptions/s/x","vmState":"Running","conditions":[` +
			`{"type":"MachineCreated","status":"True","lastTransitionTime":"2026-11-30T12:03:00Z","reason":"MachineCreationSucceeded","message":"machine successfully created"}]}`},
		{why: "it still runs", inst: running, same: true},
	} {
		min := map[string]int{"creating failed": 1, "it is being made": 3}[step.why] + 0
		if min == 0 {
			min = 9
		}
		next, err := spec.Status(raw, step.inst, step.fault, at(min))
		if err != nil {
			t.Fatalf("%s: %v", step.why, err)
		}
		if step.same {
			if string(next) != string(raw) {
				t.Errorf("%s: got %s, want no change from %s", step.why, next, raw)
			}
			continue
		}
		var got, want map[string]any
		if err := json.Unmarshal(next, &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(step.want), &want); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", step.why, d)
		}
		raw = next
	}
}
