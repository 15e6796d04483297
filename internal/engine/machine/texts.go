package machine

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/engine/instance"
	"millwright.io/millwright/internal/engine/plan"
)

// Error reasons of a Failed Machine.
const (
	ReasonInvalidConfiguration = "InvalidConfiguration"
	ReasonCreateError          = "CreateError"
	ReasonDeleteError          = "DeleteError"
)

// Condition types.
const (
	InstanceExists = "InstanceExists"
	Drainable      = "Drainable"
	Terminable     = "Terminable"
	Drained        = "Drained"
	// InstanceReconciled is there only while it is False: the cloud refuses
	// or cannot answer. Its reason is the fault's kind.
	InstanceReconciled = "InstanceReconciled"
)

// Texts that people and scripts know.
const (
	TextLost         = "can't find created instance"
	TextBroken       = "vm has unexpected 'Failed' provisioning state"
	TextDrainSkipped = "Node drain skipped"
	TextDrained      = "Drain finished successfully"

	textDrainError = "could not drain machine: "
)

func note(notes []plan.Note, text string) []plan.Note { return append(notes, plan.Note{Message: text}) }

// conditions returns every condition the Machine has now.
func conditions(in Input, dr drainage) []plan.Condition {
	out := []plan.Condition{
		hooked(Drainable, "Drain operation currently blocked by: ", in.PreDrain),
		hooked(Terminable, "Terminate operation currently blocked by: ", in.PreTerminate),
	}
	if c, ok := exists(in); ok {
		out = append(out, c)
	}
	if f := in.Infra.Fault; f != nil && (in.Infra.Outlook == instance.Waiting || in.Infra.Outlook == instance.Failed) {
		out = append(out, plan.Condition{
			Type: InstanceReconciled, Status: corev1.ConditionFalse, Severity: severity(in.Infra.Outlook),
			Reason: string(cloud.KindOf(f)), Message: f.Error(),
		})
	}
	if !in.Deleting {
		return out
	}
	switch {
	case dr.skipped:
		out = append(out, plan.Condition{Type: Drained, Status: corev1.ConditionTrue, Message: TextDrainSkipped})
	case dr.done:
		out = append(out, plan.Condition{Type: Drained, Status: corev1.ConditionTrue, Message: TextDrained})
	case in.trouble(dr) != "":
		out = append(out, plan.Condition{
			Type: Drained, Status: corev1.ConditionFalse, Severity: plan.SeverityWarning,
			Reason: "DrainError", Message: textDrainError + in.trouble(dr),
		})
	}
	return out
}

func severity(o instance.Outlook) plan.Severity {
	if o == instance.Failed {
		return plan.SeverityError
	}
	return plan.SeverityWarning
}

func exists(in Input) (plan.Condition, bool) {
	c := plan.Condition{Type: InstanceExists}
	i := in.Infra
	switch {
	case i.Presence == instance.Present:
		c.Status = corev1.ConditionTrue
	case i.Presence == instance.Unknown && i.Fault != nil:
		c.Status, c.Reason = corev1.ConditionUnknown, "ErrorCheckingProvider"
		c.Message = "Failed to check if machine exists: " + i.Fault.Error()
	case i.Presence == instance.Unknown, in.Deleting:
		return c, false // what was told last stays
	case i.Outlook == instance.Lost:
		c.Status, c.Severity, c.Reason = corev1.ConditionFalse, plan.SeverityWarning, "InstanceMissing"
		c.Message = "Instance not found on provider"
	default:
		c.Status, c.Severity, c.Reason = corev1.ConditionFalse, plan.SeverityWarning, "InstanceNotCreated"
		c.Message = "Instance has not been created"
	}
	return c, true
}

func hooked(kind, text string, hooks []Hook) plan.Condition {
	if len(hooks) == 0 {
		return plan.Condition{Type: kind, Status: corev1.ConditionTrue}
	}
	names := make([]string, 0, len(hooks))
	for _, h := range hooks {
		names = append(names, fmt.Sprintf("{Name:%s Owner:%s}", h.Name, h.Owner))
	}
	return plan.Condition{
		Type: kind, Status: corev1.ConditionFalse, Severity: plan.SeverityWarning, Reason: "HookPresent",
		Message: text + "[" + strings.Join(names, " ") + "]",
	}
}

// told reports what the cloud did or refused in this reconcile.
func told(in Input, evs []plan.Event, notes []plan.Note) ([]plan.Event, []plan.Note) {
	i := in.Infra
	if i.Did.Create {
		evs = append(evs, plan.Event{Type: plan.Normal, Reason: "Created", Action: "Create", Message: fmt.Sprintf("Created machine %q", in.Name)})
		notes = note(notes, in.Name+": created instance, requeuing")
	}
	if i.Gone {
		evs = append(evs, plan.Event{Type: plan.Normal, Reason: "Deleted", Action: "Delete", Message: fmt.Sprintf("Deleted machine %q", in.Name)})
	}
	if i.Did.Record && i.State != "" && in.Phase == Running {
		evs = append(evs, plan.Event{
			Type: plan.Normal, Reason: "Updated", Action: "Update",
			Message: fmt.Sprintf("Updated machine %q. State: %s", in.Name, i.State),
		})
	}
	if i.Outlook == instance.Lost && in.Phase != Failed && !in.Deleting {
		notes = note(notes, in.Name+": "+TextLost)
	}
	if i.Fault == nil || !i.Fresh {
		return evs, notes
	}
	return refused(in, evs, notes)
}

func refused(in Input, evs []plan.Event, notes []plan.Note) ([]plan.Event, []plan.Note) {
	i, text := in.Infra, in.Infra.Fault.Error()
	reason, action, class := "FailedUpdate", "Update", "UpdateError"
	switch i.Op {
	case instance.OpCreate:
		reason, action, class = "FailedCreate", "Create", ReasonCreateError
		notes = note(notes, "Machine error: "+text)
		notes = note(notes, in.Name+": failed to create machine: "+text)
		if i.Outlook == instance.Failed {
			class = ReasonInvalidConfiguration
			notes = note(notes, "Actuator returned invalid configuration error: "+text)
		}
	case instance.OpDelete:
		reason, action, class = "FailedDelete", "Delete", ReasonDeleteError
		notes = note(notes, "Machine error: "+text)
		notes = note(notes, in.Name+": failed to delete machine: "+text)
	case instance.OpObserve, instance.OpRecord, instance.OpNone:
		notes = note(notes, in.Name+": failed to check if machine exists: "+text)
		return evs, notes
	}
	if i.Repeat {
		return evs, notes
	}
	return append(evs, plan.Event{Type: plan.Warning, Reason: reason, Action: action, Message: class + ": " + text}), notes
}
