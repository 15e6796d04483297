package kube_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"testing"

	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/kube"
)

func TestKlogTextPrintsKlogsForm(t *testing.T) {
	var out bytes.Buffer
	log := kube.KlogTextTo("machineset", kube.KlogOptions{Out: &out, Clock: clocktesting.NewFakePassiveClock(start)})
	for _, tc := range []struct {
		name string
		do   func()
		want string
	}{
		{"word for word", func() {
			log.Info(`Too many replicas for machine.openshift.io/v1beta1, Kind=MachineSet ns/"a", need 1, deleting 1`)
		},
			`I1130 12:00:00.000000 PID klogtext_test.go:N] Too many replicas for machine.openshift.io/v1beta1, Kind=MachineSet ns/"a", need 1, deleting 1` + "\n"},
		{"with keys", func() { log.Info("Evicting pod", "Pod", klog.KRef("ns", "p"), "n", 3) },
			`I1130 12:00:00.000000 PID klogtext_test.go:N] "Evicting pod" logger="machineset" Pod="ns/p" n=3` + "\n"},
		{"with values", func() { log.WithValues("controller", "c").WithName("sub").Info("Starting") },
			`I1130 12:00:00.000000 PID klogtext_test.go:N] "Starting" logger="machineset.sub" controller="c"` + "\n"},
		{"an error", func() { log.Error(errors.New("boom"), "Reconciler error", "k", "v") },
			`E1130 12:00:00.000000 PID klogtext_test.go:N] "Reconciler error" err="boom" logger="machineset" k="v"` + "\n"},
		{"verbose", func() { log.V(1).Info("hidden") }, ""},
		{"a note", func() { kube.LogNotes(log.WithValues("a", "b"), []plan.Note{{Message: "word for word"}}) },
			`I1130 12:00:00.000000 PID klogtext_test.go:N] word for word` + "\n"},
		{"a nil Stringer", func() { log.Info("x", "k", (*bytes.Buffer)(nil)) },
			`I1130 12:00:00.000000 PID klogtext_test.go:N] "x" logger="machineset" k="<nil>"` + "\n"},
	} {
		out.Reset()
		tc.do()
		got := out.String()
		got = regexp.MustCompile(fmt.Sprintf(` +%d `, os.Getpid())).ReplaceAllString(got, " PID ")
		got = regexp.MustCompile(`klogtext_test\.go:\d+`).ReplaceAllString(got, "klogtext_test.go:N")
		if got != tc.want {
			t.Errorf("%s: got\n%swant\n%s", tc.name, got, tc.want)
		}
	}
}
