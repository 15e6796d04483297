package vm

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/clock"

	"millwright.io/millwright/internal/pki"
	"millwright.io/millwright/internal/sim/kubelet"
)

// Paths on a machine's disk, as on RHCOS.
const (
	pathBootstrapKubeconfig = "etc/kubernetes/kubeconfig"
	pathKubeletClient       = "var/lib/kubelet/pki/kubelet-client-current.pem"
	pathKubeletServer       = "var/lib/kubelet/pki/kubelet-server-current.pem"
	pathNodeCerts           = "var/lib/kubelet/pki/node-components"
)

const (
	// csrTimeout is how long a kubelet waits for a certificate before it
	// asks again.
	csrTimeout = 15 * time.Minute
	// nodeClientTTL is the lifetime node components ask for.
	nodeClientTTL = 24 * time.Hour
)

// Network knows where simulated addresses lead.
type Network interface {
	AddNode(nodeIP string, k *kubelet.Kubelet)
	RemoveNode(nodeIP string)
}

// ConfigNode is a Joiner for machines whose first boot leaves a bootstrap
// kubeconfig at /etc/kubernetes/kubeconfig: the Machine Config family.
type ConfigNode struct {
	BinDir  string
	LogDir  string
	PodDir  string
	Network Network
	// NodeClientDelay is how long after the kubelet came up the node
	// components ask for their certificates.
	NodeClientDelay time.Duration
	KubeletVersion  string
	Clock           clock.WithTicker
	Log             logr.Logger
}

// Join implements Joiner.
func (n *ConfigNode) Join(ctx context.Context, m Machine, up func()) error {
	boot, err := bootstrapConfig(m.Disk)
	if err != nil {
		return err
	}
	cfg, err := n.clientConfig(ctx, boot, m)
	if err != nil {
		return err
	}
	serving := &servingCert{}
	k, err := kubelet.New(kubelet.Config{
		NodeName:         m.Name,
		NodeLabels:       map[string]string{"node.openshift.io/os_id": "rhcos"},
		Rest:             cfg,
		Addresses:        []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: m.PrivateIP}, {Type: corev1.NodeHostName, Address: m.Name}},
		BindIP:           m.BindIP,
		BinDir:           n.BinDir,
		LogDir:           filepath.Join(n.LogDir, m.Name),
		PodDir:           filepath.Join(n.PodDir, m.UUID),
		Root:             m.Root,
		Enter:            m.Enter,
		ServingCert:      serving.get,
		ProviderExternal: true,
		APIServer:        cfg.Host,
		CAData:           cfg.CAData,
		OSImage:          osImage(m.Disk),
		BootID:           m.BootID,
		MachineID:        strings.ReplaceAll(m.UUID, "-", ""),
		KubeletVersion:   n.KubeletVersion,
		Log:              n.Log.WithValues("Node", m.Name),
		Clock:            n.Clock,
	})
	if err != nil {
		return fmt.Errorf("start kubelet: %w", err)
	}
	n.Network.AddNode(m.PrivateIP, k)
	defer n.Network.RemoveNode(m.PrivateIP)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { n.certify(ctx, cfg, m, serving) })
	up()
	return k.Run(ctx)
}

