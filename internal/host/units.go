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
	"syscall"

	"millwright.io/millwright/internal/engine/transition"
)

// unitDirs are where systemd looks for units, the first one first.
var unitDirs = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

// presetDirs are where it looks for presets.
var presetDirs = []string{"/etc/systemd/system-preset", "/run/systemd/system-preset", "/usr/local/lib/systemd/system-preset", "/usr/lib/systemd/system-preset", "/lib/systemd/system-preset"}

// dependencyDirs are the folders of links that pull a unit in, by their ending.
var dependencyDirs = []string{".wants", ".requires", ".upholds"}

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
		if slices.Contains(dependencyDirs, path.Ext(name)) {
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
	if t := template(unit); t != "" {
		out.by[t] = append(out.by[t], p+linkSep+target)
	}
}

// list is ReadDir, with nothing for a folder that is not there.
func (m *machine) list(dir string) ([]string, error) {
	names, err := m.files.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
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
	if !isUnit(unit) {
		return "not-found"
	}
	for i, word := range []string{"masked", "masked-runtime"} {
		if m.masks(path.Join(unitDirs[i], unit)) {
			return word
		}
	}
	file := m.unitFile(unit)
	if file == "" {
		for _, dir := range generatorDirs {
			if _, err := m.files.Lstat(path.Join(dir, unit)); err == nil {
				return "generated"
			}
		}
		return "not-found"
	}
	if linked {
		return "enabled"
	}
	if target, err := m.files.ReadLink(file); err == nil {
		if path.Base(target) != unit {
			return "alias"
		}
		if !below(target, unitDirs) {
			return "linked"
		}
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

// generatorDirs hold units that are made at each boot.
var generatorDirs = []string{"/run/systemd/generator.early", "/run/systemd/generator", "/run/systemd/generator.late"}

// masks tells that a unit file is empty or leads to /dev/null.
func (m *machine) masks(p string) bool {
	info, err := m.files.Lstat(p)
	if err != nil {
		return false
	}
	if info.Mode&kindLink == 0 {
		return info.Mode&kindDir == 0 && info.Size == 0
	}
	target, err := m.files.ReadLink(p)
	return err == nil && target == "/dev/null"
}

// template is what a unit is an instance of: foo@.service for foo@a.service, "" for
// what is none.
func template(unit string) string {
	prefix, rest, ok := strings.Cut(unit, "@")
	if !ok || path.Ext(rest) == rest {
		return ""
	}
	return prefix + "@" + path.Ext(rest)
}

// unitFile is the file that systemd would load for a unit; an instance has its
// template's. "" if there is none.
func (m *machine) unitFile(unit string) string {
	names := []string{unit}
	if t := template(unit); t != "" {
		names = append(names, t)
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

// isUnit tells that a name is one of a unit, and of one folder entry.
func isUnit(name string) bool {
	return slices.Contains(unitTypes, path.Ext(name)) && len(name) > len(path.Ext(name)) && len(name) < 256 && !strings.ContainsAny(name, "/\x00")
}

// install is the [Install] section of a unit.
type install struct {
	wantedBy, requiredBy, upheldBy, alias, also []string
	defaultInstance                             string
}

func (i install) empty() bool {
	return len(i.wantedBy)+len(i.requiredBy)+len(i.upheldBy)+len(i.alias) == 0
}

// install reads a unit's section and those of its drop-ins in /etc; an unreadable
// file has none.
func (m *machine) install(file string) install {
	var i install
	read := func(p string) {
		if raw, err := m.files.ReadFile(p); err == nil {
			i.read(string(raw))
		}
	}
	read(file)
	dropins := path.Join(unitDirs[0], path.Base(file)+".d")
	names, err := m.list(dropins)
	if err != nil {
		return i
	}
	for _, n := range names {
		if strings.HasSuffix(n, ".conf") {
			read(path.Join(dropins, n))
		}
	}
	return i
}

// read adds what the text of a unit or drop-in says.
func (i *install) read(text string) {
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
	case "UpheldBy":
		add(&i.upheldBy)
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
	if !isUnit(unit) {
		return fmt.Errorf("unit %q: this is no name of a unit; want one like crio.service", unit)
	}
	if want.Type == transition.Links || want.Type == transition.Absent {
		return m.restoreLinks(unit, want.Values)
	}
	if live, ok := m.sys.(UnitSystem); ok {
		return live.PerformUnit(ctx, step)
	}
	word := want.Value
	if word == "preset" {
		if word = m.preset(unit); word == "enabled" && !m.canEnable(unit) {
			return nil // presets are wishes
		}
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

// canEnable tells that a unit has a file and is not masked.
func (m *machine) canEnable(unit string) bool {
	return m.unitFile(unit) != "" && !m.masks(path.Join(unitDirs[0], unit)) && !m.masks(path.Join(unitDirs[1], unit))
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
	if !m.canEnable(unit) {
		return fmt.Errorf("error enabling units: unit %s is masked", unit)
	}
	i := m.install(file)
	links, err := i.links(unit)
	if err != nil {
		return fmt.Errorf("error enabling units: %w", err)
	}
	for _, p := range links {
		if have, err := m.files.ReadLink(p); err == nil && have == file {
			continue
		}
		if err := m.files.Link(file, p); err != nil {
			return fmt.Errorf("error enabling units: %w", err)
		}
	}
	for _, other := range i.also {
		if !isUnit(other) || !m.canEnable(other) {
			continue // as systemd does: what stands beside is no condition
		}
		if err := m.enable(other, seen); err != nil {
			return err
		}
	}
	return nil
}

// links are the paths of the links that enable a unit. A template without an
// instance has none.
func (i install) links(unit string) ([]string, error) {
	name := instance(unit, i.defaultInstance)
	if strings.Contains(name, "@.") {
		return nil, nil
	}
	if !isUnit(name) {
		return nil, fmt.Errorf("unit %s: [Install] has the default instance %q, which is no part of a name", unit, i.defaultInstance)
	}
	var out []string
	for _, by := range []struct {
		names  []string
		suffix string
	}{{i.wantedBy, ".wants"}, {i.requiredBy, ".requires"}, {i.upheldBy, ".upholds"}} {
		for _, t := range by.names {
			t = specifiers(t, name)
			if !isUnit(t) {
				return nil, fmt.Errorf("unit %s: [Install] names %q, which is no unit", unit, t)
			}
			out = append(out, path.Join(unitDirs[0], t+by.suffix, name))
		}
	}
	for _, a := range i.alias {
		a = specifiers(a, name)
		if !isUnit(a) || path.Ext(a) != path.Ext(name) {
			return nil, fmt.Errorf("unit %s: [Install] has the alias %q, which is no %s", unit, a, strings.TrimPrefix(path.Ext(name), "."))
		}
		if a != name {
			out = append(out, path.Join(unitDirs[0], a))
		}
	}
	return out, nil
}

// specifiers puts in what systemd's percent signs mean in an [Install] section.
func specifiers(s, unit string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	stem := strings.TrimSuffix(unit, path.Ext(unit))
	prefix, inst, _ := strings.Cut(stem, "@")
	last := prefix[strings.LastIndex(prefix, "-")+1:]
	return strings.NewReplacer("%%", "%", "%n", unit, "%N", stem, "%p", prefix, "%P", prefix, "%i", inst, "%I", inst, "%j", last, "%J", last).Replace(s)
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
