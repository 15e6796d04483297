package lint

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"millwright.io/millwright/internal/engine/ignition"
	"millwright.io/millwright/internal/engine/render"
)

// renderedPrefix marks results, which are not merged again.
const renderedPrefix = "rendered-"

func (f *Fragment) rendered() bool { return strings.HasPrefix(f.Name, renderedPrefix) }

func (l *linter) fragment(f *Fragment) {
	l.fields(f)
	l.yamlOctals(f)
	l.valid(f)
	l.arguments(f)
	if !f.rendered() {
		l.membership(f)
		if f.Spec.FIPS {
			l.add(f.object(), Finding{Rule: RuleFIPS, Field: "spec.fips", Value: "true"})
		}
	}
	cfg := l.configs[f]
	if cfg == nil {
		return
	}
	l.files(f, cfg)
	l.units(f, cfg)
	l.users(f, cfg)
	l.firstBoot(f, cfg)
}

// parse returns nil if there is no config or none that can be read.
func parse(f *Fragment) *ignition.Config {
	if len(f.Spec.Config.Raw) == 0 {
		return nil
	}
	source, err := ignition.ReadMachineConfig(f.Spec.Config.Raw)
	if err != nil {
		return nil
	}
	cfg, err := source.Config()
	if err != nil {
		return nil
	}
	return &cfg
}

// define remembers what a fragment gives contents to, for its pools.
func (l *linter) define(f *Fragment) {
	cfg := l.configs[f]
	if cfg == nil {
		return
	}
	scopes := []string{""}
	for _, p := range l.members[f.Name] {
		scopes = append(scopes, p.Name)
	}
	for _, scope := range scopes {
		if l.defined[scope] == nil {
			l.defined[scope] = map[string]bool{}
		}
		for i := range cfg.Storage.Files {
			if file := &cfg.Storage.Files[i]; file.Contents.Source != nil {
				l.defined[scope]["file "+file.Path] = true
			}
		}
		for _, u := range cfg.Systemd.Units {
			if u.Contents != nil && *u.Contents != "" {
				l.defined[scope]["unit "+u.Name] = true
			}
		}
	}
}

// elsewhere tells whether each pool of a fragment gets contents for an item from
// another one; without pools, whether anyone gives them.
func (l *linter) elsewhere(f *Fragment, item string) bool {
	pools := l.members[f.Name]
	if len(pools) == 0 {
		return l.defined[""][item]
	}
	return !slices.ContainsFunc(pools, func(p *Pool) bool { return !l.defined[p.Name][item] })
}

// valid runs the checks of rendering.
func (l *linter) valid(f *Fragment) {
	for _, p := range render.Validate(f.Fragment) {
		finding := Finding{Field: field(p.Path), Value: p.Value, Why: p.Detail}
		if p.Warning {
			finding.Severity = Warning
		} else {
			l.broken[f.Name] = true
		}
		switch {
		case modePath.MatchString(p.Path):
			l.badMode(f, p)
			continue
		case p.Path == "kernelType":
			finding.Rule = RuleKernelType
		case strings.HasPrefix(p.Path, "extensions"):
			finding.Rule = RuleExtension
		default:
			finding.Rule = RuleConfig
		}
		l.add(f.object(), finding)
	}
}

var modePath = regexp.MustCompile(`^config\.storage\.files\.\d+\.mode$`)

// pathIndex is a list index in a dotted path.
var pathIndex = regexp.MustCompile(`\.(\d+)(\.|$)`)

// field writes a dotted path below spec as the API machinery does.
func field(p string) string {
	for pathIndex.MatchString(p) {
		p = pathIndex.ReplaceAllString(p, "[$1]$2")
	}
	if p == "" {
		return "spec"
	}
	return "spec." + p
}

func (l *linter) arguments(f *Fragment) {
	for i, arg := range f.Spec.KernelArguments {
		finding := Finding{Field: fmt.Sprintf("spec.kernelArguments[%d]", i), Value: arg}
		switch quotes := strings.Count(arg, `"`); {
		case strings.TrimSpace(arg) == "":
			finding.Rule = RuleKargEmpty
		case quotes%2 == 1:
			finding.Rule, finding.Severity = RuleKargQuotes, Error
			finding.Why, finding.Fix = "the quote has no end, so the argument would take in what follows it", "close the quote"
		case quotes > 0 && quotedBlank.MatchString(arg):
			finding.Rule = RuleKargQuotes
		default:
			continue
		}
		l.add(f.object(), finding)
	}
}

