package hostconf

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

// kubeletConf is the content of kubelet.conf as maps, lists and scalars.
type kubeletConf map[string]any

// baseKubeletConf is what every node of a role gets.
func baseKubeletConf(f Facts) kubeletConf {
	c := kubeletConf{}
	if err := yaml.Unmarshal([]byte(contentKubelet), &c); err != nil {
		panic("content/kubelet.conf: " + err.Error())
	}
	if f.ClusterDNSIP != "" {
		c["clusterDNS"] = []any{f.ClusterDNSIP}
	}
	if f.Role == RoleMaster || f.Role == RoleArbiter {
		// Control plane pods are static pods of their nodes; watching their
		// files more often than others makes upgrades of them quicker.
		c["fileCheckFrequency"] = "20s"
	}
	c["tlsCipherSuites"] = anyList(tlsProfile(nil).Ciphers)
	return c
}

func (c kubeletConf) bytes() ([]byte, error) {
	out, err := yaml.Marshal(map[string]any(c))
	if err != nil {
		return nil, fmt.Errorf("encode kubelet configuration: %w", err)
	}
	return out, nil
}

// withGates sets feature gates, whole.
func (c kubeletConf) withGates(gates map[string]bool) kubeletConf {
	if len(gates) == 0 {
		return c
	}
	m := map[string]any{}
	for k, v := range gates {
		m[k] = v
	}
	c["featureGates"] = m
	return c
}

// withLatency sets how often a worker reports, by the cluster's profile.
func (c kubeletConf) withLatency(p configv1.WorkerLatencyProfileType) kubeletConf {
	every := 10 * time.Second
	switch p {
	case configv1.MediumUpdateAverageReaction:
		every = 20 * time.Second
	case configv1.LowUpdateSlowReaction:
		every = time.Minute
	case configv1.DefaultUpdateDefaultReaction:
	}
	c["nodeStatusUpdateFrequency"] = every.String()
	return c
}

// withTLS sets the least version and the ciphers of a profile.
func (c kubeletConf) withTLS(p *configv1.TLSSecurityProfile) kubeletConf {
	s := tlsProfile(p)
	c["tlsMinVersion"] = string(s.MinTLSVersion)
	c["tlsCipherSuites"] = anyList(s.Ciphers)
	return c
}

// merge lays over onto c: maps key by key, everything else replaced.
func (c kubeletConf) merge(over map[string]any) kubeletConf {
	return overlay(c, over)
}

func overlay(base, over map[string]any) map[string]any {
	out := maps.Clone(base)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range over {
		have, both := out[k].(map[string]any)
		next, isMap := v.(map[string]any)
		if both && isMap {
			out[k] = overlay(have, next)
			continue
		}
		out[k] = v
	}
	return out
}

// settle makes values agree that depend on each other: with CPUs set aside by
// number, the system's own cgroup can have no limit.
func (c kubeletConf) settle(user map[string]any) kubeletConf {
	enforced, _ := c["enforceNodeAllocatable"].([]any)
	named := func(prefixes ...string) bool {
		return slices.ContainsFunc(enforced, func(v any) bool { return slices.Contains(prefixes, fmt.Sprint(v)) })
	}
	if cpus, _ := c["reservedSystemCPUs"].(string); cpus != "" {
		delete(c, "systemReservedCgroup")
		if len(enforced) > 0 {
			kept := []any{}
			for _, v := range enforced {
				if s := fmt.Sprint(v); s != "system-reserved" && s != "system-reserved-compressible" {
					kept = append(kept, v)
				}
			}
			if !slices.Contains(kept, any("pods")) {
				kept = append(kept, "pods")
			}
			c["enforceNodeAllocatable"] = kept
		}
		return c
	}
	if _, set := user["enforceNodeAllocatable"]; set && !named("system-reserved", "system-reserved-compressible") {
		delete(c, "systemReservedCgroup")
	}
	return c
}

