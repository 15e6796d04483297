package vrm

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"millwright.io/millwright/internal/sim/backend"
)

// Server is one simulated VRM. All methods are safe for concurrent use.
type Server struct {
	cfg Config
	mux *http.ServeMux

	mu       sync.Mutex
	st       state
	sessions map[string]time.Time // token → last use
	expiry   bool                 // expired sessions answer HTTP 200 with a code
	failed   int                  // wrong passwords in a row
	locked   time.Time            // until
	uploads  map[string]upload    // one-time URL → what it is for
	upBase   string               // of upload URLs; empty: the host asked
	faults   []*Fault
	slow     map[string]time.Duration
	requests map[string]int
	inFlight int
	peak     int
	frozen   bool // no clone makes progress
	needsOn  bool // attachCdrom wants a running VM
	keepDisk bool // independent disks outlive their VM
	dirty    bool

	file *backend.File
	kick backend.Signal
	news *backend.News[Machines] // what the hardware does not know yet
	stop context.CancelFunc
	done sync.WaitGroup
}

type upload struct{ datastore, file string }

// New reads the state file and starts the server's clock work. Close ends it.
func New(cfg Config) (*Server, error) {
	if cfg.User == "" || cfg.Password == "" {
		return nil, errors.New("user and password are both needed")
	}
	if cfg.Site == "" {
		cfg.Site = "EC1C108C"
	}
	if cfg.UserType == "" {
		cfg.UserType = "2"
	}
	if cfg.Versions == nil {
		cfg.Versions = []string{"8.1", "8.0", "6.5"}
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.TokenIdle == 0 {
		cfg.TokenIdle = 30 * time.Minute
	}
	if cfg.Lockout == 0 {
		cfg.Lockout = 5
	}
	if cfg.LockTime == 0 {
		cfg.LockTime = 5 * time.Minute
	}
	s := &Server{
		cfg: cfg, sessions: map[string]time.Time{}, uploads: map[string]upload{}, slow: map[string]time.Duration{},
		requests: map[string]int{}, file: &backend.File{Path: cfg.StateFile}, kick: backend.NewSignal(), news: backend.NewNews[Machines](),
	}
	s.mux = s.routes()
	if err := s.load(); err != nil {
		return nil, err
	}
	for _, v := range sorted(s.st.VMs) {
		if v.Born {
			hw, on := s.view(v), v.Status == running
			s.inform(func(m Machines) { m.Create(hw); m.Power(hw.UUID, on) })
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	s.done.Go(func() { s.runTasks(ctx) })
	s.done.Go(func() { s.news.Run(ctx, cfg.Machines) })
	return s, nil
}

// Handler answers the API and the upload URLs.
func (s *Server) Handler() http.Handler { return s.mux }

// Serve answers on l until ctx ends, then closes the server and saves.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	return errors.Join(backend.Serve(ctx, l, s.cfg.TLS, s.mux), s.Close())
}

// Close stops the clock work and saves.
func (s *Server) Close() error {
	s.stop()
	s.done.Wait()
	return s.save()
}

// changed notes that the state is to be saved; lock held.
func (s *Server) changed() {
	s.dirty = true
	s.kick.Poke()
}

// inform queues something for the hardware; lock held.
func (s *Server) inform(f func(Machines)) {
	if s.cfg.Machines != nil {
		s.news.Add(f)
	}
}

// runTasks ends tasks when they are due and saves.
func (s *Server) runTasks(ctx context.Context) {
	for {
		s.mu.Lock()
		wait := s.settle()
		dirty := s.dirty && s.cfg.StateFile != ""
		s.mu.Unlock()
		if !backend.Wait(ctx, s.cfg.Clock, wait, s.kick, dirty) {
			return
		}
		if err := s.save(); err != nil {
			s.cfg.Log.Error(err, "Saving the simulated VRM")
		}
	}
}
