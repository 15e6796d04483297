package hostconf

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// IgnitionVersion is that of every generated fragment.
const IgnitionVersion = "3.5.0"

// LabelRole selects a MachineConfig into a pool.
const LabelRole = "machineconfiguration.openshift.io/role"

// Fragment is one input config as a generator wants it: its name, the role
// that selects it and its whole spec.
type Fragment struct {
	Name string
	Role string
	Spec machineconfigv1.MachineConfigSpec
}

// host is what fragments consist of. It is encoded in the order of its
// fields, without empty sections, so that equal content has equal bytes.
type host struct {
	Ignition ignitionSection `json:"ignition"`
	Passwd   *passwd         `json:"passwd,omitempty"`
	Storage  *storage        `json:"storage,omitempty"`
	Systemd  *systemd        `json:"systemd,omitempty"`
}

type ignitionSection struct {
	Version string `json:"version"`
}

type passwd struct {
	Users []user `json:"users"`
}

type user struct {
	Name string   `json:"name"`
	Keys []string `json:"sshAuthorizedKeys"`
}

type storage struct {
	Files []file `json:"files"`
}

type file struct {
	Contents  contents `json:"contents"`
	Mode      int      `json:"mode"`
	Overwrite bool     `json:"overwrite"`
	Path      string   `json:"path"`
}

type contents struct {
	Compression string `json:"compression"`
	Source      string `json:"source"`
}

type systemd struct {
	Units []unit `json:"units"`
}

type unit struct {
	Contents string `json:"contents"`
	Enabled  *bool  `json:"enabled,omitempty"`
	Name     string `json:"name"`
}

// builder gathers files and units.
type builder struct {
	files []file
	units []unit
}

const (
	modeFile   = 0o644
	modeSecret = 0o600
	modeScript = 0o755
)

// file adds a file with its whole content.
func (b *builder) file(path string, mode int, content []byte) {
	b.files = append(b.files, file{
		Contents: contents{Source: "data:text/plain;charset=utf-8;base64," + base64.StdEncoding.EncodeToString(content)},
		Mode:     mode, Overwrite: true, Path: path,
	})
}

// enable adds a unit that is enabled.
func (b *builder) enable(name, content string) {
	on := true
	b.units = append(b.units, unit{Contents: content, Enabled: &on, Name: name})
}

// spec returns the spec of a fragment with what was gathered.
func (b *builder) spec() (machineconfigv1.MachineConfigSpec, error) {
	h := host{Ignition: ignitionSection{Version: IgnitionVersion}}
	if len(b.files) > 0 {
		h.Storage = &storage{Files: b.files}
	}
	if len(b.units) > 0 {
		h.Systemd = &systemd{Units: b.units}
	}
	return encode(h)
}

func encode(h host) (machineconfigv1.MachineConfigSpec, error) {
	raw, err := json.Marshal(h)
	if err != nil {
		return machineconfigv1.MachineConfigSpec{}, fmt.Errorf("encode Ignition config: %w", err)
	}
	return machineconfigv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: raw}}, nil
}

// SSH returns 99-<role>-ssh, as an installer writes it: the keys of user core.
func SSH(role string, keys []string) (Fragment, error) {
	spec, err := encode(host{
		// Older than the others: so it stands in clusters.
		Ignition: ignitionSection{Version: "3.2.0"},
		Passwd:   &passwd{Users: []user{{Name: "core", Keys: slices.Clone(keys)}}},
	})
	return Fragment{Name: "99-" + role + "-ssh", Role: role, Spec: spec}, err
}

// sortedKeys are the keys of m in order.
func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
