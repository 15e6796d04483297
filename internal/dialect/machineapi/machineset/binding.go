package machineset

import (
	"fmt"
	"maps"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/act"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/engine/plan"
)

// binding says how a set's actions look in this dialect. machines are the
// observed ones by name.
func binding(set *machinev1beta1.MachineSet, machines map[string]*machinev1beta1.Machine) act.Binding {
	return act.Binding{
		Make: func(a plan.ObjectAction) ([]client.Object, error) {
			c, ok := a.(plan.CreateMachine)
			if !ok {
				return nil, fmt.Errorf("a machine set makes nothing for %s", a)
			}
			return []client.Object{newMachine(set, c.Name)}, nil
		},
		Target: func(a plan.ObjectAction) client.Object {
			switch a := a.(type) {
			case plan.DeleteMachine:
				return machineNamed(set.Namespace, a.Name, machines)
			case plan.AdoptMachine:
				return machineNamed(set.Namespace, a.Name, machines)
			}
			return nil
		},
		Apply: func(obj client.Object, a plan.ObjectAction) error {
			if _, ok := a.(plan.AdoptMachine); !ok {
				return fmt.Errorf("a machine set changes nothing for %s", a)
			}
			obj.SetOwnerReferences(append(obj.GetOwnerReferences(), ownerReference(set)))
			return nil
		},
	}
}

// newMachine makes a member. Its finalizer is there from the start, so that
// nobody has to write it before the first instance is made.
func newMachine(set *machinev1beta1.MachineSet, name string) *machinev1beta1.Machine {
	t := &set.Spec.Template
	return &machinev1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			Namespace:       set.Namespace,
			Labels:          maps.Clone(t.Labels),
			Annotations:     maps.Clone(t.Annotations),
			Finalizers:      []string{wire.MachineFinalizer},
			OwnerReferences: []metav1.OwnerReference{ownerReference(set)},
		},
		Spec: *t.Spec.DeepCopy(),
	}
}

func ownerReference(set *machinev1beta1.MachineSet) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion:         machinev1beta1.GroupVersion.String(),
		Kind:               kind,
		Name:               set.Name,
		UID:                set.UID,
		Controller:         ptr.To(true),
		BlockOwnerDeletion: ptr.To(true),
	}
}

func machineNamed(namespace, name string, machines map[string]*machinev1beta1.Machine) client.Object {
	if m := machines[name]; m != nil {
		return m
	}
	return &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}
