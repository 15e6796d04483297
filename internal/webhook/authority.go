package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"millwright.io/millwright/internal/pki"
)

// SecretCA is the name of the Secret that holds the authority.
const SecretCA = "millwright-webhook-ca"

// Keys of the Secret. The previous certificate stays trusted after a
// rotation, for replicas that have not seen the new one yet.
const (
	keyCert     = "ca.crt"
	keyKey      = "ca.key"
	keyPrevious = "ca-previous.crt"
)

const (
	caTTL   = 2 * 365 * 24 * time.Hour
	leafTTL = 30 * 24 * time.Hour
	// lookAgain is how often the Secret is read when nothing happens.
	lookAgain = 10 * time.Minute
	// retryAfter is how long a failed step rests.
	retryAfter = 2 * time.Second
)

// AuthorityDeps are the collaborators of an Authority. All are required,
// except Definitions.
type AuthorityDeps struct {
	Client    client.Client // writes; reads of webhook configurations
	Live      client.Reader // the Secret
	Namespace string        // of the Secret
	Service   client.ObjectKey
	Clock     clock.Clock
	Log       logr.Logger
	// Definitions makes the authority known to labelled definitions too, for
	// the conversion of their versions.
	Definitions bool
}

// Authority keeps the certificate authority of admission: made once, shared
// through a Secret, renewed after two thirds of its life, and made known to the
// API server before anything is served under it.
type Authority struct {
	AuthorityDeps
	again chan struct{}

	mu      sync.Mutex
	certPEM []byte // of the authority that serving is issued by
	serving *pki.Rotating
}

var _ manager.LeaderElectionRunnable = (*Authority)(nil)

// NewAuthority returns an Authority; Start brings it to life.
func NewAuthority(d AuthorityDeps) *Authority {
	return &Authority{AuthorityDeps: d, again: make(chan struct{}, 1)}
}

// Look makes the authority look at the configurations again soon. It never
// blocks.
func (a *Authority) Look() {
	select {
	case a.again <- struct{}{}:
	default:
	}
}

// NeedLeaderElection is false: every replica serves and may inject.
func (*Authority) NeedLeaderElection() bool { return false }

// Start keeps the authority until ctx ends. What fails is tried again.
func (a *Authority) Start(ctx context.Context) error {
	for {
		wait := lookAgain
		if err := a.step(ctx); err != nil && ctx.Err() == nil {
			a.Log.Error(err, "Keeping the authority of admission")
			wait = retryAfter
		}
		t := a.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-a.again:
		case <-t.C():
		}
		t.Stop()
	}
}

// step reads or makes the authority, tells the API server, then serves by it.
func (a *Authority) step(ctx context.Context) error {
	s, err := a.load(ctx)
	if err != nil {
		return err
	}
	ca, err := pki.LoadCA(s.Data[keyCert], s.Data[keyKey])
	if err != nil {
		return fmt.Errorf("load authority from secret %s: %w", client.ObjectKeyFromObject(s), err)
	}
	bundle := bytes.Join([][]byte{s.Data[keyCert], s.Data[keyPrevious]}, nil)
	if err := inject(ctx, a.Client, a.Service, bundle); err != nil {
		return err
	}
	if a.Definitions {
		if err := injectDefinitions(ctx, a.Client, a.Live, a.Service, bundle); err != nil {
			return err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.serving != nil && bytes.Equal(a.certPEM, ca.CertPEM) {
		return nil
	}
	dns := a.Service.Name + "." + a.Service.Namespace + ".svc"
	serving, err := ca.WithClock(a.Clock).Rotating(pki.Leaf{CommonName: dns, DNSNames: []string{dns, dns + ".cluster.local"}, Server: true, TTL: leafTTL})
	if err != nil {
		return fmt.Errorf("issue serving certificate of admission: %w", err)
	}
	a.serving, a.certPEM = serving, ca.CertPEM
	return nil
}

// load returns the Secret with an authority that has a third of its life left.
// When two replicas make one at once, the first write counts and the other
// replica reads it at its next step.
func (a *Authority) load(ctx context.Context) (*corev1.Secret, error) {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: SecretCA}, Type: corev1.SecretTypeOpaque}
	err := a.Live.Get(ctx, client.ObjectKeyFromObject(s), s)
	switch {
	case apierrors.IsNotFound(err):
		if err := a.renew(s); err != nil {
			return nil, err
		}
		if err := a.Client.Create(ctx, s); err != nil {
			return nil, fmt.Errorf("create secret %s: %w", SecretCA, err)
		}
		return s, nil
	case err != nil:
		return nil, fmt.Errorf("read secret %s: %w", SecretCA, err)
	}
	ca, err := pki.LoadCA(s.Data[keyCert], s.Data[keyKey])
	if err == nil && ca.NotAfter().Sub(a.Clock.Now()) > caTTL/3 {
		return s, nil
	}
	if err != nil {
		a.Log.Error(err, "Replacing an unusable authority", "Secret", client.ObjectKeyFromObject(s))
	}
	if err := a.renew(s); err != nil {
		return nil, err
	}
	if err := a.Client.Update(ctx, s); err != nil {
		return nil, fmt.Errorf("update secret %s: %w", SecretCA, err)
	}
	return s, nil
}

// renew puts a new authority into s; the certificate before it stays trusted
// if it is one.
func (a *Authority) renew(s *corev1.Secret) error {
	ca, err := pki.NewCA(SecretCA, caTTL, a.Clock)
	if err != nil {
		return fmt.Errorf("make authority of admission: %w", err)
	}
	var previous []byte
	if _, err := pki.ParseCert(s.Data[keyCert]); err == nil {
		previous = s.Data[keyCert]
	}
	s.Data = map[string][]byte{keyCert: ca.CertPEM, keyKey: ca.KeyPEM}
	if previous != nil {
		s.Data[keyPrevious] = previous
	}
	return nil
}

// GetCertificate is a tls.Config.GetCertificate; it fails until the authority
// is known to the API server.
func (a *Authority) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	a.mu.Lock()
	serving := a.serving
	a.mu.Unlock()
	if serving == nil {
		return nil, errors.New("no serving certificate yet")
	}
	return serving.GetCertificate(hello)
}

// Ready is a check that fails until there is a certificate to serve with.
func (a *Authority) Ready(*http.Request) error {
	_, err := a.GetCertificate(&tls.ClientHelloInfo{})
	return err
}
