package fragment_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"

	"millwright.io/millwright/internal/dialect/machineconfig/fragment"
	"millwright.io/millwright/internal/engine/plan"
)

func TestPoolConditionsKeepTheirTimeAndFitTheObject(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)
	var pool machineconfigv1.MachineConfigPool
	set := func(kind, message string, s corev1.ConditionStatus, after time.Duration) {
		pool.Status.Conditions = fragment.WithPoolCondition(pool.Status.Conditions, plan.Condition{Type: kind, Status: s, Message: message}, start.Add(after))
	}
	set("A", "one", corev1.ConditionTrue, 0)
	set("B", "two", corev1.ConditionTrue, 0)
	set("A", "three", corev1.ConditionTrue, time.Hour)
	if c := pool.Status.Conditions; len(c) != 2 || c[1].Type != "A" || c[1].Message != "three" || !c[1].LastTransitionTime.Time.Equal(start.Truncate(time.Second)) {
		t.Errorf("after a new message: %+v", c)
	}
	set("A", "three", corev1.ConditionFalse, time.Hour)
	if c := fragment.PoolCondition(&pool, "A"); c == nil || !c.LastTransitionTime.Time.Equal(start.Add(time.Hour).Truncate(time.Second)) {
		t.Errorf("after a new status: %+v", c)
	}
	long := strings.Repeat("é", 20<<10)
	for range 2 {
		set("B", "x"+long, corev1.ConditionTrue, 0)
		if c := fragment.PoolCondition(&pool, "B"); len(c.Message) > 32<<10 || len(c.Message) < 32<<10-4 || !utf8.ValidString(c.Message) {
			t.Errorf("a message of %d bytes is kept with %d, valid %v", len(long)+1, len(c.Message), utf8.ValidString(c.Message))
		}
	}
	if fragment.PoolCondition(&pool, "C") != nil {
		t.Error("a condition that nobody set is there")
	}
}
