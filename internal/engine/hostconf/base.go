package hostconf

import (
	_ "embed" // for content
	"fmt"
	"net/url"
	"strings"
)

// Roles that have base configs of their own. Custom pools inherit a worker's.
const (
	RoleMaster  = "master"
	RoleWorker  = "worker"
	RoleArbiter = "arbiter"
)

// Facts are what base configs depend on. Bytes are not copied.
type Facts struct {
	Role                  string
	Platform              string // e.g. Azure; empty is refused
	ExternalCloudProvider bool
	APIServer             string // URL
	ClusterDNSIP          string
	CloudConfig           string
	PullSecret            []byte // .dockerconfigjson
	RootCA                []byte
	TrustBundle           []byte // additional, PEM
	HTTPProxy             string
	HTTPSProxy            string
	NoProxy               string
	// MetricsProxyImage is the image of the static pod in front of the container
	// runtime's metrics; without it there is no such pod.
	MetricsProxyImage string
}

var (
	//go:embed content/kubelet.conf
	contentKubelet string
	//go:embed content/kubelet.service
	contentKubeletUnit string
	//go:embed content/kubelet-auto-node-size.service
	contentSizingUnit string
	//go:embed content/node-sizing.sh
	contentSizing string
	//go:embed content/crio-00-default
	contentCrio string
	//go:embed content/policy.json
	contentPolicy string
	//go:embed content/registries.conf
	contentRegistries string
	//go:embed content/storage.conf
	contentStorage string
	//go:embed content/sysctl.conf
	contentSysctl string
	//go:embed content/networkmanager.conf
	contentNetwork string
	//go:embed content/criometricsproxy.yaml
	contentMetricsProxy string
)

// contentMetricsProxyConfig lets in who may read metrics.
const contentMetricsProxyConfig = `authorization:
  static:
  - resourceRequest: false
    path: /metrics
    verb: get
    user:
      name: system:serviceaccount:openshift-monitoring:prometheus-k8s
`

// Paths that more than one fragment writes.
const (
	pathKubeletConf = "/etc/kubernetes/kubelet.conf"
	pathSizing      = "/etc/node-sizing-enabled.env"
	pathLogging     = "/etc/systemd/system/kubelet.service.d/20-logging.conf"
	pathStorage     = "/etc/containers/storage.conf"
	pathPolicy      = "/etc/containers/policy.json"
	pathRegistries  = "/etc/containers/registries.conf"
	pathSearch      = "/etc/containers/registries.conf.d/01-image-searchRegistries.conf"
	dirCrio         = "/etc/crio/crio.conf.d/"
)

// defaultLogLevel is the kubelet's verbosity unless a KubeletConfig says
// otherwise.
const defaultLogLevel = 2

// Base returns the base fragments of one role: 00-<role>,
// 01-<role>-container-runtime and 01-<role>-kubelet.
func Base(f Facts) ([]Fragment, error) {
	if f.Role == "" || f.Platform == "" {
		return nil, fmt.Errorf("base configs need a role and a platform: got role %q, platform %q", f.Role, f.Platform)
	}
	var out []Fragment
	for _, part := range []struct {
		name string
		fill func(*builder, Facts) error
	}{
		{"00-" + f.Role, baseHost},
		{"01-" + f.Role + "-container-runtime", baseRuntime},
		{"01-" + f.Role + "-kubelet", baseKubelet},
	} {
		var b builder
		if err := part.fill(&b, f); err != nil {
			return nil, fmt.Errorf("make %s: %w", part.name, err)
		}
		spec, err := b.spec()
		if err != nil {
			return nil, fmt.Errorf("make %s: %w", part.name, err)
		}
		out = append(out, Fragment{Name: part.name, Role: f.Role, Spec: spec})
	}
	return out, nil
}

