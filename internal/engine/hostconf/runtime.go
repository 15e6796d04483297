package hostconf

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
)

// Limits of ContainerRuntimeConfigs.
const (
	minPidsLimit  = 20
	minLogSizeMax = 8192 // and not this one itself
	maxLayer      = 5
	maxOther      = 10
)

var (
	runtimeLogLevels = []string{"error", "fatal", "panic", "warn", "info", "debug", "trace"}
	storePath        = regexp.MustCompile(`^/[a-zA-Z0-9/._-]*$`)
)

// CheckRuntime returns a *Refusal when a ContainerRuntimeConfig may not be
// used.
func CheckRuntime(rc *machineconfigv1.ContainerRuntimeConfig) error {
	c := rc.Spec.ContainerRuntimeConfig
	if c == nil {
		return nil
	}
	refuse := func(field, format string, args ...any) error {
		return &Refusal{"containerRuntimeConfig." + field, fmt.Sprintf(format, args...)}
	}
	switch {
	case c.PidsLimit != nil && *c.PidsLimit != 0 && *c.PidsLimit < minPidsLimit:
		return refuse("pidsLimit", "invalid PidsLimit %d", *c.PidsLimit)
	case c.LogSizeMax != nil && c.LogSizeMax.Sign() > 0 && c.LogSizeMax.Value() <= minLogSizeMax:
		return refuse("logSizeMax", "invalid LogSizeMax %q, cannot be less than 8kB", c.LogSizeMax.String())
	case c.OverlaySize != nil && c.OverlaySize.Sign() < 0:
		return refuse("overlaySize", "invalid overlaySize %q, cannot be less than 0", c.OverlaySize.String())
	case c.LogLevel != "" && !slices.Contains(runtimeLogLevels, c.LogLevel):
		return refuse("logLevel", "invalid LogLevel %q, must be one of error, fatal, panic, warn, info, debug, or trace", c.LogLevel)
	case !slices.Contains([]machineconfigv1.ContainerRuntimeDefaultRuntime{"", "crun", "runc"}, c.DefaultRuntime):
		return refuse("defaultRuntime", "invalid DefaultRuntime %q, must be crun or runc", c.DefaultRuntime)
	}
	return checkStores(c, refuse)
}

func checkStores(c *machineconfigv1.ContainerRuntimeConfiguration, refuse func(field, format string, args ...any) error) error {
	for _, s := range stores(c) {
		if len(s.paths) > s.most {
			return refuse(s.field, "invalid %s: %d entries, at most %d are possible", s.field, len(s.paths), s.most)
		}
		for _, p := range s.paths {
			if !storePath.MatchString(p) || strings.Contains(p, "//") {
				return refuse(s.field, "invalid %s path %q: want an absolute path of letters, digits, '/', '.', '_' and '-', without '//'", s.field, p)
			}
		}
	}
	return nil
}

type storeList struct {
	field string
	most  int
	paths []string
}

func stores(c *machineconfigv1.ContainerRuntimeConfiguration) []storeList {
	l, i, a := storeList{"additionalLayerStores", maxLayer, nil}, storeList{"additionalImageStores", maxOther, nil}, storeList{"additionalArtifactStores", maxOther, nil}
	for _, s := range c.AdditionalLayerStores {
		l.paths = append(l.paths, string(s.Path))
	}
	for _, s := range c.AdditionalImageStores {
		i.paths = append(i.paths, string(s.Path))
	}
	for _, s := range c.AdditionalArtifactStores {
		a.paths = append(a.paths, string(s.Path))
	}
	return []storeList{l, i, a}
}

// Runtime returns the fragment of a ContainerRuntimeConfig for one pool. Each
// setting has a drop-in of its own, so that what is not set keeps its default.
// The error is a *Refusal when the object is to blame.
func Runtime(role, name string, rc *machineconfigv1.ContainerRuntimeConfig) (Fragment, error) {
	if err := CheckRuntime(rc); err != nil {
		return Fragment{}, err
	}
	var b builder
	if c := rc.Spec.ContainerRuntimeConfig; c != nil {
		if err := b.storage(c); err != nil {
			return Fragment{}, err
		}
		if err := b.crio(c); err != nil {
			return Fragment{}, err
		}
	}
	spec, err := b.spec()
	return Fragment{Name: name, Role: role, Spec: spec}, err
}

// storage adds storage.conf, when something in it is asked for.
func (b *builder) storage(c *machineconfigv1.ContainerRuntimeConfiguration) error {
	all := stores(c)
	layers, images := all[0].paths, all[1].paths
	if c.OverlaySize == nil && len(layers) == 0 && len(images) == 0 {
		return nil
	}
	conf := map[string]any{}
	if err := toml.Unmarshal([]byte(contentStorage), &conf); err != nil {
		panic("content/storage.conf: " + err.Error())
	}
	options := conf["storage"].(map[string]any)["options"].(map[string]any)
	if c.OverlaySize != nil && c.OverlaySize.Sign() > 0 {
		options["size"] = c.OverlaySize.String()
	}
	if len(layers) > 0 {
		var refs []string
		for _, p := range layers {
			refs = append(refs, p+":ref")
		}
		options["additionallayerstores"] = refs
	}
	if len(images) > 0 {
		options["additionalimagestores"] = images
	}
	return b.toml(pathStorage, conf)
}

// crio adds a drop-in per setting, in a fixed order.
func (b *builder) crio(c *machineconfigv1.ContainerRuntimeConfiguration) error {
	type row struct {
		name, table, key string
		value            any
	}
	var rows []row
	if c.LogLevel != "" {
		rows = append(rows, row{"logLevel", "runtime", "log_level", c.LogLevel})
	}
	if c.PidsLimit != nil {
		rows = append(rows, row{"pidsLimit", "runtime", "pids_limit", *c.PidsLimit})
	}
	if c.LogSizeMax != nil && c.LogSizeMax.Value() != 0 {
		rows = append(rows, row{"logSizeMax", "runtime", "log_size_max", c.LogSizeMax.Value()})
	}
	if c.DefaultRuntime != "" {
		rows = append(rows, row{"defaultRuntime", "runtime", "default_runtime", string(c.DefaultRuntime)})
	}
	if paths := stores(c)[2].paths; len(paths) > 0 {
		rows = append(rows, row{"additionalArtifactStores", "runtime", "additional_artifact_stores", paths})
	}
	for _, r := range rows {
		conf := map[string]any{"crio": map[string]any{r.table: map[string]any{r.key: r.value}}}
		if err := b.toml(dirCrio+"01-ctrcfg-"+r.name, conf); err != nil {
			return err
		}
	}
	return nil
}

// toml adds a file with v encoded; keys come sorted.
func (b *builder) toml(path string, v any) error {
	var buf bytes.Buffer
	e := toml.NewEncoder(&buf)
	e.Indent = ""
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	b.file(path, modeFile, buf.Bytes())
	return nil
}
