package health_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"millwright.io/millwright/internal/engine/health"
	"millwright.io/millwright/internal/engine/plan"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func check(maxUnhealthy string) health.Check {
	v := intstr.Parse(maxUnhealthy)
	return health.Check{
		Namespace: "ns", Name: "mhc", MaxUnhealthy: &v, StartupTimeout: 10 * time.Minute,
		Rules: []health.Rule{
			{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Timeout: 5 * time.Minute},
			{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Timeout: 5 * time.Minute},
		},
	}
}

func node(status corev1.ConditionStatus, ago time.Duration) *health.Node {
	return &health.Node{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(now.Add(-ago))}}}
}

func machine(name string, n *health.Node) health.Target {
	return health.Target{Name: name, UID: "u-" + name, Owned: true, NodeName: name, Node: n, Updated: now.Add(-time.Hour)}
}

// fleet is n healthy Machines in three zones.
func fleet(n int) []health.Target {
	out := make([]health.Target, n)
	for i := range out {
		out[i] = machine(fmt.Sprintf("w-%03d", i), node(corev1.ConditionTrue, time.Hour))
		out[i].Zone = fmt.Sprint(i%3 + 1)
	}
	return out
}

// silence makes n Nodes silent within a span that ended ago; zone "" takes
// any.
func silence(ts []health.Target, n int, zone string, ago, span time.Duration) []health.Target {
	k := 0
	for i := range ts {
		if k < n && (zone == "" || ts[i].Zone == zone) {
			ts[i].Node = node(corev1.ConditionUnknown, ago+span*time.Duration(k)/time.Duration(max(1, n-1)))
			k++
		}
	}
	return ts
}

func repaired(d plan.Decision[health.Status]) []string {
	out := []string{}
	for _, a := range d.Actions {
		out = append(out, a.String())
	}
	return out
}

func TestFirstRuleThatHitsDecides(t *testing.T) {
	failed := func(x health.Target) health.Target { x.Failed = true; return x }
	deleting := func(x health.Target) health.Target { x.Deleting = true; return x }
	bare := func(x health.Target) health.Target { x.Owned = false; return x }
	marked := func(x health.Target) health.Target { x.Marked = true; return x }
	starting := func(ago time.Duration) health.Target {
		x := machine("m", nil)
		x.NodeName, x.Updated = "", now.Add(-ago)
		return x
	}
	fresh := starting(0)
	fresh.Updated = time.Time{}
	for _, r := range []struct {
		name    string
		in      health.Target
		acts    bool
		healthy int
		wake    time.Duration
		event   string
	}{
		{"healthy", machine("m", node(corev1.ConditionTrue, 0)), false, 1, 0, ""},
		{"failed", failed(machine("m", node(corev1.ConditionTrue, 0))), true, 0, 0, ""},
		{"node gone", machine("m", nil), true, 0, 0, ""},
		{"silent for long", machine("m", node(corev1.ConditionUnknown, 5*time.Minute+time.Second)), true, 0, 0, ""},
		{"exactly the timeout is not longer", machine("m", node(corev1.ConditionUnknown, 5*time.Minute)), false, 0, time.Second, health.ReasonDetected},
		{"silent for a minute", machine("m", node(corev1.ConditionUnknown, time.Minute)), false, 0, 4*time.Minute + time.Second, health.ReasonDetected},
		{"not ready for long", machine("m", node(corev1.ConditionFalse, time.Hour)), true, 0, 0, ""},
		{"no such condition", machine("m", &health.Node{}), false, 1, 0, ""},
		{"starting", starting(4 * time.Minute), false, 0, 6*time.Minute + time.Second, ""},
		{"never started", starting(11 * time.Minute), true, 0, 0, ""},
		{"not looked at yet", fresh, false, 0, 10 * time.Minute, ""},
		{"going already", deleting(machine("m", node(corev1.ConditionUnknown, time.Hour))), false, 0, 0, ""},
		{"going, node fine", deleting(machine("m", node(corev1.ConditionTrue, time.Hour))), false, 0, 0, ""},
		{"nobody replaces it", bare(machine("m", nil)), false, 0, 0, health.ReasonNoOwner},
		{"somebody repairs it", marked(machine("m", node(corev1.ConditionTrue, time.Hour))), false, 0, 0, ""},
	} {
		t.Run(r.name, func(t *testing.T) {
			d := health.Decide(health.Input{Check: check("100%"), Targets: []health.Target{r.in}, Now: now})
			want := []string{}
			if r.acts {
				want = []string{"delete machine m"}
			}
			if diff := cmp.Diff(repaired(d), want); diff != "" {
				t.Errorf("actions (-got +want):\n%s", diff)
			}
			if d.Status.Healthy != r.healthy || d.Wake != r.wake {
				t.Errorf("healthy %d, wake %s; want %d, %s", d.Status.Healthy, d.Wake, r.healthy, r.wake)
			}
			got := ""
			for _, e := range d.Events {
				got += e.Reason
			}
			if got != r.event {
				t.Errorf("events %q, want %q", got, r.event)
			}
		})
	}
}

