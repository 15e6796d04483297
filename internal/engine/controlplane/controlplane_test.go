package controlplane_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millwright.io/millwright/internal/engine/controlplane"
	"millwright.io/millwright/internal/engine/plan"
)

const prefix = "demo-master"

var zones = []string{"1", "2", "3"}

// master is an up-to-date, ready machine of ours in the zone of its index.
func master(i int, change ...func(*controlplane.Member)) controlplane.Member {
	name := fmt.Sprintf("%s-%d", prefix, i)
	m := controlplane.Member{Name: name, UID: "uid-" + name, Owner: controlplane.OwnerOurs, Index: i, Domain: zones[i%3], Ready: true}
	for _, c := range change {
		c(&m)
	}
	return m
}

func named(s string) func(*controlplane.Member) {
	return func(m *controlplane.Member) {
		m.Name = fmt.Sprintf("%s-%s-%d", prefix, s, m.Index)
		m.UID, m.Created = "uid-"+m.Name, 1
	}
}
func outdated(m *controlplane.Member) { m.Outdated = "providerSpec.vmSize" }
func unready(m *controlplane.Member)  { m.Ready = false }
func going(m *controlplane.Member)    { m.Deleting = true }
func orphan(m *controlplane.Member)   { m.Owner = controlplane.OwnerNone }
func foreign(m *controlplane.Member)  { m.Owner = controlplane.OwnerOther }
func failed(m *controlplane.Member)   { m.Failed, m.Ready = true, false }
func in(zone string) func(*controlplane.Member) {
	return func(m *controlplane.Member) { m.Domain = zone }
}

func active(ms ...controlplane.Member) controlplane.Input {
	return controlplane.Input{Members: ms, Set: controlplane.Set{UID: "set", Generation: 2, Prefix: prefix, Active: true, Finalizer: true, Replicas: 3, Domains: zones}}
}

// verbs prints actions with the random part of new names as a star, and the
// domain of a new machine.
func verbs(d plan.Decision[controlplane.Status]) []string {
	var out []string
	for _, a := range d.Actions {
		if c, ok := a.(plan.CreateMachine); ok {
			out = append(out, fmt.Sprintf("create index %d in %s", controlplane.IndexOf(c.Name), d.Status.Placed[c.Name]))
			continue
		}
		out = append(out, a.String())
	}
	return out
}

func reasons(d plan.Decision[controlplane.Status]) string {
	s := ""
	for _, c := range d.Conditions {
		s += fmt.Sprintf("%s=%s/%s ", c.Type[:1], c.Status, c.Reason)
	}
	return s
}

const (
	allFine = "A=True/AllReplicasAvailable D=False/AsExpected P=False/AllReplicasUpdated "
	needs   = "A=True/AllReplicasAvailable D=False/AsExpected P=True/NeedsUpdateReplicas "
)

