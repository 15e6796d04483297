package cli

import (
	"strings"
	"testing"
)

func TestPlanShowsWaves(t *testing.T) {
	pool := write(t, t.TempDir(), "pool.yaml", `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata:
  name: worker
  annotations:
    millwright.io/rollout: '{"canary": {"nodes": 1}, "soak": "1h", "onFailure": "Rollback"}'
    millwright.io/windows: Foo 1:00-2:00
spec:
  machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: worker}}
  nodeSelector: {matchLabels: {node-role.kubernetes.io/worker: ""}}
  maxUnavailable: 100%
`)
	p, _ := planned(t, "-f", pool, "-f", "testdata/plan/new-all.yaml", "--from", planDir(t))
	w := p.Pools[0]
	first := 0
	for _, n := range w.Nodes {
		if n.Wave == 1 {
			first++
		}
	}
	if w.Waves != 2 || first != 1 || w.Seconds < 3600 {
		t.Errorf("%d waves, %d nodes in the first, %d seconds", w.Waves, first, w.Seconds)
	}
	notes := strings.Join(w.Notes, "\n")
	for _, want := range []string{"1 nodes go first; 2 trials in all, each healthy for 1h0m0s before the next; on a failure: Rollback", `annotation millwright.io/windows: window "Foo 1:00-2:00": days "Foo"`} {
		if !strings.Contains(notes, want) {
			t.Errorf("notes lack %q:\n%s", want, notes)
		}
	}
}
