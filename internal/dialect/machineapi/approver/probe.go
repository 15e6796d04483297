package approver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/engine/csr"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/kube"
)

// Dialer reaches a kubelet; address is host:port.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// probeTimeout ends one question to a kubelet.
const probeTimeout = 30 * time.Second

// kubeletPort is where a kubelet listens that does not say so.
const kubeletPort = 10250

// Where the CA of the kubelets' certificates is published.
const (
	caNamespace = "openshift-config-managed"
	caName      = "csr-controller-ca"
	caKey       = "ca-bundle.crt"
)

// judgeOrProbe decides, asks the kubelet for its certificate if that may make the
// difference, and decides again. What the kubelet cannot be asked for leaves
// the first verdict.
func (c *controller) judgeOrProbe(ctx context.Context, in input) plan.Decision[csr.Verdict] {
	d := c.judge(in)
	if c.Dial == nil || in.Request.Signer != certificatesv1.KubeletServingSignerName || d.Status.Outcome != csr.Wait || d.Status.Rule != "S3" {
		return d
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	p, err := c.presented(ctx, d.Status.Node)
	if err != nil {
		kube.LogNotes(c.Log, []plan.Note{{Message: fmt.Sprintf("%s: could not use current serving cert of %s: %v", in.Request.Name, d.Status.Node, err)}})
		return d
	}
	in.Presented = p
	return c.judge(in)
}

// presented returns the serving certificate that a Node's kubelet presents,
// verified by the kubelets' CA.
func (c *controller) presented(ctx context.Context, node string) (*csr.Presented, error) {
	roots, err := c.kubeletCA(ctx)
	if err != nil {
		return nil, err
	}
	var n corev1.Node
	if err := c.Live.Get(ctx, client.ObjectKey{Name: node}, &n); err != nil {
		return nil, fmt.Errorf("get node: %w", err)
	}
	host := internalIP(&n)
	if host == "" {
		return nil, errors.New("the node has no InternalIP")
	}
	port := int(n.Status.DaemonEndpoints.KubeletEndpoint.Port)
	if port == 0 {
		port = kubeletPort
	}
	raw, err := c.Dial(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("dial kubelet: %w", err)
	}
	conn := tls.Client(raw, &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12, Time: c.Clock.Now})
	defer func() { _ = conn.Close() }()
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("ask kubelet for its certificate: %w", err)
	}
	p := csr.PresentedOf(conn.ConnectionState().PeerCertificates[0])
	return &p, nil
}

func (c *controller) kubeletCA(ctx context.Context) (*x509.CertPool, error) {
	var m corev1.ConfigMap
	if err := c.Live.Get(ctx, client.ObjectKey{Namespace: caNamespace, Name: caName}, &m); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, errors.New("no kubelet CA is published")
		}
		return nil, fmt.Errorf("read kubelet CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(m.Data[caKey])) {
		return nil, fmt.Errorf("read kubelet CA: ConfigMap %s/%s, key %s holds no certificate", caNamespace, caName, caKey)
	}
	return pool, nil
}

func internalIP(n *corev1.Node) string {
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}
