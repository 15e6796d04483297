package machine_test

import (
	"testing"

	machinev1 "github.com/openshift/api/machine/v1beta1"
)

// A Machine that Cluster API leads gets no instance; one that comes back gets it.
func TestAuthoritativeAPIIsHonoured(t *testing.T) {
	w := newWorld(t, worker(func(m *machinev1.Machine) { m.Status.AuthoritativeAPI = machinev1.MachineAuthorityClusterAPI }))
	for range 4 {
		w.step()
	}
	if got := len(w.cloud.Instances()); got != 0 {
		t.Fatalf("%d instances of a Machine that is led elsewhere", got)
	}
	writes := w.api.Writes()
	w.step()
	if w.api.Writes() != writes {
		t.Error("a Machine that is left alone is written again")
	}
	m := w.machine()
	m.Status.AuthoritativeAPI = machinev1.MachineAuthorityMachineAPI
	if err := w.api.Status().Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		w.step()
	}
	if got := len(w.cloud.Instances()); got != 1 {
		t.Errorf("%d instances after it came back, want 1; log:\n%s", got, w.log)
	}
	for _, c := range w.machine().Status.Conditions {
		if c.Type == "Paused" && (c.Status != "False" || c.Severity != "Info") {
			t.Errorf("Paused is %s %s", c.Status, c.Severity)
		}
	}
}
