package machine_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/engine/instance"
	"millwright.io/millwright/internal/engine/machine"
	"millwright.io/millwright/internal/engine/plan"
)

// toy is a Machine, a cloud and a Node that obey decisions.
type toy struct {
	in      machine.Input
	own     instance.Input
	vm      *cloud.Instance
	parts   bool
	pods    []machine.PodFacts
	gone    bool // the Machine is gone
	creates int
	fail    func() *cloud.Fault // what the next cloud write answers
}

func newToy() *toy {
	w := &toy{fail: func() *cloud.Fault { return nil }}
	w.in = machine.Input{Name: "w-1", Now: now}
	w.own = instance.Input{Key: cloud.Key{UID: "u1", Name: "w-1"}, Digest: "d"}
	return w
}

// step is one reconcile; it reports whether anything was done.
func (w *toy) step() (acted bool, d plan.Decision[machine.Status], err error) {
	in, own := w.in, w.own
	own.Did, own.Gone = instance.Done{}, false
	own.Seen = instance.Seen{Fault: &cloud.Fault{Kind: cloud.NotFound}}
	if w.vm != nil {
		i := *w.vm
		own.Seen = instance.Seen{Instance: &i}
	}
	in.Pods = w.pods
	for range 6 {
		d = machine.DecideOwner(in, own)
		own.Last = d.Status.Instance.Last
		if len(d.Actions) == 0 {
			break
		}
		acted = true
		for _, a := range d.Actions {
			if own, err = w.act(in, own, a); err != nil {
				return acted, d, err
			}
		}
		in.Finalizer = w.in.Finalizer
		in = in.DrainedBy(d.Actions, nil, "")
		w.in.Node = in.Node
		if w.gone {
			return acted, d, nil
		}
	}
	w.own.Last, w.own.Recorded = own.Last, own.Recorded
	s := d.Status
	w.in.Phase, w.in.ErrorReason, w.in.ErrorMessage = s.Phase, s.ErrorReason, s.ErrorMessage
	if s.Instance.Presence == instance.Present {
		w.own.HadAddresses = true
	} else if s.Instance.Outlook == instance.Waiting && s.Instance.Presence == instance.Absent {
		w.own.HadAddresses = false
	}
	for _, c := range d.Conditions {
		if c.Type == machine.Drained && c.Status == corev1.ConditionTrue {
			w.in.Drained = true
		}
	}
	return acted, d, nil
}

func (w *toy) act(in machine.Input, own instance.Input, a plan.Action) (instance.Input, error) {
	switch a := a.(type) {
	case plan.AddFinalizer:
		w.in.Finalizer = true
	case plan.CreateInstance:
		if !in.Finalizer {
			return own, fmt.Errorf("create without finalizer")
		}
		if w.creates++; w.vm != nil {
			return own, fmt.Errorf("second create")
		}
		w.parts = true
		if f := w.fail(); f != nil {
			return own.After(instance.Result{Op: instance.OpCreate, Fault: f}), nil
		}
		w.vm = &cloud.Instance{Key: a.Key, ProviderID: "p", State: cloud.StateCreating, Addresses: addr}
		i := *w.vm
		return own.After(instance.Result{Op: instance.OpCreate, Instance: &i}), nil
	case plan.RecordInstance:
		i := a.Instance
		return own.After(instance.Result{Op: instance.OpRecord, Instance: &i}), nil
	case plan.DeleteInstance:
		if f := w.fail(); f != nil {
			return own.After(instance.Result{Op: instance.OpDelete, Fault: f}), nil
		}
		gone := w.vm == nil && !w.parts
		if w.vm != nil {
			w.vm = nil
		} else {
			w.parts = false
		}
		return own.After(instance.Result{Op: instance.OpDelete, Gone: gone}), nil
	case plan.DeleteNode:
		if w.vm != nil {
			return own, fmt.Errorf("node deleted before its instance")
		}
	case plan.RemoveFinalizer:
		if w.vm != nil || w.parts {
			return own, fmt.Errorf("finalizer removed, cloud not empty")
		}
		w.gone = true
	case plan.EvictPod:
		w.pods = nil
	case plan.CordonNode:
	default:
		return own, fmt.Errorf("unexpected %s", a)
	}
	return own, nil
}

func (w *toy) join() {
	if w.vm == nil || w.in.NodeRef != nil {
		return
	}
	w.vm.State = cloud.StateRunning
	w.in.NodeRef = &machine.NodeRef{Name: "w-1", UID: "n1"}
	w.in.Node = &machine.NodeFacts{Name: "w-1", UID: "n1", Ready: corev1.ConditionTrue}
	w.pods = []machine.PodFacts{{Namespace: "a", Name: "app", UID: "1"}, {Namespace: "a", Name: "ds", UID: "2", DaemonSet: true}}
}

// TestEveryMachineEndsRunningOrGone lets faults, time, joins, a vanishing
// instance and a deletion come in any order.
func TestEveryMachineEndsRunningOrGone(t *testing.T) {
	passing := []cloud.Kind{cloud.Throttled, cloud.Quota, cloud.NoCapacity, cloud.Credentials, cloud.Denied, cloud.Transient}
	rapid.Check(t, func(rt *rapid.T) {
		w := newToy()
		vanished := false
		w.fail = func() *cloud.Fault {
			if rapid.IntRange(0, 2).Draw(rt, "fails") == 0 {
				return &cloud.Fault{Kind: rapid.SampledFrom(passing).Draw(rt, "kind"), Message: "not now"}
			}
			return nil
		}
		run := func() {
			_, d, err := w.step()
			switch {
			case err != nil:
				rt.Fatal(err)
			case w.gone:
			case d.Status.Phase == machine.Running && w.in.NodeRef == nil:
				rt.Fatal("Running without a Node")
			case d.Status.Phase == machine.Failed && !vanished:
				rt.Fatalf("Failed: %s", d.Status.ErrorMessage)
			}
		}
		for range rapid.IntRange(0, 40).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0:
				w.join()
			case 1:
				w.in.Deleting = w.in.Finalizer
			case 2:
				if w.vm != nil && rapid.IntRange(0, 4).Draw(rt, "vanishes") == 0 {
					w.vm, vanished = nil, true
				}
			case 3:
				w.in.Now = w.in.Now.Add(time.Duration(rapid.IntRange(1, 120).Draw(rt, "seconds")) * time.Second)
			default:
				run()
			}
			if w.gone {
				return
			}
		}
		w.fail = func() *cloud.Fault { return nil }
		for range 12 {
			w.in.Now = w.in.Now.Add(10 * time.Minute)
			w.join()
			if run(); w.gone {
				return
			}
		}
		if w.in.Deleting {
			rt.Fatal("still deleting")
		}
		if want := machine.Running; w.in.Phase != want && !vanished {
			rt.Fatalf("ended %s", w.in.Phase)
		}
		w.in.Now = w.in.Now.Add(time.Minute)
		if acted, d, _ := w.step(); acted {
			rt.Fatalf("not at rest: %v", d.Actions)
		}
	})
}
