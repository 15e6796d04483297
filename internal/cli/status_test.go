package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/engine/node"
	"millwright.io/millwright/internal/memapi"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

const (
	oldConfig = "rendered-worker-0123456789abcdef0123456789abcdef"
	newConfig = "rendered-worker-fedcba9876543210fedcba9876543210"
)

// statusNode is a worker with annotations key, value, ….
func statusNode(name string, pairs ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"node-role.kubernetes.io/worker": ""}, Annotations: map[string]string{}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for i := 0; i < len(pairs); i += 2 {
		n.Annotations[pairs[i]] = pairs[i+1]
	}
	return n
}

// going is a node on its way from the old config to the new one.
func going(name, state string, pairs ...string) *corev1.Node {
	return statusNode(name, append([]string{node.CurrentConfig, oldConfig, node.DesiredConfig, newConfig, node.State, state}, pairs...)...)
}

func resting(name, config string) *corev1.Node {
	return statusNode(name, node.CurrentConfig, config, node.DesiredConfig, config, node.State, node.Done)
}

func record(name string, kind mcfgv1.StateProgress, ago time.Duration) *mcfgv1.MachineConfigNode {
	return &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: mcfgv1.MachineConfigNodeStatus{
		Conditions: []metav1.Condition{{Type: string(kind), Status: metav1.ConditionTrue, Reason: string(kind), LastTransitionTime: metav1.NewTime(noon.Add(-ago))}},
	}}
}

func statusPool(name string, conditions ...mcfgv1.MachineConfigPoolCondition) *mcfgv1.MachineConfigPool {
	p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" + name: ""}}
	p.Spec.Configuration.Name = newConfig
	p.Status.Conditions = conditions
	return p
}

func poolSays(kind string, ago time.Duration, message string) mcfgv1.MachineConfigPoolCondition {
	return mcfgv1.MachineConfigPoolCondition{Type: mcfgv1.MachineConfigPoolConditionType(kind), Status: corev1.ConditionTrue, Message: message, LastTransitionTime: metav1.NewTime(noon.Add(-ago))}
}

// rolling is a pool in the middle of a rollout, a node at each step.
func rolling() []client.Object {
	p := statusPool("worker", poolSays("Updating", 10*time.Minute, "All nodes are updating"),
		poolSays("Waiting", time.Minute, "worker-1 and worker-2 use the budget of 2 nodes"))
	p.Annotations["millwright.io/rollout"] = `{"canary":{"nodes":1},"growth":2}`
	p.Annotations[annoRolloutState] = `{"target":"` + newConfig + `","wave":1,"allowed":3}`
	p.Status.MachineCount, p.Status.UpdatedMachineCount, p.Status.ReadyMachineCount, p.Status.UnavailableMachineCount = 8, 2, 2, 5
	drain, uncordon := "drain-"+newConfig, "uncordon-"+newConfig
	cordoned := resting("worker-7", newConfig)
	cordoned.Spec.Unschedulable = true
	return []client.Object{
		p, resting("worker-0", newConfig), record("worker-0", mcfgv1.MachineConfigNodeUpdated, 5*time.Minute),
		going("worker-1", node.Working, node.DesiredDrain, drain, annoDrainStarted, "2026-12-01T11:58:30Z", annoDrainBlocked, "pod shop/web-0: PodDisruptionBudget shop/web allows none"),
		going("worker-2", node.Working, node.DesiredDrain, drain, node.LastAppliedDrain, drain), record("worker-2", mcfgv1.MachineConfigNodeUpdateFilesAndOS, 40*time.Second),
		going("worker-3", node.Working, node.PostConfigAction, node.Rebooting), record("worker-3", mcfgv1.MachineConfigNodeUpdateRebooted, 75*time.Second),
		going("worker-4", node.Working, node.DesiredDrain, uncordon), going("worker-5", node.Working),
		resting("worker-6", oldConfig), cordoned, statusNode("worker-8"),
	}
}

