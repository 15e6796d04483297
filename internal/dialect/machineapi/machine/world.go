package machine

import (
	"slices"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/act"
	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/engine/drain"
	"millwright.io/millwright/internal/engine/instance"
	engine "millwright.io/millwright/internal/engine/machine"
	"millwright.io/millwright/internal/engine/plan"
)

// world is one Machine as observed, and as it became during a reconcile.
type world struct {
	machine *machinev1.Machine
	cloud   cloud.Cloud // nil when it cannot be opened
	intent  cloud.Intent
	in      engine.Input
	own     instance.Input
	invalid string // why the object is no Machine of ours
	refused bool   // invalid was decided
	over    bool   // the rest waits for the next event
	gone    bool   // the Machine is no more
}

func (w *world) decide() plan.Decision[engine.Status] {
	if w.invalid != "" {
		w.refused = true
		return plan.Decision[engine.Status]{
			Events: []plan.Event{{Type: plan.Warning, Reason: wire.ReasonFailedValidate, Action: wire.ActionValidate, Message: wire.TextInvalid(w.in.Name, w.invalid)}},
			Notes:  []plan.Note{{Message: wire.TextInvalid(w.in.Name, w.invalid)}},
			Wake:   wakeInvalid,
		}
	}
	return engine.DecideOwner(w.in, w.own)
}

// fold puts what a run did into the world. It returns the error that a retry
// must cure; refusals of the cloud and of evictions are part of the world.
func (w *world) fold(actions []plan.Action, out act.Outcome, err error) error {
	if m, ok := out.Object.(*machinev1.Machine); ok {
		w.machine = m
	}
	done, failed := split(actions, out.Done)
	for _, a := range done {
		w.did(a, out)
	}
	var refused []drain.Refusal
	for _, b := range out.Blocked {
		refused = append(refused, drain.Refusal{Namespace: b.Action.Namespace, Name: b.Action.Name, Message: b.Message})
	}
	failure := ""
	if err != nil && failed != nil {
		switch failed.(type) {
		case plan.CreateInstance:
			w.own = w.own.After(instance.Result{Op: instance.OpCreate, Fault: headed(faultOf(err, failed), w.in.Name)})
			err = nil
		case plan.DeleteInstance:
			w.own = w.own.After(instance.Result{Op: instance.OpDelete, Fault: headedDelete(faultOf(err, failed), w.in.Name)})
			err = nil
		case plan.CordonNode, plan.EvictPod, plan.DeletePod:
			failure, err = err.Error(), nil
		}
	}
	w.in = w.in.DrainedBy(done, refused, failure)
	return err
}

// did folds one performed action.
func (w *world) did(a plan.Action, out act.Outcome) {
	switch a := a.(type) {
	case plan.AddFinalizer:
		w.over = true // it must be seen in the API first
	case plan.RemoveFinalizer:
		w.over, w.gone = true, true
	case plan.CreateInstance:
		w.own = w.own.After(instance.Result{Op: instance.OpCreate, Instance: out.Instance})
	case plan.RecordInstance:
		i := a.Instance
		w.own = w.own.After(instance.Result{Op: instance.OpRecord, Instance: &i})
	case plan.DeleteInstance:
		w.own = w.own.After(instance.Result{Op: instance.OpDelete, Gone: out.InstanceGone})
	}
}

// split tells what was done from the first action that was not.
func split(actions, done []plan.Action) (did []plan.Action, failed plan.Action) {
	for _, a := range actions {
		same := func(b plan.Action) bool { return a.String() == b.String() }
		if slices.ContainsFunc(done, same) {
			did = append(did, a)
		} else if failed == nil {
			failed = a
		}
	}
	return did, failed
}

// faultOf returns the fault in err; an error without one is transient.
func faultOf(err error, a plan.Action) *cloud.Fault {
	if f := cloud.FaultOf(err); f != nil {
		return f
	}
	return &cloud.Fault{Kind: cloud.Transient, Op: a.String(), Message: err.Error(), Cause: err}
}

// headed returns a create's fault in the words users know: a refusal by name,
// and one of the moment with the original's s.
func headed(f *cloud.Fault, name string) *cloud.Fault {
	g := *f
	if g.Kind == cloud.Transient || g.Kind == "" {
		g.Message = wire.TextReconcileRetried(name, f.Error())
	} else {
		g.Message = wire.TextReconcileFailed(name, f.Error())
	}
	return &g
}

func headedDelete(f *cloud.Fault, name string) *cloud.Fault {
	g := *f
	g.Message = wire.TextDeleteFailed(name, f.Error())
	return &g
}

func (w *world) binding() act.Binding {
	return act.Binding{
		Apply: apply,
		Intent: func(plan.CreateInstance) (cloud.Intent, error) {
			return w.intent, nil
		},
	}
}

// apply changes a Machine as an action says.
func apply(obj client.Object, a plan.ObjectAction) error {
	m, ok := obj.(*machinev1.Machine)
	if !ok {
		return errNotMachine(obj)
	}
	switch a := a.(type) {
	case plan.AddFinalizer:
		if !slices.Contains(m.Finalizers, wire.MachineFinalizer) {
			m.Finalizers = append(m.Finalizers, wire.MachineFinalizer)
		}
	case plan.RemoveFinalizer:
		m.Finalizers = slices.DeleteFunc(m.Finalizers, func(f string) bool { return f == wire.MachineFinalizer })
	case plan.RecordInstance:
		record(m, a.Instance)
	default:
		return errForeign(a)
	}
	return nil
}

// record writes what the cloud told. Labels are never taken away: users see
// where an instance was even when it is gone.
func record(m *machinev1.Machine, i cloud.Instance) {
	m.Spec.ProviderID = nil
	if i.ProviderID != "" {
		m.Spec.ProviderID = &i.ProviderID
	}
	set := func(to *map[string]string, key, value string) {
		if *to == nil {
			*to = map[string]string{}
		}
		(*to)[key] = value
	}
	for key, value := range map[string]string{wire.LabelRegion: i.Region, wire.LabelZone: i.Zone, wire.LabelInstanceType: i.Size} {
		if value != "" {
			set(&m.Labels, key, value)
		}
	}
	if i.Interruptible {
		set(&m.Labels, wire.LabelInterruptible, "")
		set(&m.Spec.ObjectMeta.Labels, wire.LabelInterruptible, "")
	}
	if i.State == "" {
		delete(m.Annotations, wire.AnnotationInstanceState)
	} else {
		set(&m.Annotations, wire.AnnotationInstanceState, string(i.State))
	}
}
