package csr

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// Request is a signing request with its certificate request taken apart.
type Request struct {
	Name     string
	Signer   string
	Username string // as the API server authenticated it
	Groups   []string
	Usages   []certificatesv1.KeyUsage
	Created  time.Time
	Lifetime time.Duration // asked for; 0: not said
	Decided  bool          // approved or denied already

	CommonName    string
	Organizations []string
	DNSNames      []string
	Emails        []string
	IPs           []netip.Addr
	URIs          []string
}

const blockType = "CERTIFICATE REQUEST"

// maxRequest bounds what is looked at. The API server's own limit is larger;
// no certificate request of a node comes near this.
const maxRequest = 64 << 10

// Parse takes a signing request apart. It returns an error when the bytes in
// spec.request are not one PEM block with a PKCS#10 request.
func Parse(o *certificatesv1.CertificateSigningRequest) (Request, error) {
	r := Request{
		Name:     o.Name,
		Signer:   o.Spec.SignerName,
		Username: o.Spec.Username,
		Groups:   o.Spec.Groups,
		Usages:   o.Spec.Usages,
		Created:  o.CreationTimestamp.Time,
		Decided:  decided(o),
	}
	if s := o.Spec.ExpirationSeconds; s != nil {
		r.Lifetime = time.Duration(*s) * time.Second
	}
	if len(o.Spec.Request) > maxRequest {
		return r, fmt.Errorf("parse request of %s: %d bytes, at most %d are looked at", o.Name, len(o.Spec.Request), maxRequest)
	}
	block, rest := pem.Decode(o.Spec.Request)
	switch {
	case block == nil:
		return r, fmt.Errorf("parse request of %s: no PEM block", o.Name)
	case block.Type != blockType:
		return r, fmt.Errorf("parse request of %s: PEM block is %q, want %q", o.Name, block.Type, blockType)
	case len(strings.TrimSpace(string(rest))) > 0:
		return r, fmt.Errorf("parse request of %s: %w", o.Name, errors.New("bytes after the PEM block"))
	}
	c, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return r, fmt.Errorf("parse request of %s: %w", o.Name, err)
	}
	r.CommonName = c.Subject.CommonName
	r.Organizations = c.Subject.Organization
	r.DNSNames = c.DNSNames
	r.Emails = c.EmailAddresses
	for _, ip := range c.IPAddresses {
		a, ok := netip.AddrFromSlice(ip)
		if !ok {
			return r, fmt.Errorf("parse request of %s: %d bytes are no IP address", o.Name, len(ip))
		}
		r.IPs = append(r.IPs, a.Unmap())
	}
	for _, u := range c.URIs {
		r.URIs = append(r.URIs, u.String())
	}
	return r, nil
}

// NodeName returns the node whose identity the request asks for, by its common
// name: what comes after the last prefix that either rule set knows. Empty
// when it names none.
func (r Request) NodeName() string {
	for _, p := range []string{nodePrefix, ovnPrefix, multusPrefix} {
		if n, ok := strings.CutPrefix(r.CommonName, p); ok {
			return n
		}
	}
	return ""
}

func decided(o *certificatesv1.CertificateSigningRequest) bool {
	return slices.ContainsFunc(o.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateApproved || c.Type == certificatesv1.CertificateDenied
	})
}

// hasNames says whether any subject alternative name is asked for.
func (r Request) hasNames() bool {
	return len(r.DNSNames)+len(r.Emails)+len(r.IPs)+len(r.URIs) > 0
}

// sameSet compares without order; repeats do not count.
func sameSet[T ~string](got []T, want ...T) bool {
	return subset(got, want) && subset(want, got)
}

func subset[T ~string](part, whole []T) bool {
	for _, p := range part {
		if !slices.Contains(whole, p) {
			return false
		}
	}
	return true
}
