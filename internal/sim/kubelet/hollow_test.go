package kubelet

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/remotecommand"

	"millwright.io/millwright/internal/pki"
)

func streamTo(out, errOut *bytes.Buffer) remotecommand.StreamOptions {
	return remotecommand.StreamOptions{Stdout: out, Stderr: errOut}
}

// testStrangers asks the server with no, a wrong and a right certificate.
func (c *cluster) testStrangers(t *testing.T, cfg Config) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cfg.CAData)
	ask := func(leaf *pki.Leaf, path string) int {
		conf := &tls.Config{RootCAs: roots, ServerName: testNode}
		if leaf != nil {
			certPEM, keyPEM, err := c.plane.CA().Issue(*leaf)
			if err != nil {
				t.Fatal(err)
			}
			cert, err := tls.X509KeyPair(certPEM, keyPEM)
			if err != nil {
				t.Fatal(err)
			}
			conf.Certificates = []tls.Certificate{cert}
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true}}
		resp, err := client.Get(fmt.Sprintf("https://%s:10250%s", cfg.BindIP, path))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	user := &pki.Leaf{CommonName: "jane", Client: true, TTL: time.Hour}
	master := &pki.Leaf{CommonName: "root", Organizations: []string{mastersGroup}, Client: true, TTL: time.Hour}
	for _, r := range []struct {
		leaf *pki.Leaf
		path string
		want int
	}{
		{nil, "/healthz", http.StatusOK}, {nil, "/pods", http.StatusUnauthorized}, {user, "/pods", http.StatusForbidden},
		{master, "/pods", http.StatusOK}, {master, "/metrics", http.StatusOK}, {master, "/containerLogs/shop/nobody/main", http.StatusNotFound},
	} {
		if got := ask(r.leaf, r.path); got != r.want {
			t.Errorf("%s as %+v answers %d, want %d", r.path, r.leaf, got, r.want)
		}
	}
}

func (c *cluster) testHollow(t *testing.T) {
	const nodes = 20
	pool, err := NewHollow(PoolConfig{Rest: c.plane.Admin(), Impersonate: true, LeaseInterval: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- pool.Run(ctx) }()
	defer func() {
		cancel()
		<-done
	}()
	for i := range nodes {
		name := fmt.Sprintf("hollow-%d", i)
		if err := pool.AddNode(HollowNode{NodeName: name, PodCIDR: fmt.Sprintf("10.129.%d.0/24", i),
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.0.128.%d", i+4)}}}); err != nil {
			t.Fatal(err)
		}
		p := c.pod("on-"+name, "millwright/echo:dev")
		p.Spec.NodeName = name
		eventually(t, "node "+name+" exists", func() error { // admission looks the node up for the pod's topology
			_, err := c.admin.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
			return err
		})
		c.create(p)
	}
	for i := range nodes {
		name := fmt.Sprintf("hollow-%d", i)
		p := c.untilReady(t, "on-"+name)
		if want := fmt.Sprintf("10.129.%d.2", i); p.Status.PodIP != want || p.Status.Phase != corev1.PodRunning {
			t.Errorf("pod on %s has address %s, phase %s, want %s, Running", name, p.Status.PodIP, p.Status.Phase, want)
		}
		eventually(t, "lease of "+name, func() error {
			_, err := c.admin.CoordinationV1().Leases(leaseNamespace).Get(t.Context(), name, metav1.GetOptions{})
			return err
		})
	}
	for i := range nodes {
		if err := c.admin.CoreV1().Pods(testNS).Delete(t.Context(), fmt.Sprintf("on-hollow-%d", i), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range nodes {
		c.untilGone(t, fmt.Sprintf("on-hollow-%d", i))
	}
}
