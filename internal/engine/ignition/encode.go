package ignition

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/coreos/go-semver/semver"
	v2_3 "github.com/coreos/ignition/config/v2_3/types"
	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// UnsupportedError says that no way leads from the internal form to a version.
type UnsupportedError struct{ Version string }

// Error has the words of the original.
func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("conversion for source version %s to target version %s is not supported the requested conversion is not supported", InternalVersion, e.Version)
}

// Encode writes a config of the internal form as JSON of spec 3.5, 3.4, 3.3,
// 3.2, 3.1 or 2.2. It fails with *UnsupportedError on any other version, and
// with *Error naming each item the version has no word for.
func Encode(cfg Config, version string) ([]byte, error) {
	v, err := semver.NewVersion(version)
	if err != nil || v.PreRelease != "" || v.Metadata != "" || v.Patch != 0 {
		return nil, &UnsupportedError{Version: version}
	}
	if problems := fatal(Validate(cfg)); len(problems) > 0 {
		return nil, &Error{Problems: problems, Wire: "Invalid input config:\n" + lines(problems)}
	}
	minor := int(v.Minor)
	switch {
	case v.Major == 3 && minor >= 1 && minor <= 5:
	case v.Major == 2 && minor == 2:
		minor = 1 // all that 2.2 can say, 3.1 can say, too
	default:
		return nil, &UnsupportedError{Version: version}
	}
	problems := unsayable(&cfg, minor)
	if v.Major == 2 {
		problems = append(problems, unsayableV2(&cfg)...)
	}
	if len(problems) > 0 {
		return nil, &Error{Problems: problems, Wire: lines(problems)}
	}
	if v.Major == 2 {
		return json.Marshal(toV2(cfg))
	}
	cfg.Ignition.Version = version
	dropDefaults(&cfg, minor)
	return Marshal(cfg), nil
}

func lines(problems []Problem) string {
	out := make([]string, len(problems))
	for i, p := range problems {
		out[i] = p.String()
	}
	return strings.Join(out, "\n")
}

// finder collects what a version cannot say.
type finder struct{ problems []Problem }

func (f *finder) add(found bool, since string, value string, path ...any) {
	if !found {
		return
	}
	keys := make([]string, len(path))
	for i, k := range path {
		keys[i] = fmt.Sprint(k)
	}
	f.problems = append(f.problems, Problem{
		Path:   strings.Join(keys, "."),
		Value:  short(value),
		Detail: "this needs spec " + since + " or later",
	})
}

func isTrue(b *bool) bool  { return b != nil && *b }
func isFalse(b *bool) bool { return b != nil && !*b }

// unsayable lists what spec 3.minor has no word for.
func unsayable(cfg *Config, minor int) []Problem {
	var f finder
	if minor < 5 {
		for i, l := range cfg.Storage.Luks {
			f.add(isTrue(l.Cex.Enabled), "3.5.0", l.Name, "storage", "luks", i, "cex")
		}
	}
	if minor < 4 {
		unsayable33(cfg, &f)
	}
	if minor < 3 {
		f.add(len(cfg.KernelArguments.ShouldExist) > 0, "3.3.0", "", "kernelArguments", "shouldExist")
		f.add(len(cfg.KernelArguments.ShouldNotExist) > 0, "3.3.0", "", "kernelArguments", "shouldNotExist")
	}
	if minor < 2 {
		for i, l := range cfg.Storage.Luks {
			f.add(true, "3.2.0", l.Name, "storage", "luks", i)
		}
		for i, u := range cfg.Passwd.Users {
			f.add(isFalse(u.ShouldExist), "3.2.0", u.Name, "passwd", "users", i, "shouldExist")
		}
		for i, g := range cfg.Passwd.Groups {
			f.add(isFalse(g.ShouldExist), "3.2.0", g.Name, "passwd", "groups", i, "shouldExist")
		}
		for i, d := range cfg.Storage.Disks {
			for j, p := range d.Partitions {
				f.add(isTrue(p.Resize), "3.2.0", d.Device, "storage", "disks", i, "partitions", j, "resize")
			}
		}
	}
	return f.problems
}