func baseHost(b *builder, f Facts) error {
	u, err := url.Parse(f.APIServer)
	if err != nil || u.Hostname() == "" {
		return fmt.Errorf("%q is not the URL of an API server", f.APIServer)
	}
	port := u.Port()
	if port == "" {
		port = "6443"
	}
	b.file("/etc/NetworkManager/conf.d/pod-network.conf", modeFile, []byte(contentNetwork))
	b.file(pathStorage, modeFile, []byte(contentStorage))
	b.file("/etc/kubernetes/apiserver-url.env", modeFile,
		fmt.Appendf(nil, "KUBERNETES_SERVICE_HOST='%s'\nKUBERNETES_SERVICE_PORT='%s'\n", u.Hostname(), port))
	if len(f.RootCA) > 0 {
		b.file("/etc/kubernetes/ca.crt", modeFile, f.RootCA)
	}
	b.file("/etc/mco/proxy.env", modeFile, proxyEnv(f))
	b.file(pathSizing, modeFile, sizing{enabled: f.Role == RoleWorker}.bytes())
	if len(f.TrustBundle) > 0 {
		b.file("/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt", modeFile, f.TrustBundle)
	}
	if f.MetricsProxyImage != "" {
		b.file("/etc/kubernetes/manifests/criometricsproxy.yaml", modeFile, []byte(strings.ReplaceAll(contentMetricsProxy, "@IMAGE@", f.MetricsProxyImage)))
		b.file("/etc/kubernetes/crio-metrics-proxy.cfg", modeFile, []byte(contentMetricsProxyConfig))
	}
	b.file("/etc/sysctl.d/inotify.conf", modeFile, []byte(contentSysctl))
	b.file(pathLogging, modeFile, logging(defaultLogLevel))
	b.file("/usr/local/sbin/node-sizing.sh", modeScript, []byte(contentSizing))
	if len(f.PullSecret) > 0 {
		b.file("/var/lib/kubelet/config.json", modeSecret, f.PullSecret)
	}
	b.enable("kubelet-auto-node-size.service", contentSizingUnit)
	return nil
}

func baseRuntime(b *builder, _ Facts) error {
	b.file(pathPolicy, modeFile, []byte(contentPolicy))
	b.file(pathRegistries, modeFile, []byte(contentRegistries))
	b.file(dirCrio+"00-default", modeFile, []byte(contentCrio))
	return nil
}

func baseKubelet(b *builder, f Facts) error {
	conf, err := baseKubeletConf(f).bytes()
	if err != nil {
		return err
	}
	b.file("/etc/kubernetes/cloud.conf", modeFile, []byte(f.CloudConfig))
	b.file(pathKubeletConf, modeFile, conf)
	provider := ""
	if f.ExternalCloudProvider {
		provider = "external"
	}
	b.enable("kubelet.service", strings.ReplaceAll(contentKubeletUnit, "@CLOUD_PROVIDER@", provider))
	return nil
}

func proxyEnv(f Facts) []byte {
	var out strings.Builder
	for _, v := range []struct{ name, value string }{{"HTTP_PROXY", f.HTTPProxy}, {"HTTPS_PROXY", f.HTTPSProxy}, {"NO_PROXY", f.NoProxy}} {
		if v.value != "" {
			fmt.Fprintf(&out, "%s=%s\n", v.name, v.value)
		}
	}
	return []byte(out.String())
}

// sizing is the file that says how much the system keeps for itself.
type sizing struct {
	enabled              bool
	memory, cpu, storage string // empty: the default
}

func (s sizing) bytes() []byte {
	or := func(v, d string) string {
		if v == "" {
			return d
		}
		return v
	}
	return fmt.Appendf(nil, "NODE_SIZING_ENABLED=%t\nSYSTEM_RESERVED_MEMORY=%s\nSYSTEM_RESERVED_CPU=%s\nSYSTEM_RESERVED_ES=%s\n",
		s.enabled, or(s.memory, "1Gi"), or(s.cpu, "500m"), or(s.storage, "1Gi"))
}

func logging(level int32) []byte {
	return fmt.Appendf(nil, "[Service]\nEnvironment=\"KUBELET_LOG_LEVEL=%d\"\n", level)
}