func TestStartupTimeoutZeroWaitsForEver(t *testing.T) {
	c := check("100%")
	c.StartupTimeout = 0
	x := machine("m", nil)
	x.NodeName, x.Updated = "", now.Add(-1000*time.Hour)
	d := health.Decide(health.Input{Check: c, Targets: []health.Target{x}, Now: now})
	if len(d.Actions) != 0 || d.Status.Healthy != 0 || d.Wake != 0 {
		t.Errorf("%v, %d healthy, wake %s", d.Actions, d.Status.Healthy, d.Wake)
	}
}

func TestStrategies(t *testing.T) {
	dead, failed := machine("m", nil), machine("m", nil)
	failed.Failed = true
	again, back := dead, machine("m", node(corev1.ConditionTrue, time.Hour))
	again.Requested, back.Requested = true, true
	marked := dead
	marked.Marked = true
	for _, r := range []struct {
		name     string
		strategy health.Strategy
		problem  string
		in       health.Target
		want     []string
	}{
		{"replace", health.Replace, "", dead, []string{"delete machine m"}},
		{"mark", health.Mark, "", dead, []string{"mark machine m for repair"}},
		{"marked already", health.Mark, "", marked, []string{}},
		{"a failed one is replaced", health.Mark, "", failed, []string{"delete machine m"}},
		{"request", health.Request, "", dead, []string{"create repair of machine m"}},
		{"requested already", health.Request, "", again, []string{}},
		{"healthy again", health.Request, "", back, []string{"delete repair of machine m"}},
		{"no template", health.Request, "not found", dead, []string{}},
	} {
		t.Run(r.name, func(t *testing.T) {
			c := check("100%")
			c.Strategy, c.Problem = r.strategy, r.problem
			d := health.Decide(health.Input{Check: c, Targets: []health.Target{r.in}, Now: now})
			if diff := cmp.Diff(repaired(d), r.want); diff != "" {
				t.Errorf("(-got +want):\n%s", diff)
			}
			if got := len(d.Conditions) == 2; got != (r.problem != "") {
				t.Errorf("conditions %v", d.Conditions)
			}
		})
	}
}

