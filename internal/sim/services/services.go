// Package services stands in for systemctl and update-ca-trust on a machine whose
// root is a folder. No process runs behind a unit: a unit has a state, which commands
// change, and a machine's unit files and links decide what is known and enabled. What
// is named in /etc/standin-failing fails.
//
//	m, err := services.Open(root)
//	code := m.Systemctl([]string{"restart", "crio.service"}, os.Stdout, os.Stderr)
//
// States live below /run, so that a boot starts anew. It never looks outside the root
// and knows no Kubernetes.
package services

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// Paths below the root.
const (
	stateDir = "run/systemd-standin/units"
	logPath  = "run/systemd-standin/log"
	// PowerPath holds what was asked of the machine's power: reboot or poweroff.
	PowerPath   = "run/systemd-standin/power"
	failingPath = "etc/standin-failing"
	ownDir      = "etc/systemd/system"
)

// unitDirs are where units are, the first one first.
var unitDirs = []string{ownDir, "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system"}

// always are units of the image that run on every machine.
var always = []string{"NetworkManager.service", "chronyd.service", "crio.service", "dbus-broker.service", "kubelet.service", "rpm-ostreed.service", "sshd.service", "systemd-journald.service"}

// Image returns the unit files that a machine's image brings, by path below the root.
func Image() map[string]string {
	out := map[string]string{}
	for _, u := range always {
		out["usr/lib/systemd/system/"+u] = fmt.Sprintf("[Unit]\nDescription=%s\n\n[Service]\nExecStart=/usr/bin/true\nRestart=always\n\n[Install]\nWantedBy=multi-user.target\n", strings.TrimSuffix(u, ".service"))
	}
	for _, u := range []string{"coreos-update-ca-trust.service", "ostree-finalize-staged.service", "systemd-sysctl.service", "bootloader-update.service"} {
		out["usr/lib/systemd/system/"+u] = fmt.Sprintf("[Unit]\nDescription=%s\n\n[Service]\nType=oneshot\nExecStart=/usr/bin/true\n", strings.TrimSuffix(u, ".service"))
	}
	return out
}

// Machine is the services below one root.
type Machine struct{ root *os.Root }

// Open returns the services of a machine. Close it.
func Open(root string) (*Machine, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("open root: %w", err)
	}
	return &Machine{r}, nil
}

// Close ends the use of a machine.
func (m *Machine) Close() error { return m.root.Close() }

// fault is a command that ended badly: what systemctl prints and its exit code.
type fault struct {
	code int
	text string
}

func (f fault) Error() string { return f.text }

// write replaces a file, making its folder.
func (m *Machine) write(name, body string) error {
	if err := m.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return fmt.Errorf("write /%s: %w", name, err)
	}
	if err := m.root.WriteFile(name+".new", []byte(body), 0o644); err != nil {
		return fmt.Errorf("write /%s: %w", name, err)
	}
	if err := m.root.Rename(name+".new", name); err != nil {
		return fmt.Errorf("write /%s: %w", name, err)
	}
	return nil
}

// note adds a line to the log of what was done in this boot.
func (m *Machine) note(line string) error {
	if err := m.root.MkdirAll(path.Dir(logPath), 0o755); err != nil {
		return fmt.Errorf("write /%s: %w", logPath, err)
	}
	f, err := m.root.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("write /%s: %w", logPath, err)
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

// failing tells that a unit was made to fail.
func (m *Machine) failing(unit string) bool {
	raw, err := m.root.ReadFile(failingPath)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(raw)) {
		if strings.TrimSpace(line) == unit {
			return true
		}
	}
	return false
}