func TestDecide(t *testing.T) {
	onDelete := func(i controlplane.Input) controlplane.Input { i.Set.Strategy = controlplane.OnDelete; return i }
	inactive := func(i controlplane.Input) controlplane.Input {
		i.Set.Active, i.Set.Finalizer = false, false
		return i
	}
	for _, tc := range []struct {
		name, why string
		in        controlplane.Input
		want      []string
		reasons   string
		waits     string
	}{
		{name: "nothing to do", in: active(master(0), master(1), master(2)), reasons: allFine},
		{name: "inactive counts only", in: inactive(active(master(0, orphan, outdated), master(1, orphan), master(2, orphan))), reasons: needs},
		{name: "first things first", why: "a deleted set must be able to let go", in: func() controlplane.Input {
			i := active(master(0, orphan), master(1, orphan), master(2, orphan, outdated))
			i.Set.Finalizer = false
			return i
		}(), want: []string{"add finalizer", "adopt machine demo-master-0", "adopt machine demo-master-1", "adopt machine demo-master-2"}, reasons: needs},
		{name: "lowest index first", in: active(master(0, outdated), master(1, outdated), master(2, outdated)), want: []string{"create index 0 in 1"}, reasons: needs},
		{name: "one surge", in: active(master(0, outdated), master(0, named("aaaaa"), unready), master(1, outdated), master(2, outdated)), reasons: needs,
			waits: "index 0 waits until replacement machine demo-master-aaaaa-0 has a ready node"},
		{name: "the replaced one goes", in: active(master(0, outdated), master(0, named("aaaaa")), master(1, outdated), master(2)), want: []string{"delete machine demo-master-0"}, reasons: needs,
			waits: "index 1 waits until no machine is in excess"},
		{name: "wait until it is gone", in: active(master(0, outdated, going), master(0, named("aaaaa")), master(1, outdated), master(2)), reasons: needs,
			waits: "index 1 waits until no machine is in excess"},
		{name: "last one is going", in: active(master(0, named("aaaaa")), master(0, outdated, going), master(1), master(2)),
			reasons: "A=True/AllReplicasAvailable D=False/AsExpected P=True/ExcessReplicas "},
		{name: "two going would be two down", in: active(master(0, outdated), master(0, named("aaaaa")), master(1, going), master(1, named("bbbbb")), master(2)),
			reasons: "A=True/AllReplicasAvailable D=False/AsExpected P=True/ExcessReplicas ",
			waits:   "machine demo-master-0 was replaced and goes when machine demo-master-1 is gone"},
		{name: "a missing index", in: active(master(0), master(2)), want: []string{"create index 1 in 2"},
			reasons: "A=False/UnavailableReplicas D=False/AsExpected P=True/NeedsUpdateReplicas "},
		{name: "missing before outdated", in: active(master(0, outdated), master(2)), want: []string{"create index 1 in 2"},
			reasons: "A=False/UnavailableReplicas D=False/AsExpected P=True/NeedsUpdateReplicas ", waits: "index 0 waits until the missing machines are there"},
		{name: "a lost one is replaced first", in: active(master(0, outdated), master(1, outdated, unready), master(2, outdated)), want: []string{"create index 1 in 2"},
			reasons: "A=False/UnavailableReplicas D=False/AsExpected P=True/NeedsUpdateReplicas "},
		{name: "not while another is down", in: active(master(0, outdated), master(1, unready), master(2)),
			reasons: "A=False/UnavailableReplicas D=False/AsExpected P=True/NeedsUpdateReplicas ", waits: "index 0 waits until machine demo-master-1 has a ready node"},
		{name: "deleted by hand", in: active(master(0), master(1, going), master(2)), want: []string{"create index 1 in 2"}, reasons: needs},
		{name: "on delete does nothing by itself", in: onDelete(active(master(0, outdated), master(1), master(2))), reasons: needs},
		{name: "on delete replaces", in: onDelete(active(master(0, outdated), master(1, outdated, going), master(2))), want: []string{"create index 1 in 2"}, reasons: needs},
		{name: "on delete once", in: onDelete(active(master(0, outdated), master(1, going), master(1, named("aaaaa"), unready), master(2))), reasons: needs,
			waits: "index 1 waits until replacement machine demo-master-aaaaa-1 has a ready node"},
		{name: "wrong zone", why: "two in one zone go with it", in: active(master(0), master(1, in("1")), master(2)), want: []string{"create index 1 in 2"}, reasons: needs},
		{name: "failed replacement", in: active(master(0, outdated), master(0, named("aaaaa"), failed), master(1), master(2)),
			reasons: "A=True/AllReplicasAvailable D=True/FailedReplacement P=False/OperatorDegraded ",
			waits:   "index 0 waits until replacement machine demo-master-aaaaa-0 has a ready node"},
		{name: "none ready", in: active(master(0, unready), master(1, unready, outdated), master(2, unready)),
			reasons: "A=False/UnavailableReplicas D=True/NoReadyMachines P=False/OperatorDegraded "},
		{name: "owned by others", in: active(master(0, foreign), master(1, outdated), master(2)),
			reasons: "A=True/AllReplicasAvailable D=True/MachinesAlreadyOwned P=False/OperatorDegraded "},
		{name: "too many indexes", in: active(master(0, outdated), master(1), master(2), master(3)),
			reasons: "A=True/AllReplicasAvailable D=True/ExcessIndexes P=False/OperatorDegraded "},
		{name: "other indexes", in: active(master(0), master(3, in("2")), master(4, in("3"))), reasons: allFine},
		{name: "no index at all", in: active(master(0), master(1), master(2), master(0, named("x"), func(m *controlplane.Member) { m.Index = controlplane.NoIndex })),
			reasons: "A=True/AllReplicasAvailable D=True/ExcessIndexes P=False/OperatorDegraded "},
		{name: "unmanaged node", in: func() controlplane.Input {
			i := active(master(0, outdated), master(1), master(2))
			i.Unmanaged = []string{"stranger"}
			return i
		}(), reasons: "A=True/AllReplicasAvailable D=True/UnmanagedNodes P=False/OperatorDegraded "},
		{name: "unknown strategy", in: func() controlplane.Input {
			i := active(master(0, outdated), master(1), master(2))
			i.Set.Strategy = "Recreate"
			return i
		}(), reasons: "A=True/AllReplicasAvailable D=True/InvalidStrategy P=False/OperatorDegraded "},
		{name: "deleting lets go", in: func() controlplane.Input {
			i := active(master(0, outdated), master(1), master(2, orphan))
			i.Set.Deleting = true
			return i
		}(), want: []string{"release machine demo-master-0", "release machine demo-master-1", "remove finalizer"}, reasons: needs},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := controlplane.Decide(tc.in)
			if diff := cmp.Diff(tc.want, verbs(d)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if got := reasons(d); got != tc.reasons {
				t.Errorf("conditions\n%s, want\n%s", got, tc.reasons)
			}
			if d.Status.Waits != tc.waits {
				t.Errorf("waits for %q, want %q", d.Status.Waits, tc.waits)
			}
		})
	}
}

func TestStatusCounts(t *testing.T) {
	d := controlplane.Decide(active(master(0, outdated), master(0, named("aaaaa")), master(1, unready), master(2)))
	got := d.Status
	got.Placed = nil
	want := controlplane.Status{Replicas: 4, Ready: 3, Updated: 2, Unavailable: 1, Generation: 2, Outdated: map[string]string{"demo-master-0": "providerSpec.vmSize"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestIndexOf(t *testing.T) {
	for name, want := range map[string]int{
		"demo-master-0": 0, "demo-master-x7k2p-2": 2, "demo-master-12": 12, "master": controlplane.NoIndex, "demo-master-": controlplane.NoIndex,
		"demo-master-24567": controlplane.NoIndex, "demo-master-x": controlplane.NoIndex, "demo-master--1": 1, "": controlplane.NoIndex,
	} {
		if got := controlplane.IndexOf(name); got != want {
			t.Errorf("IndexOf(%q) = %d, want %d", name, got, want)
		}
	}
}
