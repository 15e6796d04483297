package machine_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/engine/drain"
	"millwright.io/millwright/internal/engine/instance"
	"millwright.io/millwright/internal/engine/machine"
	"millwright.io/millwright/internal/engine/plan"
)

var (
	now  = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	addr = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.128.5"}}
)

func quota() *cloud.Fault { return &cloud.Fault{Kind: cloud.Quota, Message: "quota exceeded"} }

func machineIn(p machine.Phase, change func(*machine.Input)) machine.Input {
	in := machine.Input{Name: "w-1", Phase: p, Finalizer: true, Now: now}
	if change != nil {
		change(&in)
	}
	return in
}

func linked(in *machine.Input) {
	in.NodeRef = &machine.NodeRef{Name: "w-1", UID: "n1"}
	in.Node = &machine.NodeFacts{Name: "w-1", UID: "n1", Ready: corev1.ConditionTrue}
}

func present(in *machine.Input) {
	in.Infra = machine.Infra{Presence: instance.Present, ProviderID: "p", Addresses: addr, State: cloud.StateRunning}
}

func TestDecidePhases(t *testing.T) {
	rows := []struct {
		name, why       string
		in              machine.Input
		phase           machine.Phase
		reason, message string
	}{
		{name: "first look", why: "Provisioning is shown before anything is made", phase: machine.Provisioning,
			in: machineIn("", func(in *machine.Input) { in.Infra.Presence = instance.Absent })},
		{name: "instance", why: "it has an address, no Node yet", phase: machine.Provisioned, in: machineIn(machine.Provisioning, present)},
		{name: "instance without identity", why: "nothing to link by", phase: machine.Provisioning,
			in: machineIn(machine.Provisioning, func(in *machine.Input) { in.Infra.Presence = instance.Present })},
		{name: "node", why: "linked", phase: machine.Running,
			in: machineIn(machine.Provisioned, func(in *machine.Input) { present(in); linked(in) })},
		{name: "existing machine", why: "an installer's master goes straight on", phase: machine.Provisioned, in: machineIn("", present)},
		{name: "quota", why: "it ends by itself", phase: machine.Provisioning, message: "quota exceeded",
			in: machineIn(machine.Provisioning, func(in *machine.Input) {
				in.Infra = machine.Infra{Presence: instance.Absent, Outlook: instance.Waiting, Fault: quota(), Op: instance.OpCreate}
			})},
		{name: "invalid", why: "only a new spec helps", phase: machine.Failed, reason: "InvalidConfiguration", message: "no such size",
			in: machineIn(machine.Provisioning, func(in *machine.Input) {
				in.Infra = machine.Infra{Presence: instance.Absent, Outlook: instance.Failed, Op: instance.OpCreate,
					Fault: &cloud.Fault{Kind: cloud.Invalid, Message: "no such size"}}
			})},
		{name: "invalid, repaired", why: "the create went through", phase: machine.Provisioned,
			in: machineIn(machine.Failed, func(in *machine.Input) { in.ErrorReason = "InvalidConfiguration"; present(in) })},
		{name: "vanished", why: "it was recorded", phase: machine.Failed, message: "can't find created instance",
			in: machineIn(machine.Running, func(in *machine.Input) {
				linked(in)
				in.Infra = machine.Infra{Presence: instance.Absent, Outlook: instance.Lost}
			})},
		{name: "vanished, back again", why: "Failed is final for it", phase: machine.Failed, message: "can't find created instance",
			in: machineIn(machine.Failed, func(in *machine.Input) {
				in.ErrorMessage = "can't find created instance"
				linked(in)
				present(in)
			})},
		{name: "cloud silent", why: "a running Machine keeps running", phase: machine.Running,
			in: machineIn(machine.Running, func(in *machine.Input) {
				linked(in)
				in.Infra = machine.Infra{Outlook: instance.Waiting, Fault: quota(), Op: instance.OpObserve}
			})},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			s := machine.Decide(r.in).Status
			got := []string{string(s.Phase), s.ErrorReason, s.ErrorMessage}
			if diff := cmp.Diff(got, []string{string(r.phase), r.reason, r.message}); diff != "" {
				t.Errorf("%s (-got +want):\n%s", r.why, diff)
			}
		})
	}
}

