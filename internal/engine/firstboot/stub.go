package firstboot

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
)

// Port is where config servers listen with TLS.
const Port = 22623

// AnonymousAnnotation, with the value Enabled on a MachineConfigPool, lets machines
// boot that show no token: for a pool taken over from an original, until its user
// data carry one.
const AnonymousAnnotation = "millwright.io/anonymous-boot"

// TokenSecret is the name of the Secret in the config server's namespace that holds
// a pool's token, under the key TokenKey.
func TokenSecret(pool string) string { return pool + "-boot-token" }

// TokenKey is the key of a pool's token in its Secret.
const TokenKey = "token"

// StubInput is what a stub is made of.
type StubInput struct {
	Host  string // of the config server, without port
	Pool  string
	CA    []byte // PEM bundle that the server's certificate comes from
	Token string // "": none
}

// Stub returns the user data of a pool's new machines: an Ignition config that
// fetches the real one.
func Stub(in StubInput) ([]byte, error) {
	type m = map[string]any
	merge := m{"source": fmt.Sprintf("https://%s:%d/config/%s", in.Host, Port, in.Pool), "verification": m{}}
	if in.Token != "" {
		merge["httpHeaders"] = []any{m{"name": authorization, "value": bearer + in.Token}}
	}
	ca := m{"source": "data:text/plain;charset=utf-8;base64," + base64.StdEncoding.EncodeToString(in.CA), "verification": m{}}
	raw, err := json.Marshal(m{
		"ignition": m{
			"config":   m{"merge": []any{merge}, "replace": m{"verification": m{}}},
			"proxy":    m{},
			"security": m{"tls": m{"certificateAuthorities": []any{ca}}},
			"timeouts": m{}, "version": "3.5.0",
		},
		"kernelArguments": m{}, "passwd": m{}, "storage": m{}, "systemd": m{},
	})
	if err != nil {
		return nil, fmt.Errorf("encode stub of pool %s: %w", in.Pool, err)
	}
	return raw, nil
}

const (
	authorization = "Authorization"
	bearer        = "Bearer "
)

// Renew returns user data with the given authority and token in place of what they
// carry, or nil if they say so already. Everything else stays. It fails on user data
// that are no stub: it names what is wrong, and nothing is to be written then.
func Renew(userData []byte, in StubInput) ([]byte, error) {
	var root map[string]any
	if err := json.Unmarshal(userData, &root); err != nil {
		return nil, fmt.Errorf("read user data: %w", err)
	}
	ign, ok := root["ignition"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("read user data: there is no ignition section")
	}
	changedCA, err := renewCA(ign, in.CA)
	if err != nil {
		return nil, err
	}
	if changedToken := renewToken(ign, in); !changedCA && !changedToken {
		return nil, nil
	}
	raw, err := json.Marshal(root)
	if err != nil {
		return nil, fmt.Errorf("encode user data: %w", err)
	}
	return raw, nil
}

func renewCA(ign map[string]any, ca []byte) (bool, error) {
	security, _ := ign["security"].(map[string]any)
	tls, _ := security["tls"].(map[string]any)
	list, _ := tls["certificateAuthorities"].([]any)
	if len(list) == 0 || len(ca) == 0 {
		return false, nil
	}
	if len(list) > 1 {
		return false, fmt.Errorf("additional CAs detected, cannot modify automatically. Aborting")
	}
	one, ok := list[0].(map[string]any)
	if !ok {
		return false, fmt.Errorf("read user data: ignition.security.tls.certificateAuthorities.0 is no object")
	}
	source := "data:text/plain;charset=utf-8;base64," + base64.StdEncoding.EncodeToString(ca)
	if one["source"] == source {
		return false, nil
	}
	one["source"] = source
	return true, nil
}

// renewToken sets the header of the resource that fetches the pool's config.
func renewToken(ign map[string]any, in StubInput) bool {
	config, _ := ign["config"].(map[string]any)
	resources, _ := config["merge"].([]any)
	changed := false
	for _, r := range resources {
		res, ok := r.(map[string]any)
		source, _ := res["source"].(string)
		if !ok || in.Token == "" || !strings.HasSuffix(source, "/config/"+in.Pool) {
			continue
		}
		changed = setHeader(res, bearer+in.Token) || changed
	}
	return changed
}

func setHeader(res map[string]any, value string) bool {
	headers, _ := res["httpHeaders"].([]any)
	for _, h := range headers {
		one, ok := h.(map[string]any)
		if ok && one["name"] == authorization {
			same := one["value"] == value
			one["value"] = value
			return !same
		}
	}
	res["httpHeaders"] = append(headers, map[string]any{"name": authorization, "value": value})
	return true
}

// FetchesPool tells that user data are a stub that fetches a pool's config. Data that
// are anything else fetch none.
func FetchesPool(userData []byte, pool string) bool {
	var root struct {
		Ignition struct {
			Config struct {
				Merge []struct {
					Source string `json:"source"`
				} `json:"merge"`
			} `json:"config"`
		} `json:"ignition"`
	}
	if json.Unmarshal(userData, &root) != nil {
		return false
	}
	for _, m := range root.Ignition.Config.Merge {
		if strings.HasSuffix(m.Source, "/config/"+pool) {
			return true
		}
	}
	return false
}

// Bundle puts an authority in front of a PEM bundle, unless it is in it.
func Bundle(have, ca []byte) []byte {
	if bytes.Contains(have, bytes.TrimSpace(ca)) {
		return have
	}
	return append(append(bytes.TrimSpace(slices.Clone(ca)), '\n'), have...)
}

// Select returns the name of the config that a pool's new machines get: the target
// as soon as one machine made it, else the last one that all had. A pool that never
// rolled anything out has only its target.
func Select(pool *mcfgv1.MachineConfigPool) string {
	target, last := pool.Spec.Configuration.Name, pool.Status.Configuration.Name
	if pool.Status.UpdatedMachineCount > 0 && target != "" || last == "" {
		return target
	}
	return last
}
