package rollout_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright.io/millwright/internal/engine/rollout"
)

func TestForeseeNumbersGroups(t *testing.T) {
	all := []bool{true, true, true, true, true, true, true, true, true, true}
	rows := []struct {
		name, settings string
		goes           []bool
		limit          int
		want           rollout.Preview
	}{
		{"one by one", "", []bool{true, false, true}, 1, rollout.Preview{Groups: []int{1, 0, 2}, Number: 2, Waves: 1}},
		{"two at a time", "", all[:5], 2, rollout.Preview{Groups: []int{1, 1, 2, 2, 3}, Number: 3, Waves: 1}},
		{"nothing", "", []bool{false}, 0, rollout.Preview{Groups: []int{0}}},
		{"canary", `{"canary": {"nodes": 1}}`, all[:5], 4, rollout.Preview{Groups: []int{1, 2, 2, 2, 2}, Number: 2, Waves: 2, First: 1}},
		{"growing", `{"canary": {"nodes": 1}, "growth": 2}`, all, 3, rollout.Preview{Groups: []int{1, 2, 2, 3, 3, 3, 4, 5, 5, 5}, Number: 5, Waves: 4, First: 1}},
		{"selected", `{"canary": {"selector": "canary=true"}}`, all[:9], 9, rollout.Preview{Groups: []int{2, 2, 2, 2, 2, 2, 2, 1, 2}, Number: 2, Waves: 2, First: 1}},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			nodes := many(len(r.goes), "v0")
			if diff := cmp.Diff(r.want, rollout.Foresee(settings(t, r.settings), nodes, r.goes, r.limit)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestForeseeIsWhatHappens plays the rollout that was foreseen.
func TestForeseeIsWhatHappens(t *testing.T) {
	x := run{in: rollout.Input{Now: now, Nodes: many(10, "v0"), Pool: pool("v1", 3)}}
	x.in.Pool.Settings = settings(t, `{"canary": {"nodes": 1}, "growth": 2}`)
	want := rollout.Foresee(x.in.Pool.Settings, x.in.Nodes, []bool{true, true, true, true, true, true, true, true, true, true}, 3)
	groups, round := map[string]int{}, 0
	for range 40 {
		started := x.step(0)
		if len(started) > 0 {
			round++
		}
		for _, n := range started {
			groups[n] = round
		}
		x.work()
	}
	for i, n := range x.in.Nodes {
		if groups[n.Name] != want.Groups[i] {
			t.Errorf("node %s went in group %d, foreseen %d", n.Name, groups[n.Name], want.Groups[i])
		}
	}
}

func TestOrderPutsDownNodesFirst(t *testing.T) {
	nodes := []rollout.Node{node("a", "v0", pods(5)), node("b", "v0", notReady, pods(9)), node("c", "v0", pods(1)), node("d", "v0", cordoned)}
	rollout.Order(nodes)
	var got []string
	for _, n := range nodes {
		got = append(got, n.Name)
	}
	if diff := cmp.Diff([]string{"d", "b", "c", "a"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestNotReadyInTheOriginalsWords(t *testing.T) {
	for want, c := range map[string]corev1.NodeCondition{
		"":                                     {Type: corev1.NodeReady, Status: corev1.ConditionTrue},
		"node n is reporting NotReady=Unknown": {Type: corev1.NodeReady, Status: corev1.ConditionUnknown},
		"node n is reporting OutOfDisk=True":   {Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue},
		"node n is reporting NetworkUnavailable=True": {Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue},
	} {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{c}}}
		if got := rollout.NotReady(&n); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
