package ignserver

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/prometheus/client_golang/prometheus"

	"millwright.io/millwright/internal/engine/firstboot"
	"millwright.io/millwright/internal/engine/ignition"
)

// ErrNoPool says that there is no pool of that name.
var ErrNoPool = errors.New("no such pool")

// Boot is what a pool's new machines get.
type Boot struct {
	Config     *mcfgv1.MachineConfig
	Controller mcfgv1.ControllerConfigSpec
	Kubeconfig []byte
	// Revision changes whenever anything above does.
	Revision string
}

// Access tells who may have a pool's config.
type Access struct {
	Token string // what the pool's stubs carry; "": nobody can show it
	// Anonymous lets machines without a token have it too.
	Anonymous bool
}

// Source knows the cluster. Safe for concurrent use.
type Source interface {
	// Access tells who may have the pool's config. It fails with ErrNoPool.
	Access(ctx context.Context, pool string) (Access, error)
	// Boot returns what the pool's new machines get now. It fails with ErrNoPool.
	Boot(ctx context.Context, pool string) (Boot, error)
}

// Config is what a Server needs.
type Config struct {
	Source Source
	// Anonymous lets machines without a token have their config.
	Anonymous bool
	// Parallel bounds the answers that are made at once; 0: 64.
	Parallel int
	Log      logr.Logger
	Metrics  prometheus.Registerer // nil: none
}

// Times and sizes that bound a client.
const (
	headerTimeout = 10 * time.Second
	writeTimeout  = 2 * time.Minute
	idleTimeout   = 30 * time.Second
	maxHeader     = 16 << 10
	sourceTimeout = 30 * time.Second
	keptAnswers   = 16
)

// Server answers first boots.
type Server struct {
	cfg      Config
	slots    chan struct{}
	requests *prometheus.CounterVec

	mu      sync.Mutex
	answers map[string][]byte // by pool, revision and version
	order   []string
}

// New returns a handler of /config/<pool> and /healthz.
func New(cfg Config) *Server {
	if cfg.Parallel == 0 {
		cfg.Parallel = 64
	}
	s := &Server{cfg: cfg, slots: make(chan struct{}, cfg.Parallel), answers: map[string][]byte{}}
	s.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "millwright_ignition_requests_total", Help: "Requests for first-boot configs by status code.",
	}, []string{"code"})
	if cfg.Metrics != nil {
		cfg.Metrics.MustRegister(s.requests)
	}
	return s
}

// HTTP returns a server whose clients can neither be slow nor large without end.
func (s *Server) HTTP() *http.Server {
	return &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
	}
}

// ServeHTTP implements http.Handler. Errors have no body.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	code, body := s.answer(w, r)
	s.requests.WithLabelValues(strconv.Itoa(code)).Inc()
	if body != nil {
		w.Header().Set("Content-Type", "application/json")
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client has gone: nobody to tell
	}
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) (int, []byte) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return http.StatusMethodNotAllowed, nil
	}
	if r.URL.Path == "/healthz" {
		return http.StatusOK, nil
	}
	dir, pool := path.Split(r.URL.Path)
	if !strings.HasPrefix(dir, "/config/") || pool == "" {
		return http.StatusNotFound, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), sourceTimeout)
	defer cancel()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return http.StatusServiceUnavailable, nil
	}
	log := s.cfg.Log.WithValues("MachineConfigPool", pool, "client", r.RemoteAddr)
	if code := s.admit(ctx, w, r, pool, log); code != 0 {
		return code, nil
	}
	version, err := negotiate(r.Header.Get("Accept"))
	if err != nil {
		log.Info("Refusing a first boot", "reason", err.Error())
		return http.StatusBadRequest, nil
	}
	body, code := s.config(ctx, pool, version, log)
	return code, body
}

// admit returns the status of a refusal, 0 for whoever may have the config.
func (s *Server) admit(ctx context.Context, w http.ResponseWriter, r *http.Request, pool string, log logr.Logger) int {
	access, err := s.cfg.Source.Access(ctx, pool)
	switch {
	case errors.Is(err, ErrNoPool):
		return http.StatusNotFound
	case s.cfg.Anonymous || access.Anonymous:
		return 0
	case err != nil:
		log.Error(err, "Reading the pool's token")
		return http.StatusInternalServerError
	}
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if ok && access.Token != "" && subtle.ConstantTimeCompare(digest(given), digest(access.Token)) == 1 {
		return 0
	}
	log.Info("Refusing a first boot", "reason", "it does not show the pool's token")
	w.Header().Set("WWW-Authenticate", "Bearer")
	return http.StatusUnauthorized
}

// digest makes secrets of any length comparable in constant time.
func digest(s string) []byte {
	sum := sha256.Sum256([]byte(s))
	return sum[:]
}

func (s *Server) config(ctx context.Context, pool, version string, log logr.Logger) ([]byte, int) {
	boot, err := s.cfg.Source.Boot(ctx, pool)
	if errors.Is(err, ErrNoPool) {
		return nil, http.StatusNotFound
	}
	if err != nil {
		log.Error(err, "Reading what the pool boots into")
		return nil, http.StatusInternalServerError
	}
	key := strings.Join([]string{pool, boot.Revision, version}, "\n")
	if body, ok := s.cached(key); ok {
		return body, http.StatusOK
	}
	body, err := firstboot.Build(firstboot.Served{Config: boot.Config, Controller: boot.Controller, Kubeconfig: boot.Kubeconfig, Version: version})
	switch {
	case errors.As(err, new(*ignition.UnsupportedError)):
		log.Info("Refusing a first boot", "reason", err.Error())
		return nil, http.StatusBadRequest
	case err != nil:
		log.Error(err, "Building a first-boot config", "MachineConfig", boot.Config.Name)
		return nil, http.StatusInternalServerError
	}
	log.Info("Serving a first boot", "MachineConfig", boot.Config.Name, "version", version)
	s.keep(key, body)
	return body, http.StatusOK
}

func (s *Server) cached(key string) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, ok := s.answers[key]
	return body, ok
}

func (s *Server) keep(key string, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.answers[key]; ok {
		return
	}
	s.answers[key] = body
	s.order = append(s.order, key)
	if len(s.order) > keptAnswers {
		delete(s.answers, s.order[0])
		s.order = s.order[1:]
	}
}