func TestShortCircuitSpeaksTheKnownWords(t *testing.T) {
	ts := silence(fleet(10), 4, "", 6*time.Minute, 3*time.Hour)
	d := health.Decide(health.Input{Check: check("30%"), Targets: ts, Now: now})
	want := plan.Condition{
		Type: "RemediationAllowed", Status: "False", Reason: "TooManyUnhealthy", Severity: plan.SeverityWarning,
		Message: "Remediation is not allowed, the number of not started or unhealthy machines exceeds maxUnhealthy (total: 10, unhealthy: 4, maxUnhealthy: 30%)",
	}
	if diff := cmp.Diff(d.Conditions, []plan.Condition{want}); diff != "" {
		t.Errorf("conditions (-got +want):\n%s", diff)
	}
	ev := []plan.Event{{Type: plan.Warning, Reason: "RemediationRestricted", Message: "Remediation restricted due to exceeded number of unhealthy machines (total: 10, unhealthy: 4, maxUnhealthy: 30%)"}}
	if diff := cmp.Diff(d.Events, ev); diff != "" {
		t.Errorf("events (-got +want):\n%s", diff)
	}
	if len(d.Actions) != 0 || d.Status.Allowed != 0 || d.Wake != 0 {
		t.Errorf("actions %v, allowed %d, wake %s", d.Actions, d.Status.Allowed, d.Wake)
	}
}

func TestZeroIsAllowedWhileAllAreHealthy(t *testing.T) {
	for _, v := range []string{"0", "0%"} {
		d := health.Decide(health.Input{Check: check(v), Targets: fleet(5), Now: now})
		if d.Status.Short || d.Conditions[0].Status != "True" {
			t.Errorf("%s: %+v", v, d.Conditions)
		}
		d = health.Decide(health.Input{Check: check(v), Targets: silence(fleet(5), 1, "", time.Hour, 0), Now: now})
		if !d.Status.Short || len(d.Actions) != 0 {
			t.Errorf("%s with one dead: %v", v, d.Actions)
		}
	}
}

// TestAllNodesGoUnknownAtOnce is the table of the known accident.
func TestAllNodesGoUnknownAtOnce(t *testing.T) {
	inRepair := func(ts []health.Target, n int) []health.Target {
		for i := range n {
			ts[len(ts)-1-i].Deleting = true
		}
		return ts
	}
	const ago = 6 * time.Minute
	for _, r := range []struct {
		name   string
		in     []health.Target
		limit  string
		repair int
		frozen string // zone, "-" none, "" whole fleet
		short  bool
	}{
		{"all at once", silence(fleet(40), 40, "", ago, 50*time.Second), "40%", 0, "", true},
		{"all at once, no limit", silence(fleet(40), 40, "", ago, 50*time.Second), "100%", 0, "", false},
		{"a zone at once", silence(fleet(40), 14, "1", ago, 50*time.Second), "40%", 0, "1", false},
		{"a single one", silence(fleet(40), 1, "", 10*time.Minute, 0), "40%", 1, "-", false},
		{"17 in six hours", silence(fleet(40), 17, "", ago, 6*time.Hour), "40%", 0, "-", true},
		{"3 while 14 are in repair", inRepair(silence(fleet(40), 3, "", ago, time.Hour), 14), "40%", 0, "-", true},
		{"16 in six hours", silence(fleet(40), 16, "", ago, 6*time.Hour), "40%", 16, "-", false},
		{"half at once is not most", silence(fleet(40), 6, "1", ago, 10*time.Second), "40%", 6, "-", false},
		{"two of two say nothing", silence(fleet(2), 2, "", ago, 0), "100%", 2, "-", false},
		{"two of three", silence(fleet(3), 2, "", ago, 10*time.Second), "100%", 0, "", false},
	} {
		t.Run(r.name, func(t *testing.T) {
			d := health.Decide(health.Input{Check: check(r.limit), Targets: r.in, Now: now})
			if len(d.Actions) != r.repair || d.Status.Short != r.short {
				t.Errorf("%d repaired, short %t; want %d, %t", len(d.Actions), d.Status.Short, r.repair, r.short)
			}
			got := "-"
			if len(d.Status.Frozen) == 1 {
				got = d.Status.Frozen[0].Zone
			}
			if got != r.frozen {
				t.Errorf("frozen %+v, want zone %q", d.Status.Frozen, r.frozen)
			}
		})
	}
}

