package healthcheck

import (
	"fmt"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/act"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/engine/health"
	"millwright.io/millwright/internal/engine/plan"
)

// checkOf translates the spec. What a server would have filled in is filled
// in here, for manifests that saw none.
func checkOf(mhc *machinev1.MachineHealthCheck) health.Check {
	out := health.Check{
		Namespace: mhc.Namespace, Name: mhc.Name, MaxUnhealthy: mhc.Spec.MaxUnhealthy, StartupTimeout: wire.DefaultNodeStartupTimeout,
	}
	if t := mhc.Spec.NodeStartupTimeout; t != nil {
		out.StartupTimeout = t.Duration
	}
	for _, c := range mhc.Spec.UnhealthyConditions {
		out.Rules = append(out.Rules, health.Rule{Type: c.Type, Status: c.Status, Timeout: c.Timeout.Duration})
	}
	switch {
	case mhc.Spec.RemediationTemplate != nil:
		out.Strategy = health.Request
	case mhc.Annotations[wire.AnnotationRemediationStrategy] == wire.RemediationExternalBaremetal:
		out.Strategy = health.Mark
	}
	return out
}

// targetOf translates a Machine.
func targetOf(m *machinev1.Machine) health.Target {
	t := health.Target{
		Name: m.Name, UID: string(m.UID), Zone: m.Labels[wire.LabelZone],
		Owned: metav1.GetControllerOfNoCopy(m) != nil, Failed: failed(m), Deleting: m.DeletionTimestamp != nil, Marked: marked(m),
	}
	if u := m.Status.LastUpdated; u != nil {
		t.Updated = u.Time
	}
	if r := m.Status.NodeRef; r != nil {
		t.NodeName = r.Name
	}
	return t
}

func failed(m *machinev1.Machine) bool { return ptr.Deref(m.Status.Phase, "") == wire.PhaseFailed }

func marked(m *machinev1.Machine) bool {
	_, ok := m.Annotations[wire.AnnotationExternalRemediation]
	return ok
}

// binding says how the actions look in this dialect.
func (p picture) binding() act.Binding {
	return act.Binding{
		Make: func(a plan.ObjectAction) ([]client.Object, error) {
			c, ok := a.(plan.CreateRepair)
			m := p.machines[c.Name]
			if !ok || m == nil || p.template == nil {
				return nil, fmt.Errorf("a health check makes nothing for %s", a)
			}
			r, err := repairOf(p.template, m)
			return []client.Object{r}, err
		},
		Target: func(a plan.ObjectAction) client.Object {
			switch a := a.(type) {
			case plan.DeleteMachine:
				return p.machine(a.Name)
			case plan.MarkForRepair:
				return p.machine(a.Name)
			case plan.DeleteRepair:
				return p.repair(a.Name)
			}
			return nil
		},
		Apply: func(obj client.Object, a plan.ObjectAction) error {
			if _, ok := a.(plan.MarkForRepair); !ok {
				return fmt.Errorf("a health check changes nothing for %s", a)
			}
			annotations := obj.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[wire.AnnotationExternalRemediation] = ""
			obj.SetAnnotations(annotations)
			return nil
		},
	}
}

func (p picture) machine(name string) client.Object {
	if m := p.machines[name]; m != nil {
		return m
	}
	return &machinev1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: p.mhc.Namespace, Name: name}}
}

func (p picture) repair(name string) client.Object {
	u := &unstructured.Unstructured{}
	gvk := p.mhc.Spec.RemediationTemplate.GroupVersionKind()
	gvk.Kind = repairKind(gvk.Kind)
	u.SetGroupVersionKind(gvk)
	u.SetNamespace(p.mhc.Namespace)
	u.SetName(name)
	return u
}

// repairOf makes the object that asks for a Machine's repair: the template's
// body under the Machine's name.
func repairOf(template *unstructured.Unstructured, m *machinev1.Machine) (*unstructured.Unstructured, error) {
	body, found, err := unstructured.NestedMap(template.Object, "spec", "template")
	if err != nil || !found {
		return nil, fmt.Errorf("read %s %s: it has no spec.template", template.GetKind(), template.GetName())
	}
	u := &unstructured.Unstructured{Object: body}
	gvk := template.GroupVersionKind()
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[wire.AnnotationClonedFromName] = template.GetName()
	annotations[wire.AnnotationClonedFromGroupKind] = gvk.GroupKind().String()
	gvk.Kind = repairKind(gvk.Kind)
	u.SetGroupVersionKind(gvk)
	u.SetNamespace(m.Namespace)
	u.SetName(m.Name)
	u.SetAnnotations(annotations)
	u.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: machinev1.GroupVersion.String(), Kind: "Machine", Name: m.Name, UID: m.UID,
	}})
	return u, nil
}
