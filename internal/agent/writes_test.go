package agent

import (
	"context"
	"slices"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright.io/millwright/internal/engine/lint"
	"millwright.io/millwright/internal/engine/node"
)

// A node's first minutes cost one write for what it booted into, one to ask for the
// uncordon and one to be done: trust and unit names go with them.
func TestAStartingNodeIsWrittenThreeTimes(t *testing.T) {
	cc := &mcfgv1.ControllerConfig{ObjectMeta: metav1.ObjectMeta{Name: controllerConfigName}}
	w := newWorld(t, rendered("rendered-worker-a", map[string]string{"/etc/a": "a"}), cc)
	w.run()
	w.want("rendered-worker-a", node.Done, "")
	if len(w.annotated) != 3 {
		t.Errorf("annotations were written %d times, want 3: %v", len(w.annotated), w.annotated)
	}
	first, last := w.annotated[0], w.annotated[len(w.annotated)-1]
	if !slices.Contains(first, annotationSynced) || !slices.Contains(first, node.CurrentConfig) || !slices.Contains(last, lint.UnitNamesKey) {
		t.Errorf("writes are %v", w.annotated)
	}
}

// What was left for the next write is written when there is none.
func TestTrustIsToldWhenNothingElseIs(t *testing.T) {
	w := settled(t)
	w.annotated = nil
	w.create(&mcfgv1.ControllerConfig{ObjectMeta: metav1.ObjectMeta{Name: controllerConfigName}})
	if _, err := w.agent.Step(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(w.annotated) != 1 || w.node().Annotations[annotationSynced] == "" {
		t.Errorf("writes are %v, annotations %v", w.annotated, w.node().Annotations)
	}
}
