package render

import (
	"strconv"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"millwright.io/millwright/internal/engine/ignition"
)

// The rules of merging are those of Ignition: entries with one key merge field
// by field in the place of the first, a set pointer replaces, everything else
// is appended. The official library rebuilds the whole parent for every child,
// which is quadratic in the number of MachineConfigs; here every entry is
// indexed once and touched only by the children that mention it.

// ref finds an entry: its list and its key.
type ref struct{ list, key string }

// authors are the fragments that set an item, by number, the last one wins.
type authors []int32

// table is one keyed list under construction. Entries that moved to another
// list leave a hole, so that the places of the others stay.
type table[T any] struct {
	kind  string
	items []T
	by    []authors
	gone  []bool
	holes int
}

// merger folds one config after the other into the first.
type merger struct {
	at map[ref]int // where the entries of all tables are

	merge, cas  table[types.Resource]
	replace     types.Resource
	proxy       types.Proxy
	noProxy     table[types.NoProxyItem]
	timeouts    types.Timeouts
	settings    map[string]authors // single values of the ignition section
	exist       table[types.KernelArgument]
	notExist    table[types.KernelArgument]
	groups      table[types.PasswdGroup]
	users       table[types.PasswdUser]
	keys        map[ref]authors // ssh keys, by user and text
	directories table[types.Directory]
	disks       table[types.Disk]
	files       table[types.File]
	filesystems table[types.Filesystem]
	links       table[types.Link]
	luks        table[types.Luks]
	raid        table[types.Raid]
	units       table[types.Unit]
	dropins     map[ref]authors // by unit and name
}

func newMerger() *merger {
	return &merger{
		at:          map[ref]int{},
		settings:    map[string]authors{},
		keys:        map[ref]authors{},
		dropins:     map[ref]authors{},
		merge:       table[types.Resource]{kind: KindIgnition},
		cas:         table[types.Resource]{kind: KindIgnition},
		noProxy:     table[types.NoProxyItem]{kind: KindIgnition},
		exist:       table[types.KernelArgument]{kind: KindIgnitionKarg},
		notExist:    table[types.KernelArgument]{kind: KindIgnitionKarg},
		groups:      table[types.PasswdGroup]{kind: KindGroup},
		users:       table[types.PasswdUser]{kind: KindUser},
		directories: table[types.Directory]{kind: KindDirectory},
		disks:       table[types.Disk]{kind: KindDisk},
		files:       table[types.File]{kind: KindFile},
		filesystems: table[types.Filesystem]{kind: KindFilesystem},
		links:       table[types.Link]{kind: KindLink},
		luks:        table[types.Luks]{kind: KindLuks},
		raid:        table[types.Raid]{kind: KindRaid},
		units:       table[types.Unit]{kind: KindUnit},
	}
}

// put merges the child entries into a table.
func put[T any](m *merger, t *table[T], list string, child []T, author int32, key func(*T) string, fold func(p, c *T)) {
	for i := range child {
		c := &child[i]
		r := ref{list, key(c)}
		if at, ok := m.at[r]; ok {
			fold(&t.items[at], c)
			t.by[at] = append(t.by[at], author)
			continue
		}
		m.at[r] = len(t.items)
		t.items = append(t.items, *c)
		t.by = append(t.by, authors{author})
		t.gone = append(t.gone, false)
	}
}

// drop takes an entry out of a list because another list got its key, and
// returns who had set it.
func drop[T any](m *merger, t *table[T], list, key string) authors {
	r := ref{list, key}
	at, ok := m.at[r]
	if !ok {
		return nil
	}
	delete(m.at, r)
	t.gone[at] = true
	t.holes++
	return t.by[at]
}

// list returns the entries without the holes.
func (t *table[T]) list() []T {
	if len(t.items) == t.holes {
		return nil
	}
	if t.holes == 0 {
		return t.items
	}
	out := make([]T, 0, len(t.items)-t.holes)
	for i := range t.items {
		if !t.gone[i] {
			out = append(out, t.items[i])
		}
	}
	return out
}

// Names of the keyed lists.
const (
	inMerge       = "merge"
	inCAs         = "certificateAuthorities"
	inNoProxy     = "noProxy"
	inExist       = "shouldExist"
	inNotExist    = "shouldNotExist"
	inGroups      = "groups"
	inUsers       = "users"
	inDirectories = "directories"
	inDisks       = "disks"
	inFiles       = "files"
	inFilesystems = "filesystems"
	inLinks       = "links"
	inLuks        = "luks"
	inRaid        = "raid"
	inUnits       = "units"
)

