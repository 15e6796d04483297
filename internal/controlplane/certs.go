package controlplane

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"

	"millwright.io/millwright/internal/pki"
)

const (
	caTTL   = 10 * 365 * 24 * time.Hour
	leafTTL = 365 * 24 * time.Hour
)

// authorities are the three CAs of a control plane. They are apart because
// what one of them signs must not be believed by the others' servers: a
// kubelet's client certificate opens neither etcd nor the front proxy.
type authorities struct {
	cluster, front, etcd *pki.CA
}

// loadAuthorities reads the authorities in dir, making those that are missing.
func loadAuthorities(dir string, clk clock.PassiveClock) (authorities, error) {
	var a authorities
	for _, row := range []struct {
		file, name string
		into       **pki.CA
	}{
		{"ca", "millwright-cluster", &a.cluster},
		{"front-proxy-ca", "millwright-front-proxy", &a.front},
		{"etcd-ca", "millwright-etcd", &a.etcd},
	} {
		ca, err := loadAuthority(filepath.Join(dir, row.file), row.name, clk)
		if err != nil {
			return a, err
		}
		*row.into = ca
	}
	return a, nil
}

func loadAuthority(base, name string, clk clock.PassiveClock) (*pki.CA, error) {
	certPEM, certErr := os.ReadFile(base + ".crt")
	keyPEM, keyErr := os.ReadFile(base + ".key")
	if errors.Is(certErr, fs.ErrNotExist) || errors.Is(keyErr, fs.ErrNotExist) {
		ca, err := pki.NewCA(name, caTTL, clk)
		if err != nil {
			return nil, err
		}
		return ca, writePair(base, ca.CertPEM, ca.KeyPEM)
	}
	if err := errors.Join(certErr, keyErr); err != nil {
		return nil, fmt.Errorf("read authority %s: %w", name, err)
	}
	ca, err := pki.LoadCA(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", base, err)
	}
	return ca.WithClock(clk), nil
}

// writeCerts issues what the components show each other. Leaves are new at
// every start: they cost under a millisecond and always fit the options.
func (a authorities) writeCerts(o Options) error {
	names, ips, err := serverNames(o)
	if err != nil {
		return err
	}
	loopback := []net.IP{net.IPv4(127, 0, 0, 1)}
	for _, row := range []struct {
		file string
		ca   *pki.CA
		leaf pki.Leaf
	}{
		{"apiserver", a.cluster, pki.Leaf{CommonName: "kube-apiserver", DNSNames: names, IPs: ips, Server: true}},
		{"kube-controller-manager", a.cluster, pki.Leaf{CommonName: "kube-controller-manager", DNSNames: []string{"localhost"}, IPs: loopback, Server: true}},
		{"kube-scheduler", a.cluster, pki.Leaf{CommonName: "kube-scheduler", DNSNames: []string{"localhost"}, IPs: loopback, Server: true}},
		{"apiserver-kubelet-client", a.cluster, pki.Leaf{CommonName: "kube-apiserver-kubelet-client", Organizations: []string{"system:masters"}, Client: true}},
		{"front-proxy-client", a.front, pki.Leaf{CommonName: frontProxyName, Client: true}},
		{"etcd-server", a.etcd, pki.Leaf{CommonName: "etcd", DNSNames: []string{"localhost"}, IPs: loopback, Server: true, Client: true}},
		{"apiserver-etcd-client", a.etcd, pki.Leaf{CommonName: "kube-apiserver", Client: true}},
	} {
		row.leaf.TTL = leafTTL
		certPEM, keyPEM, err := row.ca.Issue(row.leaf)
		if err != nil {
			return err
		}
		if err := writePair(o.path("pki", row.file), certPEM, keyPEM); err != nil {
			return err
		}
	}
	return writeServiceAccountKey(o.path("pki", "sa.key"))
}

// writeServiceAccountKey keeps an existing key: every token ever issued was
// signed with it.
func writeServiceAccountKey(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	key, err := pki.NewKey()
	if err != nil {
		return err
	}
	if err := writeFile(path, key); err != nil {
		return fmt.Errorf("write service account key: %w", err)
	}
	return nil
}

func serverNames(o Options) ([]string, []net.IP, error) {
	names := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	services, err := netip.ParsePrefix(o.ServiceCIDR)
	if err != nil {
		return nil, nil, fmt.Errorf("read service address range: %w", err)
	}
	ips := []net.IP{net.IPv4(127, 0, 0, 1), services.Masked().Addr().Next().AsSlice()}
	for _, name := range o.ServerNames {
		if ip := net.ParseIP(name); ip != nil {
			ips = append(ips, ip)
		} else {
			names = append(names, name)
		}
	}
	return names, ips, nil
}

// clientConfig issues a client certificate for user.
func (a authorities) clientConfig(url, user string, groups []string) (*rest.Config, error) {
	certPEM, keyPEM, err := a.cluster.Issue(pki.Leaf{CommonName: user, Organizations: groups, Client: true, TTL: leafTTL})
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host: url,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: a.cluster.CertPEM, CertData: certPEM, KeyData: keyPEM,
		},
		// The API server's own fairness is the limit.
		QPS: -1,
	}, nil
}

// kubeconfig renders config as a file for other programs.
func kubeconfig(config *rest.Config, user string) ([]byte, error) {
	const cluster = "millwright"
	out := clientcmdapi.NewConfig()
	out.Clusters[cluster] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	out.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	out.Contexts[user] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user}
	out.CurrentContext = user
	data, err := clientcmd.Write(*out)
	if err != nil {
		return nil, fmt.Errorf("encode kubeconfig of %s: %w", user, err)
	}
	return data, nil
}

func writePair(base string, certPEM, keyPEM []byte) error {
	// The key first: a certificate without its key would be taken for damage.
	if err := writeFile(base+".key", keyPEM); err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	if err := writeFile(base+".crt", certPEM); err != nil {
		return fmt.Errorf("write certificate: %w", err)
	}
	return nil
}

// writeFile replaces path in one step; only the user may read it.
func writeFile(path string, data []byte) error {
	fresh := path + ".new"
	if err := os.WriteFile(fresh, data, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}
