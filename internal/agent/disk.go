package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"millwright.io/millwright/internal/engine/node"
	"millwright.io/millwright/internal/engine/transition"
	"millwright.io/millwright/internal/host"
)

// Files of the agent, where the original has them.
const (
	currentConfigPath = "/etc/machine-config-daemon/currentconfig"
	currentImagePath  = "/etc/machine-config-daemon/currentimage"
	bootstrapPath     = "/etc/machine-config-daemon/node-annotations.json"
	bootstrapDonePath = "/etc/machine-config-daemon/node-annotation.json.bak"
	encapsulatedPath  = "/etc/ignition-machine-config-encapsulated.json"
	presetPath        = "/etc/systemd/system-preset/20-ignition.preset"
	forcePath         = "/run/machine-config-daemon-force"
	// reappliedPath names the config whose lost items were put back once.
	reappliedPath = "/var/lib/millwright/reapplied"
)

// disk is what the disk says about itself.
type disk struct {
	config    *node.Config
	problem   string // why currentconfig could not be read
	bootstrap map[string]string
	force     bool
	reapplied string
}

func (a *Agent) readDisk() (disk, error) {
	var d disk
	f := a.Host.Files()
	raw, err := f.ReadFile(currentConfigPath)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return d, fmt.Errorf("read %s: %w", currentConfigPath, err)
	default:
		d.config, err = decodeConfig(raw)
		if err != nil {
			d.problem = err.Error()
		}
	}
	if raw, err = f.ReadFile(bootstrapPath); err == nil {
		if err := json.Unmarshal(raw, &d.bootstrap); err != nil {
			a.Log.Errorf("Cannot read %s: %v", bootstrapPath, err)
			d.bootstrap = nil
		}
	}
	if raw, err = f.ReadFile(reappliedPath); err == nil {
		d.reapplied = strings.TrimSpace(string(raw))
	}
	_, err = f.Lstat(forcePath)
	d.force = err == nil
	return d, nil
}

// decodeConfig reads a currentconfig, also one that a person printed prettily,
// reordered or wrapped into a list of one.
func decodeConfig(raw []byte) (*node.Config, error) {
	if trimmed := bytes.TrimSpace(raw); len(trimmed) == 0 {
		return nil, io.EOF
	} else if trimmed[0] == '[' {
		var list []json.RawMessage
		if err := json.Unmarshal(trimmed, &list); err != nil {
			return nil, err
		}
		if len(list) != 1 {
			return nil, fmt.Errorf("want one MachineConfig, found a list of %d", len(list))
		}
		raw = list[0]
	}
	var mc mcfgv1.MachineConfig
	if err := json.Unmarshal(raw, &mc); err != nil {
		return nil, err
	}
	if mc.Name == "" {
		return nil, errors.New("the MachineConfig has no metadata.name")
	}
	return configOf(&mc), nil
}

// records are the files that say which config the disk has, as the original writes
// them: the whole object on one line.
func (a *Agent) records(ctx context.Context, name string) ([]transition.Record, error) {
	mc, err := a.Cluster.Config(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read MachineConfig %s: %w", name, err)
	}
	if mc == nil {
		return nil, fmt.Errorf("machineconfig.machineconfiguration.openshift.io %q not found", name)
	}
	mc = mc.DeepCopy()
	mc.Kind, mc.APIVersion = "MachineConfig", mcfgv1.GroupVersion.String()
	raw, err := json.Marshal(mc)
	if err != nil {
		return nil, fmt.Errorf("encode MachineConfig %s: %w", name, err)
	}
	return []transition.Record{{Path: currentConfigPath, Body: raw, Mode: 0o644}, {Path: currentImagePath, Body: []byte{}, Mode: 0o644}}, nil
}

// adopt takes the disk as it is for a config: after a first boot, or when it already
// is what it should be.
func (a *Agent) adopt(ctx context.Context, s *situation, name string) error {
	records, err := a.records(ctx, name)
	if err != nil {
		return err
	}
	f := a.Host.Files()
	for _, r := range records {
		if err := f.Replace(r.Path, r.Body, host.Attr{Mode: r.Mode}); err != nil {
			return fmt.Errorf("write %s: %w", r.Path, err)
		}
	}
	if s.disk.bootstrap != nil {
		if err := f.Rename(bootstrapPath, bootstrapDonePath); err != nil {
			return fmt.Errorf("rename %s: %w", bootstrapPath, err)
		}
	}
	if _, err := f.Lstat(encapsulatedPath); err == nil {
		if err := f.Rename(encapsulatedPath, encapsulatedPath+".bak"); err != nil {
			return fmt.Errorf("rename %s: %w", encapsulatedPath, err)
		}
	}
	return f.Remove(presetPath)
}

func (a *Agent) clearReapplied() {
	f := a.Host.Files()
	if _, err := f.Lstat(reappliedPath); err == nil {
		if err := f.Remove(reappliedPath); err != nil {
			a.Log.Errorf("Cannot remove %s: %v", reappliedPath, err)
		}
	}
}