// unsayable33 lists what came with 3.4.
func unsayable33(cfg *Config, f *finder) {
	for i, l := range cfg.Storage.Luks {
		f.add(isTrue(l.Discard), "3.4.0", l.Name, "storage", "luks", i, "discard")
		f.add(len(l.OpenOptions) > 0, "3.4.0", l.Name, "storage", "luks", i, "openOptions")
		for j, t := range l.Clevis.Tang {
			f.add(t.Advertisement != nil && *t.Advertisement != "", "3.4.0", l.Name, "storage", "luks", i, "clevis", "tang", j, "advertisement")
		}
	}
	special := func(m *int) bool { return m != nil && *m&0o7000 != 0 }
	for i, x := range cfg.Storage.Files {
		f.add(special(x.Mode), "3.4.0", x.Path, "storage", "files", i, "mode")
	}
	for i, x := range cfg.Storage.Directories {
		f.add(special(x.Mode), "3.4.0", x.Path, "storage", "directories", i, "mode")
	}
	eachResource(cfg, func(r *types.Resource, path string) {
		arn := r.Source != nil && strings.HasPrefix(*r.Source, "arn:")
		f.add(arn, "3.4.0", "arn:…", path, "source")
	})
}

// eachResource visits everything that has a source.
func eachResource(cfg *Config, visit func(r *types.Resource, path string)) {
	all := func(rs []types.Resource, path string) {
		for i := range rs {
			visit(&rs[i], path+"."+strconv.Itoa(i))
		}
	}
	all(cfg.Ignition.Config.Merge, "ignition.config.merge")
	visit(&cfg.Ignition.Config.Replace, "ignition.config.replace")
	all(cfg.Ignition.Security.TLS.CertificateAuthorities, "ignition.security.tls.certificateAuthorities")
	for i := range cfg.Storage.Files {
		at := "storage.files." + strconv.Itoa(i)
		visit(&cfg.Storage.Files[i].Contents, at+".contents")
		all(cfg.Storage.Files[i].Append, at+".append")
	}
	for i := range cfg.Storage.Luks {
		visit(&cfg.Storage.Luks[i].KeyFile, "storage.luks."+strconv.Itoa(i)+".keyFile")
	}
}

// unsayableV2 lists what spec 2.2 has no word for and 3.1 has.
func unsayableV2(cfg *Config) []Problem {
	var f finder
	const never = "3.1.0"
	p := cfg.Ignition.Proxy
	f.add(p.HTTPProxy != nil || p.HTTPSProxy != nil || len(p.NoProxy) > 0, never, "", "ignition", "proxy")
	eachResource(cfg, func(r *types.Resource, path string) {
		f.add(len(r.HTTPHeaders) > 0, never, "", path, "httpHeaders")
		f.add(r.Compression != nil && strings.HasPrefix(path, "ignition."), never, *orNew(r.Compression), path, "compression")
	})
	for i, d := range cfg.Storage.Disks {
		for j, p := range d.Partitions {
			f.add(p.SizeMiB != nil, "3.0.0", d.Device, "storage", "disks", i, "partitions", j, "sizeMiB")
			f.add(p.StartMiB != nil, "3.0.0", d.Device, "storage", "disks", i, "partitions", j, "startMiB")
		}
	}
	for i, fs := range cfg.Storage.Filesystems {
		f.add(len(fs.MountOptions) > 0, never, fs.Device, "storage", "filesystems", i, "mountOptions")
	}
	return f.problems
}

