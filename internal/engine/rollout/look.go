package rollout

// Present returns the wave that is under way, counted from 1; 0: there are no waves,
// every node may go, or the rollout is stopped.
func (r Record) Present() int {
	if r.Target == "" || r.Stopped != "" || r.Wave >= lastWave {
		return 0
	}
	return r.Wave + 1
}

// Goal returns the config that the nodes of a pool with this target shall have: the
// last good one while a stopped rollout goes back.
func (r Record) Goal(target string, s *Settings) string {
	return r.goal(&Pool{Target: target, Settings: s})
}