var quotedBlank = regexp.MustCompile(`"[^"]*\s[^"]*"`)

func (l *linter) units(f *Fragment, cfg *ignition.Config) {
	for i := range cfg.Systemd.Units {
		u := &cfg.Systemd.Units[i]
		at := fmt.Sprintf("spec.config.systemd.units[%d]", i)
		enabled, masked := u.Enabled != nil && *u.Enabled, u.Mask != nil && *u.Mask
		switch {
		case enabled && masked:
			l.add(f.object(), Finding{Rule: RuleUnitMasked, Field: at, Value: u.Name})
		case u.Contents != nil && *u.Contents == "" && !masked:
			l.add(f.object(), Finding{Rule: RuleUnitEmpty, Field: at + ".contents", Value: u.Name})
		case enabled && u.Contents == nil && !l.elsewhere(f, "unit "+u.Name):
			l.unitFacts(f, u.Name, at)
		}
	}
}

// unitFacts refuses only what every node of a pool has denied.
func (l *linter) unitFacts(f *Fragment, unit, at string) {
	finding := Finding{Rule: RuleUnitUnknown, Field: at + ".name", Value: unit}
	var unheard []string
	for _, p := range l.members[f.Name] {
		facts := l.in.Units[p.Name]
		switch {
		case facts.has(unit):
		case facts.Complete:
			finding.Severity = Error
			finding.Why = fmt.Sprintf("no node of pool %s has this unit and no config gives its contents: there is nothing to enable", p.Name)
			l.add(f.object(), finding)
			return
		default:
			unheard = append(unheard, p.Name)
		}
	}
	if len(unheard) > 0 || len(l.members[f.Name]) == 0 {
		finding.Why = "the unit has no contents here; if the system does not ship it, there is nothing to enable"
		if len(unheard) > 0 {
			finding.Why += " (not every node of pool " + strings.Join(unheard, ", ") + " has reported its units)"
		}
		l.add(f.object(), finding)
	}
}

func (l *linter) users(f *Fragment, cfg *ignition.Config) {
	for i, u := range cfg.Passwd.Users {
		at := fmt.Sprintf("spec.config.passwd.users[%d]", i)
		if u.Name != "core" {
			l.add(f.object(), Finding{Rule: RuleUsers, Field: at + ".name", Value: u.Name})
			continue
		}
		if len(u.SSHAuthorizedKeys) == 0 && u.PasswordHash == nil {
			l.add(f.object(), Finding{Rule: RuleUsers, Field: at, Value: u.Name, Severity: Warning,
				Why: "user core has neither ssh keys nor a password hash here; alone, this is refused on a running node", Fix: "give sshAuthorizedKeys or passwordHash"})
		}
		u.SSHAuthorizedKeys, u.PasswordHash = nil, nil
		if !reflect.DeepEqual(u, types.PasswdUser{Name: "core"}) {
			l.add(f.object(), Finding{Rule: RuleUsers, Field: at, Value: u.Name})
		}
	}
}

func (l *linter) firstBoot(f *Fragment, cfg *ignition.Config) {
	for _, s := range []struct {
		field string
		n     int
	}{
		{"passwd.groups", len(cfg.Passwd.Groups)},
		{"storage.directories", len(cfg.Storage.Directories)},
		{"storage.links", len(cfg.Storage.Links)},
		{"storage.disks", len(cfg.Storage.Disks)},
		{"storage.filesystems", len(cfg.Storage.Filesystems)},
		{"storage.raid", len(cfg.Storage.Raid)},
		{"storage.luks", len(cfg.Storage.Luks)},
		{"kernelArguments", len(cfg.KernelArguments.ShouldExist) + len(cfg.KernelArguments.ShouldNotExist)},
	} {
		if s.n == 0 || f.rendered() {
			continue
		}
		finding := Finding{Rule: RuleFirstBoot, Field: "spec.config." + s.field}
		if s.field == "kernelArguments" {
			finding.Fix = "use spec.kernelArguments"
		}
		l.add(f.object(), finding)
	}
}
