package world

import (
	"context"
	"os"
	"sync"
	"time"

	"millwright.io/millwright/internal/sim/control"
)

// statusBox is the part of the status that changes while the world runs.
type statusBox struct {
	mu           sync.Mutex
	phase        string
	message      string
	since        time.Time
	readySeconds float64
	apiServer    string
	apiSeconds   float64
}

// serving notes that the API server answers.
func (b *statusBox) serving(url string, seconds float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.apiServer, b.apiSeconds = url, seconds
}

func (b *statusBox) set(phase, message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.phase != phase {
		b.since = time.Now()
	}
	b.phase, b.message = phase, message
}

func (b *statusBox) ready(seconds float64) {
	b.set(control.PhaseReady, "")
	b.mu.Lock()
	defer b.mu.Unlock()
	b.readySeconds = seconds
}

// Status implements control.Knobs.
func (s *supervisor) Status(context.Context) control.Status {
	b := &s.status
	b.mu.Lock()
	defer b.mu.Unlock()
	return control.Status{
		Phase: b.phase, Message: b.message, Since: b.since, ReadySeconds: b.readySeconds,
		APIServer: b.apiServer, APIServerSeconds: b.apiSeconds,
		PID: os.Getpid(), Dir: s.dir.path, World: s.dir.state.World, InfraID: s.dir.state.InfraID,
		Kubeconfig: s.dir.join("kubeconfig"), BinDir: s.dir.join("controlplane", "bin"),
	}
}

// progress says what the start waits for, once per change.
func (s *supervisor) progress(message string) {
	s.status.mu.Lock()
	same := s.status.message == message
	s.status.message = message
	s.status.mu.Unlock()
	if !same {
		s.opts.Say("Waiting for %s", message)
	}
}

func (b *statusBox) phaseIs(phase string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.phase == phase
}
