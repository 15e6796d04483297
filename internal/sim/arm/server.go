package arm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"millwright.io/millwright/internal/sim/backend"
)

// Server is one simulated subscription. All methods are safe for concurrent
// use.
type Server struct {
	cfg Config

	mu         sync.Mutex
	resources  map[string]*resource // by lower-cased id
	operations map[string]*operation
	active     map[string]*operation // those in progress
	quotas     map[string]int
	faults     []*Fault
	slow       map[string]time.Duration
	requests   map[string]int
	ignored    map[string]int // read-only fields sent, by type and path
	signingKey []byte
	serial     uint64
	secret     string
	tokenEpoch time.Time
	dirty      bool
	addresses  map[string]map[netip.Addr]string // subnet id → address → owner id

	file *backend.File
	kick backend.Signal          // an operation was added or the state changed
	news *backend.News[Machines] // what the hardware does not know yet
	stop context.CancelFunc
	done sync.WaitGroup
}

// New reads the state file and starts the server's clock work: operations that
// were running go on, and Machines is told of every VM. Close ends it.
func New(cfg Config) (*Server, error) {
	if cfg.SubscriptionID == "" || cfg.TenantID == "" || cfg.ClientID == "" || cfg.ClientSecret == "" {
		return nil, errors.New("subscription, tenant, client id and client secret are all needed")
	}
	if cfg.Location == "" {
		cfg.Location = "francecentral"
	}
	if regionNamed(cfg.Location) == nil {
		return nil, fmt.Errorf("unknown location %q; known are %v", cfg.Location, regionNames())
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.TokenTTL == 0 {
		cfg.TokenTTL = time.Hour
	}
	s := &Server{
		cfg: cfg, secret: cfg.ClientSecret,
		resources: map[string]*resource{}, operations: map[string]*operation{}, active: map[string]*operation{}, quotas: map[string]int{},
		slow: map[string]time.Duration{}, requests: map[string]int{}, ignored: map[string]int{},
		addresses:  map[string]map[netip.Addr]string{},
		signingKey: make([]byte, 32),
		file:       &backend.File{Path: cfg.StateFile}, kick: backend.NewSignal(), news: backend.NewNews[Machines](),
	}
	if _, err := rand.Read(s.signingKey); err != nil {
		return nil, fmt.Errorf("make signing key: %w", err)
	}
	if err := s.file.Load(s.decode); err != nil {
		return nil, err
	}
	for _, r := range s.sorted(kindVM) {
		if r.Born {
			vm := s.vmOf(r)
			s.inform(func(m Machines) { m.Create(vm) })
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	s.done.Go(func() { s.runOperations(ctx) })
	s.done.Go(func() { s.news.Run(ctx, cfg.Machines) })
	return s, nil
}

// Serve answers on l until ctx ends, then closes the server and saves.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	return errors.Join(backend.Serve(ctx, l, s.cfg.TLS, s.Handler()), s.Close())
}

// Close stops the clock work and saves. The handler still answers reads.
func (s *Server) Close() error {
	s.stop()
	s.done.Wait()
	return s.save()
}

// changed must be called with the lock held after r changed.
func (s *Server) changed(r *resource) {
	if r != nil {
		r.raw = nil
	}
	s.dirty = true
	s.kick.Poke()
}

// inform queues something for the hardware; lock held.
func (s *Server) inform(f func(Machines)) {
	if s.cfg.Machines != nil {
		s.news.Add(f)
	}
}

// runOperations finishes long operations when they are due and saves.
func (s *Server) runOperations(ctx context.Context) {
	swept := s.cfg.Clock.Now()
	for {
		s.mu.Lock()
		wait := s.settle()
		if s.cfg.Clock.Since(swept) > time.Minute {
			s.forget()
			swept = s.cfg.Clock.Now()
		}
		dirty := s.dirty && s.cfg.StateFile != ""
		s.mu.Unlock()
		if !backend.Wait(ctx, s.cfg.Clock, wait, s.kick, dirty) {
			return
		}
		if !dirty {
			continue
		}
		if err := s.save(); err != nil {
			s.cfg.Log.Error(err, "Saving the simulated Azure")
		}
	}
}
