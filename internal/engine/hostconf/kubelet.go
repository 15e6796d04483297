package hostconf

import (
	"encoding/json"
	"fmt"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// PoolFacts are what pool-wide generators know besides Facts.
type PoolFacts struct {
	Facts                        // Role is the pool's name
	ControlPlane bool            // its nodes are masters or arbiters
	Gates        map[string]bool // of the cluster
	Latency      configv1.WorkerLatencyProfileType
	TLS          *configv1.TLSSecurityProfile // of the API servers
}

// Refusal says that a setting cannot be used. Its text is what users of the
// original know.
type Refusal struct {
	Field string // below spec, e.g. kubeletConfig.clusterDNS
	Text  string
}

// Error implements error.
func (r *Refusal) Error() string { return r.Text }

// clusterKubeletConf is the base of a pool: what its role, the cluster's gates
// and profiles make of kubelet.conf.
func clusterKubeletConf(p PoolFacts) kubeletConf {
	c := baseKubeletConf(p.Facts).withTLS(p.TLS).withGates(p.Gates)
	if p.Role == RoleWorker {
		c = c.withLatency(p.Latency)
	}
	return c
}

// Kubelet returns the fragment of a KubeletConfig for one pool. The error is a
// *Refusal when the object is to blame.
func Kubelet(p PoolFacts, name string, kc *machineconfigv1.KubeletConfig) (Fragment, error) {
	if err := CheckKubelet(kc, p.Role, p.ControlPlane); err != nil {
		return Fragment{}, err
	}
	var raw []byte
	if kc.Spec.KubeletConfig != nil {
		raw = kc.Spec.KubeletConfig.Raw
	}
	typed, user, err := decodeKubelet(raw)
	if err != nil {
		return Fragment{}, fmt.Errorf("decode kubelet configuration: %w", err)
	}
	conf := clusterKubeletConf(p)
	if kc.Spec.TLSSecurityProfile != nil {
		conf = conf.withTLS(kc.Spec.TLSSecurityProfile)
	}
	conf = conf.merge(user).settle(user)
	var b builder
	if s, ok := sizingOf(kc, typed); ok {
		b.file(pathSizing, modeFile, s.bytes())
		conf = withoutReserved(conf)
	}
	if kc.Spec.LogLevel != nil {
		b.file(pathLogging, modeFile, logging(*kc.Spec.LogLevel))
	}
	content, err := conf.bytes()
	if err != nil {
		return Fragment{}, err
	}
	b.file(pathKubeletConf, modeFile, content)
	spec, err := b.spec()
	return Fragment{Name: name, Role: p.Role, Spec: spec}, err
}

// movedToSizing are the reservations that stand in the sizing file, where the
// unit reads them, instead of in kubelet.conf.
var movedToSizing = []string{"memory", "cpu", "ephemeral-storage"}

func sizingOf(kc *machineconfigv1.KubeletConfig, typed kubeletconfigv1beta1.KubeletConfiguration) (sizing, bool) {
	reserved := typed.SystemReserved
	s := sizing{memory: reserved["memory"], cpu: reserved["cpu"], storage: reserved["ephemeral-storage"]}
	if s.memory != "" || s.cpu != "" || s.storage != "" {
		return s, true
	}
	if kc.Spec.AutoSizingReserved != nil {
		return sizing{enabled: *kc.Spec.AutoSizingReserved}, true
	}
	return sizing{}, false
}

func withoutReserved(c kubeletConf) kubeletConf {
	reserved, ok := c["systemReserved"].(map[string]any)
	if !ok {
		return c
	}
	left := map[string]any{}
	for k, v := range reserved {
		if !slices.Contains(movedToSizing, k) {
			left[k] = v
		}
	}
	if len(left) == 0 {
		delete(c, "systemReserved")
	} else {
		c["systemReserved"] = left
	}
	return c
}

// CheckKubelet returns a *Refusal when a KubeletConfig may not be used for a
// pool. With an empty pool only what concerns every pool is checked.
func CheckKubelet(kc *machineconfigv1.KubeletConfig, pool string, controlPlane bool) error {
	if l := kc.Spec.LogLevel; l != nil && (*l < 0 || *l > 10) {
		return &Refusal{"logLevel", fmt.Sprintf("KubeletConfig's LogLevel is not valid [0,10]: %v", *l)}
	}
	if kc.Spec.KubeletConfig == nil || len(kc.Spec.KubeletConfig.Raw) == 0 {
		return nil
	}
	typed, user, err := decodeKubelet(kc.Spec.KubeletConfig.Raw)
	if err != nil {
		return &Refusal{"kubeletConfig", fmt.Sprintf("KubeletConfig could not be unmarshalled, err: %v", err)}
	}
	if err := checkOwned(typed, user); err != nil {
		return err
	}
	if kc.Spec.AutoSizingReserved != nil && *kc.Spec.AutoSizingReserved && len(typed.SystemReserved) > 0 {
		return &Refusal{"autoSizingReserved", "KubeletConfiguration: autoSizingReserved and systemdReserved cannot be set together"}
	}
	if a, b := typed.SystemReservedCgroup, typed.SystemCgroups; a != "" && b != "" && a != b {
		return &Refusal{"kubeletConfig.systemReservedCgroup", fmt.Sprintf("KubeletConfiguration: systemReservedCgroup (%s) must match systemCgroups (%s)", a, b)}
	}
	if pool == "" {
		return nil
	}
	return checkStaticPods(typed, user, pool, controlPlane)
}

// checkOwned refuses what belongs to the cluster.
func checkOwned(typed kubeletconfigv1beta1.KubeletConfiguration, user map[string]any) error {
	refuse := func(field string, v any) error {
		return &Refusal{"kubeletConfig." + field, fmt.Sprintf("KubeletConfiguration: %s is not allowed to be set, but contains: %v", field, v)}
	}
	switch {
	case typed.CgroupDriver != "":
		return refuse("cgroupDriver", typed.CgroupDriver)
	case typed.ClusterDomain != "":
		return refuse("clusterDomain", typed.ClusterDomain)
	case len(typed.ClusterDNS) > 0:
		return refuse("clusterDNS", typed.ClusterDNS)
	case len(typed.FeatureGates) > 0:
		return refuse("featureGates", typed.FeatureGates)
	case user["failSwapOn"] != nil:
		return refuse("failSwapOn", user["failSwapOn"])
	case typed.MemorySwap.SwapBehavior != "":
		return refuse("swapBehavior", typed.MemorySwap.SwapBehavior)
	}
	return nil
}

func checkStaticPods(typed kubeletconfigv1beta1.KubeletConfiguration, user map[string]any, pool string, controlPlane bool) error {
	_, set := user["staticPodPath"]
	if controlPlane && set {
		return &Refusal{"kubeletConfig.staticPodPath", fmt.Sprintf("KubeletConfiguration: staticPodPath is not allowed to be set for control plane pool %q", pool)}
	}
	if !controlPlane && typed.StaticPodPath != "" {
		return &Refusal{"kubeletConfig.staticPodPath", fmt.Sprintf("KubeletConfiguration: staticPodPath must be empty for pool %q, but contains: %s", pool, typed.StaticPodPath)}
	}
	return nil
}

// NodeConfig returns 97-<pool>-generated-kubelet: what the cluster-wide node
// settings say.
func NodeConfig(p PoolFacts, mode string) (Fragment, error) {
	if mode == "v1" {
		return Fragment{}, &Refusal{"cgroupMode", "unknown cgroup mode found v1, failed to update the machine config resource"}
	}
	f, err := kubeletOnly("97-"+p.Role+"-generated-kubelet", p)
	if slices.Contains([]string{RoleMaster, RoleWorker, RoleArbiter}, p.Role) {
		f.Spec.KernelArguments = []string{"systemd.unified_cgroup_hierarchy=1", `cgroup_no_v1="all"`}
	}
	return f, err
}

// FeatureConfig returns 98-<pool>-generated-kubelet: the cluster's gates.
func FeatureConfig(p PoolFacts) (Fragment, error) {
	return kubeletOnly("98-"+p.Role+"-generated-kubelet", p)
}

func kubeletOnly(name string, p PoolFacts) (Fragment, error) {
	content, err := clusterKubeletConf(p).bytes()
	if err != nil {
		return Fragment{}, err
	}
	var b builder
	b.file(pathKubeletConf, modeFile, content)
	spec, err := b.spec()
	return Fragment{Name: name, Role: p.Role, Spec: spec}, err
}

// Gates reads the gates of a version from a FeatureGate's status. Where nobody
// writes that status, those that people named one by one count.
func Gates(fg *configv1.FeatureGate, version string) map[string]bool {
	out := map[string]bool{}
	if fg == nil {
		return out
	}
	said := false
	for _, d := range fg.Status.FeatureGates {
		if d.Version != version {
			continue
		}
		said = true
		for _, g := range d.Enabled {
			out[string(g.Name)] = true
		}
		for _, g := range d.Disabled {
			out[string(g.Name)] = false
		}
	}
	if c := fg.Spec.CustomNoUpgrade; !said && c != nil && fg.Spec.FeatureSet == configv1.CustomNoUpgrade {
		for _, g := range c.Enabled {
			out[string(g)] = true
		}
		for _, g := range c.Disabled {
			out[string(g)] = false
		}
	}
	return out
}

// IsControlPlane reports whether a pool's nodes are masters or arbiters.
func IsControlPlane(pool *machineconfigv1.MachineConfigPool) bool {
	if pool.Name == RoleMaster || pool.Name == RoleArbiter {
		return true
	}
	s := pool.Spec.NodeSelector
	if s == nil {
		return false
	}
	const label = "node-role.kubernetes.io/master"
	if _, ok := s.MatchLabels[label]; ok {
		return true
	}
	for _, e := range s.MatchExpressions {
		if e.Key == label {
			return true
		}
	}
	return false
}

// digestOf is used to compare specs by meaning.
func digestOf(s machineconfigv1.MachineConfigSpec) (string, error) {
	var config any
	if len(s.Config.Raw) > 0 {
		if err := json.Unmarshal(s.Config.Raw, &config); err != nil {
			return "", fmt.Errorf("decode config: %w", err)
		}
	}
	raw, err := json.Marshal([]any{config, s.OSImageURL, s.BaseOSExtensionsContainerImage,
		append([]string{}, s.KernelArguments...), append([]string{}, s.Extensions...), s.FIPS, s.KernelType})
	return string(raw), err
}
