package csr

import (
	"crypto/x509"
	"net/netip"
)

// Presented is the serving certificate that a node presents now, after somebody
// verified that the cluster's own signer issued it and that it is valid.
type Presented struct {
	CommonName string
	DNSNames   []string
	Emails     []string
	IPs        []netip.Addr
	URIs       []string
}

// PresentedOf takes a verified certificate apart. Addresses that are none are
// left out; a request for them cannot be parsed either.
func PresentedOf(c *x509.Certificate) Presented {
	p := Presented{CommonName: c.Subject.CommonName, DNSNames: c.DNSNames, Emails: c.EmailAddresses}
	for _, ip := range c.IPAddresses {
		if a, ok := netip.AddrFromSlice(ip); ok {
			p.IPs = append(p.IPs, a.Unmap())
		}
	}
	for _, u := range c.URIs {
		p.URIs = append(p.URIs, u.String())
	}
	return p
}

// renews says whether a request asks for what the certificate has, no more and
// no less.
func (p *Presented) renews(r Request) bool {
	return p != nil && p.CommonName == r.CommonName &&
		sameSet(r.DNSNames, p.DNSNames...) && sameSet(r.Emails, p.Emails...) && sameSet(r.URIs, p.URIs...) && sameIPs(r.IPs, p.IPs)
}

func sameIPs(a, b []netip.Addr) bool {
	text := func(ips []netip.Addr) []string {
		out := make([]string, 0, len(ips))
		for _, ip := range ips {
			out = append(out, ip.String())
		}
		return out
	}
	return sameSet(text(a), text(b)...)
}
