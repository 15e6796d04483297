package host

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"millwright.io/millwright/internal/engine/transition"
)

// notForFiles are folders below which mounts say nothing about where files may be.
var notForFiles = []string{"/proc", "/sys", "/dev", "/run", "/var/lib/containers", "/var/lib/containerd", "/var/lib/kubelet", "/snap"}

// mounts adds what a live host's mounts say: what is read-only, what a reboot
// empties. They are those of the first process; the caller's may be a container's.
func (m *machine) mounts(f *transition.Facts) {
	for line := range strings.Lines(m.word("/proc/1/mounts")) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		at, options := unescape(fields[1]), strings.Split(fields[3], ",")
		if at == "/" || below(at, notForFiles) || !path.IsAbs(at) {
			continue
		}
		switch {
		case fields[2] == "tmpfs" || fields[2] == "ramfs":
			if !below(at, f.Volatile) {
				f.Volatile = append(f.Volatile, at)
			}
		case slices.Contains(options, "ro"):
			for _, dir := range m.writableNot(at) {
				if !below(dir, f.ReadOnly) {
					f.ReadOnly = append(f.ReadOnly, dir)
				}
			}
		}
	}
}

// writableNot is a read-only folder, or everything in it but the links that lead out
// of it, as /usr/local does on ostree hosts.
func (m *machine) writableNot(dir string) []string {
	names, err := m.files.ReadDir(dir)
	if err != nil {
		return []string{dir}
	}
	var in []string
	out := false
	for _, n := range names {
		p := path.Join(dir, n)
		if full, err := m.files.follow(p, maxLinks); err == nil && !below(full, []string{dir}) {
			out = true
			continue
		}
		in = append(in, p)
	}
	if !out {
		return []string{dir}
	}
	return in
}

// below tells that a path is one of the folders or inside one.
func below(p string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return p == d || strings.HasPrefix(p, d+"/") })
}

// unescape reads the \040 of mount tables.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	if u, err := strconv.Unquote(`"` + strings.ReplaceAll(s, `"`, `\"`) + `"`); err == nil {
		return u
	}
	return s
}