func TestDecideDeletion(t *testing.T) {
	del := func(change func(*machine.Input)) machine.Input {
		return machineIn(machine.Deleting, func(in *machine.Input) {
			in.Deleting = true
			linked(in)
			present(in)
			change(in)
		})
	}
	pod := func(name string) machine.PodFacts { return machine.PodFacts{Namespace: "a", Name: name, UID: name} }
	spent := func(name string) drain.Budget {
		return drain.Budget{Namespace: "a", Name: name, Selector: labels.Everything(), Desired: 1}
	}
	hook := []machine.Hook{{Name: "Backup", Owner: "storage"}}
	rows := []struct {
		name, why string
		in        machine.Input
		actions   []string
		goal      instance.Goal
		wake      time.Duration
	}{
		{name: "drain", why: "cordon, then what must leave", goal: instance.Hold, wake: 2 * time.Second,
			actions: []string{"cordon node w-1", "evict pod a/app"},
			in: del(func(in *machine.Input) {
				mirror, ds, done := pod("mirror"), pod("ds"), pod("done")
				mirror.Mirror, ds.DaemonSet, done.Finished = true, true, true
				in.Pods = []machine.PodFacts{mirror, pod("app"), ds, done}
			})},
		{name: "terminating pods", why: "they are on their way", goal: instance.Hold, wake: 2 * time.Second,
			in: del(func(in *machine.Input) {
				in.Node.Unschedulable = true
				p := pod("app")
				p.Deleted = now.Add(-10 * time.Second)
				in.Pods = []machine.PodFacts{p}
			})},
		{name: "pod outlives its grace", why: "it is named; the kubelet may still end it", goal: instance.Hold, wake: 5 * time.Second,
			in: del(func(in *machine.Input) {
				in.Node.Unschedulable = true
				p := pod("app")
				p.Deleted = now.Add(-time.Minute)
				in.Pods = []machine.PodFacts{p}
			})},
		{name: "silent node", why: "without proof that it is off its budget counts", goal: instance.Hold, wake: 5 * time.Second,
			in: del(func(in *machine.Input) {
				in.Node.Unschedulable, in.Node.Ready = true, corev1.ConditionUnknown
				in.Pods, in.Budgets = []machine.PodFacts{pod("app")}, []drain.Budget{spent("app")}
			})},
		{name: "instance off", why: "with proof nothing runs there", goal: instance.Hold, wake: 2 * time.Second, actions: []string{"delete pod a/app"},
			in: del(func(in *machine.Input) {
				in.Node.Unschedulable, in.Node.Ready, in.Node.Off = true, corev1.ConditionUnknown, true
				in.Pods, in.Budgets = []machine.PodFacts{pod("app")}, []drain.Budget{spent("app")}
			})},
		{name: "unreachable node", why: "nobody will finish them", goal: instance.Remove,
			in: del(func(in *machine.Input) {
				in.Node.Unschedulable, in.Node.Ready = true, corev1.ConditionUnknown
				p := pod("app")
				p.Deleted = now.Add(-time.Minute)
				in.Pods = []machine.PodFacts{p}
			})},
		{name: "empty node", why: "the instance may go", goal: instance.Remove, in: del(func(in *machine.Input) { in.Node.Unschedulable = true })},
		{name: "node gone", why: "nothing to drain", goal: instance.Remove, in: del(func(in *machine.Input) { in.Node = nil })},
		{name: "excluded", why: "the admin said so; the hook does not count then", goal: instance.Remove,
			in: del(func(in *machine.Input) {
				in.ExcludeDrain, in.PreDrain, in.Pods = true, hook, []machine.PodFacts{pod("app")}
			})},
		{name: "preDrain", why: "the hook's owner says when", goal: instance.Hold, in: del(func(in *machine.Input) { in.PreDrain = hook })},
		{name: "preTerminate", why: "drained, but not to be removed", goal: instance.Hold,
			in: del(func(in *machine.Input) { in.Drained, in.PreTerminate = true, hook })},
		{name: "second control plane node", why: "one at a time", goal: instance.Hold, wake: 20 * time.Second,
			in: del(func(in *machine.Input) { in.Node.ControlPlane, in.OtherControlPlaneCordon = true, true })},
		{name: "refused", why: "a budget is spent", goal: instance.Hold, wake: 5 * time.Second,
			in: del(func(in *machine.Input) {
				in.Pods, in.Evicted = []machine.PodFacts{pod("app")}, machine.Eviction{Tried: true, Error: "budget"}
			})},
		{name: "instance gone", why: "then Node, then finalizer", goal: instance.Remove,
			actions: []string{"delete node w-1", "remove finalizer"},
			in: del(func(in *machine.Input) {
				in.Drained, in.Infra = true, machine.Infra{Presence: instance.Absent, Gone: true}
			})},
		{name: "finalizer gone", why: "not ours any more", goal: instance.Remove, in: del(func(in *machine.Input) { in.Finalizer, in.Drained = false, true })},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			d := machine.Decide(r.in)
			var got []string
			for _, a := range d.Actions {
				got = append(got, a.String())
			}
			if diff := cmp.Diff(got, r.actions); diff != "" {
				t.Errorf("%s: actions (-got +want):\n%s", r.why, diff)
			}
			if d.Status.Goal != r.goal || d.Wake != r.wake {
				t.Errorf("%s: goal %d, wake %s; want %d, %s", r.why, d.Status.Goal, d.Wake, r.goal, r.wake)
			}
		})
	}
}

