package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"millwright.io/millwright/internal/engine/transition"
)

// unitDirs are where systemd looks for units, the first one first.
var unitDirs = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

// presetDirs are where it looks for presets.
var presetDirs = []string{"/etc/systemd/system-preset", "/run/systemd/system-preset", "/usr/local/lib/systemd/system-preset", "/usr/lib/systemd/system-preset", "/lib/systemd/system-preset"}

// linkSep stands between path and target of a link in a State.
const linkSep = "\x00"

// maxAlso bounds how units that enable each other are followed.
const maxAlso = 64

// unitLinks are the links below /etc/systemd/system by the unit they enable.
type unitLinks struct{ by map[string][]string }

// readLinks collects them once for many units.
func (m *machine) readLinks() (*unitLinks, error) {
	out := &unitLinks{by: map[string][]string{}}
	top, err := m.list(unitDirs[0])
	if err != nil {
		return nil, err
	}
	for _, name := range top {
		if strings.HasSuffix(name, ".wants") || strings.HasSuffix(name, ".requires") {
			dir := path.Join(unitDirs[0], name)
			inner, err := m.list(dir)
			if err != nil {
				return nil, err
			}
			for _, unit := range inner {
				m.collect(out, path.Join(dir, unit), unit)
			}
			continue
		}
		m.collect(out, path.Join(unitDirs[0], name), "")
	}
	return out, nil
}

// collect adds a link. An alias belongs to the unit that it names.
func (m *machine) collect(out *unitLinks, p, unit string) {
	target, err := m.files.ReadLink(p)
	if err != nil || target == "/dev/null" {
		return
	}
	if unit == "" {
		unit = path.Base(target)
		if unit == path.Base(p) {
			return // the unit's own file, linked from elsewhere
		}
	}
	out.by[unit] = append(out.by[unit], p+linkSep+target)
}

// list is ReadDir, with nothing for a folder that is not there.
func (m *machine) list(dir string) ([]string, error) {
	names, err := m.files.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}

func (m *machine) observeUnit(ctx context.Context, unit string, links *unitLinks) (transition.State, error) {
	s := transition.State{Type: transition.Links, Values: slices.Sorted(slices.Values(links.by[unit]))}
	if live, ok := m.sys.(UnitSystem); ok {
		word, err := live.ObserveUnit(ctx, unit)
		s.Value = word
		return s, err
	}
	s.Value = m.isEnabled(unit, len(s.Values) > 0)
	return s, nil
}

// isEnabled is the word of systemctl is-enabled.
func (m *machine) isEnabled(unit string, linked bool) string {
	for i, word := range []string{"masked", "masked-runtime"} {
		if target, err := m.files.ReadLink(path.Join(unitDirs[i], unit)); err == nil && target == "/dev/null" {
			return word
		}
	}
	file := m.unitFile(unit)
	if file == "" {
		return "not-found"
	}
	if linked {
		return "enabled"
	}
	i := m.install(file)
	switch {
	case i.empty() && len(i.also) > 0:
		return "indirect"
	case i.empty():
		return "static"
	}
	return "disabled"
}

// unitFile is the file that systemd would load for a unit; an instance has its
// template's. "" if there is none.
func (m *machine) unitFile(unit string) string {
	names := []string{unit}
	if prefix, rest, ok := strings.Cut(unit, "@"); ok && strings.Index(rest, ".") > 0 {
		names = append(names, prefix+"@"+path.Ext(rest))
	}
	for _, name := range names {
		for _, dir := range unitDirs {
			p := path.Join(dir, name)
			if info, err := m.files.Lstat(p); err == nil && info.Mode&uint32(fs.ModeDir) == 0 {
				return p
			}
		}
	}
	return ""
}

