package ignition

import (
	"fmt"
	"path"
	"strings"

	v2_4 "github.com/coreos/ignition/config/v2_4/types"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/coreos/ignition/v2/config/validate"
)

// refuse is an error about the config as a whole or one of its entries.
func refuse(wire, path, value, detail string) *Error {
	return &Error{Wire: wire, Problems: []Problem{{Path: path, Value: short(value), Detail: detail}}}
}

// fromV2 removes repeated entries and translates spec 2 to the internal form.
func fromV2(old v2_4.Config) (Config, error) {
	old, err := lastWins(old)
	if err != nil {
		return Config{}, err
	}
	if err := translatable(old); err != nil {
		return Config{}, err
	}
	cfg := Config{
		Ignition: types.Ignition{
			Version: InternalVersion,
			Config: types.IgnitionConfig{
				Merge: each(old.Ignition.Config.Append, upReference),
			},
			Proxy: types.Proxy{
				HTTPProxy:  orNil(old.Ignition.Proxy.HTTPProxy),
				HTTPSProxy: orNil(old.Ignition.Proxy.HTTPSProxy),
				NoProxy:    renamed[types.NoProxyItem](old.Ignition.Proxy.NoProxy),
			},
			Security: types.Security{TLS: types.TLS{
				CertificateAuthorities: each(old.Ignition.Security.TLS.CertificateAuthorities, upCA),
			}},
			Timeouts: types.Timeouts(old.Ignition.Timeouts),
		},
		Passwd: types.Passwd{
			Groups: each(old.Passwd.Groups, upGroup),
			Users:  each(old.Passwd.Users, upUser),
		},
		Storage: types.Storage{
			Directories: each(old.Storage.Directories, upDirectory),
			Disks:       each(old.Storage.Disks, upDisk),
			Files:       each(old.Storage.Files, upFile),
			Filesystems: upFilesystems(old.Storage.Filesystems),
			Links:       each(old.Storage.Links, upLink),
			Raid:        each(old.Storage.Raid, upRaid),
		},
		Systemd: types.Systemd{Units: each(old.Systemd.Units, upUnit)},
	}
	if r := old.Ignition.Config.Replace; r != nil {
		cfg.Ignition.Config.Replace = upReference(*r)
	}
	if rpt := validate.ValidateWithContext(cfg, nil); rpt.IsFatal() {
		return Config{}, &Error{Problems: fatal(problemsOf(rpt, nil)), Wire: wireConvert(rpt.String())}
	}
	return cfg, nil
}

func wireConvert(reason string) string {
	return "failed to convert Ignition config spec v2 to v3: unable to convert Ignition spec v2 config to v3: " + reason
}

// lastWins keeps the last file of a path, the last unit of a name with the
// drop-ins of the earlier ones, and one user. The lists come out backwards, as
// they always did; the order decides the name of the rendered config.
func lastWins(old v2_4.Config) (v2_4.Config, error) {
	seen := map[string]bool{}
	var files []v2_4.File
	for i := len(old.Storage.Files) - 1; i >= 0; i-- {
		f := old.Storage.Files[i]
		if !seen[f.Path] {
			seen[f.Path] = true
			files = append(files, f)
		}
	}
	old.Storage.Files = files

	at := map[string]int{}
	var units []v2_4.Unit
	for i := len(old.Systemd.Units) - 1; i >= 0; i-- {
		u := old.Systemd.Units[i]
		j, dup := at[u.Name]
		if !dup {
			at[u.Name] = len(units)
			u.Dropins = append([]v2_4.SystemdDropin(nil), u.Dropins...)
			units = append(units, u)
			continue
		}
		units[j].Dropins = addDropins(units[j].Dropins, u.Dropins)
	}
	old.Systemd.Units = units

	users := old.Passwd.Users
	if len(users) == 0 {
		return old, nil
	}
	core := users[len(users)-1]
	var keys []v2_4.SSHAuthorizedKey
	clear(seen)
	for i := len(users) - 1; i >= 0; i-- {
		if users[i].Name != "core" {
			text := fmt.Sprintf("unexpected user with name: %v. Only core user is supported", users[i].Name)
			return old, refuse(text, fmt.Sprintf("passwd.users.%d.name", i), users[i].Name, "only user core is supported; put the keys under core")
		}
		for _, k := range users[i].SSHAuthorizedKeys {
			if !seen[string(k)] {
				seen[string(k)] = true
				keys = append(keys, k)
			}
		}
	}
	core.SSHAuthorizedKeys = keys
	old.Passwd.Users = []v2_4.PasswdUser{core}
	return old, nil
}

