package cli

import "time"

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

// waves puts nodes into groups of at most limit, in order. Nodes out of service
// come first; they use the budget already.
func waves(nodes []NodePlan, limit int) int {
	if limit < 1 {
		limit = 1
	}
	next := 0
	for i := range nodes {
		if nodes[i].Action == "" {
			continue // it has the config already
		}
		nodes[i].Wave = next/limit + 1
		next++
	}
	return (next + limit - 1) / limit
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
