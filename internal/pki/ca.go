package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"

	"k8s.io/utils/clock"
)

const (
	// DefaultLeafTTL is the lifetime of a leaf that does not name one.
	DefaultLeafTTL = 365 * 24 * time.Hour

	// backdate is how long before its issue a certificate is already valid, so
	// that a peer whose clock is a little behind accepts it.
	backdate = 5 * time.Minute
)

// CA is a certificate authority held in memory. It is safe for concurrent use
// and prints as its subject only, never as its key.
type CA struct {
	// CertPEM is the authority's own certificate, one CERTIFICATE block.
	CertPEM []byte
	// KeyPEM is its private key, one EC PRIVATE KEY block.
	KeyPEM []byte

	cert *x509.Certificate
	key  crypto.Signer
	clk  clock.PassiveClock
}

// Leaf describes a certificate to issue.
type Leaf struct {
	CommonName    string
	Organizations []string
	DNSNames      []string
	IPs           []net.IP
	// Client and Server select the extended key usages; a leaf needs at least one.
	Client, Server bool
	// TTL is the lifetime from now; 0 means DefaultLeafTTL. A leaf never
	// outlives its authority.
	TTL time.Duration
}

// NewCA makes a self-signed authority that is valid for ttl from clk's now.
func NewCA(commonName string, ttl time.Duration, clk clock.PassiveClock) (*CA, error) {
	if commonName == "" {
		return nil, errors.New("make certificate authority: empty common name")
	}
	if ttl <= 0 {
		return nil, fmt.Errorf("make certificate authority %s: lifetime %s is not positive", commonName, ttl)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key of %s: %w", commonName, err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	now := clk.Now()
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: commonName},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(ttl),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate of %s: %w", commonName, err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	ca, err := LoadCA(encodeCert(der), keyPEM)
	if err != nil {
		return nil, err
	}
	ca.clk = clk
	return ca, nil
}

// LoadCA reads an authority back from PEM. The certificate must be an
// authority's and must belong to the key. It issues by the real clock; see
// WithClock.
func LoadCA(certPEM, keyPEM []byte) (*CA, error) {
	cert, err := ParseCert(certPEM)
	if err != nil {
		return nil, fmt.Errorf("load certificate authority: %w", err)
	}
	key, err := parseKey(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("load certificate authority %s: %w", cert.Subject.CommonName, err)
	}
	if !cert.IsCA {
		return nil, fmt.Errorf("load certificate authority %s: certificate is not an authority's", cert.Subject.CommonName)
	}
	if err := matches(cert, key); err != nil {
		return nil, fmt.Errorf("load certificate authority %s: %w", cert.Subject.CommonName, err)
	}
	return &CA{CertPEM: certPEM, KeyPEM: keyPEM, cert: cert, key: key, clk: clock.RealClock{}}, nil
}

// WithClock returns the same authority issuing by clk.
func (c *CA) WithClock(clk clock.PassiveClock) *CA {
	out := *c
	out.clk = clk
	return &out
}

// NotAfter is when the authority's own certificate ends.
func (c *CA) NotAfter() time.Time { return c.cert.NotAfter }

// Pool returns a new pool that trusts this authority alone.
func (c *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.cert)
	return pool
}

// String names the authority without its key.
func (c *CA) String() string {
	return "CA(" + c.cert.Subject.CommonName + ", key [redacted])"
}

// GoString is String, so that %#v does not print the key either.
func (c *CA) GoString() string { return c.String() }

// Issue makes a new key and a certificate for it.
func (c *CA) Issue(l Leaf) (certPEM, keyPEM []byte, err error) {
	if !l.Client && !l.Server {
		return nil, nil, fmt.Errorf("issue certificate for %s: neither client nor server", l.CommonName)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate key for %s: %w", l.CommonName, err)
	}
	template, err := c.template(l)
	if err != nil {
		return nil, nil, fmt.Errorf("issue certificate for %s: %w", l.CommonName, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, key.Public(), c.key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign certificate for %s: %w", l.CommonName, err)
	}
	keyPEM, err = encodeKey(key)
	if err != nil {
		return nil, nil, err
	}
	return encodeCert(der), keyPEM, nil
}

func (c *CA) template(l Leaf) (*x509.Certificate, error) {
	ttl := l.TTL
	if ttl == 0 {
		ttl = DefaultLeafTTL
	}
	if ttl < 0 {
		return nil, fmt.Errorf("lifetime %s is negative", ttl)
	}
	now := c.clk.Now()
	notAfter := now.Add(ttl)
	if notAfter.After(c.cert.NotAfter) {
		notAfter = c.cert.NotAfter
	}
	if !notAfter.After(now) {
		return nil, fmt.Errorf("authority %s ended at %s", c.cert.Subject.CommonName, c.cert.NotAfter.Format(time.RFC3339))
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	usages := []x509.ExtKeyUsage{}
	if l.Client {
		usages = append(usages, x509.ExtKeyUsageClientAuth)
	}
	if l.Server {
		usages = append(usages, x509.ExtKeyUsageServerAuth)
	}
	return &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: l.CommonName, Organization: l.Organizations},
		DNSNames:              l.DNSNames,
		IPAddresses:           l.IPs,
		NotBefore:             now.Add(-backdate),
		NotAfter:              notAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           usages,
		BasicConstraintsValid: true,
	}, nil
}

// newSerial draws a positive 127-bit number: unique without a register, and
// within the 20 octets that RFC 5280 allows.
func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("draw serial number: %w", err)
	}
	return serial.Add(serial, big.NewInt(1)), nil
}

func matches(cert *x509.Certificate, key crypto.Signer) error {
	pub, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !pub.Equal(cert.PublicKey) {
		return errors.New("key does not belong to the certificate")
	}
	return nil
}