// dropDefaults removes settings that an older version does not know and that
// say what it does anyway.
func dropDefaults(cfg *Config, minor int) {
	if minor < 5 && len(cfg.Storage.Luks) > 0 {
		luks := append([]types.Luks(nil), cfg.Storage.Luks...)
		for i := range luks {
			luks[i].Cex = types.Cex{}
			if minor < 4 {
				luks[i].Discard = nil
			}
		}
		cfg.Storage.Luks = luks
	}
	if minor >= 2 {
		return
	}
	cfg.Passwd.Users = append([]types.PasswdUser(nil), cfg.Passwd.Users...)
	for i := range cfg.Passwd.Users {
		cfg.Passwd.Users[i].ShouldExist = nil
	}
	cfg.Passwd.Groups = append([]types.PasswdGroup(nil), cfg.Passwd.Groups...)
	for i := range cfg.Passwd.Groups {
		cfg.Passwd.Groups[i].ShouldExist = nil
	}
	cfg.Storage.Disks = append([]types.Disk(nil), cfg.Storage.Disks...)
	for i := range cfg.Storage.Disks {
		parts := append([]types.Partition(nil), cfg.Storage.Disks[i].Partitions...)
		for j := range parts {
			parts[j].Resize = nil
		}
		cfg.Storage.Disks[i].Partitions = parts
	}
}

// toV2 translates what spec 2.2 can say, in the types of 2.3, which differ from
// it in what a partition may say only. A missing overwrite was true there,
// so it is written out; appended parts become files of their own.
func toV2(cfg Config) v2_3.Config {
	mounts := each(cfg.Storage.Filesystems, func(f types.Filesystem) string { return *orNew(f.Path) })
	out := v2_3.Config{
		Ignition: v2_3.Ignition{
			Version:  "2.2.0",
			Config:   v2_3.IgnitionConfig{Append: each(cfg.Ignition.Config.Merge, downReference)},
			Timeouts: v2_3.Timeouts(cfg.Ignition.Timeouts),
			Security: v2_3.Security{TLS: v2_3.TLS{CertificateAuthorities: each(cfg.Ignition.Security.TLS.CertificateAuthorities, func(r types.Resource) v2_3.CaReference {
				return v2_3.CaReference(downReference(r))
			})}},
		},
		Passwd: v2_3.Passwd{
			Groups: each(cfg.Passwd.Groups, func(g types.PasswdGroup) v2_3.PasswdGroup {
				return v2_3.PasswdGroup{Name: g.Name, Gid: g.Gid, PasswordHash: *orNew(g.PasswordHash), System: isTrue(g.System)}
			}),
			Users: each(cfg.Passwd.Users, downUser),
		},
		Storage: v2_3.Storage{
			Directories: each(cfg.Storage.Directories, func(d types.Directory) v2_3.Directory {
				return v2_3.Directory{Node: downNode(d.Node, mounts), DirectoryEmbedded1: v2_3.DirectoryEmbedded1{Mode: d.Mode}}
			}),
			Disks:       each(cfg.Storage.Disks, downDisk),
			Files:       downFiles(cfg.Storage.Files, mounts),
			Filesystems: downFilesystems(cfg.Storage.Filesystems),
			Links: each(cfg.Storage.Links, func(l types.Link) v2_3.Link {
				return v2_3.Link{Node: downNode(l.Node, mounts), LinkEmbedded1: v2_3.LinkEmbedded1{Hard: isTrue(l.Hard), Target: *orNew(l.Target)}}
			}),
			Raid: each(cfg.Storage.Raid, downRaid),
		},
		Systemd: v2_3.Systemd{Units: each(cfg.Systemd.Units, downUnit)},
	}
	if cfg.Ignition.Config.Replace.Source != nil {
		r := downReference(cfg.Ignition.Config.Replace)
		out.Ignition.Config.Replace = &r
	}
	return out
}

func downReference(r types.Resource) v2_3.ConfigReference {
	return v2_3.ConfigReference{Source: *orNew(r.Source), Verification: v2_3.Verification{Hash: r.Verification.Hash}}
}

func downUser(u types.PasswdUser) v2_3.PasswdUser {
	return v2_3.PasswdUser{
		Name:              u.Name,
		PasswordHash:      u.PasswordHash,
		SSHAuthorizedKeys: renamed[v2_3.SSHAuthorizedKey](u.SSHAuthorizedKeys),
		UID:               u.UID,
		Gecos:             *orNew(u.Gecos),
		HomeDir:           *orNew(u.HomeDir),
		NoCreateHome:      isTrue(u.NoCreateHome),
		PrimaryGroup:      *orNew(u.PrimaryGroup),
		Groups:            renamed[v2_3.Group](u.Groups),
		NoUserGroup:       isTrue(u.NoUserGroup),
		NoLogInit:         isTrue(u.NoLogInit),
		Shell:             *orNew(u.Shell),
		System:            isTrue(u.System),
	}
}

