package ignition

import (
	"github.com/coreos/ignition/v2/config/v3_5/types"

	"millwright.io/millwright/internal/engine/ignition/rawjson"
)

// parseFast reads what nearly every machine config is made of – files,
// directories, links, units, users – several times faster than the official
// parser. ok is false for anything else and for anything that might be wrong:
// then the official parser decides. These sections are the same in all versions
// of spec 3; what came later is left to the official parser as well.
func parseFast(raw []byte) (cfg Config, ok bool) {
	d := decoder{r: rawjson.New(string(raw))}
	d.r.Object(func(key string) {
		switch key {
		case "ignition":
			d.r.Object(func(key string) {
				if key != "version" {
					d.r.Refuse()
					return
				}
				_ = d.r.String() // the caller has read it
			})
		case "passwd":
			d.passwd(&cfg.Passwd)
		case "storage":
			d.storage(&cfg.Storage)
		case "systemd":
			d.r.Object(func(key string) {
				if key != "units" {
					d.r.Refuse()
					return
				}
				cfg.Systemd.Units = array(&d, d.unit)
			})
		default:
			d.r.Refuse()
		}
	})
	cfg.Ignition.Version = InternalVersion
	if !d.r.Done() || !Clean(&cfg) {
		return Config{}, false
	}
	return cfg, true
}

// decoder fills the types from JSON. Small values that are held by pointer come
// from shared blocks, which saves most allocations.
type decoder struct {
	r       *rawjson.Reader
	strings []string
	ints    []int
	bools   []bool
}

// block is how many values are allocated together.
const block = 64

func pointer[T any](pool *[]T, v T) *T {
	if len(*pool) == cap(*pool) {
		*pool = make([]T, 0, block)
	}
	*pool = append(*pool, v)
	return &(*pool)[len(*pool)-1]
}

func (d *decoder) text() *string { return pointer(&d.strings, d.r.String()) }
func (d *decoder) int() *int     { return pointer(&d.ints, d.r.Int()) }
func (d *decoder) bool() *bool   { return pointer(&d.bools, d.r.Bool()) }

// array reads a list of objects.
func array[T any](d *decoder, item func(key string, v *T)) []T {
	var out []T
	d.r.Array(func() {
		var v T
		d.r.Object(func(key string) { item(key, &v) })
		out = append(out, v)
	})
	return out
}

func wordList[T ~string](d *decoder) []T {
	var out []T
	d.r.Array(func() { out = append(out, T(d.r.String())) })
	return out
}

func (d *decoder) storage(s *types.Storage) {
	d.r.Object(func(key string) {
		switch key {
		case "directories":
			s.Directories = array(d, func(key string, v *types.Directory) {
				if key == "mode" {
					v.Mode = d.int()
					return
				}
				d.node(key, &v.Node)
			})
		case "files":
			s.Files = array(d, d.file)
		case "links":
			s.Links = array(d, func(key string, v *types.Link) {
				switch key {
				case "hard":
					v.Hard = d.bool()
				case "target":
					v.Target = d.text()
				default:
					d.node(key, &v.Node)
				}
			})
		default:
			d.r.Refuse()
		}
	})
}

func (d *decoder) node(key string, n *types.Node) {
	switch key {
	case "group":
		d.owner(&n.Group.ID, &n.Group.Name)
	case "overwrite":
		n.Overwrite = d.bool()
	case "path":
		n.Path = d.r.String()
	case "user":
		d.owner(&n.User.ID, &n.User.Name)
	default:
		d.r.Refuse()
	}
}

func (d *decoder) owner(id **int, name **string) {
	d.r.Object(func(key string) {
		switch key {
		case "id":
			*id = d.int()
		case "name":
			*name = d.text()
		default:
			d.r.Refuse()
		}
	})
}

func (d *decoder) file(key string, f *types.File) {
	switch key {
	case "append":
		f.Append = array(d, d.resource)
	case "contents":
		d.r.Object(func(key string) { d.resource(key, &f.Contents) })
	case "mode":
		f.Mode = d.int()
	default:
		d.node(key, &f.Node)
	}
}

func (d *decoder) resource(key string, v *types.Resource) {
	switch key {
	case "compression":
		v.Compression = d.text()
	case "source":
		v.Source = d.text()
	case "verification":
		d.r.Object(func(key string) {
			if key != "hash" {
				d.r.Refuse()
				return
			}
			v.Verification.Hash = d.text()
		})
	default:
		d.r.Refuse()
	}
}

func (d *decoder) unit(key string, u *types.Unit) {
	switch key {
	case "contents":
		u.Contents = d.text()
	case "dropins":
		u.Dropins = array(d, func(key string, v *types.Dropin) {
			switch key {
			case "contents":
				v.Contents = d.text()
			case "name":
				v.Name = d.r.String()
			default:
				d.r.Refuse()
			}
		})
	case "enabled":
		u.Enabled = d.bool()
	case "mask":
		u.Mask = d.bool()
	case "name":
		u.Name = d.r.String()
	default:
		d.r.Refuse()
	}
}

func (d *decoder) passwd(p *types.Passwd) {
	d.r.Object(func(key string) {
		switch key {
		case "groups":
			p.Groups = array(d, d.group)
		case "users":
			p.Users = array(d, d.user)
		default:
			d.r.Refuse()
		}
	})
}

func (d *decoder) group(key string, g *types.PasswdGroup) {
	switch key {
	case "gid":
		g.Gid = d.int()
	case "name":
		g.Name = d.r.String()
	case "passwordHash":
		g.PasswordHash = d.text()
	case "system":
		g.System = d.bool()
	default:
		d.r.Refuse()
	}
}

func (d *decoder) user(key string, u *types.PasswdUser) {
	switch key {
	case "gecos":
		u.Gecos = d.text()
	case "groups":
		u.Groups = wordList[types.Group](d)
	case "homeDir":
		u.HomeDir = d.text()
	case "name":
		u.Name = d.r.String()
	case "noCreateHome":
		u.NoCreateHome = d.bool()
	case "noLogInit":
		u.NoLogInit = d.bool()
	case "noUserGroup":
		u.NoUserGroup = d.bool()
	case "passwordHash":
		u.PasswordHash = d.text()
	case "primaryGroup":
		u.PrimaryGroup = d.text()
	case "sshAuthorizedKeys":
		u.SSHAuthorizedKeys = wordList[types.SSHAuthorizedKey](d)
	case "shell":
		u.Shell = d.text()
	case "system":
		u.System = d.bool()
	case "uid":
		u.UID = d.int()
	default:
		d.r.Refuse()
	}
}