// decodeKubelet reads a payload twice: as the type, which says whether it is
// one, and as maps, which remember what was set, be it to zero.
func decodeKubelet(raw []byte) (kubeletconfigv1beta1.KubeletConfiguration, map[string]any, error) {
	var typed kubeletconfigv1beta1.KubeletConfiguration
	m := map[string]any{}
	if len(raw) == 0 {
		return typed, m, nil
	}
	if err := yaml.UnmarshalStrict(raw, &typed); err != nil {
		return typed, nil, err
	}
	asJSON, err := yaml.YAMLToJSON(raw)
	if err != nil {
		return typed, nil, err
	}
	if err := json.Unmarshal(asJSON, &m); err != nil {
		return typed, nil, err
	}
	delete(m, "apiVersion")
	delete(m, "kind")
	return typed, m, nil
}

// tlsProfile returns the settings of a profile; nil is Intermediate. Ciphers
// come in IANA's names, which is what kubelets read.
func tlsProfile(p *configv1.TLSSecurityProfile) configv1.TLSProfileSpec {
	kind := configv1.TLSProfileIntermediateType
	if p != nil && p.Type != "" {
		kind = p.Type
	}
	var s configv1.TLSProfileSpec
	switch {
	case kind == configv1.TLSProfileCustomType && p.Custom != nil:
		s = p.Custom.TLSProfileSpec
	default:
		known := configv1.TLSProfiles[kind]
		if known == nil {
			known = configv1.TLSProfiles[configv1.TLSProfileIntermediateType]
		}
		s = *known
	}
	var names []string
	for _, c := range s.Ciphers {
		if n := ianaCiphers[c]; n != "" {
			names = append(names, n)
		}
	}
	return configv1.TLSProfileSpec{Ciphers: names, MinTLSVersion: s.MinTLSVersion}
}

// ianaCiphers maps OpenSSL's names, and IANA's own, to IANA's. A cipher that
// Go does not implement is left out.
var ianaCiphers = map[string]string{
	"TLS_AES_128_GCM_SHA256":        "TLS_AES_128_GCM_SHA256",
	"TLS_AES_256_GCM_SHA384":        "TLS_AES_256_GCM_SHA384",
	"TLS_CHACHA20_POLY1305_SHA256":  "TLS_CHACHA20_POLY1305_SHA256",
	"ECDHE-ECDSA-AES128-GCM-SHA256": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
	"ECDHE-RSA-AES128-GCM-SHA256":   "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
	"ECDHE-ECDSA-AES256-GCM-SHA384": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
	"ECDHE-RSA-AES256-GCM-SHA384":   "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
	"ECDHE-ECDSA-CHACHA20-POLY1305": "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
	"ECDHE-RSA-CHACHA20-POLY1305":   "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
	"ECDHE-ECDSA-AES128-SHA256":     "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
	"ECDHE-RSA-AES128-SHA256":       "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
	"ECDHE-ECDSA-AES128-SHA":        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
	"ECDHE-RSA-AES128-SHA":          "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
	"ECDHE-ECDSA-AES256-SHA":        "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
	"ECDHE-RSA-AES256-SHA":          "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
	"AES128-GCM-SHA256":             "TLS_RSA_WITH_AES_128_GCM_SHA256",
	"AES256-GCM-SHA384":             "TLS_RSA_WITH_AES_256_GCM_SHA384",
	"AES128-SHA256":                 "TLS_RSA_WITH_AES_128_CBC_SHA256",
	"AES128-SHA":                    "TLS_RSA_WITH_AES_128_CBC_SHA",
	"AES256-SHA":                    "TLS_RSA_WITH_AES_256_CBC_SHA",
	"DES-CBC3-SHA":                  "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
}

func anyList(in []string) []any {
	out := make([]any, 0, len(in))
	for _, s := range in {
		out = append(out, s)
	}
	return out
}