// unitFiles are the names of all units with a file, sorted.
func (m *machine) unitFiles() ([]string, error) {
	seen := map[string]bool{}
	for _, dir := range unitDirs {
		names, err := m.list(dir)
		if err != nil {
			return nil, fmt.Errorf("list units: %w", err)
		}
		for _, n := range names {
			if isUnit(n) {
				seen[n] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen)), nil
}

var unitTypes = []string{".service", ".socket", ".target", ".timer", ".path", ".mount", ".automount", ".swap", ".slice", ".scope", ".device"}

func isUnit(name string) bool { return slices.Contains(unitTypes, path.Ext(name)) }

// install is the [Install] section of a unit.
type install struct {
	wantedBy, requiredBy, alias, also []string
	defaultInstance                   string
}

func (i install) empty() bool {
	return len(i.wantedBy)+len(i.requiredBy)+len(i.alias) == 0
}

// install reads a unit's section; an unreadable file has none.
func (m *machine) install(file string) install {
	raw, err := m.files.ReadFile(file)
	if err != nil {
		return install{}
	}
	return parseInstall(string(raw))
}

func parseInstall(text string) install {
	var i install
	section := ""
	for line := range strings.Lines(joinContinued(text)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
			continue
		case line[0] == '[':
			section = line
			continue
		case section != "[Install]":
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		i.set(strings.TrimSpace(key), strings.Fields(value))
	}
	return i
}

func joinContinued(text string) string { return strings.ReplaceAll(text, "\\\n", " ") }

func (i *install) set(key string, words []string) {
	add := func(list *[]string) {
		if len(words) == 0 {
			*list = nil // an empty assignment starts anew
			return
		}
		*list = append(*list, words...)
	}
	switch key {
	case "WantedBy":
		add(&i.wantedBy)
	case "RequiredBy":
		add(&i.requiredBy)
	case "Alias":
		add(&i.alias)
	case "Also":
		add(&i.also)
	case "DefaultInstance":
		i.defaultInstance = strings.Join(words, "")
	}
}

// performUnit enables, disables or presets a unit, or restores its links exactly.
func (m *machine) performUnit(ctx context.Context, step transition.Step) error {
	unit, want := step.Key, step.After
	if want.Type == transition.Links || want.Type == transition.Absent {
		return m.restoreLinks(unit, want.Values)
	}
	if live, ok := m.sys.(UnitSystem); ok {
		return live.PerformUnit(ctx, step)
	}
	word := want.Value
	if word == "preset" {
		word = m.preset(unit)
	}
	switch word {
	case "enabled":
		return m.enable(unit, map[string]bool{})
	case "disabled":
		return m.restoreLinks(unit, nil)
	case "ignore":
		return nil
	}
	return fmt.Errorf("unit %s: %q is no state that a unit can be given; want enabled, disabled or preset", unit, word)
}

// restoreLinks leaves exactly these links.
func (m *machine) restoreLinks(unit string, want []string) error {
	links, err := m.readLinks()
	if err != nil {
		return err
	}
	for _, have := range links.by[unit] {
		if p, _, _ := strings.Cut(have, linkSep); !slices.Contains(want, have) {
			if err := m.files.Remove(p); err != nil {
				return fmt.Errorf("error disabling unit: %w", err)
			}
		}
	}
	for _, link := range want {
		p, target, _ := strings.Cut(link, linkSep)
		if have, err := m.files.ReadLink(p); err == nil && have == target {
			continue
		}
		if err := m.files.Link(target, p); err != nil {
			return fmt.Errorf("error enabling units: %w", err)
		}
	}
	return nil
}

// enable makes the links that a unit's [Install] section asks for.
func (m *machine) enable(unit string, seen map[string]bool) error {
	if seen[unit] || len(seen) > maxAlso {
		return nil
	}
	seen[unit] = true
	file := m.unitFile(unit)
	if file == "" {
		return fmt.Errorf("error enabling units: unit %s does not exist", unit)
	}
	if target, err := m.files.ReadLink(path.Join(unitDirs[0], unit)); err == nil && target == "/dev/null" {
		return fmt.Errorf("error enabling units: unit %s is masked", unit)
	}
	i := m.install(file)
	name := instance(unit, i.defaultInstance)
	var links []string
	for _, t := range i.wantedBy {
		links = append(links, path.Join(unitDirs[0], t+".wants", name))
	}
	for _, t := range i.requiredBy {
		links = append(links, path.Join(unitDirs[0], t+".requires", name))
	}
	for _, a := range i.alias {
		if a != name {
			links = append(links, path.Join(unitDirs[0], a))
		}
	}
	for _, p := range links {
		if strings.Contains(strings.TrimPrefix(p, unitDirs[0]), "..") {
			return fmt.Errorf("error enabling units: unit %s: [Install] names %s", unit, p)
		}
		if have, err := m.files.ReadLink(p); err == nil && have == file {
			continue
		}
		if err := m.files.Link(file, p); err != nil {
			return fmt.Errorf("error enabling units: %w", err)
		}
	}
	for _, other := range i.also {
		if err := m.enable(other, seen); err != nil {
			return err
		}
	}
	return nil
}

// instance is the unit that enabling a template enables.
func instance(unit, defaultInstance string) string {
	prefix, rest, ok := strings.Cut(unit, "@")
	if !ok || !strings.HasPrefix(rest, ".") || defaultInstance == "" {
		return unit
	}
	return prefix + "@" + defaultInstance + rest
}

// preset is what the host's presets say about a unit.
func (m *machine) preset(unit string) string {
	files := map[string]string{}
	for _, dir := range slices.Backward(presetDirs) {
		names, err := m.list(dir)
		if err != nil {
			continue
		}
		for _, n := range names {
			if strings.HasSuffix(n, ".preset") {
				files[n] = path.Join(dir, n)
			}
		}
	}
	for _, n := range slices.Sorted(maps.Keys(files)) {
		raw, err := m.files.ReadFile(files[n])
		if err != nil {
			continue
		}
		if word := presetIn(string(raw), unit); word != "" {
			return word
		}
	}
	return "enabled"
}

func presetIn(text, unit string) string {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 || strings.HasPrefix(words[0], "#") || strings.HasPrefix(words[0], ";") {
			continue
		}
		if ok, err := path.Match(words[1], unit); err != nil || !ok {
			continue
		}
		switch words[0] {
		case "enable":
			return "enabled"
		case "disable":
			return "disabled"
		case "ignore":
			return "ignore"
		}
	}
	return ""
}
