package ignserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/engine/firstboot"
)

// Names of what a cluster holds for its config server.
const (
	controllerConfigName = "machine-config-controller"
	bootstrapTokenName   = "node-bootstrapper-token"
	kubeconfigDataName   = "kubeconfig-data"
)

// keptConfigs bounds the rendered configs that stay in memory.
const keptConfigs = 8

// Cluster is a Source that reads an API server.
type Cluster struct {
	cached    client.Reader // pools, ControllerConfig, Secrets and ConfigMaps of the namespace
	live      client.Reader // rendered configs: large, read once each
	namespace string
	server    string

	mu      sync.Mutex
	configs map[types.UID]*mcfgv1.MachineConfig
	names   map[string]types.UID
}

// NewCluster returns a Source. namespace holds the tokens; server is the URL that
// new machines reach the API server at.
func NewCluster(cached, live client.Reader, namespace, server string) *Cluster {
	return &Cluster{cached: cached, live: live, namespace: namespace, server: server,
		configs: map[types.UID]*mcfgv1.MachineConfig{}, names: map[string]types.UID{}}
}

// Access implements Source.
func (c *Cluster) Access(ctx context.Context, pool string) (Access, error) {
	p, err := c.pool(ctx, pool)
	if err != nil {
		return Access{}, err
	}
	access := Access{Anonymous: p.Annotations[firstboot.AnonymousAnnotation] == "Enabled"}
	var secret corev1.Secret
	err = c.cached.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: firstboot.TokenSecret(pool)}, &secret)
	if client.IgnoreNotFound(err) != nil {
		return access, fmt.Errorf("read token of pool %s: %w", pool, err)
	}
	access.Token = string(secret.Data[firstboot.TokenKey])
	return access, nil
}

func (c *Cluster) pool(ctx context.Context, name string) (*mcfgv1.MachineConfigPool, error) {
	var p mcfgv1.MachineConfigPool
	err := c.cached.Get(ctx, client.ObjectKey{Name: name}, &p)
	if apierrors.IsNotFound(err) {
		return nil, ErrNoPool
	}
	if err != nil {
		return nil, fmt.Errorf("read pool %s: %w", name, err)
	}
	return &p, nil
}

// Boot implements Source.
func (c *Cluster) Boot(ctx context.Context, pool string) (Boot, error) {
	p, err := c.pool(ctx, pool)
	if err != nil {
		return Boot{}, err
	}
	name := firstboot.Select(p)
	if name == "" {
		return Boot{}, fmt.Errorf("pool %s has no rendered config yet", pool)
	}
	mc, err := c.config(ctx, name)
	if err != nil {
		return Boot{}, err
	}
	var cc mcfgv1.ControllerConfig
	if err := c.cached.Get(ctx, client.ObjectKey{Name: controllerConfigName}, &cc); err != nil {
		return Boot{}, fmt.Errorf("read ControllerConfig %s: %w", controllerConfigName, err)
	}
	kubeconfig, err := c.kubeconfig(ctx)
	if err != nil {
		return Boot{}, err
	}
	sum := sha256.Sum256(kubeconfig)
	return Boot{Config: mc, Controller: cc.Spec, Kubeconfig: kubeconfig,
		Revision: mc.Name + " " + string(mc.UID) + " " + cc.ResourceVersion + " " + hex.EncodeToString(sum[:])}, nil
}

// config reads a rendered config once: its name is a digest of what it says.
func (c *Cluster) config(ctx context.Context, name string) (*mcfgv1.MachineConfig, error) {
	c.mu.Lock()
	mc := c.configs[c.names[name]]
	c.mu.Unlock()
	if mc != nil {
		return mc, nil
	}
	mc = &mcfgv1.MachineConfig{}
	if err := c.live.Get(ctx, client.ObjectKey{Name: name}, mc); err != nil {
		return nil, fmt.Errorf("read MachineConfig %s: %w", name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.configs) >= keptConfigs {
		clear(c.configs)
		clear(c.names)
	}
	c.configs[mc.UID], c.names[name] = mc, mc.UID
	return mc, nil
}

// kubeconfig is what a new kubelet asks for its certificate with.
func (c *Cluster) kubeconfig(ctx context.Context) ([]byte, error) {
	var token corev1.Secret
	if err := c.cached.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: bootstrapTokenName}, &token); err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", c.namespace, bootstrapTokenName, err)
	}
	if len(token.Data[corev1.ServiceAccountTokenKey]) == 0 {
		return nil, fmt.Errorf("read Secret %s/%s: it has no token yet", c.namespace, bootstrapTokenName)
	}
	ca := token.Data[corev1.ServiceAccountRootCAKey]
	var data corev1.ConfigMap
	err := c.cached.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: kubeconfigDataName}, &data)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", c.namespace, kubeconfigDataName, err)
	case err == nil && len(data.BinaryData["ca-bundle.crt"]) > 0:
		ca = data.BinaryData["ca-bundle.crt"]
	case err == nil && data.Data["ca-bundle.crt"] != "":
		ca = []byte(data.Data["ca-bundle.crt"])
	}
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["local"] = &clientcmdapi.Cluster{Server: c.server, CertificateAuthorityData: ca}
	cfg.AuthInfos["kubelet"] = &clientcmdapi.AuthInfo{Token: string(token.Data[corev1.ServiceAccountTokenKey])}
	cfg.Contexts["kubelet"] = &clientcmdapi.Context{Cluster: "local", AuthInfo: "kubelet"}
	cfg.CurrentContext = "kubelet"
	raw, err := clientcmd.Write(*cfg)
	if err != nil {
		return nil, fmt.Errorf("encode bootstrap kubeconfig: %w", err)
	}
	return raw, nil
}
