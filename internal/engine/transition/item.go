package transition

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"millwright.io/millwright/internal/engine/diff"
	"millwright.io/millwright/internal/engine/ignition"
	"millwright.io/millwright/internal/engine/render"
)

// UnitDir is where configs put units.
const UnitDir = "/etc/systemd/system"

// anchors is the folder for CA files of the originals' hosts.
const anchors = "/etc/pki/ca-trust/source/anchors"

// userCore is the only user whose keys and password a config may set.
const userCore = "core"

// item is what a config wants of one thing on a host.
type item struct {
	Ref
	want   State
	body   []byte // of want.Digest
	kind   string // of the config's item, for labels
	key    string
	unwant bool // only tells what to look at: the config says nothing about it
	unit   string
	broken string // why the contents cannot be had
}

func (it item) label() string { return diff.Label(it.kind, it.key) }

// contents is everything a config says about files, units and users, in order.
type contents struct {
	files   []item
	units   []item // contents and masks of units, then drop-ins
	enables []item
	users   []item
}

func (c *contents) all() []item { return slices.Concat(c.files, c.units, c.enables, c.users) }

// read parses the config of a spec; an absent one is empty.
func read(spec *mcfgv1.MachineConfigSpec) (ignition.Config, error) {
	raw := spec.Config.Raw
	if len(raw) == 0 || string(raw) == "null" {
		return ignition.Config{}, nil
	}
	source, err := ignition.ReadMachineConfig(raw)
	if err != nil {
		return ignition.Config{}, err
	}
	return source.Config()
}

// itemsOf lists what a config wants on a host with these facts.
func itemsOf(cfg *ignition.Config, f *Facts) contents {
	var c contents
	seen := map[string]int{}
	for i := range cfg.Storage.Files {
		it := fileItem(&cfg.Storage.Files[i], f)
		if at, ok := seen[it.Key]; ok {
			c.files[at] = it
			continue
		}
		seen[it.Key] = len(c.files)
		c.files = append(c.files, it)
	}
	for i := range cfg.Systemd.Units {
		c.addUnit(&cfg.Systemd.Units[i], f)
	}
	c.users = userItems(cfg, f)
	return c
}

func fileItem(file *types.File, f *Facts) item {
	it := item{Ref: Ref{KindFile, hostPath(file.Path, f)}, kind: render.KindFile, key: file.Path}
	mode := diff.DefaultMode
	if file.Mode != nil {
		mode = *file.Mode
	}
	it.want = State{Type: File, Mode: uint32(mode)}
	setOwner(&it.want, ownerName(file.User), ownerName(file.Group), f)
	data, err := ignition.Contents(file.Contents)
	switch {
	case errors.Is(err, ignition.ErrRemote):
		it.broken = fmt.Sprintf("could not decode file %q: could not decode file content string: source is not a data URL", file.Path)
	case err != nil:
		it.broken = fmt.Sprintf("could not decode file %q: could not decode file content string: %v", file.Path, err)
	default:
		it.setBody(data)
	}
	return it
}

func (it *item) setBody(data []byte) {
	it.body, it.want.Digest = data, Digest(data)
}

// Digest names a blob.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// hostPath moves CA files to where the host's trust store reads them.
func hostPath(p string, f *Facts) string {
	if f.TrustAnchors == "" || path.Dir(p) != anchors {
		return p
	}
	return f.TrustAnchors + "/" + strings.TrimSuffix(path.Base(p), path.Ext(p)) + ".crt"
}

// ownerName is a number or a name; a number beats a name, and root is 0.
func ownerName[T types.NodeUser | types.NodeGroup](n T) string {
	v := types.NodeUser(n)
	switch {
	case v.ID != nil:
		return strconv.Itoa(*v.ID)
	case v.Name == nil || *v.Name == "" || *v.Name == "root":
		return "0"
	}
	return *v.Name
}

// setOwner turns names into numbers where the facts know them. A group that only
// the host can look up stays in Owner.
func setOwner(s *State, user, group string, f *Facts) {
	uid, okUser := lookup(user, func(u User) int { return u.UID }, f)
	gid, okGroup := lookup(group, func(u User) int { return u.GID }, f)
	if okUser && okGroup {
		s.UID, s.GID = uid, gid
		return
	}
	s.Owner = user + ":" + group
}