// bootstrapConfig reads what the first boot left. Its absence is the usual
// reason for which a machine never joins.
func bootstrapConfig(disk Disk) (*rest.Config, error) {
	raw, err := disk.Read(pathBootstrapKubeconfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("/%s is missing: the user data did not bring a bootstrap kubeconfig", pathBootstrapKubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("read bootstrap kubeconfig: %w", err)
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(raw)
	if err != nil {
		return nil, fmt.Errorf("read /%s: %w", pathBootstrapKubeconfig, err)
	}
	cfg.QPS = -1
	return cfg, nil
}

// clientConfig returns the node's own identity: the certificate on disk, or
// a new one asked for with the bootstrap identity.
func (n *ConfigNode) clientConfig(ctx context.Context, boot *rest.Config, m Machine) (*rest.Config, error) {
	bundle, err := m.Disk.Read(pathKubeletClient)
	if err != nil || !n.valid(bundle) {
		m.Console("kubelet: requesting a client certificate for system:node:%s", m.Name)
		bundle, err = n.request(ctx, boot, certRequest{
			signer: certificatesv1.KubeAPIServerClientKubeletSignerName,
			cn:     "system:node:" + m.Name, orgs: []string{"system:nodes"},
			usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		})
		if err != nil {
			return nil, fmt.Errorf("get client certificate: %w", err)
		}
		if err := m.Disk.Write(pathKubeletClient, bundle, 0o600); err != nil {
			return nil, err
		}
		m.Console("kubelet: client certificate issued")
	}
	if err := writeKubeconfig(m.Disk, boot); err != nil {
		return nil, err
	}
	cfg := rest.AnonymousClientConfig(boot)
	cfg.CertData, cfg.KeyData = bundle, bundle
	cfg.QPS = -1
	cfg.UserAgent = "kubelet/" + n.KubeletVersion
	return cfg, nil
}

// writeKubeconfig leaves what other programs of the machine speak as the kubelet with.
func writeKubeconfig(disk Disk, boot *rest.Config) error {
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["default-cluster"] = &clientcmdapi.Cluster{Server: boot.Host, CertificateAuthorityData: boot.CAData}
	cfg.AuthInfos["default-auth"] = &clientcmdapi.AuthInfo{ClientCertificate: "/" + pathKubeletClient, ClientKey: "/" + pathKubeletClient}
	cfg.Contexts["default-context"] = &clientcmdapi.Context{Cluster: "default-cluster", AuthInfo: "default-auth"}
	cfg.CurrentContext = "default-context"
	raw, err := clientcmd.Write(*cfg)
	if err != nil {
		return fmt.Errorf("encode the kubelet's kubeconfig: %w", err)
	}
	return disk.Write(pathKubeconfig, raw, 0o600)
}

// pathKubeconfig is the kubelet's own kubeconfig.
const pathKubeconfig = "var/lib/kubelet/kubeconfig"

// certify gets the serving certificate and, in their time, those of the node's
// components: these are pods, which run once the kubelet serves.
func (n *ConfigNode) certify(ctx context.Context, cfg *rest.Config, m Machine, serving *servingCert) {
	n.serve(ctx, cfg, m, serving)
	n.components(ctx, cfg, m)
}

// serve gets the serving certificate and installs it.
func (n *ConfigNode) serve(ctx context.Context, cfg *rest.Config, m Machine, into *servingCert) {
	bundle, err := m.Disk.Read(pathKubeletServer)
	for err != nil || !n.valid(bundle) {
		// The Node must exist first: approvers check it.
		if n.waitNode(ctx, cfg, m.Name) != nil {
			return
		}
		bundle, err = n.request(ctx, cfg, certRequest{
			signer: certificatesv1.KubeletServingSignerName,
			cn:     "system:node:" + m.Name, orgs: []string{"system:nodes"},
			dns: []string{m.Name}, ips: []net.IP{net.ParseIP(m.PrivateIP)},
			usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		})
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			m.Console("kubelet: get serving certificate: %v", err)
			n.pause(ctx)
			continue
		}
		m.Console("kubelet: serving certificate issued")
		if err := m.Disk.Write(pathKubeletServer, bundle, 0o600); err != nil {
			m.Console("kubelet: %v", err)
			return
		}
	}
	if err := into.set(bundle); err != nil {
		m.Console("kubelet: load serving certificate: %v", err)
	}
}

// component is one part of a node that has a client certificate of its own.
type component struct{ name, cn, org string }

// components asks, some time after the node came up and again at 80 % of
// their life, for the node components' certificates.
func (n *ConfigNode) components(ctx context.Context, cfg *rest.Config, m Machine) {
	delay := n.NodeClientDelay
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.Clock.After(delay):
		}
		delay = nodeClientTTL * 8 / 10
		for _, c := range []component{
			{"ovnkube-node", "system:ovn-node:" + m.Name, "system:ovn-nodes"},
			{"multus", "system:multus:" + m.Name, "system:multus"},
		} {
			path := pathNodeCerts + "/" + c.name + ".pem"
			if have, err := m.Disk.Read(path); err == nil && n.fresh(have) {
				continue
			}
			ttl := nodeClientTTL
			bundle, err := n.request(ctx, cfg, certRequest{
				signer: certificatesv1.KubeAPIServerClientSignerName, cn: c.cn, orgs: []string{c.org}, ttl: &ttl,
				usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
			})
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				err = m.Disk.Write(path, bundle, 0o600)
			}
			if err != nil {
				m.Console("%s: get client certificate: %v", c.name, err)
				delay = time.Minute
				continue
			}
			m.Console("%s: client certificate issued", c.name)
		}
	}
}

type certRequest struct {
	signer, cn string
	orgs, dns  []string
	ips        []net.IP
	usages     []certificatesv1.KeyUsage
	ttl        *time.Duration
}

// request makes a key, asks for a certificate and waits for it; it returns
// both in one PEM bundle.
func (n *ConfigNode) request(ctx context.Context, cfg *rest.Config, r certRequest) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, csrTimeout)
	defer cancel()
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	key, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	data, err := pki.NewCSR(key, r.cn, r.orgs, r.dns, r.ips)
	if err != nil {
		return nil, err
	}
	signer, err := keyutil.ParsePrivateKeyPEM(key)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	name, uid, err := csr.RequestCertificateWithContext(ctx, client, data, "", r.signer, r.ttl, r.usages, signer)
	if err != nil {
		return nil, fmt.Errorf("create signing request: %w", err)
	}
	cert, err := csr.WaitForCertificate(ctx, client, name, uid)
	if err != nil {
		return nil, fmt.Errorf("wait for signing request %s: %w", name, err)
	}
	return append(cert, key...), nil
}

// valid says whether a bundle holds a certificate that has not expired.
func (n *ConfigNode) valid(bundle []byte) bool { return n.left(bundle) > 0 }

// fresh says whether less than 80 % of the certificate's life has passed.
func (n *ConfigNode) fresh(bundle []byte) bool { return n.left(bundle) > 0.2 }

// left is the part of a certificate's life that is left, ≤ 1.
func (n *ConfigNode) left(bundle []byte) float64 {
	block, _ := pem.Decode(bundle)
	if block == nil {
		return 0
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return 0
	}
	return float64(c.NotAfter.Sub(n.Clock.Now())) / float64(c.NotAfter.Sub(c.NotBefore))
}

func (n *ConfigNode) waitNode(ctx context.Context, cfg *rest.Config, name string) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	for {
		_, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-n.Clock.After(time.Second / 4):
		}
	}
}

func (n *ConfigNode) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-n.Clock.After(retryPause):
	}
}

// servingCert is the certificate a kubelet serves with, once there is one.
type servingCert struct {
	mu   sync.Mutex
	cert *tls.Certificate
}

func (s *servingCert) set(bundle []byte) error {
	c, err := tls.X509KeyPair(bundle, bundle)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cert = &c
	return nil
}

func (s *servingCert) get() (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cert == nil {
		return nil, errors.New("the serving certificate has not been issued yet")
	}
	return s.cert, nil
}