func addDropins(have, more []v2_4.SystemdDropin) []v2_4.SystemdDropin {
	for _, d := range more {
		known := false
		for _, h := range have {
			known = known || h.Name == d.Name
		}
		if !known {
			have = append(have, d)
		}
	}
	return have
}

// translatable refuses what spec 3 has no word for.
func translatable(old v2_4.Config) error {
	if rpt, problems := checkV2(old); rpt.IsFatal() || rpt.IsDeprecated() {
		e := &Error{Wire: wireConvert("Invalid input config:\n" + rpt.String())}
		for _, p := range problems {
			p.Detail, p.Warning = "spec 3 cannot say this: "+p.Detail, false
			e.Problems = append(e.Problems, p)
		}
		return e
	}
	if len(old.Networkd.Units) != 0 {
		const text = "config includes deprecated networkd section - use Files instead"
		return refuse(wireConvert(text), "networkd.units", "", "spec 3 has no networkd section; write the same content under storage.files")
	}
	for i, fs := range old.Storage.Filesystems {
		if fs.Name != "root" {
			text := fmt.Sprintf("Config defined filesystem %q but no mapping was defined.Please specify a path to be used as the filesystem mountpoint.", fs.Name)
			return refuse(wireConvert(text), fmt.Sprintf("storage.filesystems.%d.name", i), fs.Name, "only filesystem root can be translated")
		}
	}
	return inodesDistinct(old)
}

// inodesDistinct finds two entries for one path and entries that lie behind a
// link of the same config; spec 3 forbids both.
func inodesDistinct(old v2_4.Config) error {
	var links []string
	for _, l := range old.Storage.Links {
		links = append(links, rooted(l.Path))
	}
	taken := map[string]string{}
	check := func(kind, where, raw string) error {
		p := rooted(raw)
		name := kind + ": " + p
		if first, dup := taken[p]; dup {
			text := fmt.Sprintf("Config has conflicting inodes: %q and %q.  All files, directories and links must specify a unique `path`.", first, name)
			return refuse(wireConvert(text), where, raw, "another entry has this path; keep one of them")
		}
		taken[p] = name
		for _, l := range links {
			if strings.HasPrefix(p, l) && p != l {
				text := fmt.Sprintf("%s uses link defined in config %q. Please use a link not defined in Storage:Links", name, l)
				return refuse(wireConvert(text), where, raw, "the path leads through link "+l+" of the same config; use the link's target")
			}
		}
		return nil
	}
	for i, f := range old.Storage.Files {
		if err := check("File", fmt.Sprintf("storage.files.%d.path", i), f.Path); err != nil {
			return err
		}
	}
	for i, d := range old.Storage.Directories {
		if err := check("Directory", fmt.Sprintf("storage.directories.%d.path", i), d.Path); err != nil {
			return err
		}
	}
	for i, l := range old.Storage.Links {
		if err := check("Link", fmt.Sprintf("storage.links.%d.path", i), l.Path); err != nil {
			return err
		}
	}
	return dropinsDistinct(old.Systemd.Units)
}

func dropinsDistinct(units []v2_4.Unit) error {
	for i, u := range units {
		seen := map[string]bool{}
		for j, d := range u.Dropins {
			if seen[d.Name] {
				text := fmt.Sprintf("Config has duplicate dropin name %q in unit %q.  All dropins must specify a unique `name`.", d.Name, u.Name)
				return refuse(wireConvert(text), fmt.Sprintf("systemd.units.%d.dropins.%d.name", i, j), d.Name, "another drop-in of this unit has this name; keep one of them")
			}
			seen[d.Name] = true
		}
	}
	return nil
}

// rooted is the path on the root filesystem, the only one there is.
func rooted(p string) string { return path.Join("/", p) }

func upNode(n v2_4.Node) types.Node {
	// Only files on the root filesystem get the slash in front; the path of any
	// other filesystem is unknown.
	mount := ""
	if n.Filesystem == "root" {
		mount = "/"
	}
	out := types.Node{Path: path.Join(mount, n.Path), Overwrite: n.Overwrite}
	if n.User != nil {
		out.User = types.NodeUser{ID: n.User.ID, Name: orNil(n.User.Name)}
	}
	if n.Group != nil {
		out.Group = types.NodeGroup{ID: n.Group.ID, Name: orNil(n.Group.Name)}
	}
	return out
}

// upFile keeps the meaning of a missing overwrite, which was true in spec 2.
// An appended file becomes an append to an existing one.
func upFile(f v2_4.File) types.File {
	out := types.File{Node: upNode(f.Node), FileEmbedded1: types.FileEmbedded1{Mode: f.Mode}}
	if out.Overwrite == nil || f.Append {
		yes := !f.Append
		out.Overwrite = &yes
	}
	source := f.Contents.Source
	content := types.Resource{
		Compression:  orNil(f.Contents.Compression),
		HTTPHeaders:  upHeaders(f.Contents.HTTPHeaders),
		Source:       &source,
		Verification: types.Verification{Hash: f.Contents.Verification.Hash},
	}
	if f.Append {
		out.Append = []types.Resource{content}
	} else {
		out.Contents = content
	}
	return out
}

