// Package spec is the DCS specific part of a machine as its users write it:
// the spec of a DCSMachine. It decodes, defaults, checks and compares; it is
// pure and asks nobody.
//
//	s, problems, err := spec.Codec{}.Decode(raw)
package spec

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	"sigs.k8s.io/yaml"

	"millwright.io/millwright/internal/cloud"
)

// Kind is what users write.
const Kind = "DCSMachine"

// Spec is the spec of a DCSMachine with the slot that it was given.
type Spec struct {
	VMTemplateName string    `json:"vmTemplateName"`
	IPHostPoolRef  Ref       `json:"ipHostPoolRef"`
	Location       *Place    `json:"location,omitempty"` // type folder or cluster
	Resource       *Place    `json:"resource,omitempty"` // type cluster or host
	VMConfig       *VMConfig `json:"vmConfig,omitempty"`
	ProviderID     string    `json:"providerID,omitempty"`
	VMURN          string    `json:"vmUrn,omitempty"`

	// Slot is what the address pool gave; the owner fills it in. It is no
	// part of what users write, nor of the digest.
	Slot Slot `json:"-"`
}

// Ref names an object of the same namespace.
type Ref struct {
	Name string `json:"name"`
}

// Place names something of the site by name or by URN.
type Place struct {
	Type string `json:"type"`
	Name string `json:"name,omitempty"`
	URN  string `json:"urn,omitempty"`
}

// VMConfig is the hardware.
type VMConfig struct {
	CPU                 Quantity `json:"dcsMachineCpuSpec"`    // vCPUs
	Memory              Quantity `json:"dcsMachineMemorySpec"` // MB
	Disks               []Disk   `json:"dcsMachineDiskSpec,omitempty"`
	DVSwitchName        string   `json:"dvSwitchName,omitempty"`
	PortGroupName       string   `json:"portGroupName,omitempty"`
	PortGroupURN        string   `json:"portGroupUrn,omitempty"`
	CDROMDatastore      string   `json:"cdRomDatastoreName,omitempty"`
	CDROMDatastoreGroup string   `json:"cdRomDatastoreClusterName,omitempty"`
}

// Quantity wraps a number as the original does.
type Quantity struct {
	Quantity int `json:"quantity"`
}

// Disk is a disk that lives and dies with the VM.
type Disk struct {
	Quantity       int      `json:"quantity"` // GB; 0 on the system disk: the template's
	SystemVolume   bool     `json:"systemVolume,omitempty"`
	Datastore      string   `json:"datastoreName,omitempty"`
	DatastoreGroup string   `json:"datastoreClusterName,omitempty"`
	DatastoreURN   string   `json:"datastoreUrn,omitempty"`
	Path           string   `json:"path,omitempty"`
	Format         string   `json:"format,omitempty"`
	Options        []string `json:"options,omitempty"`
	MountOptions   []string `json:"mountOptions,omitempty"`
	WipeFilesystem bool     `json:"wipeFilesystem,omitempty"`
}

// Slot is one entry of an address pool.
type Slot struct {
	IP          string
	Hostname    string // of the guest and the Node; empty: the machine's name
	MachineName string // of the VM; empty: the machine's name
	NIC         NIC
	Additional  []NIC
	Disks       []SlotDisk // attached before the first start
}

// NIC says where a network interface is plugged in; all empty: as the template.
type NIC struct{ DVSwitchName, PortGroupName, PortGroupURN string }

// SlotDisk is a disk of the slot that outlives the VM.
type SlotDisk struct {
	Name string
	Slot int // ≥ 0
	Bus  string
}

// CloudKind implements cloud.Spec.
func (*Spec) CloudKind() string { return Kind }

// Scope implements cloud.Spec: an account has one site.
func (*Spec) Scope() string { return "" }

// DataDisks are the disks beside the system's, in order; disk k has the
// sequence number 2+k.
func (s *Spec) DataDisks() []Disk {
	var out []Disk
	if s.VMConfig != nil {
		for _, d := range s.VMConfig.Disks {
			if !d.SystemVolume {
				out = append(out, d)
			}
		}
	}
	return out
}

// System is the system disk; zero when the spec has none: as the template.
func (s *Spec) System() Disk {
	if s.VMConfig != nil {
		for _, d := range s.VMConfig.Disks {
			if d.SystemVolume {
				return d
			}
		}
	}
	return Disk{}
}

// Sequence is the number at which the disk of a slot is attached.
func (s *Spec) Sequence(slot int) int { return 1 + len(s.DataDisks()) + 1 + slot }

// Codec implements cloud.SpecCodec.
type Codec struct{}

var (
	_ cloud.SpecCodec  = Codec{}
	_ cloud.RuleLister = Codec{}
)

// Kind implements cloud.SpecCodec.
func (Codec) Kind() string { return Kind }

// Decode implements cloud.SpecCodec.
func (Codec) Decode(raw []byte) (cloud.Spec, []cloud.Problem, error) {
	doc, err := yaml.YAMLToJSON(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("decode DCSMachine spec: %w", err)
	}
	if trimmed := bytes.TrimSpace(doc); len(trimmed) == 0 || trimmed[0] != '{' {
		return nil, nil, fmt.Errorf("decode DCSMachine spec: it is %.20q, want an object", string(trimmed))
	}
	var s Spec
	if err := json.Unmarshal(doc, &s); err != nil {
		return nil, nil, fmt.Errorf("decode DCSMachine spec: %w", err)
	}
	var tree any
	if err := json.Unmarshal(doc, &tree); err != nil {
		return nil, nil, fmt.Errorf("decode DCSMachine spec: %w", err)
	}
	return &s, unknownFields(tree), nil
}

// Encode implements cloud.SpecCodec.
func (Codec) Encode(s cloud.Spec) ([]byte, error) { return json.Marshal(s) }

// Default implements cloud.SpecCodec: the original fills in nothing.
func (Codec) Default(s cloud.Spec, _ cloud.SpecContext) cloud.Spec { return s }

// Digest implements cloud.SpecCodec.
func (Codec) Digest(in cloud.Spec) string {
	s, ok := in.(*Spec)
	if !ok || s == nil {
		return ""
	}
	c := *s
	c.ProviderID, c.VMURN = "", "" // what became of it, not what is wanted
	b, err := json.Marshal(&c)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// Place implements cloud.SpecCodec.
func (Codec) Place(in cloud.Spec) (region, zone, size string) {
	if s, ok := in.(*Spec); ok && s != nil && s.VMConfig != nil {
		size = Size(s.VMConfig.CPU.Quantity, s.VMConfig.Memory.Quantity)
	}
	return "", "", size
}

// Size is how a machine's size is shown, e.g. 8C-16384MB.
func Size(cpus, memoryMB int) string {
	return strconv.Itoa(cpus) + "C-" + strconv.Itoa(memoryMB) + "MB"
}

// References implements cloud.SpecCodec: a DCSMachine names no Secrets.
func (Codec) References(cloud.Spec) (userData, credentials cloud.SecretRef) {
	return userData, credentials
}
