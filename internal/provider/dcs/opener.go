package dcs

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"millwright.io/millwright/internal/cloud"
)

// Keys of a credentials Secret. Site may come from the owner instead.
const (
	KeyUser     = "authUser"
	KeyPassword = "authKey"
	KeyEndpoint = "endpoint"
	KeyUserType = "userType" // interconnect (default) or domain, in any case
	KeySite     = "site"
	KeyCA       = "caBundle"           // PEM, besides the system's
	KeyInsecure = "insecureSkipVerify" // "true": the certificate is not checked
)

const maxOpen = 64

// Opener opens accounts. It is safe for concurrent use.
type Opener struct {
	clk         clock.PassiveClock
	timeout     time.Duration
	concurrency int
	logins      int

	mu   sync.Mutex
	open map[[sha256.Size]byte]*Cloud
}

var _ cloud.Opener = (*Opener)(nil)

// Option changes an Opener while it is built.
type Option func(*Opener)

// WithClock replaces the clock of sessions and of the inventory.
func WithClock(clk clock.PassiveClock) Option { return func(o *Opener) { o.clk = clk } }

// WithTimeout bounds each method of an opened Cloud; the default is 120 s.
func WithTimeout(d time.Duration) Option { return func(o *Opener) { o.timeout = d } }

// WithConcurrency sets how many requests an account may have in flight; the
// default is 10.
func WithConcurrency(n int) Option { return func(o *Opener) { o.concurrency = max(n, 1) } }

// WithLogins sets how many refused logins an account may have in an hour; the
// default is 3. VRM locks accounts after a few.
func WithLogins(n int) Option { return func(o *Opener) { o.logins = max(n, 1) } }

// NewOpener returns an Opener.
func NewOpener(opts ...Option) *Opener {
	o := &Opener{clk: clock.RealClock{}, timeout: 120 * time.Second, concurrency: 10, logins: 3, open: map[[sha256.Size]byte]*Cloud{}}
	for _, opt := range opts {
		opt(o)
	}
	return o
}

func credentials(a cloud.Account, reason, text string) error {
	return &cloud.Fault{Kind: cloud.Credentials, Op: "open dcs account", Reason: reason, Message: "secret " + a.Source + ": " + text}
}

// Open implements cloud.Opener. It makes no request.
func (o *Opener) Open(_ context.Context, a cloud.Account) (cloud.Cloud, error) {
	for _, k := range []string{KeyUser, KeyPassword, KeyEndpoint} {
		if len(a.Data[k]) == 0 {
			return nil, credentials(a, "InvalidCredential", "the key "+k+" is missing")
		}
	}
	if len(a.Data[KeySite]) == 0 {
		return nil, credentials(a, "SiteNotFound", "neither the cluster's spec.site nor the key site names a site")
	}
	digest := digestOf(a)
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := o.open[digest]; c != nil {
		return c, nil
	}
	c, err := o.connect(a)
	if err != nil {
		return nil, err
	}
	if len(o.open) >= maxOpen {
		clear(o.open)
	}
	o.open[digest] = c
	return c, nil
}

func digestOf(a cloud.Account) [sha256.Size]byte {
	var buf []byte
	for _, k := range slices.Sorted(maps.Keys(a.Data)) {
		for _, b := range [][]byte{[]byte(k), a.Data[k]} {
			buf = append(binary.AppendUvarint(buf, uint64(len(b))), b...)
		}
	}
	return sha256.Sum256(buf)
}

func (o *Opener) connect(a cloud.Account) (*Cloud, error) {
	get := func(k string) string { return strings.TrimSpace(string(a.Data[k])) }
	base, err := url.Parse(get(KeyEndpoint))
	if err != nil || (base.Scheme != "https" && base.Scheme != "http") || base.Host == "" {
		return nil, credentials(a, "InvalidCredential", "endpoint is not of the form https://host:7443")
	}
	userType := strings.ToLower(get(KeyUserType))
	if userType == "" {
		userType = "interconnect"
	}
	if userTypes[userType] == "" {
		return nil, credentials(a, "InvalidCredential", fmt.Sprintf("userType is %q; want interconnect or domain", get(KeyUserType)))
	}
	trust, err := trustOf(a)
	if err != nil {
		return nil, err
	}
	cl := &client{
		http: &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: trust, MaxIdleConnsPerHost: o.concurrency,
			IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second, ForceAttemptHTTP2: true},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		base: base.Scheme + "://" + base.Host, slots: make(chan struct{}, o.concurrency),
		sess: &session{user: cloud.Secret(get(KeyUser)), key: a.Data[KeyPassword], userType: userType, max: o.logins, clk: o.clk, turn: make(chan struct{}, 1)},
	}
	return &Cloud{client: cl, site: get(KeySite), timeout: o.timeout, tasks: map[string]string{}, late: map[string]bool{}, where: map[string]disc{}, shelf: shelf{entries: map[string]shelved{}}}, nil
}

func trustOf(a cloud.Account) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	switch v := strings.TrimSpace(string(a.Data[KeyInsecure])); v {
	case "", "false":
	case "true":
		cfg.InsecureSkipVerify = true // the account's owner says so
	default:
		return nil, credentials(a, "InvalidCredential", KeyInsecure+` is neither "true" nor "false"`)
	}
	if pem := a.Data[KeyCA]; len(pem) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, credentials(a, "InvalidCredential", KeyCA+" holds no PEM certificate")
		}
		cfg.RootCAs = pool
	}
	return cfg, nil
}
