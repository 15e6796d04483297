package machine

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/engine/instance"
	engine "millwright.io/millwright/internal/engine/machine"
	"millwright.io/millwright/internal/engine/plan"
)

// bootTime is how long a change of providerStatus alone may wait for the
// Node, whose arrival is written anyway. The instance-state annotation tells
// it meanwhile.
const bootTime = time.Minute

// fill writes a decision into the status. lastUpdated moves only when
// something else did.
func (c *controller) fill(w *world, m *machinev1.Machine, d plan.Decision[engine.Status]) error {
	now := w.own.Now
	before := m.Status.DeepCopy()
	s := d.Status
	m.Status.Phase = pointer(string(s.Phase))
	m.Status.ErrorMessage = pointer(s.ErrorMessage)
	m.Status.ErrorReason = nil
	if s.ErrorReason != "" {
		r := machinev1.MachineStatusError(s.ErrorReason)
		m.Status.ErrorReason = &r
	}
	i := s.Instance
	switch {
	case i.Instance != nil:
		m.Status.Addresses = i.Instance.Addresses
	case i.Presence == instance.Absent && i.Outlook != instance.Lost && i.Outlook != instance.Broken && s.Phase != engine.Deleting:
		m.Status.Addresses = nil
	}
	m.Status.Conditions = conditions(m.Status.Conditions, d.Conditions, now)
	same := equality.Semantic.DeepEqual(*before, m.Status)
	if same && s.Phase == engine.Provisioned && now.Sub(w.own.Since) < bootTime {
		return nil
	}
	if err := c.providerStatus(m, s, now); err != nil {
		return err
	}
	if !equality.Semantic.DeepEqual(*before, m.Status) {
		t := metav1.NewTime(now)
		m.Status.LastUpdated = &t
	}
	return nil
}

func pointer(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func (c *controller) providerStatus(m *machinev1.Machine, s engine.Status, now time.Time) error {
	if c.d.ProviderStatus == nil {
		return nil
	}
	var prev []byte
	if m.Status.ProviderStatus != nil {
		prev = m.Status.ProviderStatus.Raw
	}
	inst := s.Instance.Instance
	var fault *cloud.Fault
	if s.Instance.Op == instance.OpCreate && !s.Instance.Gone {
		fault = s.Instance.Fault
	}
	if s.Phase == engine.Failed && inst == nil {
		inst = &cloud.Instance{State: cloud.StateUnknown}
	}
	if inst == nil && fault == nil {
		return nil
	}
	raw, err := c.d.ProviderStatus(prev, inst, fault, metav1.NewTime(now.Truncate(time.Second)))
	if err != nil {
		return fmt.Errorf("write provider status of %s: %w", m.Name, err)
	}
	if !bytes.Equal(raw, prev) {
		m.Status.ProviderStatus = &runtime.RawExtension{Raw: raw}
	}
	return nil
}

// conditions returns current with ours brought up to date, sorted by type.
// The time moves when status, reason, severity or message do.
func conditions(current []machinev1.Condition, wanted []plan.Condition, now time.Time) []machinev1.Condition {
	var out []machinev1.Condition
	for _, c := range current {
		if !ours(string(c.Type)) || keeps(c, wanted) {
			out = append(out, c)
		}
	}
	for _, w := range wanted {
		next := machinev1.Condition{
			Type: machinev1.ConditionType(w.Type), Status: w.Status, Reason: w.Reason, Message: w.Message,
			Severity: machinev1.ConditionSeverity(w.Severity), LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		}
		if i := slices.IndexFunc(current, func(c machinev1.Condition) bool { return string(c.Type) == w.Type }); i >= 0 {
			old := current[i]
			old.LastTransitionTime = next.LastTransitionTime
			if old == next {
				next.LastTransitionTime = current[i].LastTransitionTime
			}
		}
		out = append(out, next)
	}
	slices.SortFunc(out, func(a, b machinev1.Condition) int { return strings.Compare(string(a.Type), string(b.Type)) })
	return out
}

func ours(kind string) bool {
	return slices.Contains([]string{engine.InstanceExists, engine.Drainable, engine.Terminable, engine.Drained, engine.InstanceReconciled}, kind)
}

// keeps says whether one of our conditions stays although the decision does
// not speak of it: whether there is an instance is not asked each time.
func keeps(c machinev1.Condition, wanted []plan.Condition) bool {
	return string(c.Type) == engine.InstanceExists &&
		!slices.ContainsFunc(wanted, func(w plan.Condition) bool { return w.Type == engine.InstanceExists })
}

func conditionOf(m *machinev1.Machine, kind string) *machinev1.Condition {
	for i := range m.Status.Conditions {
		if string(m.Status.Conditions[i].Type) == kind {
			return &m.Status.Conditions[i]
		}
	}
	return nil
}