// Power returns what was asked of the machine's power, "" for nothing.
func (m *Machine) Power() string {
	raw, err := m.root.ReadFile(PowerPath)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

// unit gives a name without a type that of a service.
func unit(name string) string {
	if path.Ext(name) == "" {
		name += ".service"
	}
	return name
}

// template is what an instance is made from, "" for a unit that is none.
func template(name string) string {
	prefix, rest, ok := strings.Cut(name, "@")
	if !ok || path.Ext(rest) == rest {
		return ""
	}
	return prefix + "@" + path.Ext(rest)
}

// file is the unit's file below the root, "" if there is none.
func (m *Machine) file(name string) string {
	if strings.ContainsAny(name, "/\x00") {
		return ""
	}
	for _, n := range []string{name, template(name)} {
		if n == "" {
			continue
		}
		for _, dir := range unitDirs {
			p := path.Join(dir, n)
			if info, err := m.root.Lstat(p); err == nil && !info.IsDir() {
				return p
			}
		}
	}
	return ""
}

// masked tells that a unit leads to /dev/null.
func (m *Machine) masked(name string) bool {
	for _, dir := range unitDirs[:2] {
		if to, err := m.root.Readlink(path.Join(dir, name)); err == nil && to == "/dev/null" {
			return true
		}
	}
	return false
}

// settings reads all values of a key in a section, of the file and its drop-ins.
func (m *Machine) settings(name, section, key string) []string {
	var out []string
	file := m.file(name)
	if file == "" {
		return nil
	}
	files := []string{file}
	for _, dir := range unitDirs {
		if d, err := fs.ReadDir(m.root.FS(), path.Join(dir, name+".d")); err == nil {
			for _, e := range d {
				files = append(files, path.Join(dir, name+".d", e.Name()))
			}
		}
	}
	for _, f := range files {
		raw, err := m.root.ReadFile(f)
		if err != nil {
			continue
		}
		in := ""
		for line := range strings.Lines(string(raw)) {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "[") {
				in = line
				continue
			}
			if k, v, ok := strings.Cut(line, "="); ok && in == section && strings.TrimSpace(k) == key {
				out = append(out, strings.TrimSpace(v))
			}
		}
	}
	return out
}

// oneshot tells that a unit is done when its command is.
func (m *Machine) oneshot(name string) bool {
	return slices.Contains(m.settings(name, "[Service]", "Type"), "oneshot")
}

// remains tells that a oneshot unit stays active.
func (m *Machine) remains(name string) bool {
	return slices.ContainsFunc(m.settings(name, "[Service]", "RemainAfterExit"), func(v string) bool { return v == "yes" || v == "true" })
}

// started is the state of a unit whose start went well.
func (m *Machine) started(name string) string {
	if m.oneshot(name) && !m.remains(name) {
		return "inactive"
	}
	return "active"
}

// state is what systemctl is-active prints.
func (m *Machine) state(name string) string {
	if raw, err := m.root.ReadFile(path.Join(stateDir, name)); err == nil {
		return strings.TrimSpace(string(raw))
	}
	if m.file(name) == "" || m.masked(name) {
		return "inactive"
	}
	if !slices.Contains(always, name) && len(m.links(name)) == 0 {
		return "inactive"
	}
	if m.failing(name) {
		return "failed"
	}
	return m.started(name)
}

// links are the links that pull a unit in, below the root.
func (m *Machine) links(name string) []string {
	var out []string
	dirs, err := fs.ReadDir(m.root.FS(), ownDir)
	if err != nil {
		return nil
	}
	for _, d := range dirs {
		if !slices.Contains([]string{".wants", ".requires", ".upholds"}, path.Ext(d.Name())) {
			continue
		}
		p := path.Join(ownDir, d.Name(), name)
		if _, err := m.root.Lstat(p); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// enabled is what systemctl is-enabled prints.
func (m *Machine) enabled(name string) string {
	switch {
	case m.masked(name):
		return "masked"
	case m.file(name) == "":
		return "not-found"
	case len(m.links(name)) > 0:
		return "enabled"
	case len(m.wanted(name)) == 0:
		return "static"
	}
	return "disabled"
}

// wanted are the links that a unit's [Install] section asks for.
func (m *Machine) wanted(name string) []string {
	var out []string
	for key, suffix := range map[string]string{"WantedBy": ".wants", "RequiredBy": ".requires", "UpheldBy": ".upholds"} {
		for _, v := range m.settings(name, "[Install]", key) {
			for _, target := range strings.Fields(v) {
				if !strings.Contains(target, "/") {
					out = append(out, path.Join(ownDir, target+suffix, name))
				}
			}
		}
	}
	slices.Sort(out)
	return out
}
