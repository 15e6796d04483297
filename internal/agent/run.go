package agent

import (
	"context"
	"time"
)

// Pauses after errors: doubling from the first to the longest.
const (
	firstPause   = time.Second
	longestPause = time.Minute
)

// starter is a Cluster that has to be started.
type starter interface {
	Start(ctx context.Context, changed func()) error
}

// Run steps until ctx ends: at every change of the Node, the ControllerConfig or the
// disk, and when a step asked for it.
func (a *Agent) Run(ctx context.Context) error {
	woken := make(chan struct{}, 1)
	poke := func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}
	a.mu.Lock()
	a.poke = poke
	a.mu.Unlock()
	if s, ok := a.Cluster.(starter); ok {
		if err := s.Start(ctx, poke); err != nil {
			return err
		}
	}
	if facts, err := a.Host.Facts(ctx); err == nil {
		a.Metrics.Host(facts)
	}
	pause := firstPause
	for {
		wake, err := a.Step(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			a.Log.Errorf("Syncing node %s: %v", a.Config.Node, err)
			wake, pause = pause, min(2*pause, longestPause)
		default:
			pause = firstPause
		}
		var due <-chan time.Time
		if wake > 0 {
			due = a.Clock.After(wake)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-due:
		case <-woken:
		}
	}
}
