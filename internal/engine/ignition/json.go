package ignition

import (
	"strconv"
	"unicode/utf8"

	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// Marshal writes a config as compact JSON and leaves out every section, list
// and struct that says nothing, which the standard encoder would print as {}.
// Strings that are not UTF-8 get the replacement character.
func Marshal(cfg Config) []byte {
	return appendConfig(nil, &cfg)
}

// object writes one JSON object. Members that are zero leave no trace; an
// optional object that stays empty is taken back by end.
type object struct {
	buf   []byte
	start int
	any   bool
}

func begin(buf []byte) object {
	return object{buf: append(buf, '{'), start: len(buf)}
}

func (o *object) key(name string) {
	if o.any {
		o.buf = append(o.buf, ',')
	}
	o.any = true
	o.buf = append(o.buf, '"')
	o.buf = append(o.buf, name...)
	o.buf = append(o.buf, '"', ':')
}

func (o *object) text(name, v string) {
	o.key(name)
	o.buf = appendString(o.buf, v)
}

func (o *object) texts(name string, v *string) {
	if v != nil {
		o.text(name, *v)
	}
}

func (o *object) int(name string, v *int) {
	if v != nil {
		o.key(name)
		o.buf = strconv.AppendInt(o.buf, int64(*v), 10)
	}
}

func (o *object) bool(name string, v *bool) {
	if v != nil {
		o.key(name)
		o.buf = strconv.AppendBool(o.buf, *v)
	}
}

// struct writes a member that is left out when f finds nothing to say.
func (o *object) member(name string, f func(*object)) {
	mark, had := len(o.buf), o.any
	o.key(name)
	in := begin(o.buf)
	f(&in)
	if !in.any {
		o.buf, o.any = in.buf[:mark], had
		return
	}
	o.buf = append(in.buf, '}')
}

func (o *object) end() []byte { return append(o.buf, '}') }

func list[T any](o *object, name string, items []T, f func(*object, *T)) {
	if len(items) == 0 {
		return
	}
	o.key(name)
	o.buf = append(o.buf, '[')
	for i := range items {
		if i > 0 {
			o.buf = append(o.buf, ',')
		}
		in := begin(o.buf)
		f(&in, &items[i])
		o.buf = in.end()
	}
	o.buf = append(o.buf, ']')
}

func words[T ~string](o *object, name string, items []T) {
	if len(items) == 0 {
		return
	}
	o.key(name)
	o.buf = append(o.buf, '[')
	for i, s := range items {
		if i > 0 {
			o.buf = append(o.buf, ',')
		}
		o.buf = appendString(o.buf, string(s))
	}
	o.buf = append(o.buf, ']')
}

func appendConfig(buf []byte, c *Config) []byte {
	o := begin(buf)
	o.key("ignition")
	ign := begin(o.buf)
	putIgnition(&ign, &c.Ignition)
	o.buf = ign.end()
	o.member("kernelArguments", func(o *object) {
		words(o, "shouldExist", c.KernelArguments.ShouldExist)
		words(o, "shouldNotExist", c.KernelArguments.ShouldNotExist)
	})
	o.member("passwd", func(o *object) {
		list(o, "groups", c.Passwd.Groups, putGroup)
		list(o, "users", c.Passwd.Users, putUser)
	})
	o.member("storage", func(o *object) { putStorage(o, &c.Storage) })
	o.member("systemd", func(o *object) { list(o, "units", c.Systemd.Units, putUnit) })
	return o.end()
}

func putIgnition(o *object, v *types.Ignition) {
	o.member("config", func(o *object) {
		list(o, "merge", v.Config.Merge, putResource)
		o.member("replace", func(o *object) { putResource(o, &v.Config.Replace) })
	})
	o.member("proxy", func(o *object) {
		o.texts("httpProxy", v.Proxy.HTTPProxy)
		o.texts("httpsProxy", v.Proxy.HTTPSProxy)
		words(o, "noProxy", v.Proxy.NoProxy)
	})
	o.member("security", func(o *object) {
		o.member("tls", func(o *object) {
			list(o, "certificateAuthorities", v.Security.TLS.CertificateAuthorities, putResource)
		})
	})
	o.member("timeouts", func(o *object) {
		o.int("httpResponseHeaders", v.Timeouts.HTTPResponseHeaders)
		o.int("httpTotal", v.Timeouts.HTTPTotal)
	})
	o.text("version", v.Version)
}

func putResource(o *object, v *types.Resource) {
	o.texts("compression", v.Compression)
	list(o, "httpHeaders", v.HTTPHeaders, func(o *object, h *types.HTTPHeader) {
		o.text("name", h.Name)
		o.texts("value", h.Value)
	})
	o.texts("source", v.Source)
	o.member("verification", func(o *object) { o.texts("hash", v.Verification.Hash) })
}

func putGroup(o *object, v *types.PasswdGroup) {
	o.int("gid", v.Gid)
	o.text("name", v.Name)
	o.texts("passwordHash", v.PasswordHash)
	o.bool("shouldExist", v.ShouldExist)
	o.bool("system", v.System)
}

func putUser(o *object, v *types.PasswdUser) {
	o.texts("gecos", v.Gecos)
	words(o, "groups", v.Groups)
	o.texts("homeDir", v.HomeDir)
	o.text("name", v.Name)
	o.bool("noCreateHome", v.NoCreateHome)
	o.bool("noLogInit", v.NoLogInit)
	o.bool("noUserGroup", v.NoUserGroup)
	o.texts("passwordHash", v.PasswordHash)
	o.texts("primaryGroup", v.PrimaryGroup)
	words(o, "sshAuthorizedKeys", v.SSHAuthorizedKeys)
	o.texts("shell", v.Shell)
	o.bool("shouldExist", v.ShouldExist)
	o.bool("system", v.System)
	o.int("uid", v.UID)
}

func putUnit(o *object, v *types.Unit) {
	o.texts("contents", v.Contents)
	list(o, "dropins", v.Dropins, func(o *object, d *types.Dropin) {
		o.texts("contents", d.Contents)
		o.text("name", d.Name)
	})
	o.bool("enabled", v.Enabled)
	o.bool("mask", v.Mask)
	o.text("name", v.Name)
}

func putStorage(o *object, v *types.Storage) {
	list(o, "directories", v.Directories, func(o *object, d *types.Directory) {
		putNode(o, &d.Node)
		o.int("mode", d.Mode)
	})
	list(o, "disks", v.Disks, putDisk)
	list(o, "files", v.Files, putFile)
	list(o, "filesystems", v.Filesystems, putFilesystem)
	list(o, "links", v.Links, func(o *object, l *types.Link) {
		putNode(o, &l.Node)
		o.bool("hard", l.Hard)
		o.texts("target", l.Target)
	})
	list(o, "luks", v.Luks, putLuks)
	list(o, "raid", v.Raid, func(o *object, r *types.Raid) {
		words(o, "devices", r.Devices)
		o.texts("level", r.Level)
		o.text("name", r.Name)
		words(o, "options", r.Options)
		o.int("spares", r.Spares)
	})
}

func putNode(o *object, v *types.Node) {
	o.member("group", func(o *object) {
		o.int("id", v.Group.ID)
		o.texts("name", v.Group.Name)
	})
	o.bool("overwrite", v.Overwrite)
	o.text("path", v.Path)
	o.member("user", func(o *object) {
		o.int("id", v.User.ID)
		o.texts("name", v.User.Name)
	})
}

func putFile(o *object, v *types.File) {
	putNode(o, &v.Node)
	list(o, "append", v.Append, putResource)
	o.member("contents", func(o *object) { putResource(o, &v.Contents) })
	o.int("mode", v.Mode)
}

func putDisk(o *object, v *types.Disk) {
	o.text("device", v.Device)
	list(o, "partitions", v.Partitions, func(o *object, p *types.Partition) {
		o.texts("guid", p.GUID)
		o.texts("label", p.Label)
		if p.Number != 0 {
			o.int("number", &p.Number)
		}
		o.bool("resize", p.Resize)
		o.bool("shouldExist", p.ShouldExist)
		o.int("sizeMiB", p.SizeMiB)
		o.int("startMiB", p.StartMiB)
		o.texts("typeGuid", p.TypeGUID)
		o.bool("wipePartitionEntry", p.WipePartitionEntry)
	})
	o.bool("wipeTable", v.WipeTable)
}

func putFilesystem(o *object, v *types.Filesystem) {
	o.text("device", v.Device)
	o.texts("format", v.Format)
	o.texts("label", v.Label)
	words(o, "mountOptions", v.MountOptions)
	words(o, "options", v.Options)
	o.texts("path", v.Path)
	o.texts("uuid", v.UUID)
	o.bool("wipeFilesystem", v.WipeFilesystem)
}

func putLuks(o *object, v *types.Luks) {
	o.member("cex", func(o *object) { o.bool("enabled", v.Cex.Enabled) })
	o.member("clevis", func(o *object) {
		o.member("custom", func(o *object) {
			o.texts("config", v.Clevis.Custom.Config)
			o.bool("needsNetwork", v.Clevis.Custom.NeedsNetwork)
			o.texts("pin", v.Clevis.Custom.Pin)
		})
		list(o, "tang", v.Clevis.Tang, func(o *object, t *types.Tang) {
			o.texts("advertisement", t.Advertisement)
			o.texts("thumbprint", t.Thumbprint)
			if t.URL != "" {
				o.text("url", t.URL)
			}
		})
		o.int("threshold", v.Clevis.Threshold)
		o.bool("tpm2", v.Clevis.Tpm2)
	})
	o.texts("device", v.Device)
	o.bool("discard", v.Discard)
	o.member("keyFile", func(o *object) { putResource(o, &v.KeyFile) })
	o.texts("label", v.Label)
	o.text("name", v.Name)
	words(o, "openOptions", v.OpenOptions)
	words(o, "options", v.Options)
	o.texts("uuid", v.UUID)
	o.bool("wipeVolume", v.WipeVolume)
}

const hexDigits = "0123456789abcdef"

// appendString writes a JSON string. Only what must be escaped is.
func appendString(buf []byte, s string) []byte {
	buf = append(buf, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				buf = append(buf, s[start:i]...)
				buf = append(buf, "\uFFFD"...)
				start = i + 1
			}
			i += size
			continue
		}
		buf = append(buf, s[start:i]...)
		switch c {
		case '"', '\\':
			buf = append(buf, '\\', c)
		case '\n':
			buf = append(buf, '\\', 'n')
		case '\r':
			buf = append(buf, '\\', 'r')
		case '\t':
			buf = append(buf, '\\', 't')
		default:
			buf = append(buf, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	buf = append(buf, s[start:]...)
	return append(buf, '"')
}
