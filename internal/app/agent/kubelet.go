package agent

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"

	"millwright.io/millwright/internal/host"
)

// lookAgain is how soon a rotated certificate of the kubelet is taken up.
const lookAgain = time.Minute

// kubeletConfig reads the kubelet's kubeconfig on the host; nil if there is none. The
// paths in it, and the links behind them, are the host's.
func kubeletConfig(path string, f host.Files, clk clock.PassiveClock) (*rest.Config, error) {
	raw, err := f.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the kubelet's kubeconfig: %w", err)
	}
	file, err := clientcmd.Load(raw)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	c, ok := file.Contexts[file.CurrentContext]
	if !ok || file.Clusters[c.Cluster] == nil || file.AuthInfos[c.AuthInfo] == nil {
		return nil, fmt.Errorf("read %s: current-context %q names no cluster and user of the file", path, file.CurrentContext)
	}
	cluster, user := file.Clusters[c.Cluster], file.AuthInfos[c.AuthInfo]
	ca, err := contents(f, cluster.CertificateAuthorityData, cluster.CertificateAuthority)
	if err != nil {
		return nil, fmt.Errorf("read %s: certificate-authority: %w", path, err)
	}
	token, err := contents(f, []byte(user.Token), user.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("read %s: token: %w", path, err)
	}
	k := &kubeletTransport{files: f, user: user, clock: clk, tls: tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: cluster.TLSServerName, InsecureSkipVerify: cluster.InsecureSkipTLSVerify, //nolint:gosec // as the file says
	}}
	if len(ca) > 0 {
		k.tls.RootCAs = x509.NewCertPool()
		if !k.tls.RootCAs.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("read %s: certificate-authority holds no certificate", path)
		}
	}
	return &rest.Config{Host: cluster.Server, BearerToken: string(bytes.TrimSpace(token)), Transport: k}, nil
}

// contents is what a kubeconfig holds itself, or the host's file that it names.
func contents(f host.Files, inline []byte, path string) ([]byte, error) {
	if len(inline) > 0 || path == "" {
		return inline, nil
	}
	return f.ReadFile(path)
}

// kubeletTransport speaks as the kubelet. It takes up a rotated certificate by a new
// connection.
type kubeletTransport struct {
	files host.Files
	user  *clientcmdapi.AuthInfo
	clock clock.PassiveClock
	tls   tls.Config

	mu     sync.Mutex
	seen   time.Time
	pair   []byte
	inside *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (k *kubeletTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	t, err := k.transport()
	if err != nil {
		return nil, err
	}
	return t.RoundTrip(r)
}

func (k *kubeletTransport) transport() (*http.Transport, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock.Now()
	if k.inside != nil && now.Sub(k.seen) < lookAgain {
		return k.inside, nil
	}
	cert, err := contents(k.files, k.user.ClientCertificateData, k.user.ClientCertificate)
	if err != nil {
		return nil, fmt.Errorf("read the kubelet's certificate: %w", err)
	}
	key, err := contents(k.files, k.user.ClientKeyData, k.user.ClientKey)
	if err != nil {
		return nil, fmt.Errorf("read the kubelet's key: %w", err)
	}
	k.seen = now
	pair := append(append(bytes.Clone(cert), '\n'), key...)
	if k.inside != nil && bytes.Equal(pair, k.pair) {
		return k.inside, nil
	}
	config := k.tls.Clone()
	if len(cert) > 0 {
		c, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("read the kubelet's certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{c}
	}
	if k.inside != nil {
		k.inside.CloseIdleConnections()
	}
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	k.pair = pair
	k.inside = &http.Transport{
		TLSClientConfig: config, DialContext: dialer.DialContext, ForceAttemptHTTP2: true, Proxy: http.ProxyFromEnvironment,
		TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second,
	}
	return k.inside, nil
}
