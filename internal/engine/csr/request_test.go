package csr_test

import (
	"encoding/pem"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"millwright.io/millwright/internal/engine/csr"
)

func object(request []byte) *certificatesv1.CertificateSigningRequest {
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "csr-x", CreationTimestamp: metav1.NewTime(now)},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request, SignerName: certificatesv1.KubeletServingSignerName, Username: "u", Groups: []string{"g"},
			ExpirationSeconds: ptr.To[int32](86400),
		},
	}
}

func read(tb testing.TB, name string) []byte {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestParse(t *testing.T) {
	got, err := csr.Parse(object(read(t, "serving.pem")))
	if err != nil {
		t.Fatal(err)
	}
	want := csr.Request{
		Name: "csr-x", Signer: certificatesv1.KubeletServingSignerName, Username: "u", Groups: []string{"g"}, Created: now, Lifetime: 24 * time.Hour,
		CommonName: "system:node:" + node, Organizations: []string{"system:nodes"}, DNSNames: []string{node}, Emails: []string{"a@example.com"},
		IPs: []netip.Addr{netip.MustParseAddr("10.0.128.5"), netip.MustParseAddr("fd00::5")}, URIs: []string{"spiffe://example/x"},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("request (-want +got)\n%s", diff)
	}
	if got.NodeName() != node {
		t.Errorf("names node %q, want %q", got.NodeName(), node)
	}
}

func TestParseSeesDecisions(t *testing.T) {
	o := object(read(t, "client.pem"))
	o.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied}}
	if r, err := csr.Parse(o); err != nil || !r.Decided {
		t.Errorf("got decided %t, %v; want true", r.Decided, err)
	}
}

// The four requests of one node: right, for another group, late, joined.
func TestParsedRequestsAreJudged(t *testing.T) {
	for _, c := range []struct {
		file    string
		created time.Duration
		machine csr.Machine
		want    csr.Outcome
	}{
		{"client.pem", 0, young(), csr.Approve},
		{"client.pem", 3 * time.Hour, young(), csr.Leave},
		{"client.pem", 0, linked(), csr.Leave},
		{"masters.pem", 0, young(), csr.Deny},
	} {
		o := object(read(t, c.file))
		o.Spec.SignerName = certificatesv1.KubeAPIServerClientKubeletSignerName
		o.Spec.Username, o.Spec.Groups, o.Spec.Usages = csr.Bootstrapper, clientRequest().Groups, clientRequest().Usages
		o.CreationTimestamp = metav1.NewTime(now.Add(c.created))
		r, err := csr.Parse(o)
		if err != nil {
			t.Fatal(err)
		}
		if d := csr.Decide(csr.Input{Request: r, Machines: []csr.Machine{c.machine}, Now: now.Add(c.created)}); d.Status.Outcome != c.want {
			t.Errorf("%s after %v: got %s (%s), want %s", c.file, c.created, d.Status.Outcome, d.Status.Why, c.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	good := read(t, "client.pem")
	block, _ := pem.Decode(good)
	for name, b := range map[string][]byte{
		"nothing":     nil,
		"no PEM":      []byte("hello"),
		"other block": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes}),
		"other bytes": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: []byte("x")}),
		"two blocks":  append(append([]byte{}, good...), good...),
		"huge":        make([]byte, 1<<20),
	} {
		if _, err := csr.Parse(object(b)); err == nil {
			t.Errorf("%s: parsed, want an error", name)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, n := range []string{"client.pem", "masters.pem", "serving.pem"} {
		f.Add(read(f, n))
	}
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := csr.Parse(object(b))
		if err != nil {
			return
		}
		block, _ := pem.Decode(b)
		again, err := csr.Parse(object(pem.EncodeToMemory(block)))
		if err != nil {
			t.Fatalf("parsed once, not again: %v", err)
		}
		if diff := cmp.Diff(r, again, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Fatalf("parsed differently the second time\n%s", diff)
		}
		in := csr.Input{Request: r, Now: now}
		if d := csr.Decide(in); d.Status.Outcome == csr.Approve {
			t.Fatalf("approved without a machine: %+v", r)
		}
		if d := csr.DecideNodeClient(in); d.Status.Outcome == csr.Approve {
			t.Fatalf("approved without a machine: %+v", r)
		}
	})
}
