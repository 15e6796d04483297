package pki

import (
	"crypto/tls"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// retryIssue is how long a failed renewal rests while the old certificate is
// still good, so that every handshake does not try again.
const retryIssue = 30 * time.Second

// Rotating is a serving certificate that renews itself: it is issued again by
// the first handshake after two thirds of its lifetime. It runs no goroutine.
// A failed renewal keeps the old certificate until that one ends.
type Rotating struct {
	clk   clock.PassiveClock
	issue func() (certPEM, keyPEM []byte, err error)

	mu      sync.Mutex
	current *tls.Certificate
	renewAt time.Time
	endsAt  time.Time
}

// NewRotating issues the first certificate at once and returns its error.
// issue may be called from any handshake; calls do not overlap.
func NewRotating(clk clock.PassiveClock, issue func() (certPEM, keyPEM []byte, err error)) (*Rotating, error) {
	r := &Rotating{clk: clk, issue: issue}
	if err := r.renew(); err != nil {
		return nil, err
	}
	return r, nil
}

// Rotating returns a self-renewing serving certificate for l, by the clock the
// authority issues by.
func (c *CA) Rotating(l Leaf) (*Rotating, error) {
	return NewRotating(c.clk, func() ([]byte, []byte, error) { return c.Issue(l) })
}

// GetCertificate is a tls.Config.GetCertificate.
func (r *Rotating) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clk.Now()
	if now.Before(r.renewAt) {
		return r.current, nil
	}
	if err := r.renew(); err != nil {
		if !now.Before(r.endsAt) {
			return nil, err
		}
		r.renewAt = now.Add(retryIssue)
	}
	return r.current, nil
}

// ServerConfig returns a TLS configuration that shows this certificate.
func (r *Rotating) ServerConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: r.GetCertificate}
}

// renew replaces the current certificate; the caller holds mu or owns r alone.
func (r *Rotating) renew() error {
	certPEM, keyPEM, err := r.issue()
	if err != nil {
		return fmt.Errorf("renew serving certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return fmt.Errorf("renew serving certificate: %w", err)
	}
	leaf, err := ParseCert(certPEM)
	if err != nil {
		return fmt.Errorf("renew serving certificate: %w", err)
	}
	pair.Leaf = leaf
	// Measured from now, not from NotBefore, which lies in the past on purpose.
	now := r.clk.Now()
	r.current = &pair
	r.endsAt = leaf.NotAfter
	r.renewAt = now.Add(leaf.NotAfter.Sub(now) * 2 / 3)
	return nil
}
