// Package diff decides what is different between two machine configs, by
// meaning: after defaulting, with contents decoded, so that the same bytes in
// another encoding are no change. It also says which differences a running node
// cannot take, in the words of OpenShift's machine config daemon. It never
// decides what a change costs and never touches a host.
//
//	d, err := diff.Compute(current.Spec, desired.Spec)
//	diff.Text(os.Stdout, d)
package diff

import (
	"bytes"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"millwright.io/millwright/internal/engine/ignition"
	"millwright.io/millwright/internal/engine/render"
)

// KindPasswordHash is the password of a user. All other kinds of changes are
// those of package render.
const KindPasswordHash = "passwordHash"

// Op says what happened to an item.
type Op string

// Operations.
const (
	Added   Op = "added"
	Removed Op = "removed"
	Changed Op = "changed"
)

// Item is one side of a change, after defaulting. Contents are decoded.
type Item struct {
	Value    string `json:"value,omitempty"`    // of items that are one word: an argument, an image, a key
	Index    int    `json:"index,omitempty"`    // position of a kernel argument
	Contents []byte `json:"-"`                  // of files, units and drop-ins
	Digest   string `json:"digest,omitempty"`   // of Contents: sha256:<hex>
	Size     int    `json:"size,omitempty"`     // of Contents, in bytes
	Remote   string `json:"remote,omitempty"`   // source that is not a data URL; then there are no Contents
	Broken   string `json:"broken,omitempty"`   // why Contents could not be decoded
	Mode     int    `json:"mode,omitempty"`     // of files: permission bits
	Owner    string `json:"owner,omitempty"`    // of files: user:group
	Enabled  string `json:"enabled,omitempty"`  // of units: true, false or "preset"
	Masked   bool   `json:"masked,omitempty"`   // of units
	Redacted bool   `json:"redacted,omitempty"` // there is a value that is never shown
}

// Change is one item that differs. Before is nil for added, After for removed
// items.
type Change struct {
	Kind   string   `json:"kind"`
	Key    string   `json:"key"`
	Op     Op       `json:"op"`
	Fields []string `json:"fields,omitempty"` // what differs: contents, mode, owner, enabled, mask
	Before *Item    `json:"before,omitempty"`
	After  *Item    `json:"after,omitempty"`
	// Inert tells that no running node ever applies this item.
	Inert bool `json:"inert,omitempty"`
}

// Unit is the systemd unit a change is about, "" if it is about none.
func (c Change) Unit() string {
	switch c.Kind {
	case render.KindUnit:
		return c.Key
	case render.KindDropin:
		unit, _, _ := cutDropin(c.Key)
		return unit
	}
	return ""
}

// Unreconcilable is a difference that a running node cannot take.
type Unreconcilable struct {
	Kind   string `json:"kind"`
	Key    string `json:"key,omitempty"`
	Reason string `json:"reason"` // the original's words
}

// Diff is what leads from one config to another. The order of Changes is fixed:
// the system first, then files, units and users, each as they stand in the
// desired config, removed items after the others.
type Diff struct {
	Changes        []Change         `json:"changes"`
	Unreconcilable []Unreconcilable `json:"unreconcilable,omitempty"`
}

// Empty tells that nothing differs.
func (d Diff) Empty() bool { return len(d.Changes) == 0 }

// Compute compares two specs. It fails only if a config cannot be read; the
// error wraps *ignition.Error.
func Compute(current, desired mcfgv1.MachineConfigSpec) (Diff, error) {
	before, after, err := readBoth(current, desired)
	if err != nil {
		return Diff{}, err
	}
	var d Diff
	d.Changes = append(d.Changes, system(&current, &desired)...)
	d.Changes = append(d.Changes, kernelArguments(current.KernelArguments, desired.KernelArguments)...)
	d.Changes = append(d.Changes, extensions(current.Extensions, desired.Extensions)...)
	if before != nil {
		d.Changes = append(d.Changes, files(before, after)...)
		d.Changes = append(d.Changes, units(before, after)...)
		d.Changes = append(d.Changes, users(before, after)...)
		d.Changes = append(d.Changes, sections(before, after)...)
		d.Unreconcilable = refusedSections(before, after)
	}
	if current.FIPS != desired.FIPS {
		d.Unreconcilable = append(d.Unreconcilable, Unreconcilable{Kind: render.KindFIPS, Reason: reasonFIPS})
	}
	return d, nil
}

// readBoth parses both sides; nil if their bytes are the same.
func readBoth(current, desired mcfgv1.MachineConfigSpec) (before, after *ignition.Config, err error) {
	if bytes.Equal(current.Config.Raw, desired.Config.Raw) && !mayHaveAppend(desired.Config.Raw) {
		return nil, nil, nil
	}
	before, err = read(current.Config.Raw)
	if err != nil {
		return nil, nil, fmt.Errorf("read current config: %w", err)
	}
	after, err = read(desired.Config.Raw)
	if err != nil {
		return nil, nil, fmt.Errorf("read desired config: %w", err)
	}
	return before, after, nil
}

// mayHaveAppend is a cheap guess: appending is refused even if nothing changes.
func mayHaveAppend(raw []byte) bool {
	return bytes.Contains(raw, []byte("append")) || bytes.Contains(raw, []byte(`\u`)) ||
		bytes.Contains(raw, []byte(forceFile))
}

// read parses the config of a MachineConfig; an absent one is empty.
func read(raw []byte) (*ignition.Config, error) {
	if len(raw) == 0 || bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		return &ignition.Config{}, nil
	}
	source, err := ignition.ReadMachineConfig(raw)
	if err != nil {
		return nil, err
	}
	cfg, err := source.Config()
	if err != nil {
		return nil, err
	}
	return &cfg, nil
}

// system compares what is no list and not Ignition's.
func system(current, desired *mcfgv1.MachineConfigSpec) []Change {
	var out []Change
	word := func(kind, before, after string, inert bool) {
		if before != after {
			c := word(kind, "", before, after)
			c.Inert = inert
			out = append(out, c)
		}
	}
	word(render.KindOSImage, current.OSImageURL, desired.OSImageURL, false)
	// The extensions image is only read while extensions are installed.
	word(render.KindExtensionsImage, current.BaseOSExtensionsContainerImage, desired.BaseOSExtensionsContainerImage, true)
	word(render.KindKernelType, kernelType(current.KernelType), kernelType(desired.KernelType), false)
	word(render.KindFIPS, fmt.Sprint(current.FIPS), fmt.Sprint(desired.FIPS), false)
	return out
}

// kernelType reads everything but the two special kernels as the default one.
func kernelType(s string) string {
	switch s {
	case "realtime", "64k-pages":
		return s
	}
	return "default"
}

// word is a change of an item that is one word; "" is absent.
func word(kind, key, before, after string) Change {
	c := Change{Kind: kind, Key: key, Op: Changed}
	if before != "" {
		c.Before = &Item{Value: before}
	} else {
		c.Op = Added
	}
	if after != "" {
		c.After = &Item{Value: after}
	} else {
		c.Op = Removed
	}
	return c
}