func downUnit(u types.Unit) v2_3.Unit {
	return v2_3.Unit{
		Name:     u.Name,
		Enabled:  u.Enabled,
		Mask:     isTrue(u.Mask),
		Contents: *orNew(u.Contents),
		Dropins: each(u.Dropins, func(d types.Dropin) v2_3.SystemdDropin {
			return v2_3.SystemdDropin{Name: d.Name, Contents: *orNew(d.Contents)}
		}),
	}
}

func downDisk(d types.Disk) v2_3.Disk {
	return v2_3.Disk{
		Device:    d.Device,
		WipeTable: isTrue(d.WipeTable),
		Partitions: each(d.Partitions, func(p types.Partition) v2_3.Partition {
			return v2_3.Partition{Label: p.Label, Number: p.Number, TypeGUID: *orNew(p.TypeGUID), GUID: *orNew(p.GUID)}
		}),
	}
}

func downRaid(r types.Raid) v2_3.Raid {
	return v2_3.Raid{
		Name:    r.Name,
		Level:   *orNew(r.Level),
		Devices: renamed[v2_3.Device](r.Devices),
		Spares:  *orNew(r.Spares),
		Options: renamed[v2_3.RaidOption](r.Options),
	}
}

// downFilesystems names each filesystem by its path, or by a number.
func downFilesystems(in []types.Filesystem) []v2_3.Filesystem {
	unnamed := 0
	return each(in, func(f types.Filesystem) v2_3.Filesystem {
		name := *orNew(f.Path)
		if f.Path == nil {
			unnamed++
			name = strconv.Itoa(unnamed)
		}
		return v2_3.Filesystem{Name: name, Mount: &v2_3.Mount{
			Device:         f.Device,
			Format:         *orNew(f.Format),
			WipeFilesystem: isTrue(f.WipeFilesystem),
			Label:          f.Label,
			UUID:           f.UUID,
			Options:        renamed[v2_3.MountOption](f.Options),
		}}
	})
}

// downNode finds the filesystem a path lies on: the longest mount above it.
func downNode(n types.Node, mounts []string) v2_3.Node {
	out := v2_3.Node{Filesystem: "root", Path: n.Path, Overwrite: n.Overwrite}
	longest := ""
	for _, m := range mounts {
		if strings.HasPrefix(n.Path, m) && len(m) > len(longest) {
			longest = m
			out.Filesystem, out.Path = m, strings.TrimPrefix(n.Path, m)
		}
	}
	if n.User != (types.NodeUser{}) {
		out.User = &v2_3.NodeUser{ID: n.User.ID, Name: *orNew(n.User.Name)}
	}
	if n.Group != (types.NodeGroup{}) {
		out.Group = &v2_3.NodeGroup{ID: n.Group.ID, Name: *orNew(n.Group.Name)}
	}
	return out
}

func downFiles(in []types.File, mounts []string) []v2_3.File {
	var out []v2_3.File
	contents := func(r types.Resource) v2_3.FileContents {
		return v2_3.FileContents{
			Compression:  *orNew(r.Compression),
			Source:       *orNew(r.Source),
			Verification: v2_3.Verification{Hash: r.Verification.Hash},
		}
	}
	for _, f := range in {
		file := v2_3.File{Node: downNode(f.Node, mounts), FileEmbedded1: v2_3.FileEmbedded1{Mode: f.Mode}}
		file.Overwrite = orNew(file.Overwrite)
		if f.Contents.Source != nil {
			file.Contents = contents(f.Contents)
			out = append(out, file)
		}
		for _, a := range f.Append {
			part := file
			part.Overwrite = new(bool)
			part.Append = true
			part.Contents = contents(a)
			out = append(out, part)
		}
	}
	return out
}
