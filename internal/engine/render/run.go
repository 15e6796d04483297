package render

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright.io/millwright/internal/engine/ignition"
)

// ErrSelectsAll is a pool whose selector is there but empty. Such a pool is left
// alone.
var ErrSelectsAll = errors.New("This machineconfigpool is selecting all machineconfigs. A non-empty selector is required.")

// Select returns the fragments a pool's selector matches, by name. A nil
// selector matches nothing. It fails with ErrSelectsAll on an empty selector
// and when nothing matches.
func Select(pool Pool, fragments []Fragment) ([]Fragment, error) {
	if pool.Selector != nil && len(pool.Selector.MatchLabels) == 0 && len(pool.Selector.MatchExpressions) == 0 {
		return nil, ErrSelectsAll
	}
	selector, err := metav1.LabelSelectorAsSelector(pool.Selector)
	if err != nil {
		return nil, fmt.Errorf("invalid label selector: %w", err)
	}
	var out []Fragment
	for _, f := range fragments {
		if selector.Matches(labels.Set(f.Labels)) {
			out = append(out, f)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no MachineConfigs found matching selector %v", selector)
	}
	slices.SortStableFunc(out, byName)
	return out, nil
}

func byName(a, b Fragment) int { return cmp.Compare(a.Name, b.Name) }

// Order returns fragments in the order they are merged: those of role worker
// first, then all others, each by name. So whatever a custom pool says beats
// what it inherits.
func Order(fragments []Fragment) ([]Fragment, error) {
	out := make([]Fragment, 0, len(fragments))
	var others []Fragment
	for _, f := range fragments {
		switch {
		case f.Labels == nil:
			wire := "cannot find label in MachineConfig " + f.Name
			return nil, guilty(f, wire, Problem{Detail: "the MachineConfig has no labels; want " + RoleLabel})
		case f.Labels[RoleLabel] == roleWorker:
			out = append(out, f)
		default:
			others = append(others, f)
		}
	}
	slices.SortStableFunc(out, byName)
	slices.SortStableFunc(others, byName)
	return append(out, others...), nil
}

// order is Order, or names alone.
func (b Base) order(fragments []Fragment) ([]Fragment, error) {
	ordered, err := Order(fragments)
	if err == nil && b.ByName {
		slices.SortStableFunc(ordered, byName)
	}
	return ordered, err
}

// Render selects the pool's fragments, checks and merges them and names the
// result. The order of the input does not matter; names must be distinct. The
// error of a fragment that may not be is *Error.
func Render(pool Pool, fragments []Fragment, base Base) (Result, error) {
	selected, err := Select(pool, fragments)
	if err != nil {
		return Result{}, err
	}
	return RenderSelected(pool.Name, selected, base)
}

// RenderSelected is Render for fragments that somebody has selected already.
func RenderSelected(pool string, selected []Fragment, base Base) (Result, error) {
	selected = slices.Clone(selected)
	slices.SortStableFunc(selected, byName)
	sources := make(map[string]*ignition.Source, len(selected))
	for i := range selected {
		if i > 0 && selected[i].Name == selected[i-1].Name {
			return Result{}, guilty(selected[i], "more than one MachineConfig is named "+selected[i].Name, Problem{Detail: "another MachineConfig has this name; rename or remove one of them"})
		}
		source, err := check(selected[i])
		if err != nil {
			return Result{}, err
		}
		sources[selected[i].Name] = source
	}
	ordered, err := base.order(selected)
	if err != nil {
		return Result{}, err
	}
	m, err := mergeConfigs(ordered, sources)
	if err != nil {
		return Result{}, err
	}
	result := Result{Spec: mcfgv1.MachineConfigSpec{KernelArguments: []string{}, Extensions: []string{}}}
	for _, f := range ordered {
		result.Sources = append(result.Sources, f.Name)
	}
	result.Origins = m.origins(result.Sources)
	cfg := m.config()
	overwriteByDefault(&cfg)
	result.Spec.Config = runtime.RawExtension{Raw: ignition.Marshal(cfg)}
	if err := mergeFields(&result, ordered, base); err != nil {
		return Result{}, err
	}
	result.Name, result.Hashed, err = Hash(pool, result.Spec)
	if err != nil {
		return Result{}, err
	}
	result.Problems = append(result.Problems, m.faults(&cfg, result.Sources)...)
	return result, nil
}

// faults lists what is wrong with the merged config although no fragment was,
// each with the fragment that spoke last.
func (m *merger) faults(cfg *ignition.Config, names []string) []Problem {
	if ignition.Clean(cfg) {
		return nil
	}
	var out []Problem
	for _, p := range ignition.Validate(*cfg) {
		if p.Warning {
			continue
		}
		q := inConfig([]ignition.Problem{p})[0]
		q.Fragment = m.author(cfg, p.Path, names)
		out = append(out, q)
	}
	return out
}

// mergeConfigs folds the Ignition configs. The first fragment is the base, with
// or without a config; from the second config on, an empty compression is taken
// away everywhere, and a file without one gets rid of that of its parent.
func mergeConfigs(ordered []Fragment, sources map[string]*ignition.Source) (*merger, error) {
	m := newMerger()
	stripped := false
	for i, f := range ordered {
		source := sources[f.Name]
		if source == nil {
			continue
		}
		cfg, err := source.Config()
		if err != nil {
			return nil, ignitionFault(f, err)
		}
		if i == 0 {
			m.add(&cfg, 0)
			continue
		}
		if !stripped {
			stripped = true
			for j := range m.files.items {
				stripCompression(&m.files.items[j].Contents.Compression)
			}
		}
		m.addLater(&cfg, int32(i))
	}
	return m, nil
}

func stripCompression(p **string) {
	if *p != nil && **p == "" {
		*p = nil
	}
}

// addLater is add for every config after the first fragment's.
func (m *merger) addLater(cfg *ignition.Config, author int32) {
	for i := range cfg.Storage.Files {
		stripCompression(&cfg.Storage.Files[i].Contents.Compression)
		if at, ok := m.at[ref{inFiles, cfg.Storage.Files[i].Path}]; ok {
			m.files.items[at].Contents.Compression = nil
		}
	}
	m.add(cfg, author)
}

// overwriteByDefault lets files replace what is there unless they say they do
// not. It leaves directories and links alone.
func overwriteByDefault(cfg *ignition.Config) {
	yes := true
	for i := range cfg.Storage.Files {
		if cfg.Storage.Files[i].Overwrite == nil {
			cfg.Storage.Files[i].Overwrite = &yes
		}
	}
}

// mergeFields merges all but the Ignition config.
func mergeFields(result *Result, ordered []Fragment, base Base) error {
	spec := &result.Spec
	spec.KernelType = kernelTypeDefault
	spec.OSImageURL = base.OSImageURL
	spec.BaseOSExtensionsContainerImage = base.BaseOSExtensionsContainerImage
	var kernel, fips, image, extImage []string
	for _, f := range ordered {
		if f.Spec.FIPS {
			spec.FIPS = true
			fips = append(fips, f.Name)
		}
		if k := f.Spec.KernelType; k == kernelTypeRealtime || k == kernelType64kPages {
			spec.KernelType = k
			kernel = append(kernel, f.Name)
		}
		for _, arg := range f.Spec.KernelArguments {
			result.Origins = append(result.Origins, Origin{Kind: KindKernelArgument, Key: strconv.Itoa(len(spec.KernelArguments)) + ": " + arg, SetBy: f.Name})
			spec.KernelArguments = append(spec.KernelArguments, arg)
		}
		for _, e := range f.Spec.Extensions {
			result.Origins = append(result.Origins, Origin{Kind: KindExtension, Key: e, SetBy: f.Name})
			spec.Extensions = append(spec.Extensions, e)
		}
		// What a controller made repeats the images of its time.
		if f.Annotations[GeneratedByControllerVersion] != "" {
			continue
		}
		if f.Spec.OSImageURL != "" {
			spec.OSImageURL = f.Spec.OSImageURL
			image = append(image, f.Name)
			if !strings.Contains(f.Spec.OSImageURL, "sha256:") {
				result.Problems = append(result.Problems, Problem{
					Fragment: f.Name, Path: "osImageURL", Value: f.Spec.OSImageURL, Warning: true,
					Detail: "the image is named by tag; name it by digest (…@sha256:…), or nodes may get different systems",
				})
			}
		}
		if f.Spec.BaseOSExtensionsContainerImage != "" {
			spec.BaseOSExtensionsContainerImage = f.Spec.BaseOSExtensionsContainerImage
			extImage = append(extImage, f.Name)
		}
	}
	result.addSetting(KindKernelType, spec.KernelType, kernel)
	result.addSetting(KindFIPS, strconv.FormatBool(spec.FIPS), fips)
	result.addSetting(KindOSImage, spec.OSImageURL, image)
	result.addSetting(KindExtensionsImage, spec.BaseOSExtensionsContainerImage, extImage)
	result.OSImageOverridden = spec.OSImageURL != base.OSImageURL
	return checkMerged(result, ordered, base, kernel, image)
}

func checkMerged(result *Result, ordered []Fragment, base Base, kernel, image []string) error {
	spec := &result.Spec
	if spec.KernelType != kernelTypeDefault && slices.Contains(spec.Extensions, "kernel-devel") {
		wire := "installing kernel-devel extension is not supported with kernelType: " + spec.KernelType
		e := &Error{Wire: wire}
		for _, f := range ordered {
			if i := slices.Index(f.Spec.Extensions, "kernel-devel"); i >= 0 {
				e.Problems = append(e.Problems, Problem{
					Fragment: f.Name, Path: fmt.Sprintf("extensions.%d", i), Value: "kernel-devel",
					Detail: fmt.Sprintf("kernel-devel needs the default kernel, but %s asks for %s; drop one of the two", kernel[len(kernel)-1], spec.KernelType),
				})
			}
		}
		return e
	}
	if base.Stream != "" && result.OSImageOverridden {
		return &Error{
			Wire: "cannot override MachineConfig osImageURL and set MachineConfigPool spec.osImageStream.name simultaneously",
			Problems: []Problem{{
				Fragment: image[len(image)-1], Path: "osImageURL", Value: spec.OSImageURL,
				Detail: "the pool follows OS image stream " + base.Stream + "; drop osImageURL or the pool's stream",
			}},
		}
	}
	return nil
}

func (r *Result) addSetting(kind, value string, by []string) {
	o := Origin{Kind: kind, Key: value}
	if n := len(by); n > 0 {
		o.SetBy, o.Overrode = by[n-1], by[:n-1:n-1]
	}
	r.Origins = append(r.Origins, o)
}

// CheckSize refuses a rendered MachineConfig, as JSON of size bytes, that etcd
// would not store.
func CheckSize(name string, size int) error {
	if size <= maxRenderedSize {
		return nil
	}
	return &Error{
		Wire:     fmt.Sprintf("size validation failed: rendered MachineConfig %s is too large (%d bytes, max %d bytes)", name, size, maxRenderedSize),
		Problems: []Problem{{Detail: fmt.Sprintf("the rendered config has %d bytes of JSON; at most %d can be stored. Compress large files with gzip or split the pool", size, maxRenderedSize)}},
	}
}

// Size is the number of bytes a rendered MachineConfig has as JSON.
func Size(mc *mcfgv1.MachineConfig) (int, error) {
	raw, err := json.Marshal(mc)
	if err != nil {
		return 0, fmt.Errorf("encode MachineConfig %s: %w", mc.Name, err)
	}
	return len(raw), nil
}
