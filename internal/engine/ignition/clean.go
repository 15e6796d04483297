package ignition

import (
	"net/url"
	"path"
	"strings"

	"github.com/coreos/ignition/v2/config/shared/parse"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/coreos/ignition/v2/config/validate"
	"github.com/vincent-petithory/dataurl"
)

// Clean tells quickly that a config of the internal form has no fault. false
// means that it may have one: then Validate says which. It is linear in the
// size of the config; what is rare and small goes to the official check.
func Clean(cfg *Config) bool {
	s := &cfg.Storage
	if cfg.Ignition.Version != InternalVersion {
		return false
	}
	paths := make(map[string]struct{}, len(s.Files)+len(s.Directories)+len(s.Links))
	if !cleanNodes(s, paths) || !cleanUnits(cfg.Systemd.Units, paths) || !cleanPasswd(&cfg.Passwd) {
		return false
	}
	if plainIgnition(&cfg.Ignition) && len(cfg.KernelArguments.ShouldExist)+len(cfg.KernelArguments.ShouldNotExist)+
		len(s.Disks)+len(s.Filesystems)+len(s.Luks)+len(s.Raid) == 0 {
		return true
	}
	// No rule looks at one of these and at a file, a unit or a user.
	rest := Config{
		Ignition:        cfg.Ignition,
		KernelArguments: cfg.KernelArguments,
		Storage:         types.Storage{Disks: s.Disks, Filesystems: s.Filesystems, Luks: s.Luks, Raid: s.Raid},
	}
	return !validate.ValidateWithContext(rest, nil).IsFatal()
}

// plainIgnition tells that the section has nothing that needs a check.
func plainIgnition(v *types.Ignition) bool {
	return emptyResource(&v.Config.Replace) && v.Proxy.HTTPProxy == nil && v.Proxy.HTTPSProxy == nil &&
		len(v.Config.Merge)+len(v.Security.TLS.CertificateAuthorities)+len(v.Proxy.NoProxy) == 0
}

func emptyResource(r *types.Resource) bool {
	return r.Source == nil && r.Compression == nil && r.Verification.Hash == nil && len(r.HTTPHeaders) == 0
}

// once adds a key and tells that it is new.
func once(seen map[string]struct{}, key string) bool {
	n := len(seen)
	seen[key] = struct{}{}
	return len(seen) > n
}

func cleanNodes(s *types.Storage, paths map[string]struct{}) bool {
	for i := range s.Files {
		if !cleanFile(&s.Files[i], paths) {
			return false
		}
	}
	for i := range s.Directories {
		if d := &s.Directories[i]; !cleanNode(&d.Node, paths) || !cleanMode(d.Mode) {
			return false
		}
	}
	return len(s.Links) == 0 || cleanLinks(s.Links, paths)
}

func cleanFile(f *types.File, paths map[string]struct{}) bool {
	if !cleanNode(&f.Node, paths) || !cleanMode(f.Mode) || !cleanResource(&f.Contents) {
		return false
	}
	for i := range f.Append {
		if !cleanResource(&f.Append[i]) {
			return false
		}
	}
	return !isTrue(f.Overwrite) || f.Contents.Source != nil
}

func cleanLinks(list []types.Link, paths map[string]struct{}) bool {
	links := make(map[string]struct{}, len(list))
	for i := range list {
		l := &list[i]
		if !cleanNode(&l.Node, paths) || isTrue(l.Hard) || l.Target == nil || *l.Target == "" {
			return false
		}
		links[l.Path] = struct{}{}
	}
	// Nothing may lie behind a link of the same config.
	for p := range paths {
		for dir := path.Dir(p); dir != "/"; dir = path.Dir(dir) {
			if _, is := links[dir]; is {
				return false
			}
		}
	}
	return true
}

func cleanNode(n *types.Node, paths map[string]struct{}) bool {
	if n.Path == "" || n.Path[0] != '/' || path.Clean(n.Path) != n.Path || !once(paths, n.Path) {
		return false
	}
	both := func(id *int, name *string) bool { return id != nil && name != nil && *name != "" }
	return !both(n.User.ID, n.User.Name) && !both(n.Group.ID, n.Group.Name)
}

func cleanMode(m *int) bool { return m == nil || *m >= 0 && *m <= 0o7777 }

func cleanResource(r *types.Resource) bool {
	if len(r.HTTPHeaders) > 0 || r.Verification.Hash != nil {
		return false
	}
	if r.Compression != nil && *r.Compression != "" && *r.Compression != "gzip" {
		return false
	}
	return r.Source == nil || *r.Source == "" || cleanSource(*r.Source)
}

