package transition

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"millwright.io/millwright/internal/engine/diff"
	"millwright.io/millwright/internal/engine/render"
)

// Difference is one item of a host that is not as its config says. Reason has the
// original's words and no contents.
type Difference struct {
	Kind   string `json:"kind"`
	Key    string `json:"key,omitempty"`
	Reason string `json:"reason"`
	// Expected and Found are states, without secrets and contents.
	Expected string `json:"expected,omitempty"`
	Found    string `json:"found,omitempty"`
}

// Scope says what a comparison covers.
type Scope int

// Scopes.
const (
	Everything Scope = iota // OS image, kernel arguments, files and units
	FilesOnly               // files and units: what can drift while a host runs
)

// notCompared are files the agent writes from elsewhere.
var notCompared = []string{kubeletCA, cloudCA, "/etc/mco/internal-registry-pull-secret.json"}

// Watched returns what Differences has to be told of, sorted and without repeats.
func Watched(spec mcfgv1.MachineConfigSpec, f Facts) ([]Ref, error) {
	cfg, err := read(&spec)
	if err != nil {
		return nil, err
	}
	refs := []Ref{{Kind: KindKernelArguments}, {Kind: KindImage}}
	c := itemsOf(&cfg, &f)
	for _, it := range slices.Concat(c.files, c.units, c.enables) {
		refs = append(refs, it.Ref)
	}
	slices.SortFunc(refs, compareRefs)
	return slices.Compact(refs), nil
}

// Differences compares a host with a config: everything that differs, in the order
// in which the original looks: OS image, kernel arguments, files, units. The first
// one's Reason is the original's answer. live holds what Watched names, blobs are
// optional: a digest says enough.
func Differences(spec mcfgv1.MachineConfigSpec, f Facts, live map[Ref]State, scope Scope) ([]Difference, error) {
	cfg, err := read(&spec)
	if err != nil {
		return nil, err
	}
	var out []Difference
	if scope == Everything {
		out = append(out, systemDifferences(&spec, &f, live)...)
	}
	c := itemsOf(&cfg, &f)
	for _, it := range slices.Concat(c.files, c.units) {
		if slices.Contains(notCompared, it.key) {
			continue
		}
		if d, differs := it.compare(live[it.Ref]); differs {
			out = append(out, d)
		}
	}
	for _, it := range c.enables {
		if d, differs := compareEnablement(it, live[it.Ref].Value, c.units); differs {
			out = append(out, d)
		}
	}
	return out, nil
}

func systemDifferences(spec *mcfgv1.MachineConfigSpec, f *Facts, live map[Ref]State) []Difference {
	var out []Difference
	if f.Class == CoreOS && f.Image != NoBackend && spec.OSImageURL != "" && f.Booted != spec.OSImageURL {
		out = append(out, Difference{
			Kind: render.KindOSImage, Expected: spec.OSImageURL, Found: f.Booted,
			Reason: fmt.Sprintf("expected target osImageURL %q, have %q", spec.OSImageURL, f.Booted),
		})
	}
	if f.Kernel == NoBackend {
		return out
	}
	have := live[Ref{Kind: KindKernelArguments}].Values
	if lost := missing(diff.Arguments(spec.KernelArguments), have); len(lost) > 0 {
		out = append(out, Difference{
			Kind: render.KindKernelArgument, Key: lost[0], Expected: strings.Join(lost, " "),
			Reason: fmt.Sprintf("missing expected kernel arguments: %v", lost),
		})
	}
	return out
}