func upDirectory(d v2_4.Directory) types.Directory {
	return types.Directory{Node: upNode(d.Node), DirectoryEmbedded1: types.DirectoryEmbedded1{Mode: d.Mode}}
}

func upLink(l v2_4.Link) types.Link {
	target := l.Target
	return types.Link{Node: upNode(l.Node), LinkEmbedded1: types.LinkEmbedded1{Hard: orNil(l.Hard), Target: &target}}
}

func upUnit(u v2_4.Unit) types.Unit {
	out := types.Unit{
		Name:     u.Name,
		Mask:     orNil(u.Mask),
		Contents: orNil(u.Contents),
		Dropins: each(u.Dropins, func(d v2_4.SystemdDropin) types.Dropin {
			return types.Dropin{Name: d.Name, Contents: orNil(d.Contents)}
		}),
	}
	// Enabled is the newer of the two fields and wins.
	switch {
	case u.Enabled != nil:
		v := *u.Enabled
		out.Enabled = &v
	case u.Enable:
		out.Enabled = orNil(true)
	}
	return out
}

func upUser(u v2_4.PasswdUser) types.PasswdUser {
	return types.PasswdUser{
		Name:              u.Name,
		PasswordHash:      u.PasswordHash,
		SSHAuthorizedKeys: renamed[types.SSHAuthorizedKey](u.SSHAuthorizedKeys),
		UID:               u.UID,
		Gecos:             orNil(u.Gecos),
		HomeDir:           orNil(u.HomeDir),
		NoCreateHome:      orNil(u.NoCreateHome),
		PrimaryGroup:      orNil(u.PrimaryGroup),
		Groups:            renamed[types.Group](u.Groups),
		NoUserGroup:       orNil(u.NoUserGroup),
		NoLogInit:         orNil(u.NoLogInit),
		Shell:             orNil(u.Shell),
		System:            orNil(u.System),
	}
}

func upGroup(g v2_4.PasswdGroup) types.PasswdGroup {
	return types.PasswdGroup{Name: g.Name, Gid: g.Gid, PasswordHash: orNil(g.PasswordHash), System: orNil(g.System)}
}

func upDisk(d v2_4.Disk) types.Disk {
	return types.Disk{Device: d.Device, WipeTable: orNil(d.WipeTable), Partitions: each(d.Partitions, upPartition)}
}

func upPartition(p v2_4.Partition) types.Partition {
	return types.Partition{
		Label:              p.Label,
		Number:             p.Number,
		SizeMiB:            p.SizeMiB,
		StartMiB:           p.StartMiB,
		TypeGUID:           orNil(p.TypeGUID),
		GUID:               orNil(p.GUID),
		WipePartitionEntry: orNil(p.WipePartitionEntry),
		ShouldExist:        p.ShouldExist,
	}
}

func upRaid(r v2_4.Raid) types.Raid {
	level := r.Level
	return types.Raid{
		Name:    r.Name,
		Level:   &level,
		Devices: renamed[types.Device](r.Devices),
		Spares:  orNil(r.Spares),
		Options: renamed[types.RaidOption](r.Options),
	}
}

// upFilesystems has nothing to keep: the root filesystem is implied, and any
// other has been refused.
func upFilesystems([]v2_4.Filesystem) []types.Filesystem { return nil }

func upReference(r v2_4.ConfigReference) types.Resource {
	source := r.Source
	return types.Resource{
		Source:       &source,
		HTTPHeaders:  upHeaders(r.HTTPHeaders),
		Verification: types.Verification{Hash: r.Verification.Hash},
	}
}

func upCA(r v2_4.CaReference) types.Resource {
	return upReference(v2_4.ConfigReference(r))
}

func upHeaders(in v2_4.HTTPHeaders) types.HTTPHeaders {
	return each(in, func(h v2_4.HTTPHeader) types.HTTPHeader {
		return types.HTTPHeader{Name: h.Name, Value: orNil(h.Value)}
	})
}

// each translates a list; an empty one becomes nil.
func each[A, B any](in []A, f func(A) B) []B {
	if len(in) == 0 {
		return nil
	}
	out := make([]B, len(in))
	for i, v := range in {
		out[i] = f(v)
	}
	return out
}

// renamed copies a list of texts into another type.
func renamed[B, A ~string](in []A) []B {
	return each(in, func(a A) B { return B(a) })
}

// orNil is a pointer to v, nil if v is zero.
func orNil[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
