package lint

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"millwright.io/millwright/internal/engine/diff"
	"millwright.io/millwright/internal/engine/disruption"
	"millwright.io/millwright/internal/engine/ignition"
	"millwright.io/millwright/internal/engine/render"
)

const forceFile = "/run/machine-config-daemon-force"

// Directories that are empty, or made anew, after each boot. The kernel's own
// cannot hold files at all.
var (
	volatileDirs = []string{"/tmp", "/run", "/var/run", "/var/lock", "/dev"}
	kernelDirs   = []string{"/proc", "/sys"}
)

func below(p string, dirs ...string) (string, bool) {
	p = path.Clean(p)
	for _, d := range dirs {
		if p == d || strings.HasPrefix(p, d+"/") {
			return d, true
		}
	}
	return "", false
}

func (l *linter) files(f *Fragment, cfg *ignition.Config) {
	for i := range cfg.Storage.Files {
		file := &cfg.Storage.Files[i]
		at := fmt.Sprintf("spec.config.storage.files[%d]", i)
		if file.Path == forceFile {
			l.add(f.object(), Finding{Rule: RuleForceFile, Field: at + ".path", Value: file.Path})
		} else {
			l.place(f, file, at)
		}
		if len(file.Append) > 0 {
			l.add(f.object(), Finding{Rule: RuleAppend, Field: at + ".append", Value: file.Path})
		}
		l.contents(f, file, at)
		if m := file.Mode; m != nil && *m >= 0 && *m <= 0o777 {
			if octal, ok := readsAsOctal(*m); ok && !usual[*m] {
				l.add(f.object(), Finding{Rule: RuleModeTypo, Field: at + ".mode", Value: bothBases(*m),
					Why: fmt.Sprintf("%d is decimal and means 0%o; its digits look like octal 0%d", *m, *m, *m),
					Fix: fmt.Sprintf("write %d if you mean 0%o", octal, octal)})
			}
		}
	}
	for i, d := range cfg.Storage.Directories {
		l.volatileNode(f, d.Path, fmt.Sprintf("spec.config.storage.directories[%d].path", i))
	}
	for i, k := range cfg.Storage.Links {
		l.volatileNode(f, k.Path, fmt.Sprintf("spec.config.storage.links[%d].path", i))
	}
}

func (l *linter) place(f *Fragment, file *types.File, at string) {
	finding := Finding{Rule: RuleVolatilePath, Field: at + ".path", Value: file.Path}
	if dir, ok := below(file.Path, kernelDirs...); ok {
		finding.Why = "nothing can be created below " + dir + ", which belongs to the kernel; every node that applies this would be Degraded"
		finding.Fix = "use sysctl.d, tmpfiles.d or a unit to set kernel values"
		l.add(f.object(), finding)
		return
	}
	if _, ok := below(file.Path, volatileDirs...); ok {
		change := diff.Change{Kind: render.KindFile, Key: file.Path, Op: diff.Added}
		if d := disruption.Decide([]diff.Change{change}, l.policy); d.Strongest < disruption.Reboot {
			finding.Severity = Warning
			finding.Why = "the file on a volatile path vanishes at the node's next reboot, and the node is Degraded from then on"
		}
		l.add(f.object(), finding)
		return
	}
	if _, ok := below(file.Path, "/usr/local"); ok {
		return
	}
	if _, ok := below(file.Path, "/usr", "/bin", "/sbin", "/lib", "/lib64"); ok {
		l.add(f.object(), Finding{Rule: RuleReadOnlyPath, Field: at + ".path", Value: file.Path})
	}
}

// volatileNode is about what nobody checks after a reboot.
func (l *linter) volatileNode(f *Fragment, p, at string) {
	if _, ok := below(p, append(kernelDirs, volatileDirs...)...); ok {
		l.add(f.object(), Finding{Rule: RuleVolatilePath, Severity: Warning, Field: at, Value: p, Why: "what stands on a volatile path is gone after the next reboot"})
	}
}

