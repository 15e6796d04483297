package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"millwright.io/millwright/internal/engine/node"
	"millwright.io/millwright/internal/engine/transition"
	"millwright.io/millwright/internal/host"
)

// guardEvery is how often the disk is compared without a sign of a change: a folder
// that was removed tells nothing any more.
const guardEvery = 10 * time.Minute

func (a *Agent) hasDrifted() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.drifted
}

// suspect asks for a comparison at the next step.
func (a *Agent) suspect() {
	a.mu.Lock()
	a.drifted = true
	poke := a.poke
	a.mu.Unlock()
	poke()
}

// checkDrift compares files and units after a sign of a change, if nothing else
// compares them anyway.
func (a *Agent) checkDrift(ctx context.Context, s *situation) {
	if !a.hasDrifted() || a.booting || s.in.Disk == nil {
		return
	}
	a.mu.Lock()
	a.drifted = false
	a.mu.Unlock()
	an := s.in.Annotations
	if an[node.State] != node.Done || an[node.DesiredConfig] != s.in.Disk.Name || an[node.CurrentConfig] != s.in.Disk.Name {
		return
	}
	list, err := a.compare(ctx, s, s.in.Disk.Name, transition.FilesOnly)
	if err != nil {
		a.Log.Errorf("Comparing the disk after a change: %v", err)
		return
	}
	a.Metrics.drift(len(list) > 0, a.Clock.Now())
	s.in.Checked[s.in.Disk.Name] = list
}

// observed is a host that tells of changes at once, by whoever makes them: hollow
// nodes need no goroutine and no ticker.
type observed interface {
	OnChange(paths []string, changed func(path string)) (stop func())
}

// guard watches the files of a config until the next change.
func (a *Agent) guard(ctx context.Context, s *situation, name string) {
	if a.guarding == name || s.in.Disk == nil || s.in.Disk.Name != name {
		return
	}
	if a.unguard != nil {
		a.unguard()
	}
	refs, err := transition.Watched(s.in.Disk.Spec, s.facts)
	if err != nil {
		return // it has been compared: it can be read
	}
	var paths []string
	for _, r := range refs {
		if r.Kind == transition.KindFile {
			paths = append(paths, r.Key)
		}
	}
	a.guarding = name
	a.Log.Infof("Config Drift Monitor started, watching against %s", name)
	a.Cluster.Event(ctx, s.node, eventNormal, "ConfigDriftMonitorStarted", "Config Drift Monitor started, watching against "+name)
	if h, ok := a.Host.(observed); ok {
		a.unguard = h.OnChange(paths, func(p string) {
			if slices.Contains(paths, p) {
				a.suspect()
			}
		})
		return
	}
	guarded, cancel := context.WithCancel(ctx)
	a.unguard = cancel
	go a.watch(guarded, paths)
}

// watch tells of changes of single paths, and of time that has passed.
func (a *Agent) watch(ctx context.Context, paths []string) {
	go func() {
		err := a.Host.Watch(ctx, paths, func(string) { a.suspect() })
		if err != nil && ctx.Err() == nil && !errors.Is(err, host.ErrNoWatch) {
			a.Log.Errorf("Watching files: %v", err)
		}
	}()
	tick := a.Clock.NewTicker(guardEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
			a.suspect()
		}
	}
}

// stopGuard ends the watch before the agent changes the files itself.
func (a *Agent) stopGuard() {
	if a.unguard == nil {
		return
	}
	a.unguard()
	a.unguard, a.guarding = nil, ""
	a.Log.Infof("Config Drift Monitor stopped")
}
