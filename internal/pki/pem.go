package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
)

const (
	blockCert = "CERTIFICATE"
	blockKey  = "EC PRIVATE KEY"
	blockCSR  = "CERTIFICATE REQUEST"
)

// NewKey makes an ECDSA P-256 key, one EC PRIVATE KEY block.
func NewKey() (keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	return encodeKey(key)
}

// NewCSR makes a signing request for keyPEM, one CERTIFICATE REQUEST block, as
// spec.request of a CertificateSigningRequest wants it.
func NewCSR(keyPEM []byte, cn string, orgs []string, dns []string, ips []net.IP) (csrPEM []byte, err error) {
	key, err := parseKey(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("make signing request for %s: %w", cn, err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:     pkix.Name{CommonName: cn, Organization: orgs},
		DNSNames:    dns,
		IPAddresses: ips,
	}, key)
	if err != nil {
		return nil, fmt.Errorf("sign signing request for %s: %w", cn, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: blockCSR, Bytes: der}), nil
}

// PublicKey returns the public half of keyPEM, one PUBLIC KEY block.
func PublicKey(keyPEM []byte) ([]byte, error) {
	key, err := parseKey(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("read public key: %w", err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("encode public key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// ParseCert reads the first certificate of a PEM text, skipping other blocks.
func ParseCert(certPEM []byte) (*x509.Certificate, error) {
	for rest := certPEM; ; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			return nil, errors.New("parse certificate: no CERTIFICATE block")
		}
		if block.Type != blockCert {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse certificate: %w", err)
		}
		return cert, nil
	}
}

// parseKey reads the first private key of a PEM text: SEC 1 or PKCS #8. Errors
// never quote the input.
func parseKey(keyPEM []byte) (crypto.Signer, error) {
	for rest := keyPEM; ; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			return nil, errors.New("parse private key: no private key block")
		}
		switch block.Type {
		case blockKey:
			key, err := x509.ParseECPrivateKey(block.Bytes)
			if err != nil {
				return nil, fmt.Errorf("parse private key: %w", err)
			}
			return key, nil
		case "PRIVATE KEY":
			key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return nil, fmt.Errorf("parse private key: %w", err)
			}
			signer, ok := key.(crypto.Signer)
			if !ok {
				return nil, fmt.Errorf("parse private key: %T cannot sign", key)
			}
			return signer, nil
		}
	}
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: blockCert, Bytes: der})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: blockKey, Bytes: der}), nil
}
