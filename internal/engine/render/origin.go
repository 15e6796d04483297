package render

import (
	"slices"
	"strconv"
	"strings"

	"millwright.io/millwright/internal/engine/ignition"
)

// origins lists every item of the Ignition config with its authors, in the
// order of the sections.
func (m *merger) origins(names []string) []Origin {
	c := collector{names: names, out: make([]Origin, 0, len(m.files.items)+len(m.units.items)+16)}
	keys := make([]string, 0, len(m.settings))
	for k := range m.settings {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		c.add(KindIgnition, k, m.settings[k])
	}
	collect(&c, &m.merge, func(i int) string { return "config.merge." + strconv.Itoa(i) })
	collect(&c, &m.cas, func(i int) string { return "certificateAuthorities." + strconv.Itoa(i) })
	collect(&c, &m.noProxy, func(i int) string { return "noProxy." + string(m.noProxy.items[i]) })
	collect(&c, &m.exist, func(i int) string { return string(m.exist.items[i]) })
	collect(&c, &m.notExist, func(i int) string { return "not " + string(m.notExist.items[i]) })
	collect(&c, &m.groups, func(i int) string { return m.groups.items[i].Name })
	collect(&c, &m.users, func(i int) string { return m.users.items[i].Name })
	for _, u := range m.users.items {
		for i, key := range u.SSHAuthorizedKeys {
			c.add(KindSSHKey, u.Name+"/"+keyName(string(key), i), m.keys[ref{u.Name, string(key)}])
		}
	}
	collect(&c, &m.directories, func(i int) string { return m.directories.items[i].Path })
	collect(&c, &m.files, func(i int) string { return m.files.items[i].Path })
	collect(&c, &m.links, func(i int) string { return m.links.items[i].Path })
	collect(&c, &m.disks, func(i int) string { return m.disks.items[i].Device })
	collect(&c, &m.raid, func(i int) string { return m.raid.items[i].Name })
	collect(&c, &m.luks, func(i int) string { return m.luks.items[i].Name })
	collect(&c, &m.filesystems, func(i int) string { return m.filesystems.items[i].Device })
	collect(&c, &m.units, func(i int) string { return m.units.items[i].Name })
	for _, u := range m.units.items {
		for _, d := range u.Dropins {
			c.add(KindDropin, u.Name+"/"+d.Name, m.dropins[ref{u.Name, d.Name}])
		}
	}
	return c.out
}

// keyName is the comment of an ssh key, or its number.
func keyName(key string, i int) string {
	if fields := strings.Fields(key); len(fields) > 2 {
		return strings.Join(fields[2:], " ")
	}
	return strconv.Itoa(i)
}

// author returns the fragment that last set the entry a path of the merged
// config leads to; "" if the path is not about one entry.
func (m *merger) author(cfg *ignition.Config, path string, names []string) string {
	parts := strings.Split(path, ".")
	if len(parts) < 3 {
		return ""
	}
	i, err := strconv.Atoi(parts[2])
	if err != nil || i < 0 {
		return ""
	}
	last := func(by authors) string { return names[by[len(by)-1]] }
	switch section := parts[0] + "." + parts[1]; {
	case section == "storage.files" && i < len(cfg.Storage.Files):
		return last(m.files.by[m.at[ref{inFiles, cfg.Storage.Files[i].Path}]])
	case section == "storage.directories" && i < len(cfg.Storage.Directories):
		return last(m.directories.by[m.at[ref{inDirectories, cfg.Storage.Directories[i].Path}]])
	case section == "storage.links" && i < len(cfg.Storage.Links):
		return last(m.links.by[m.at[ref{inLinks, cfg.Storage.Links[i].Path}]])
	case section == "systemd.units" && i < len(cfg.Systemd.Units):
		return last(m.units.by[m.at[ref{inUnits, cfg.Systemd.Units[i].Name}]])
	}
	return ""
}

type collector struct {
	names []string
	out   []Origin
}

func (c *collector) add(kind, key string, by authors) {
	o := Origin{Kind: kind, Key: key}
	if n := len(by); n > 0 {
		o.SetBy = c.names[by[n-1]]
		for _, a := range by[:n-1] {
			o.Overrode = append(o.Overrode, c.names[a])
		}
	}
	c.out = append(c.out, o)
}

func collect[T any](c *collector, t *table[T], key func(int) string) {
	for i := range t.items {
		if !t.gone[i] {
			c.add(t.kind, key(i), t.by[i])
		}
	}
}