// cleanSource knows the usual shapes of data URLs and asks the official
// decoder about the others. Other schemes are left to the official check.
func cleanSource(source string) bool {
	head, body, found := strings.Cut(source, ",")
	if !found {
		return false
	}
	switch head {
	case "data:", "data:text/plain", "data:text/plain;charset=utf-8":
		if plainBody(body) {
			return true
		}
	case "data:;base64", "data:text/plain;base64", "data:text/plain;charset=utf-8;base64":
		if base64Body(body) {
			return true
		}
	}
	if !strings.HasPrefix(source, "data:") {
		return false
	}
	if _, err := url.Parse(source); err != nil {
		return false
	}
	_, err := dataurl.DecodeString(source)
	return err == nil
}

func base64Body(s string) bool {
	if len(s)%4 != 0 {
		return false
	}
	s = strings.TrimSuffix(strings.TrimSuffix(s, "="), "=")
	for i := 0; i < len(s); i++ {
		if !base64Char[s[i]] {
			return false
		}
	}
	return true
}

var base64Char = func() (t [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") {
		t[c] = true
	}
	return t
}()

func cleanUnits(units []types.Unit, paths map[string]struct{}) bool {
	const dir = "/etc/systemd/system/"
	names := make(map[string]struct{}, len(units))
	for i := range units {
		u := &units[i]
		if !unitName(u.Name) || !once(names, u.Name) || !cleanContents(u.Contents) {
			return false
		}
		if len(paths) > 0 && u.Contents != nil {
			if _, taken := paths[dir+u.Name]; taken {
				return false
			}
		}
		for j := range u.Dropins {
			d := &u.Dropins[j]
			if path.Ext(d.Name) != ".conf" || !cleanContents(d.Contents) {
				return false
			}
			if !once(names, u.Name+"/"+d.Name) {
				return false
			}
			if _, taken := paths[dir+u.Name+".d/"+d.Name]; taken {
				return false
			}
		}
	}
	return true
}

func unitName(name string) bool {
	switch path.Ext(name) {
	case ".service", ".socket", ".device", ".mount", ".automount", ".swap", ".target", ".path", ".timer", ".snapshot", ".slice", ".scope":
		return true
	}
	return false
}

// cleanContents tells whether systemd's syntax is kept.
func cleanContents(contents *string) bool {
	if contents == nil || *contents == "" || plainUnit(*contents) {
		return true
	}
	_, err := parse.ParseUnitContents(contents)
	return err == nil
}

// plainUnit knows sections, comments, options and their continuations. false
// means: ask the official parser.
func plainUnit(text string) bool {
	section, continued := false, false
	for len(text) > 0 {
		line, rest, _ := strings.Cut(text, "\n")
		text = rest
		if len(line) > 2000 || strings.IndexByte(line, '\r') >= 0 {
			return false
		}
		more := strings.HasSuffix(line, `\`)
		if !more && strings.HasSuffix(strings.TrimRight(line, " \t"), `\`) {
			return false
		}
		if continued {
			continued = more
			continue
		}
		switch unitLine(strings.Trim(line, " \t")) {
		case blankLine:
		case commentLine:
			if more {
				return false
			}
		case sectionLine:
			section = true
		case optionLine:
			if !section {
				return false
			}
			continued = more
		case otherLine:
			return false
		}
	}
	return !continued
}

type lineKind int

const (
	blankLine lineKind = iota
	commentLine
	sectionLine
	optionLine
	otherLine
)

func unitLine(line string) lineKind {
	switch {
	case line == "":
		return blankLine
	case line[0] == '#' || line[0] == ';':
		return commentLine
	case line[0] == '[' && strings.IndexByte(line, ']') == len(line)-1:
		return sectionLine
	case line[0] != '[' && strings.IndexByte(line, '=') > 0:
		return optionLine
	}
	return otherLine
}

func cleanPasswd(p *types.Passwd) bool {
	names := make(map[string]struct{}, len(p.Users))
	for i := range p.Users {
		u := &p.Users[i]
		keys := make(map[string]struct{}, len(u.SSHAuthorizedKeys))
		for _, k := range u.SSHAuthorizedKeys {
			if !once(keys, string(k)) {
				return false
			}
		}
		clear(keys)
		for _, g := range u.Groups {
			if !once(keys, string(g)) {
				return false
			}
		}
		if !once(names, u.Name) {
			return false
		}
	}
	clear(names)
	for i := range p.Groups {
		if !once(names, p.Groups[i].Name) {
			return false
		}
	}
	return true
}