func lookup(name string, id func(User) int, f *Facts) (int, bool) {
	if n, err := strconv.Atoi(name); err == nil {
		return n, true
	}
	u, ok := f.Users[name]
	if !ok {
		return 0, false
	}
	return id(u), true
}

// addUnit lists what a unit's section means on disk. Empty contents write nothing.
func (c *contents) addUnit(u *types.Unit, f *Facts) {
	at := Ref{KindFile, UnitDir + "/" + u.Name}
	masked := u.Mask != nil && *u.Mask
	text := deref(u.Contents)
	base := item{Ref: at, kind: render.KindUnit, key: u.Name, unit: u.Name}
	switch {
	case masked:
		base.want = State{Type: Link, Target: "/dev/null"}
		c.units = append(c.units, base)
	case text != "":
		base.want = State{Type: File, Mode: 0o644}
		base.setBody([]byte(text))
		c.units = append(c.units, base)
	case u.Mask != nil:
		// An explicit false takes a mask or a leftover file away.
		base.want = State{Type: Absent}
		c.units = append(c.units, base)
	}
	for _, d := range u.Dropins {
		it := item{Ref: Ref{KindFile, UnitDir + "/" + u.Name + ".d/" + d.Name}, kind: render.KindDropin, key: u.Name + "/" + d.Name, unit: u.Name}
		if body := deref(d.Contents); body != "" {
			it.want = State{Type: File, Mode: 0o644}
			it.setBody([]byte(body))
		} else {
			it.want = State{Type: Absent}
		}
		c.units = append(c.units, it)
	}
	if !masked {
		c.addEnablement(u, f)
	}
}

// addEnablement says whether a unit starts at boot. A unit that nobody ships cannot
// be enabled: it is left out.
func (c *contents) addEnablement(u *types.Unit, f *Facts) {
	it := item{Ref: Ref{KindUnit, u.Name}, kind: render.KindUnit, key: u.Name, unit: u.Name}
	text := deref(u.Contents)
	if _, shipped := slices.BinarySearch(f.UnitFiles, u.Name); text == "" && !shipped && !instanceShipped(u.Name, f) {
		return
	}
	word := "preset"
	switch {
	case u.Enabled == nil && text == "":
		return
	case u.Enabled != nil && *u.Enabled:
		word = "enabled"
	case u.Enabled != nil:
		word = "disabled"
	}
	it.want = State{Type: Value, Value: word}
	c.enables = append(c.enables, it)
}

// instanceShipped tells that name is an instance of a template the host has.
func instanceShipped(name string, f *Facts) bool {
	prefix, rest, ok := strings.Cut(name, "@")
	if !ok {
		return false
	}
	_, found := slices.BinarySearch(f.UnitFiles, prefix+"@"+path.Ext(rest))
	return found
}

// userItems are the keys of all users in one file, and the passwords. A host
// without the user gets neither.
func userItems(cfg *ignition.Config, f *Facts) []item {
	core, known := f.Users[userCore]
	if !known || len(cfg.Passwd.Users) == 0 {
		return nil
	}
	var keys strings.Builder
	hashes := map[string]string{}
	var names []string
	for i := range cfg.Passwd.Users {
		u := &cfg.Passwd.Users[i]
		for _, k := range u.SSHAuthorizedKeys {
			keys.WriteString(strings.TrimSpace(string(k)) + "\n")
		}
		if !slices.Contains(names, u.Name) {
			names = append(names, u.Name)
		}
		// No hash means that no password opens the account.
		hashes[u.Name] = "*"
		if h := deref(u.PasswordHash); h != "" {
			hashes[u.Name] = h
		}
	}
	var out []item
	if f.SSHKeys != "" {
		it := item{Ref: Ref{KindFile, f.SSHKeys}, kind: render.KindUser, key: userCore}
		it.want = State{Type: File, Mode: 0o600, UID: core.UID, GID: core.GID}
		it.setBody([]byte(keys.String()))
		out = append(out, it)
	}
	for _, name := range names {
		if _, ok := f.Users[name]; !ok {
			continue
		}
		it := item{Ref: Ref{KindPassword, name}, kind: diff.KindPasswordHash, key: name}
		it.want = State{Type: Value}
		it.setBody([]byte(hashes[name]))
		out = append(out, it)
	}
	return out
}

func deref(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}
