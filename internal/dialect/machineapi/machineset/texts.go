package machineset

import (
	"fmt"

	"millwright.io/millwright/internal/engine/fleet"
	"millwright.io/millwright/internal/engine/plan"
)

// Texts that users of MachineSets grep for, and the words of their events.
// This is the table; nothing else in the package spells them.
const (
	// gvkText is how the kind is spelled in log lines.
	gvkText = "machine.openshift.io/v1beta1, Kind=MachineSet"

	// ReasonReconcileError and ActionReconcile are those of the one event a
	// MachineSet has in the original.
	ReasonReconcileError = "ReconcileError"
	ActionReconcile      = "Reconcile"
	// ReasonSelectorDrift is ours: machines outside the selector.
	ReasonSelectorDrift = fleet.ReasonSelectorDrift
)

func textTooFew(key string, want int32, n int) string {
	return fmt.Sprintf("Too few replicas for %s %s, need %d, creating %d", gvkText, key, want, n)
}

func textCreating(i, n int, want, have int32) string {
	return fmt.Sprintf("Creating machine %d of %d, ( spec.replicas(%d) > currentMachineCount(%d) )", i, n, want, have)
}

func textTooMany(key string, want int32, n int) string {
	return fmt.Sprintf("Too many replicas for %s %s, need %d, deleting %d", gvkText, key, want, n)
}

// textPolicy prints Random for an unset policy, which is what it means.
func textPolicy(p fleet.Policy) string {
	if p == "" {
		p = fleet.Random
	}
	return fmt.Sprintf("Found %s delete policy", p)
}

func textFailed(key, message string) string {
	return fmt.Sprintf("Failed to reconcile MachineSet %q: %s", key, message)
}

func textInvalid(name, problems string) string {
	return fmt.Sprintf("%q machineset validation failed: %s", name, problems)
}

func textAdopting(machine, set string) string {
	return fmt.Sprintf("Adopting Machine %q into MachineSet %q", machine, set)
}

func textAdoptFailed(machine, set string, err error) string {
	return fmt.Sprintf("Failed to adopt Machine %q into MachineSet %q: %v", machine, set, err)
}

// notes are the log lines of what a decision is about to do.
func notes(key string, in fleet.Input, d plan.Decision[fleet.Status]) []plan.Note {
	var out []plan.Note
	say := func(s string) { out = append(out, plan.Note{Message: s}) }
	for _, a := range d.Actions {
		if a, ok := a.(plan.AdoptMachine); ok {
			say(textAdopting(a.Name, in.Set.Name))
		}
	}
	st := d.Status
	if st.Creating > 0 {
		say(textTooFew(key, st.Want, st.Creating))
		for i := range st.Creating {
			say(textCreating(i+1, st.Creating, st.Want, st.Replicas))
		}
	}
	if st.Deleting > 0 {
		say(textTooMany(key, st.Want, st.Deleting))
		say(textPolicy(in.Set.Policy))
	}
	return out
}

// troubles are the events of what keeps a set from being what it should be. A
// MachineSet shows no conditions of its own, so this is where users see it.
func troubles(in fleet.Input, d plan.Decision[fleet.Status]) []plan.Event {
	var out []plan.Event
	for _, c := range d.Conditions {
		if c.Status != "False" {
			continue
		}
		e := plan.Event{Type: plan.Warning, Reason: ReasonReconcileError, Action: ActionReconcile, Message: c.Message}
		switch c.Reason {
		case fleet.ReasonInvalidSet:
			e.Message = textInvalid(in.Set.Name, c.Message)
		case fleet.ReasonSelectorDrift:
			e.Reason = ReasonSelectorDrift
		}
		out = append(out, e)
	}
	return out
}