func TestFreezeSaysWhatEndsIt(t *testing.T) {
	d := health.Decide(health.Input{Check: check("100%"), Targets: silence(fleet(40), 40, "", 6*time.Minute, 0), Now: now})
	want := []plan.Condition{{
		Type: "RemediationAllowed", Status: "False", Reason: "CorrelatedFailure", Severity: plan.SeverityWarning,
		Message: "40 of 40 nodes of the fleet stopped reporting within 1m0s (since 2026-11-30T11:54:00Z); repair of silent nodes resumes when half of them report again",
	}}
	if diff := cmp.Diff(d.Conditions, want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
	if d.Status.Allowed != 0 || len(d.Status.Held) != 40 {
		t.Errorf("allowed %d, held %d", d.Status.Allowed, len(d.Status.Held))
	}
}

func TestFrozenZoneLeavesTheOthers(t *testing.T) {
	ts := silence(fleet(40), 14, "1", 6*time.Minute, 0)
	dead := slices.IndexFunc(ts, func(x health.Target) bool { return x.Zone == "2" })
	ts[dead].Node = node(corev1.ConditionUnknown, 7*time.Minute)
	d := health.Decide(health.Input{Check: check("100%"), Targets: ts, Now: now})
	if diff := cmp.Diff(repaired(d), []string{"delete machine " + ts[dead].Name}); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
	if c := d.Conditions[0]; c.Status != "True" || c.Reason != "CorrelatedFailure" {
		t.Errorf("condition %+v", c)
	}
}

func TestFreezeEndsByItself(t *testing.T) {
	ts := silence(fleet(40), 40, "", 6*time.Minute, 0)
	for i := range 39 {
		ts[i].Node = node(corev1.ConditionTrue, time.Second)
	}
	d := health.Decide(health.Input{Check: check("40%"), Targets: ts, Now: now})
	if diff := cmp.Diff(repaired(d), []string{"delete machine w-039"}); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
}

func TestMassEndOfSpotInstancesIsNoFreeze(t *testing.T) {
	c := check("100%")
	c.Rules = []health.Rule{{Type: "Terminating", Status: corev1.ConditionTrue}}
	ts := fleet(10)
	for i := range ts {
		ts[i].Node.Conditions = append(ts[i].Node.Conditions, corev1.NodeCondition{Type: "Terminating", Status: "True", LastTransitionTime: metav1.NewTime(now.Add(-time.Second))})
	}
	d := health.Decide(health.Input{Check: c, Targets: ts, Now: now})
	if len(d.Actions) != 10 {
		t.Errorf("%d repaired, want 10", len(d.Actions))
	}
}

func TestShortTimeoutWaitsForTheOthers(t *testing.T) {
	c := check("100%")
	c.Rules[0].Timeout = time.Second
	in := health.Input{Check: c, Targets: silence(fleet(40), 1, "", 10*time.Second, 0), Now: now}
	if d := health.Decide(in); len(d.Actions) != 0 || d.Wake != 51*time.Second {
		t.Errorf("%v, wake %s", d.Actions, d.Wake)
	}
	in.Now = now.Add(51 * time.Second)
	if d := health.Decide(in); len(d.Actions) != 1 {
		t.Errorf("%v after the window", d.Actions)
	}
}

func TestToldInKnownWords(t *testing.T) {
	in := health.Input{Check: check("100%"), Targets: []health.Target{machine("m", nil)}, Now: now}
	for _, r := range []struct {
		a       plan.Action
		refused string
		want    plan.Event
	}{
		{plan.DeleteMachine{Name: "m"}, "", plan.Event{Machine: "m", Type: plan.Normal, Reason: "MachineDeleted", Message: "Machine ns/mhc/m/m has been remediated by requesting to delete Machine object"}},
		{plan.DeleteMachine{Name: "m"}, "boom", plan.Event{Machine: "m", Type: plan.Warning, Reason: "MachineDeletionFailed", Message: "Machine ns/mhc/m/m remediation failed: unable to delete Machine object: boom"}},
		{plan.MarkForRepair{Name: "m"}, "", plan.Event{Machine: "m", Type: plan.Normal, Reason: "ExternalAnnotationAdded", Message: "Requesting external remediation of node associated with machine ns/mhc/m/m"}},
		{plan.MarkForRepair{Name: "m"}, "boom", plan.Event{Machine: "m", Type: plan.Warning, Reason: "ExternalAnnotationFailed", Message: "Requesting external remediation of node associated with machine ns/mhc/m/m failed: boom"}},
	} {
		got, _ := health.Told(in, r.a, r.refused)
		if diff := cmp.Diff(got, &r.want); diff != "" {
			t.Errorf("%s %q (-got +want):\n%s", r.a, r.refused, diff)
		}
	}
	if _, c := health.Told(in, plan.CreateRepair{Name: "m"}, "boom"); c == nil || c.Reason != "ExternalRemediationRequestCreationFailed" {
		t.Errorf("condition %+v", c)
	}
}

func drawInput(rt *rapid.T) health.Input {
	in := health.Input{Check: check(fmt.Sprintf("%d%%", rapid.IntRange(0, 100).Draw(rt, "max"))), Now: now}
	statuses := []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionUnknown, corev1.ConditionFalse}
	for i := range rapid.IntRange(0, 20).Draw(rt, "machines") {
		x := machine(fmt.Sprintf("m%02d", i), node(rapid.SampledFrom(statuses).Draw(rt, "ready"), time.Duration(rapid.IntRange(0, 1200).Draw(rt, "ago"))*time.Second))
		x.Zone = rapid.SampledFrom([]string{"", "1", "2", "3"}).Draw(rt, "zone")
		x.Owned, x.Deleting, x.Failed = rapid.Bool().Draw(rt, "owned"), rapid.Bool().Draw(rt, "deleting"), rapid.Bool().Draw(rt, "failed")
		if rapid.Bool().Draw(rt, "lost") {
			x.Node = nil
		}
		if rapid.Bool().Draw(rt, "young") {
			x.NodeName, x.Node = "", nil
		}
		in.Targets = append(in.Targets, x)
	}
	return in
}

