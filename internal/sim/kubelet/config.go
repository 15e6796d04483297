package kubelet

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// Config is one rooted machine as its kubelet sees it.
type Config struct {
	NodeName    string
	NodeLabels  map[string]string // those a kubelet may set; others are refused by New
	Annotations map[string]string
	Taints      []corev1.Taint // set at registration only
	Rest        *rest.Config   // the node's own identity, system:node:<name>
	Addresses   []corev1.NodeAddress
	ProviderID  string // empty with an external cloud provider
	PodCIDR     string // used when the Node gets none within PodCIDRWait
	BindIP      string // loopback address of the machine, 127.w.n.1
	Port        int    // of the kubelet server; 0 → 10250

	BinDir string // holds millwright-<image> binaries
	LogDir string // container logs
	PodDir string // pods' volumes, tokens, kubeconfigs
	Root   string // the machine's root directory, for exec and hostPath
	// Enter is a command that runs another one inside the machine, which then sees
	// BinDir and PodDir at their own paths and its root as /; nil: real processes run
	// outside.
	Enter []string

	ServingCert       func() (*tls.Certificate, error) // asked at every handshake
	ProviderExternal  bool                             // a cloud node manager sets providerID and addresses
	APIServer         string                           // URL written into pods' kubeconfigs; empty → Rest.Host
	CAData            []byte                           // CA of the API server, written into pods' kubeconfigs
	ClientCAData      []byte                           // CA of the callers of the kubelet server; empty → CAData
	KubeletClientName string                           // common name of the API server's client; empty → kube-apiserver-kubelet-client
	ExtraEnv          []string                         // KEY=value, for every real process

	Version, OSImage, BootID, MachineID, KubeletVersion, KernelVersion string

	Capacity       corev1.ResourceList // default 4 CPUs, 16Gi, 250 pods
	LeaseInterval  time.Duration       // default 10 s
	StatusInterval time.Duration       // default 5 min
	PodCIDRWait    time.Duration       // default 3 s
	StopGrace      time.Duration       // between SIGTERM and SIGKILL when Run's context ends; default 2 s

	Log   logr.Logger
	Clock clock.WithTicker
}

const (
	defaultPort       = 10250
	defaultClientName = "kube-apiserver-kubelet-client"
	leaseNamespace    = "kube-node-lease"
	leaseSeconds      = 40
	uninitialized     = "node.cloudprovider.kubernetes.io/uninitialized"
)

// defaultCapacity is what a simulated machine of four cores offers.
func defaultCapacity() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("4"),
		corev1.ResourceMemory:           resource.MustParse("16Gi"),
		corev1.ResourcePods:             resource.MustParse("250"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
	}
}

func (c *Config) complete() error {
	if c.Rest == nil {
		return errors.New("kubelet: no API server configuration")
	}
	if c.NodeName == "" {
		return errors.New("kubelet: no node name")
	}
	if err := allowedLabels(c.NodeLabels); err != nil {
		return fmt.Errorf("kubelet %s: %w", c.NodeName, err)
	}
	ip, err := netip.ParseAddr(c.BindIP)
	if err != nil {
		return fmt.Errorf("kubelet %s: parse bind address: %w", c.NodeName, err)
	}
	if !ip.Is4() || !ip.IsLoopback() {
		return fmt.Errorf("kubelet %s: bind address %s is not in 127.0.0.0/8", c.NodeName, ip)
	}
	if c.PodCIDR != "" {
		if _, err := netip.ParsePrefix(c.PodCIDR); err != nil {
			return fmt.Errorf("kubelet %s: parse pod CIDR: %w", c.NodeName, err)
		}
	}
	for _, d := range []*string{&c.BinDir, &c.LogDir, &c.PodDir, &c.Root} {
		if *d == "" {
			return fmt.Errorf("kubelet %s: BinDir, LogDir, PodDir and Root are all needed", c.NodeName)
		}
		if *d, err = filepath.Abs(*d); err != nil {
			return fmt.Errorf("kubelet %s: %w", c.NodeName, err)
		}
	}
	c.defaults()
	return nil
}

func (c *Config) defaults() {
	setDefault(&c.Port, defaultPort)
	setDefault(&c.APIServer, c.Rest.Host)
	setDefault(&c.KubeletClientName, defaultClientName)
	setDefault(&c.LeaseInterval, 10*time.Second)
	setDefault(&c.StatusInterval, 5*time.Minute)
	setDefault(&c.PodCIDRWait, 3*time.Second)
	setDefault(&c.StopGrace, 2*time.Second)
	setDefault(&c.KubeletVersion, "v1.37.2")
	setDefault(&c.KernelVersion, "6.12.0-millwright")
	if len(c.ClientCAData) == 0 {
		c.ClientCAData = c.CAData
	}
	if c.Capacity == nil {
		c.Capacity = defaultCapacity()
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Log.GetSink() == nil {
		c.Log = logr.Discard()
	}
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// kubeletLabels are the labels in the kubernetes.io domains that
// NodeRestriction lets a kubelet set on its own Node.
var kubeletLabels = map[string]bool{
	corev1.LabelHostname:                true,
	corev1.LabelTopologyZone:            true,
	corev1.LabelTopologyRegion:          true,
	corev1.LabelFailureDomainBetaZone:   true,
	corev1.LabelFailureDomainBetaRegion: true,
	corev1.LabelInstanceType:            true,
	corev1.LabelInstanceTypeStable:      true,
	corev1.LabelOSStable:                true,
	corev1.LabelArchStable:              true,
	"beta.kubernetes.io/os":             true,
	"beta.kubernetes.io/arch":           true,
}

// allowedLabels refuses what the API server would refuse later and less clearly.
func allowedLabels(labels map[string]string) error {
	for key := range labels {
		domain, _, ok := strings.Cut(key, "/")
		if !ok || kubeletLabels[key] {
			continue
		}
		switch {
		case inDomain(domain, "kubelet.kubernetes.io"), inDomain(domain, "node.kubernetes.io"):
		case inDomain(domain, "kubernetes.io"), inDomain(domain, "k8s.io"):
			return fmt.Errorf("label %s may not be set by a kubelet", key)
		}
	}
	return nil
}

func inDomain(name, domain string) bool {
	return name == domain || strings.HasSuffix(name, "."+domain)
}
