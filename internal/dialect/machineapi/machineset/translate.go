package machineset

import (
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/engine/fleet"
)

// setOf translates the set and returns its selector; of a broken selector,
// one that matches nothing.
func setOf(s *machinev1beta1.MachineSet) (fleet.Set, labels.Selector) {
	out := fleet.Set{
		UID:        string(s.UID),
		Name:       s.Name,
		Generation: s.Generation,
		Replicas:   s.Spec.Replicas,
		Policy:     fleet.Policy(s.Spec.DeletePolicy),
		MinReady:   time.Duration(s.Spec.MinReadySeconds) * time.Second,
		Problems:   Problems(s),
	}
	selector, err := metav1.LabelSelectorAsSelector(&s.Spec.Selector)
	if err != nil || selector.Empty() {
		return out, labels.Nothing()
	}
	return out, selector
}

// Problems returns what makes a set impossible to act upon, in the words its
// users know: selector syntax, an empty selector, a template that the selector
// does not match.
func Problems(s *machinev1beta1.MachineSet) []string {
	at := field.NewPath("spec")
	errs := metav1validation.ValidateLabelSelector(&s.Spec.Selector, metav1validation.LabelSelectorValidationOptions{}, at.Child("selector"))
	if len(s.Spec.Selector.MatchLabels)+len(s.Spec.Selector.MatchExpressions) == 0 {
		errs = append(errs, field.Invalid(at.Child("selector"), s.Spec.Selector, "empty selector is not valid for MachineSet."))
	}
	selector, err := metav1.LabelSelectorAsSelector(&s.Spec.Selector)
	if err != nil {
		errs = append(errs, field.Invalid(at.Child("selector"), s.Spec.Selector, "invalid label selector."))
	} else if !selector.Matches(labels.Set(s.Spec.Template.Labels)) {
		errs = append(errs, field.Invalid(at.Child("template", "metadata", "labels"), s.Spec.Template.Labels, "`selector` does not match template `labels`"))
	}
	var out []string
	for _, e := range errs {
		out = append(out, e.Error())
	}
	return out
}

// memberOf reduces a Machine to what a set decides on. ready tells since when
// the node of that name is ready.
func memberOf(s *machinev1beta1.MachineSet, selector labels.Selector, m *machinev1beta1.Machine, ready func(node string) time.Time) fleet.Member {
	out := fleet.Member{
		Name:         m.Name,
		UID:          string(m.UID),
		Owner:        ownerOf(s, m),
		Match:        selector.Matches(labels.Set(m.Labels)),
		FullyLabeled: contains(m.Labels, s.Spec.Template.Labels),
		Deleting:     m.DeletionTimestamp != nil,
		CreatedAt:    m.CreationTimestamp.Time,
		Marked:       marked(m),
		Failed:       failed(m),
		HasNode:      m.Status.NodeRef != nil,
	}
	if out.HasNode && !out.Deleting {
		out.ReadySince = ready(m.Status.NodeRef.Name)
	}
	return out
}

func ownerOf(s *machinev1beta1.MachineSet, m *machinev1beta1.Machine) fleet.Owner {
	switch c := metav1.GetControllerOfNoCopy(m); {
	case c == nil:
		return fleet.OwnerNone
	case c.UID == s.UID:
		return fleet.OwnerOurs
	default:
		return fleet.OwnerOther
	}
}

func marked(m *machinev1beta1.Machine) bool {
	return m.Annotations[wire.AnnotationDelete] != "" || m.Annotations[wire.AnnotationDeleteLegacy] != ""
}

func failed(m *machinev1beta1.Machine) bool {
	return m.Status.ErrorReason != nil || m.Status.ErrorMessage != nil
}

func contains(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// readySince returns since when a Node is ready; zero when it is not.
func readySince(n *corev1.Node) time.Time {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