func TestNothingIsRepairedAboveTheLimit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawInput(rt)
		d := health.Decide(in)
		s := d.Status
		if s.Expected-s.Healthy > s.Max && len(d.Actions) > 0 {
			rt.Fatalf("%d of %d unhealthy, at most %d, yet %v", s.Expected-s.Healthy, s.Expected, s.Max, d.Actions)
		}
		for _, a := range d.Actions {
			x := in.Targets[slices.IndexFunc(in.Targets, func(x health.Target) bool { return "delete machine "+x.Name == a.String() })]
			if !x.Owned || x.Deleting || slices.Contains(s.Held, x.Name) {
				rt.Fatalf("%s: %+v", a, x)
			}
		}
	})
}

func TestRepairedOnceOnly(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawInput(rt)
		for _, a := range health.Decide(in).Actions {
			for i := range in.Targets {
				if "delete machine "+in.Targets[i].Name == a.String() {
					in.Targets[i].Deleting = true
				}
			}
		}
		if d := health.Decide(in); len(d.Actions) != 0 {
			rt.Fatalf("again: %v", d.Actions)
		}
	})
}

func TestHealthIgnoresOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawInput(rt)
		want := health.Decide(in)
		in.Targets = rapid.Permutation(in.Targets).Draw(rt, "order")
		if diff := cmp.Diff(health.Decide(in), want); diff != "" {
			rt.Fatal(diff)
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{10, 1000, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			in := health.Input{Check: check("100%"), Targets: silence(fleet(n), n/10, "", time.Hour, 10*time.Hour), Now: now}
			b.ReportAllocs()
			for b.Loop() {
				health.Decide(in)
			}
		})
	}
}
