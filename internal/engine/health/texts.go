package health

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"millwright.io/millwright/internal/engine/plan"
)

// Condition types and reasons.
const (
	RemediationAllowed = "RemediationAllowed"
	TemplateAvailable  = "ExternalRemediationTemplateAvailable"
	RequestAvailable   = "ExternalRemediationRequestAvailable"

	ReasonTooManyUnhealthy = "TooManyUnhealthy"
	ReasonTemplateNotFound = "ExternalRemediationTemplateNotFound"
	ReasonRequestFailed    = "ExternalRemediationRequestCreationFailed"
	// ReasonCorrelated is ours: Nodes fell silent together.
	ReasonCorrelated = "CorrelatedFailure"
)

// Event reasons.
const (
	ReasonRestricted     = "RemediationRestricted"
	ReasonDetected       = "DetectedUnhealthy"
	ReasonNoOwner        = "SkippedNoController"
	ReasonDeleted        = "MachineDeleted"
	ReasonDeletionFailed = "MachineDeletionFailed"
	ReasonMarked         = "ExternalAnnotationAdded"
	ReasonMarkFailed     = "ExternalAnnotationFailed"
	// ReasonFrozen is ours.
	ReasonFrozen = "RemediationFrozen"
)

// target is how texts name a target.
func target(c Check, t Target) string {
	return strings.Join([]string{c.Namespace, c.Name, t.Name, t.NodeName}, "/")
}

func textReconciling(c Check) string { return "Reconciling " + c.Namespace + "/" + c.Name }

func textShort(c Check, s Status) string {
	return fmt.Sprintf("Reconciling %s/%s: total targets: %d,  maxUnhealthy: %s, unhealthy: %d. Short-circuiting remediation",
		c.Namespace, c.Name, s.Expected, maxText(c), s.Expected-s.Healthy)
}

func textDetected(c Check, t Target) string {
	return fmt.Sprintf("Machine %s has unhealthy node %s", target(c, t), t.NodeName)
}

func textNoOwner(c Check, t Target) string {
	return fmt.Sprintf("Machine %s has no controller owner, skipping remediation", target(c, t))
}

func maxText(c Check) string {
	if c.MaxUnhealthy == nil {
		return "100%"
	}
	return c.MaxUnhealthy.String()
}

func counts(c Check, s Status) string {
	return fmt.Sprintf("(total: %d, unhealthy: %d, maxUnhealthy: %s)", s.Expected, s.Expected-s.Healthy, maxText(c))
}

// textResumes says what ends a freeze.
const textResumes = "repair of silent nodes resumes when half of them report again"

func (g Group) name() string {
	if g.Zone == "" {
		return "the fleet"
	}
	return "zone " + g.Zone
}

// String says what fell silent and what ends the freeze.
func (g Group) String() string {
	return fmt.Sprintf("%d of %d nodes of %s stopped reporting within %s (since %s); %s",
		g.Silent, g.Nodes, g.name(), Window, g.Since.UTC().Format(time.RFC3339), textResumes)
}

func frozenText(groups []Group) string {
	texts := make([]string, 0, len(groups))
	for _, g := range groups {
		texts = append(texts, g.String())
	}
	return strings.Join(texts, "; ")
}

// conditions returns all that the check has now.
func conditions(in Input, s Status) []plan.Condition {
	allowed := plan.Condition{Type: RemediationAllowed, Status: corev1.ConditionTrue}
	switch {
	case s.Short:
		allowed = plan.Condition{
			Type: RemediationAllowed, Status: corev1.ConditionFalse, Severity: plan.SeverityWarning, Reason: ReasonTooManyUnhealthy,
			Message: "Remediation is not allowed, the number of not started or unhealthy machines exceeds maxUnhealthy " + counts(in.Check, s),
		}
	case whole(s.Frozen) != nil:
		allowed = plan.Condition{
			Type: RemediationAllowed, Status: corev1.ConditionFalse, Severity: plan.SeverityWarning, Reason: ReasonCorrelated,
			Message: frozenText(s.Frozen),
		}
	case len(s.Frozen) > 0:
		allowed.Reason, allowed.Message = ReasonCorrelated, frozenText(s.Frozen)
	}
	out := []plan.Condition{allowed}
	if in.Check.Strategy == Request && in.Check.Problem != "" {
		out = append(out, plan.Condition{
			Type: TemplateAvailable, Status: corev1.ConditionFalse, Severity: plan.SeverityError,
			Reason: ReasonTemplateNotFound, Message: in.Check.Problem,
		})
	}
	return out
}

// stopped are the events of a check that may not repair.
func stopped(in Input, s Status) []plan.Event {
	var out []plan.Event
	if s.Short {
		out = append(out, plan.Event{
			Type: plan.Warning, Reason: ReasonRestricted,
			Message: "Remediation restricted due to exceeded number of unhealthy machines " + counts(in.Check, s),
		})
	}
	for _, g := range s.Frozen {
		// Without the numbers, which grow while more of them fall silent: one
		// freeze is one event.
		out = append(out, plan.Event{
			Type: plan.Warning, Reason: ReasonFrozen,
			Message: fmt.Sprintf("Remediation is held back: most nodes of %s stopped reporting within %s; %s", g.name(), Window, textResumes),
		})
	}
	return out
}

// Told returns the event of one action that was performed or, with a text,
// refused, and the condition a refusal leads to; nil where there is none.
func Told(in Input, a plan.Action, refused string) (*plan.Event, *plan.Condition) {
	switch a := a.(type) {
	case plan.DeleteMachine:
		return told(in, a.Name, ReasonDeleted, ReasonDeletionFailed,
			"Machine %s has been remediated by requesting to delete Machine object",
			"Machine %s remediation failed: unable to delete Machine object: ", refused), nil
	case plan.MarkForRepair:
		return told(in, a.Name, ReasonMarked, ReasonMarkFailed,
			"Requesting external remediation of node associated with machine %s",
			"Requesting external remediation of node associated with machine %s failed: ", refused), nil
	case plan.CreateRepair:
		if refused != "" {
			return nil, &plan.Condition{
				Type: RequestAvailable, Status: corev1.ConditionFalse, Severity: plan.SeverityError,
				Reason: ReasonRequestFailed, Message: refused,
			}
		}
	}
	return nil, nil
}

func told(in Input, name, done, failed, doneText, failedText, refused string) *plan.Event {
	t := Target{Name: name}
	for i := range in.Targets {
		if in.Targets[i].Name == name {
			t = in.Targets[i]
		}
	}
	e := &plan.Event{Machine: name, Type: plan.Normal, Reason: done, Message: fmt.Sprintf(doneText, target(in.Check, t))}
	if refused != "" {
		e.Type, e.Reason, e.Message = plan.Warning, failed, fmt.Sprintf(failedText, target(in.Check, t))+refused
	}
	return e
}