func TestConditionsInTheWordsPeopleKnow(t *testing.T) {
	in := machineIn(machine.Deleting, func(in *machine.Input) {
		in.Deleting = true
		linked(in)
		in.PreDrain = []machine.Hook{{Name: "A", Owner: "x"}, {Name: "B", Owner: "y"}}
		in.Infra = machine.Infra{Outlook: instance.Waiting, Op: instance.OpObserve, Fault: &cloud.Fault{Kind: cloud.Credentials, Message: "no secret"}}
	})
	want := []plan.Condition{
		{Type: "Drainable", Status: "False", Severity: "Warning", Reason: "HookPresent",
			Message: "Drain operation currently blocked by: [{Name:A Owner:x} {Name:B Owner:y}]"},
		{Type: "Terminable", Status: "True"},
		{Type: "InstanceExists", Status: "Unknown", Reason: "ErrorCheckingProvider", Message: "Failed to check if machine exists: no secret"},
		{Type: "InstanceReconciled", Status: "False", Severity: "Warning", Reason: "Credentials", Message: "no secret"},
	}
	if diff := cmp.Diff(machine.Decide(in).Conditions, want); diff != "" {
		t.Errorf("conditions (-got +want):\n%s", diff)
	}
}

func TestBlockedDrainIsToldOnce(t *testing.T) {
	in := machine.Input{
		Name: "w-1", Phase: machine.Deleting, Deleting: true, Finalizer: true, Now: now,
		NodeRef: &machine.NodeRef{Name: "w-1"}, Node: &machine.NodeFacts{Name: "w-1", Ready: corev1.ConditionTrue, Unschedulable: true},
		Pods:    []machine.PodFacts{{Namespace: "a", Name: "app", Owner: "ReplicaSet/app-7f", Ready: true}},
		Budgets: []drain.Budget{{Namespace: "a", Name: "pdb", Selector: labels.Everything(), Desired: 2, Healthy: 2}},
	}
	const text = `error when evicting pods/"app" -n "a" (ReplicaSet/app-7f): Cannot evict pod as it would violate the pod's disruption budget. The disruption budget pdb needs 2 healthy pods and has 2 currently`
	d := machine.Decide(in)
	want := []plan.Event{{Type: plan.Normal, Reason: "DrainRequeued", Action: "Drain", Message: "Node drain requeued: " + text}}
	if diff := cmp.Diff(d.Events, want); diff != "" {
		t.Errorf("events (-got +want):\n%s", diff)
	}
	last := d.Conditions[len(d.Conditions)-1]
	if last.Type != "Drained" || last.Reason != "DrainError" || last.Message != "could not drain machine: "+text {
		t.Errorf("condition %+v", last)
	}
	in.DrainTold, in.DrainSince, in.Now = last.Message, now, now.Add(time.Hour)
	if d = machine.Decide(in); len(d.Events) != 0 || len(d.Actions) != 0 || d.Wake != 30*time.Second {
		t.Errorf("again: events %v, actions %v, wake %s", d.Events, d.Actions, d.Wake)
	}
	in.Budgets = nil
	if d = machine.Decide(in); len(d.Actions) != 1 {
		t.Errorf("did not resume: %v", d.Actions)
	}
}