// compare tells how a live file differs; a State without Type was absent.
func (it item) compare(live State) (Difference, bool) {
	d := Difference{Kind: it.kind, Key: it.key, Expected: it.want.words(), Found: live.words()}
	switch it.want.Type {
	case Absent:
		// An explicit nothing accepts an empty file too.
		if !exists(live) || live.Digest == Digest(nil) {
			return d, false
		}
		if it.kind == render.KindUnit {
			// Only a mask contradicts mask: false; the host's own unit file does not.
			if live.Type != Link || live.Target != "/dev/null" {
				return d, false
			}
			d.Reason = fmt.Sprintf("state validation: invalid unit masked setting. path: %s; expected: not masked; received: %s", it.Key, live.Target)
			return d, true
		}
		d.Reason = fmt.Sprintf("content mismatch for file %q", it.Key)
		return d, true
	case Link:
		if live.Type == Link && live.Target == it.want.Target {
			return d, false
		}
		d.Reason = fmt.Sprintf("state validation: invalid unit masked setting. path: %s; expected: %s; received: %s", it.Key, it.want.Target, live.target(it.Key))
		return d, true
	case File, Dir, Links, List, Value:
	}
	if !exists(live) {
		d.Reason = fmt.Sprintf("could not stat file %q: lstat %s: no such file or directory", it.Key, it.Key)
		return d, true
	}
	want, got := it.want.Mode, live.fileMode()
	switch {
	case want != got:
		d.Reason = fmt.Sprintf("mode mismatch for file: %q; expected: %s/%d/%#o; received: %s/%d/%#o", it.Key, modeWords(want), want, want, modeWords(got), got, got)
	case live.Digest != it.want.Digest:
		d.Reason = fmt.Sprintf("content mismatch for file %q", it.Key)
	default:
		return d, false
	}
	return d, true
}

// Words of systemctl is-enabled that contradict a wish.
var (
	notEnabled  = []string{"disabled", "masked", "masked-runtime", "not-found"}
	notDisabled = []string{"enabled", "enabled-runtime"}
)

// compareEnablement looks only at units whose contents a config holds, as the
// original does: what the host ships may be enabled by its presets.
func compareEnablement(it item, word string, units []item) (Difference, bool) {
	managed := slices.ContainsFunc(units, func(u item) bool {
		return u.kind == render.KindUnit && u.unit == it.key && u.want.Type == File
	})
	bad, wish := notEnabled, "true"
	if it.want.Value == "disabled" {
		bad, wish = notDisabled, "false"
	}
	if !managed || it.want.Value == "preset" || !slices.Contains(bad, word) {
		return Difference{}, false
	}
	return Difference{
		Kind: it.kind, Key: it.key, Expected: it.want.Value, Found: word,
		Reason: fmt.Sprintf("unit %q expected enabled=%s, but systemd reports %q", it.key, wish, word),
	}, true
}

// words prints a state for people, without contents.
func (s State) words() string {
	switch s.Type {
	case File:
		return fmt.Sprintf("file %s %d:%d %s", modeWords(s.fileMode()), s.UID, s.GID, s.Digest)
	case Link:
		return "link to " + s.Target
	case Dir:
		return "directory"
	case Absent, "":
		return "nothing"
	default:
		return s.Value
	}
}

// target is where a path leads after following a link at its end.
func (s State) target(p string) string {
	if s.Type == Link {
		return s.Target
	}
	return p
}

// Bits of a file mode as Go's os.FileMode has them; the originals print them so.
const (
	modeDir     = 1 << 31
	modeSymlink = 1 << 27
	modePerm    = 0o777
)

// fileMode is the observed mode with its type bits.
func (s State) fileMode() uint32 {
	switch s.Type {
	case Link:
		return modeSymlink | modePerm
	case Dir:
		return modeDir | s.Mode
	default:
		return s.Mode
	}
}

// modeWords prints a mode as Go does: -rw-r--r--, Lrwxrwxrwx, u-rwxr-xr-x.
func modeWords(m uint32) string {
	const types, perms = "dalTLDpSugct?", "rwxrwxrwx"
	var b bytes.Buffer
	for i := range types {
		if m&(1<<(31-i)) != 0 {
			b.WriteByte(types[i])
		}
	}
	if b.Len() == 0 {
		b.WriteByte('-')
	}
	for i := range perms {
		if m&(1<<(8-i)) != 0 {
			b.WriteByte(perms[i])
		} else {
			b.WriteByte('-')
		}
	}
	return b.String()
}
