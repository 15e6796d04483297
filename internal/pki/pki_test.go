package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"millwright.io/millwright/internal/pki"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newCA(t *testing.T, ttl time.Duration, clk *clocktesting.FakeClock) *pki.CA {
	t.Helper()
	ca, err := pki.NewCA("test authority", ttl, clk)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func TestIssuedLeafVerifiesForItsNamesAndUsages(t *testing.T) {
	clk := clocktesting.NewFakeClock(epoch)
	ca := newCA(t, 10*time.Hour, clk)
	certPEM, keyPEM, err := ca.Issue(pki.Leaf{
		CommonName: "server", Organizations: []string{"a", "b"},
		DNSNames: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)},
		Server: true, TTL: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tls.X509KeyPair(certPEM, keyPEM); err != nil {
		t.Fatalf("key does not fit certificate: %v", err)
	}
	cert, err := pki.ParseCert(certPEM)
	if err != nil {
		t.Fatal(err)
	}
	verify := func(name string, usage x509.ExtKeyUsage, at time.Time) error {
		_, err := cert.Verify(x509.VerifyOptions{Roots: ca.Pool(), DNSName: name, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{usage}})
		return err
	}
	for _, name := range []string{"localhost", "127.0.0.1"} {
		if err := verify(name, x509.ExtKeyUsageServerAuth, epoch); err != nil {
			t.Errorf("verify %s: %v", name, err)
		}
	}
	if verify("localhost", x509.ExtKeyUsageClientAuth, epoch) == nil {
		t.Error("server leaf is accepted as a client's")
	}
	if verify("other", x509.ExtKeyUsageServerAuth, epoch) == nil {
		t.Error("leaf is accepted for a name it does not carry")
	}
	if verify("localhost", x509.ExtKeyUsageServerAuth, epoch.Add(time.Hour+time.Second)) == nil {
		t.Error("leaf is accepted after its end")
	}
	if verify("localhost", x509.ExtKeyUsageServerAuth, epoch.Add(-time.Minute)) != nil {
		t.Error("leaf is refused by a peer whose clock is one minute behind")
	}
	if diff := cmp.Diff([]string{"a", "b"}, cert.Subject.Organization); diff != "" {
		t.Errorf("organizations (-want +got):\n%s", diff)
	}
}

func TestLeafNeverOutlivesItsAuthority(t *testing.T) {
	clk := clocktesting.NewFakeClock(epoch)
	ca := newCA(t, time.Hour, clk)
	certPEM, _, err := ca.Issue(pki.Leaf{CommonName: "x", Client: true, TTL: 48 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := pki.ParseCert(certPEM)
	if err != nil {
		t.Fatal(err)
	}
	if got := cert.NotAfter; !got.Equal(ca.NotAfter()) {
		t.Errorf("leaf ends at %s, want %s", got, ca.NotAfter())
	}
	clk.Step(2 * time.Hour)
	if _, _, err := ca.Issue(pki.Leaf{CommonName: "x", Client: true}); err == nil {
		t.Error("an ended authority still issues")
	}
}

func TestLoadCAChecksWhatItLoads(t *testing.T) {
	clk := clocktesting.NewFakeClock(epoch)
	ca, other := newCA(t, time.Hour, clk), newCA(t, time.Hour, clk)
	leafCert, leafKey, err := ca.Issue(pki.Leaf{CommonName: "leaf", Server: true})
	if err != nil {
		t.Fatal(err)
	}
	rows := []struct {
		name, why string
		cert, key []byte
		want      string
	}{
		{"own key", "round trip", ca.CertPEM, ca.KeyPEM, ""},
		{"foreign key", "would sign what nobody accepts", ca.CertPEM, other.KeyPEM, "does not belong"},
		{"leaf", "a leaf cannot sign", leafCert, leafKey, "not an authority"},
		{"no certificate", "empty file", nil, ca.KeyPEM, "no CERTIFICATE block"},
		{"no key", "empty file", ca.CertPEM, nil, "no private key block"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			loaded, err := pki.LoadCA(row.cert, row.key)
			if row.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if _, _, err := loaded.WithClock(clk).Issue(pki.Leaf{CommonName: "x", Client: true}); err != nil {
					t.Errorf("issue from loaded authority: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want an error with %q (%s)", err, row.want, row.why)
			}
		})
	}
}

func TestCSRCarriesSubjectAndNames(t *testing.T) {
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	csrPEM, err := pki.NewCSR(key, "system:node:n1", []string{"system:nodes"}, []string{"n1"}, []net.IP{net.IPv4(10, 0, 0, 4)})
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(csrPEM)
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if err := csr.CheckSignature(); err != nil {
		t.Error(err)
	}
	got := []string{block.Type, csr.Subject.CommonName, strings.Join(csr.Subject.Organization, ","), strings.Join(csr.DNSNames, ","), csr.IPAddresses[0].String()}
	if diff := cmp.Diff([]string{"CERTIFICATE REQUEST", "system:node:n1", "system:nodes", "n1", "10.0.0.4"}, got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	if _, err := pki.NewCSR([]byte("nonsense"), "x", nil, nil, nil); err == nil {
		t.Error("a request was made without a key")
	}
}

func TestCAPrintsNoKey(t *testing.T) {
	ca := newCA(t, time.Hour, clocktesting.NewFakeClock(epoch))
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if out := fmt.Sprintf(format, ca); strings.Contains(out, "PRIVATE") || !strings.Contains(out, "redacted") {
			t.Errorf("%s prints %q", format, out)
		}
	}
}

func TestRotatingRenewsAtTwoThirds(t *testing.T) {
	clk := clocktesting.NewFakeClock(epoch)
	ca := newCA(t, 1000*time.Hour, clk)
	rot, err := ca.Rotating(pki.Leaf{CommonName: "s", DNSNames: []string{"s"}, Server: true, TTL: 3 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	serial := func() string {
		t.Helper()
		cert, err := rot.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return cert.Leaf.SerialNumber.String()
	}
	first := serial()
	clk.Step(2*time.Hour - time.Second)
	if serial() != first {
		t.Error("renewed before two thirds of the lifetime")
	}
	clk.Step(time.Second)
	second := serial()
	if second == first {
		t.Error("not renewed at two thirds of the lifetime")
	}
	if serial() != second {
		t.Error("renewed again at once")
	}
}

func TestRotatingKeepsTheOldCertificateWhileItIsGood(t *testing.T) {
	clk := clocktesting.NewFakeClock(epoch)
	ca := newCA(t, 1000*time.Hour, clk)
	var fault error
	calls := 0
	rot, err := pki.NewRotating(clk, func() ([]byte, []byte, error) {
		calls++
		if fault != nil {
			return nil, nil, fault
		}
		return ca.Issue(pki.Leaf{CommonName: "s", Server: true, TTL: 3 * time.Hour})
	})
	if err != nil {
		t.Fatal(err)
	}
	fault = errors.New("authority is away")
	clk.Step(2 * time.Hour)
	for range 5 {
		if _, err := rot.GetCertificate(nil); err != nil {
			t.Fatalf("old certificate not served: %v", err)
		}
	}
	if calls != 2 {
		t.Errorf("%d calls of issue, want 2: a failed renewal must rest", calls)
	}
	clk.Step(time.Hour)
	if _, err := rot.GetCertificate(nil); !errors.Is(err, fault) {
		t.Errorf("got %v, want the fault once the old certificate ended", err)
	}
	fault = nil
	if _, err := rot.GetCertificate(nil); err != nil {
		t.Errorf("not healed after the fault is gone: %v", err)
	}
}

func TestRotatingServesTLS(t *testing.T) {
	clk := clocktesting.NewFakeClock(epoch)
	ca := newCA(t, 1000*time.Hour, clk)
	rot, err := ca.Rotating(pki.Leaf{CommonName: "s", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	// httptest adds a certificate of its own unless one is configured; a raw
	// TLS listener keeps the test about Rotating alone.
	srv.Listener = tls.NewListener(srv.Listener, rot.ServerConfig())
	srv.Start()
	defer srv.Close()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool(), Time: clk.Now}}}
	resp, err := client.Get("https://" + srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); string(body) != "hello" {
		t.Errorf("got %q, want hello", body)
	}
}

func FuzzLoadCA(f *testing.F) {
	ca, err := pki.NewCA("seed", time.Hour, clocktesting.NewFakeClock(epoch))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(ca.CertPEM, ca.KeyPEM)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), []byte{})
	f.Fuzz(func(t *testing.T, cert, key []byte) {
		loaded, err := pki.LoadCA(cert, key)
		if (loaded == nil) == (err == nil) {
			t.Fatalf("got %v and %v, want exactly one", loaded, err)
		}
		if err == nil {
			if _, _, err := loaded.WithClock(clocktesting.NewFakeClock(loaded.NotAfter().Add(-time.Minute))).Issue(pki.Leaf{CommonName: "x", Client: true}); err != nil {
				t.Fatalf("a loaded authority cannot issue: %v", err)
			}
		}
	})
}
