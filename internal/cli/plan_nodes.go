package cli

import (
	"cmp"
	"fmt"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"

	"millwright.io/millwright/internal/engine/rollout"
)

// Annotations of pools that set their pace.
const (
	annoRollout = "millwright.io/rollout"
	annoWindows = "millwright.io/windows"
)

// estimates are how long things take; they are guesses that the user may
// correct.
type estimates struct {
	Reboot  time.Duration
	Drain   time.Duration // when the pods of a node are not known
	Service time.Duration // reload or restart of units
	Files   time.Duration // writing files
}

func defaultEstimates() estimates {
	return estimates{Reboot: 4 * time.Minute, Drain: time.Minute, Service: 10 * time.Second, Files: 5 * time.Second}
}

// node is how long one node is busy.
func (e estimates) node(n NodePlan, drain time.Duration) time.Duration {
	d := e.Files
	if n.Drains {
		d += drain
	}
	switch n.Action {
	case "reboot":
		d += e.Reboot
	case "none":
	default:
		d += e.Service
	}
	return d
}

// waves numbers the groups in which a pool's nodes go, as its controller lets
// them, and says what is between the groups. It returns how long waves soak.
func (p *PoolPlan) waves(pool *mcfgv1.MachineConfigPool, nodes []*corev1.Node, limit int, now time.Time) (soak time.Duration) {
	settings, err := rollout.ParseSettings(pool.Annotations[annoRollout])
	if err != nil {
		p.Notes = append(p.Notes, fmt.Sprintf("annotation %s: %v; no node would be updated", annoRollout, err))
	}
	facts, goes := make([]rollout.Node, 0, len(nodes)), make([]bool, 0, len(nodes))
	for i, n := range nodes {
		facts, goes = append(facts, standing(n)), append(goes, p.Nodes[i].Action != "")
	}
	seen := rollout.Foresee(settings, facts, goes, limit)
	p.Waves = seen.Number
	for i := range p.Nodes {
		p.Nodes[i].Wave = seen.Groups[i]
	}
	if settings != nil && seen.Waves > 1 {
		soak = time.Duration(seen.Waves-1) * settings.Soak.Duration
		p.Notes = append(p.Notes, fmt.Sprintf("%d nodes go first; %d trials in all, each healthy for %s before the next; on a failure: %s",
			seen.First, seen.Waves, settings.Soak.Duration, cmp.Or(settings.OnFailure, rollout.OnFailureStop)))
	}
	windows, err := rollout.ParseWindows(pool.Annotations[annoWindows])
	switch {
	case err != nil:
		p.Notes = append(p.Notes, fmt.Sprintf("annotation %s: %v; no node would be updated", annoWindows, err))
	case p.Waves > 0 && !windows.Open(now):
		p.Notes = append(p.Notes, "outside of the maintenance windows: nodes start from "+windows.Opens(now).Format(time.RFC3339))
	}
	return soak
}

// total is how long all waves take: each lasts as long as its slowest node.
func (e estimates) total(nodes []NodePlan) time.Duration {
	slowest := map[int]time.Duration{}
	for _, n := range nodes {
		if n.Wave > 0 {
			slowest[n.Wave] = max(slowest[n.Wave], time.Duration(n.Seconds)*time.Second)
		}
	}
	var sum time.Duration
	for _, d := range slowest {
		sum += d
	}
	return sum
}