func (l *linter) contents(f *Fragment, file *types.File, at string) {
	source := file.Contents.Source
	if source == nil {
		overwrites := file.Overwrite == nil || *file.Overwrite
		if overwrites && len(file.Append) == 0 && !l.elsewhere(f, "file "+file.Path) {
			l.add(f.object(), Finding{Rule: RuleNoSource, Field: at + ".contents.source", Value: file.Path})
		}
		return
	}
	_, err := ignition.Contents(file.Contents)
	switch {
	case err == nil:
	case errors.Is(err, ignition.ErrRemote):
		scheme, _, _ := strings.Cut(*source, ":")
		l.add(f.object(), Finding{Rule: RuleRemoteSource, Field: at + ".contents.source", Value: scheme + ":…"})
	default:
		l.add(f.object(), Finding{Rule: RuleBrokenSource, Field: at + ".contents", Value: file.Path, Fix: err.Error()})
	}
}

// usual are modes that people write.
var usual = map[int]bool{
	0o400: true, 0o440: true, 0o444: true, 0o500: true, 0o550: true, 0o555: true, 0o600: true, 0o640: true, 0o644: true, 0o660: true,
	0o664: true, 0o666: true, 0o700: true, 0o710: true, 0o711: true, 0o740: true, 0o744: true, 0o750: true, 0o755: true, 0o770: true, 0o775: true, 0o777: true,
}

// readsAsOctal returns what the decimal digits mean in octal, if those are usual
// permissions, special bits aside.
func readsAsOctal(mode int) (int, bool) {
	v, err := strconv.ParseInt(strconv.Itoa(mode), 8, 32)
	if err != nil || v < 0 || v > 0o7777 || !usual[int(v)&0o777] {
		return 0, false
	}
	return int(v) & 0o777, true
}

func bothBases(mode int) string { return fmt.Sprintf("%d (0%o)", mode, mode) }

// badMode refuses a mode beyond 0777.
func (l *linter) badMode(f *Fragment, p render.Problem) {
	finding := Finding{Rule: RuleFileMode, Field: field(p.Path), Value: p.Value, Why: p.Detail}
	digits, _, _ := strings.Cut(p.Value, " ")
	if mode, err := strconv.Atoi(digits); err == nil && mode > 0 {
		finding.Value = bothBases(mode)
		if octal, ok := readsAsOctal(mode); ok {
			finding.Fix = fmt.Sprintf("the number is decimal; write %d if you mean 0%o", octal, octal)
		} else if mode <= 0o7777 {
			finding.Fix = fmt.Sprintf("setuid, setgid and sticky bits are not applied; write %d (0%o)", mode&0o777, mode&0o777)
		}
	}
	l.add(f.object(), finding)
}

var yamlOctal = regexp.MustCompile(`(?m)^[^#\n]*?(?:^|[\s{,])"?mode"?\s*:\s*(0[0-7]{2,4})\s*(?:[,}#\n\r]|$)`)

// yamlOctals looks at the text, where alone the leading zero is left.
func (l *linter) yamlOctals(f *Fragment) {
	for _, m := range yamlOctal.FindAllSubmatch(f.Manifest, -1) {
		v, err := strconv.ParseInt(string(m[1]), 8, 32)
		if err != nil {
			continue
		}
		l.add(f.object(), Finding{Rule: RuleYAMLOctal, Field: "mode", Value: string(m[1]), Fix: fmt.Sprintf("write %d", v)})
	}
}

// Permissions reads permissions as bootstrap formats write them: octal, with or
// without a leading zero, so that one text means one mode in every format. The
// finding is nil if the text is plain; its object and field are the caller's.
func Permissions(text string) (mode int, finding *Finding, err error) {
	digits := strings.TrimPrefix(strings.TrimPrefix(text, "0o"), "0O")
	v, err := strconv.ParseUint(digits, 8, 16)
	if err != nil || v > 0o7777 {
		return 0, nil, fmt.Errorf("read permissions %q: want up to four octal digits, e.g. \"0644\"", text)
	}
	if !strings.HasPrefix(text, "0") {
		r := rulesByID[RuleNoZero]
		finding = &Finding{Rule: r.ID, Severity: r.Severity, Value: text, Why: r.Why, Fix: fmt.Sprintf("write \"0%s\"", digits)}
	}
	return int(v), finding, nil
}