// add merges one config. It takes ownership of cfg.
func (m *merger) add(cfg *ignition.Config, author int32) {
	m.addIgnition(&cfg.Ignition, author)
	m.addKargs(&cfg.KernelArguments, author)
	put(m, &m.groups, inGroups, cfg.Passwd.Groups, author, func(g *types.PasswdGroup) string { return g.Name }, foldGroup)
	m.addUsers(cfg.Passwd.Users, author)
	m.addNodes(&cfg.Storage, author)
	put(m, &m.disks, inDisks, cfg.Storage.Disks, author, func(d *types.Disk) string { return d.Device }, foldDisk)
	put(m, &m.filesystems, inFilesystems, cfg.Storage.Filesystems, author, func(f *types.Filesystem) string { return f.Device }, foldFilesystem)
	put(m, &m.luks, inLuks, cfg.Storage.Luks, author, func(l *types.Luks) string { return l.Name }, foldLuks)
	put(m, &m.raid, inRaid, cfg.Storage.Raid, author, func(r *types.Raid) string { return r.Name }, foldRaid)
	m.addUnits(cfg.Systemd.Units, author)
}

func sourceOf(r *types.Resource) string {
	if r.Source == nil {
		return ""
	}
	return *r.Source
}

func (m *merger) addIgnition(c *types.Ignition, author int32) {
	put(m, &m.merge, inMerge, c.Config.Merge, author, sourceOf, foldResource)
	put(m, &m.cas, inCAs, c.Security.TLS.CertificateAuthorities, author, sourceOf, foldResource)
	put(m, &m.noProxy, inNoProxy, c.Proxy.NoProxy, author, func(s *types.NoProxyItem) string { return string(*s) }, func(_, _ *types.NoProxyItem) {})
	if !emptyResource(&c.Config.Replace) {
		m.settings["config.replace"] = append(m.settings["config.replace"], author)
		foldResource(&m.replace, &c.Config.Replace)
	}
	setting(m, &m.proxy.HTTPProxy, c.Proxy.HTTPProxy, "proxy.httpProxy", author)
	setting(m, &m.proxy.HTTPSProxy, c.Proxy.HTTPSProxy, "proxy.httpsProxy", author)
	setting(m, &m.timeouts.HTTPResponseHeaders, c.Timeouts.HTTPResponseHeaders, "timeouts.httpResponseHeaders", author)
	setting(m, &m.timeouts.HTTPTotal, c.Timeouts.HTTPTotal, "timeouts.httpTotal", author)
}

func emptyResource(r *types.Resource) bool {
	return r.Source == nil && r.Compression == nil && len(r.HTTPHeaders) == 0 && r.Verification.Hash == nil
}

func setting[T any](m *merger, p **T, c *T, key string, author int32) {
	if c != nil {
		*p = c
		m.settings[key] = append(m.settings[key], author)
	}
}

// addKargs keeps an argument in at most one of the two lists.
func (m *merger) addKargs(c *types.KernelArguments, author int32) {
	if len(c.ShouldExist) == 0 && len(c.ShouldNotExist) == 0 {
		return
	}
	key := func(k *types.KernelArgument) string { return string(*k) }
	same := func(_, _ *types.KernelArgument) {}
	for _, k := range c.ShouldExist {
		drop(m, &m.notExist, inNotExist, string(k))
	}
	for _, k := range c.ShouldNotExist {
		drop(m, &m.exist, inExist, string(k))
	}
	put(m, &m.exist, inExist, c.ShouldExist, author, key, same)
	put(m, &m.notExist, inNotExist, c.ShouldNotExist, author, key, same)
}

// addNodes merges files, directories and links, which share their keys: a path
// that comes back as another kind leaves its old list.
func (m *merger) addNodes(c *types.Storage, author int32) {
	directories, files, links := m.directories.len(), m.files.len(), m.links.len()
	moved := map[string]authors{}
	take := func(path string, by authors) {
		if by != nil {
			moved[path] = append(moved[path], by...)
		}
	}
	for i := range c.Directories {
		p := c.Directories[i].Path
		if files > 0 {
			take(p, drop(m, &m.files, inFiles, p))
		}
		if links > 0 {
			take(p, drop(m, &m.links, inLinks, p))
		}
	}
	for i := range c.Files {
		p := c.Files[i].Path
		if directories > 0 {
			take(p, drop(m, &m.directories, inDirectories, p))
		}
		if links > 0 {
			take(p, drop(m, &m.links, inLinks, p))
		}
	}
	for i := range c.Links {
		p := c.Links[i].Path
		if directories > 0 {
			take(p, drop(m, &m.directories, inDirectories, p))
		}
		if files > 0 {
			take(p, drop(m, &m.files, inFiles, p))
		}
	}
	put(m, &m.directories, inDirectories, c.Directories, author, func(d *types.Directory) string { return d.Path }, foldDirectory)
	put(m, &m.files, inFiles, c.Files, author, func(f *types.File) string { return f.Path }, foldFile)
	put(m, &m.links, inLinks, c.Links, author, func(l *types.Link) string { return l.Path }, foldLink)
	for path, by := range moved {
		inherit(m, &m.directories, inDirectories, path, by)
		inherit(m, &m.files, inFiles, path, by)
		inherit(m, &m.links, inLinks, path, by)
	}
}

