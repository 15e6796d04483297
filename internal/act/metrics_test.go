package act_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"millwright.io/millwright/internal/act"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/telemetry"
)

// performed reads the counter of one kind of action and result.
func performed(t *testing.T, action, result string) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != telemetry.MetricActions {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels[telemetry.LabelAction] == action && labels[telemetry.LabelResult] == result {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func TestActionsAreCounted(t *testing.T) {
	b := newBench(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	done, failed := performed(t, "CordonNode", "done"), performed(t, "CordonNode", "failed")
	r := act.New(b.api)
	cordon := []plan.Action{plan.CordonNode{Node: "n1"}}
	if _, err := r.Run(t.Context(), b.owner, act.Binding{}, nil, cordon); err != nil {
		t.Fatal(err)
	}
	b.api.FailNext("get", "Node", errors.New("broken"))
	b.api.FailNext("patch", "Node", errors.New("broken"))
	if _, err := r.Run(t.Context(), b.owner, act.Binding{}, nil, []plan.Action{plan.UncordonNode{Node: "n1"}}); err == nil {
		t.Error("a broken API server goes unnoticed")
	}
	if got := performed(t, "CordonNode", "done") - done; got != 1 {
		t.Errorf("%v cordons counted as done, want 1", got)
	}
	if got := performed(t, "CordonNode", "failed") - failed; got != 0 {
		t.Errorf("%v cordons counted as failed, want 0", got)
	}
	if got := performed(t, "UncordonNode", "failed"); got != 1 {
		t.Errorf("%v uncordons counted as failed, want 1", got)
	}
}
