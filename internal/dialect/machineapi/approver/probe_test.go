package approver_test

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright.io/millwright/internal/dialect/machineapi/approver"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/pki"
)

// kubelet presents a certificate of ca on loopback and returns the way to it.
func kubelet(t *testing.T, ca *pki.CA, leaf pki.Leaf) approver.Dialer {
	t.Helper()
	certPEM, keyPEM, err := ca.Issue(leaf)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				if tc, ok := c.(*tls.Conn); ok {
					_ = tc.HandshakeContext(context.Background())
				}
				_ = c.Close()
			}()
		}
	}()
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if want := "10.0.128.5:10250"; address != want {
			t.Errorf("dialled %s, want %s", address, want)
		}
		var d net.Dialer
		return d.DialContext(ctx, network, l.Addr().String())
	}
}

// TestRenewalIsApprovedByTheCertificateInUse: what a node serves with now it
// may have again, although its machine lacks an address; nothing more, and only
// from the cluster's own signer.
func TestRenewalIsApprovedByTheCertificateInUse(t *testing.T) {
	now := pki.Leaf{CommonName: "system:node:" + node, Organizations: []string{"system:nodes"}, Server: true, DNSNames: []string{node}, IPs: []net.IP{net.IPv4(10, 0, 128, 5)}}
	more := now
	more.IPs = append(more.IPs[:1:1], net.IPv4(10, 0, 128, 6))
	other := now
	other.CommonName = "system:node:other"
	for _, tt := range []struct {
		name               string
		leaf               pki.Leaf
		strange, published bool
		want               bool
	}{
		{"the same", now, false, true, true},
		{"another address", more, false, true, false},
		{"another node's", other, false, true, false},
		{"another signer's", now, true, true, false},
		{"no CA published", now, false, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := machine(linked, func(m *machinev1beta1.Machine) { m.Status.Addresses = m.Status.Addresses[:2] })
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.128.5"}}
			w := newWorld(t, m, n)
			ca, err := pki.NewCA("kubelets", 24*time.Hour, w.clk)
			if err != nil {
				t.Fatal(err)
			}
			if tt.published {
				w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-config-managed", Name: "csr-controller-ca"}, Data: map[string]string{"ca-bundle.crt": string(ca.CertPEM)}})
			}
			if tt.strange {
				if ca, err = pki.NewCA("stranger", 24*time.Hour, w.clk); err != nil {
					t.Fatal(err)
				}
			}
			w.machine = approver.NewMachine(approver.Deps{Client: w.api, Live: w.api, Clock: w.clk, Recorder: w.rec, Log: kube.KlogTextTo("", kube.KlogOptions{Out: w.log, Clock: w.clk}), Dial: kubelet(t, ca, tt.leaf)})
			w.create(servingRequest(t, "csr-1"))
			if got := len(w.step("csr-1")) > 0; got != tt.want {
				t.Errorf("approved: %v, want %v\n%s", got, tt.want, w.log)
			}
		})
	}
}