func (t *table[T]) len() int { return len(t.items) - t.holes }

// inherit puts the authors of the entry's former kind first.
func inherit[T any](m *merger, t *table[T], list, path string, by authors) {
	if at, ok := m.at[ref{list, path}]; ok {
		t.by[at] = append(append(authors(nil), by...), t.by[at]...)
	}
}

func (m *merger) addUsers(child []types.PasswdUser, author int32) {
	for i := range child {
		u := &child[i]
		r := ref{inUsers, u.Name}
		at, known := m.at[r]
		if !known {
			at = len(m.users.items)
			m.at[r] = at
			first := *u
			first.SSHAuthorizedKeys = nil
			m.users.items = append(m.users.items, first)
			m.users.by = append(m.users.by, nil)
			m.users.gone = append(m.users.gone, false)
		} else {
			foldUser(&m.users.items[at], u)
		}
		m.users.by[at] = append(m.users.by[at], author)
		for _, key := range u.SSHAuthorizedKeys {
			k := ref{u.Name, string(key)}
			if m.keys[k] == nil {
				p := &m.users.items[at]
				p.SSHAuthorizedKeys = append(p.SSHAuthorizedKeys, key)
			}
			m.keys[k] = append(m.keys[k], author)
		}
	}
}

func (m *merger) addUnits(child []types.Unit, author int32) {
	for i := range child {
		u := &child[i]
		r := ref{inUnits, u.Name}
		at, known := m.at[r]
		if !known {
			at = len(m.units.items)
			m.at[r] = at
			first := *u
			first.Dropins = nil
			m.units.items = append(m.units.items, first)
			m.units.by = append(m.units.by, nil)
			m.units.gone = append(m.units.gone, false)
		} else {
			foldUnit(&m.units.items[at], u)
		}
		m.units.by[at] = append(m.units.by[at], author)
		m.addDropins(&m.units.items[at], u.Dropins, author)
	}
}

func (m *merger) addDropins(p *types.Unit, child []types.Dropin, author int32) {
	for _, d := range child {
		at := ref{inUnits + "/" + p.Name, d.Name}
		if i, known := m.at[at]; known {
			p.Dropins[i].Contents = or(p.Dropins[i].Contents, d.Contents)
		} else {
			m.at[at] = len(p.Dropins)
			p.Dropins = append(p.Dropins, d)
		}
		k := ref{p.Name, d.Name}
		m.dropins[k] = append(m.dropins[k], author)
	}
}

// config assembles what has been merged.
func (m *merger) config() ignition.Config {
	var c ignition.Config
	c.Ignition.Version = ignition.InternalVersion
	c.Ignition.Config.Merge = m.merge.list()
	c.Ignition.Config.Replace = m.replace
	c.Ignition.Proxy = m.proxy
	c.Ignition.Proxy.NoProxy = m.noProxy.list()
	c.Ignition.Security.TLS.CertificateAuthorities = m.cas.list()
	c.Ignition.Timeouts = m.timeouts
	c.KernelArguments.ShouldExist = m.exist.list()
	c.KernelArguments.ShouldNotExist = m.notExist.list()
	c.Passwd.Groups = m.groups.list()
	c.Passwd.Users = m.users.list()
	c.Storage.Directories = m.directories.list()
	c.Storage.Disks = m.disks.list()
	c.Storage.Files = m.files.list()
	c.Storage.Filesystems = m.filesystems.list()
	c.Storage.Links = m.links.list()
	c.Storage.Luks = m.luks.list()
	c.Storage.Raid = m.raid.list()
	c.Systemd.Units = m.units.list()
	return c
}

func partitionKey(p *types.Partition) string {
	switch {
	case p.Number != 0:
		return "number:" + strconv.Itoa(p.Number)
	case p.Label != nil:
		return "label:" + *p.Label
	}
	return ""
}
