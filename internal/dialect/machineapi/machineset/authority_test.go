package machineset_test

import (
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
)

// A set that Cluster API leads makes nothing, and says why; one that comes back makes
// its Machines; one that never says anything is ours.
func TestAuthoritativeAPIIsHonoured(t *testing.T) {
	for _, c := range []struct {
		status  machinev1beta1.MachineAuthority
		made    int
		paused  string
		message string
	}{
		{machinev1beta1.MachineAuthorityClusterAPI, 0, "True", "The AuthoritativeAPI status is set to 'ClusterAPI'"},
		{machinev1beta1.MachineAuthorityMigrating, 0, "True", "The AuthoritativeAPI status is set to 'Migrating'"},
		{machinev1beta1.MachineAuthorityMachineAPI, 2, "False", "The AuthoritativeAPI status is set to 'MachineAPI'"},
		{"Later", 0, "", ""},
		{"", 2, "", ""},
	} {
		t.Run(string(c.status), func(t *testing.T) {
			set := machineSet(2)
			set.Status.AuthoritativeAPI = c.status
			w := newWorld(t, set)
			w.settle()
			if got := len(w.machines()); got != c.made {
				t.Errorf("%d Machines, want %d", got, c.made)
			}
			paused, message := "", ""
			for _, cond := range w.set().Status.Conditions {
				if cond.Type == "Paused" {
					paused, message = string(cond.Status), cond.Message
				}
			}
			if paused != c.paused || message != c.message {
				t.Errorf("Paused is %q %q, want %q %q", paused, message, c.paused, c.message)
			}
			writes := w.api.Writes()
			w.settle()
			if w.api.Writes() != writes {
				t.Error("a settled set is written")
			}
		})
	}
}

func TestSpecOfAuthorityIsTakenOver(t *testing.T) {
	set := machineSet(1)
	set.Spec.AuthoritativeAPI = machinev1beta1.MachineAuthorityClusterAPI
	w := newWorld(t, set)
	w.settle()
	if got := w.set().Status.AuthoritativeAPI; got != machinev1beta1.MachineAuthorityClusterAPI || len(w.machines()) != 0 {
		t.Errorf("status says %q, %d Machines", got, len(w.machines()))
	}
}
