package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"
)

const (
	headerTimeout = 10 * time.Second
	// stopLimit is how long requests under way may take when the server stops.
	stopLimit = 5 * time.Second
)

// Server serves routes over HTTPS, on every replica.
type Server struct {
	addr  string
	cert  func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	mux   *http.ServeMux
	bound atomic.Pointer[net.TCPAddr]
}

var _ manager.LeaderElectionRunnable = (*Server)(nil)

// New returns a server for addr (host:port; port 0 picks one). cert is asked
// at each handshake. Besides the routes it serves /readyz.
func New(addr string, cert func(*tls.ClientHelloInfo) (*tls.Certificate, error), routes map[string]http.Handler) *Server {
	s := &Server{addr: addr, cert: cert, mux: http.NewServeMux()}
	for path, h := range routes {
		s.mux.Handle(path, h)
	}
	s.mux.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := s.Ready(r); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok"))
	})
	return s
}

// Start serves until ctx ends.
func (s *Server) Start(ctx context.Context) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.addr)
	if err != nil {
		return fmt.Errorf("listen for admission requests: %w", err)
	}
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		s.bound.Store(a)
	}
	srv := &http.Server{Handler: s.mux, ReadHeaderTimeout: headerTimeout,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.cert, NextProtos: []string{"h2", "http/1.1"}}}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer cancel()
		stopped <- srv.Shutdown(limit)
	}()
	if err := srv.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve admission: %w", err)
	}
	if err := <-stopped; err != nil {
		return fmt.Errorf("stop serving admission: %w", err)
	}
	return nil
}

// NeedLeaderElection is false: every replica answers.
func (*Server) NeedLeaderElection() bool { return false }

// Addr is where the server listens, "" before it does.
func (s *Server) Addr() string {
	if a := s.bound.Load(); a != nil {
		return a.String()
	}
	return ""
}

// Ready is a check that fails until requests can be answered.
func (s *Server) Ready(*http.Request) error {
	if s.Addr() == "" {
		return errors.New("not listening yet")
	}
	if _, err := s.cert(&tls.ClientHelloInfo{}); err != nil {
		return err
	}
	return nil
}
