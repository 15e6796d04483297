package arm

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// saveDelay is how long a change may stay unsaved.
const saveDelay = 100 * time.Millisecond

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
	news       []func(Machines)                 // what the hardware does not know yet

	saving sync.Mutex
	kick   chan struct{} // an operation was added or the state changed
	tell   chan struct{} // news were added
	stop   context.CancelFunc
	done   sync.WaitGroup
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
		kick:       make(chan struct{}, 1), tell: make(chan struct{}, 1),
	}
	if _, err := rand.Read(s.signingKey); err != nil {
		return nil, fmt.Errorf("make signing key: %w", err)
	}
	if err := s.load(); err != nil {
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
	s.done.Add(2)
	go s.runOperations(ctx)
	go s.runNews(ctx)
	return s, nil
}

// Serve answers on l until ctx ends, then closes the server and saves.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if s.cfg.TLS != nil {
		l = tls.NewListener(l, s.cfg.TLS)
	}
	srv := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-ctx.Done()
		// Requests carry ctx, so those that wait are over.
		_ = srv.Close()
	}()
	err := srv.Serve(l)
	if ctx.Err() != nil {
		<-ended
		err = nil
	}
	return errors.Join(err, s.Close())
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
	poke(s.kick)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// inform queues something for the hardware; lock held.
func (s *Server) inform(f func(Machines)) {
	if s.cfg.Machines == nil {
		return
	}
	s.news = append(s.news, f)
	poke(s.tell)
}

func (s *Server) runNews(ctx context.Context) {
	defer s.done.Done()
	for {
		s.mu.Lock()
		news := s.news
		s.news = nil
		s.mu.Unlock()
		for _, f := range news {
			if ctx.Err() != nil {
				return
			}
			f(s.cfg.Machines)
		}
		if len(news) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-s.tell:
		}
	}
}

// runOperations finishes long operations when they are due and saves.
func (s *Server) runOperations(ctx context.Context) {
	defer s.done.Done()
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
		if dirty && (wait <= 0 || wait > saveDelay) {
			wait = saveDelay
		}
		if !s.pause(ctx, wait, dirty) {
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

// pause waits for the time to pass, or for a kick unless a save is waiting:
// then further changes join it.
func (s *Server) pause(ctx context.Context, wait time.Duration, saving bool) bool {
	var due <-chan time.Time
	if wait > 0 {
		t := s.cfg.Clock.NewTimer(wait)
		defer t.Stop()
		due = t.C()
	}
	kick := s.kick
	if saving {
		kick = nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-due:
	case <-kick:
	}
	return true
}