// failing is a pool that a broken node has stopped.
func failing() []client.Object {
	p := statusPool("worker", poolSays("Degraded", 3*time.Minute, `Node worker-0 is reporting: "content mismatch". Next: …`), poolSays("Updating", time.Hour, ""))
	p.Annotations["millwright.io/rollout"] = `{"canary":{"nodes":1},"onFailure":"Rollback"}`
	p.Annotations[annoRolloutState] = `{"target":"` + newConfig + `","wave":0,"stopped":"node worker-0 fails","good":"` + oldConfig + `"}`
	p.Status.MachineCount, p.Status.DegradedMachineCount = 2, 1
	both := resting("both", oldConfig)
	both.Labels["node-role.kubernetes.io/infra"], both.Labels["node-role.kubernetes.io/gpu"] = "", ""
	return []client.Object{
		p, statusPool("infra"), statusPool("gpu"), both,
		going("worker-0", node.Degraded, node.Reason, "content mismatch for file \"/etc/a\"\nand more"), record("worker-0", mcfgv1.MachineConfigNodeNodeDegraded, 3*time.Minute),
		resting("worker-1", oldConfig),
	}
}

func statusReport(t *testing.T, now time.Time, objects ...client.Object) Report {
	t.Helper()
	scheme, err := readScheme()
	if err != nil {
		t.Fatal(err)
	}
	r := Report{now: now}
	if err := r.fill(t.Context(), memapi.New(scheme, clocktesting.NewFakePassiveClock(noon), objects...)); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestStatusShowsWhatEachNodeOfAPoolWaitsFor(t *testing.T) {
	for name, objects := range map[string][]client.Object{"status-rolling": rolling(), "status-failing": failing()} {
		r := statusReport(t, noon, objects...)
		var text, doc bytes.Buffer
		if err := r.table(&text); err != nil {
			t.Fatal(err)
		}
		golden(t, name+".txt", text.String())
		if err := output("json").print(&doc, r, nil); err != nil {
			t.Fatal(err)
		}
		golden(t, name+".json", doc.String())
		var back Report
		if err := json.Unmarshal(doc.Bytes(), &back); err != nil || len(back.Pools) != len(r.Pools) {
			t.Errorf("%s: the JSON gives %d pools, %v", name, len(back.Pools), err)
		}
	}
}

func TestFollowingSaysOnlyWhatChanged(t *testing.T) {
	first, second := rolling(), rolling()
	second[3].SetAnnotations(map[string]string{node.CurrentConfig: newConfig, node.DesiredConfig: newConfig, node.State: node.Done})
	pool := second[0].(*mcfgv1.MachineConfigPool)
	pool.Status.UpdatedMachineCount, pool.Status.Conditions = 3, pool.Status.Conditions[:1]
	looks := []Report{statusReport(t, noon, first...), statusReport(t, noon.Add(2*time.Second), first...), statusReport(t, noon.Add(4*time.Second), second...)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out bytes.Buffer
	var f feed
	for _, r := range looks {
		f.print(&out, r)
	}
	golden(t, "status-follow.txt", out.String())
	cancel()
	out.Reset()
	err := follow(ctx, &out, func(context.Context) (Report, error) { return looks[0], nil })
	if err != nil || !strings.Contains(out.String(), "12:00:00Z pool worker [#####...............] 2 of 8 updated") {
		t.Errorf("followed with %v:\n%s", err, out.String())
	}
}

func TestTheScreenLeavesNothingOfTheLastOne(t *testing.T) {
	var out bytes.Buffer
	if err := statusReport(t, noon, rolling()...).screen(&out); err != nil {
		t.Fatal(err)
	}
	got := out.String()
	if !strings.HasPrefix(got, "\x1b[H") || !strings.HasSuffix(got, "\x1b[J") || strings.Count(got, "\x1b[K\n") != strings.Count(got, "\n") {
		t.Errorf("the screen is %q", got)
	}
}

func TestBarIsNeverTooLong(t *testing.T) {
	for _, tt := range []struct {
		done, total int32
		want        string
	}{
		{0, 0, "[....................]"}, {1, 3, "[######..............]"}, {3, 3, "[####################]"},
		{5, 3, "[####################]"}, {-1, 3, "[....................]"}, {2000000000, 2000000001, "[###################.]"},
	} {
		if d := cmp.Diff(tt.want, bar(tt.done, tt.total)); d != "" {
			t.Errorf("bar(%d, %d) (-want +got):\n%s", tt.done, tt.total, d)
		}
	}
}
