package diff

import (
	"encoding/json"
	"reflect"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"millwright.io/millwright/internal/engine/ignition"
	"millwright.io/millwright/internal/engine/render"
)

// Refusals in the words of OpenShift's machine config daemon.
const (
	reasonGroups      = "invalid passwd change(s): ignition Passwd Groups section contains changes"
	reasonNonCore     = "invalid passwd change(s): ignition passwd user section contains unsupported changes: non-core user"
	reasonNoKeys      = "invalid passwd change(s): ignition passwd user section contains unsupported changes: user must be core and have 1 or more sshKeys"
	reasonCoreFields  = "invalid passwd change(s): SSH keys and password hash are not reconcilable"
	reasonKargs       = "ignition kargs section contains changes"
	reasonDisks       = "ignition disks section contains changes"
	reasonFilesystems = "ignition filesystems section contains changes"
	reasonRaid        = "ignition raid section contains changes"
	reasonDirectories = "ignition directories section contains changes"
	reasonLinks       = "ignition links section contains changes"
	reasonForceFile   = "cannot create /run/machine-config-daemon-force via Ignition"
	reasonFIPS        = "detected change to FIPS flag; refusing to modify FIPS on a running cluster"
)

// forceFile makes the original's daemon skip its checks.
const forceFile = "/run/machine-config-daemon-force"

// userCore is the only user a MachineConfig may describe.
const userCore = "core"

// sections compares the parts of a config that no running node applies.
func sections(before, after *ignition.Config) []Change {
	var out []Change
	add := func(kind string, inert bool, changes []Change) {
		for _, c := range changes {
			c.Inert = inert
			out = append(out, c)
		}
	}
	a, b := &before.Storage, &after.Storage
	add(render.KindGroup, false, compareList(render.KindGroup, before.Passwd.Groups, after.Passwd.Groups, func(g types.PasswdGroup) string { return g.Name }))
	add(render.KindDirectory, false, compareList(render.KindDirectory, a.Directories, b.Directories, func(d types.Directory) string { return d.Path }))
	// Links that are all taken away are left where they are.
	add(render.KindLink, len(b.Links) == 0, compareList(render.KindLink, a.Links, b.Links, func(l types.Link) string { return l.Path }))
	add(render.KindDisk, false, compareList(render.KindDisk, a.Disks, b.Disks, func(d types.Disk) string { return d.Device }))
	add(render.KindRaid, false, compareList(render.KindRaid, a.Raid, b.Raid, func(r types.Raid) string { return r.Name }))
	add(render.KindFilesystem, false, compareList(render.KindFilesystem, a.Filesystems, b.Filesystems, func(f types.Filesystem) string { return f.Device }))
	add(render.KindLuks, true, compareList(render.KindLuks, a.Luks, b.Luks, func(l types.Luks) string { return l.Name }))
	if !reflect.DeepEqual(kargsOf(before), kargsOf(after)) {
		out = append(out, Change{Kind: render.KindIgnitionKarg, Op: Changed, Before: printed(before.KernelArguments), After: printed(after.KernelArguments)})
	}
	x, y := before.Ignition, after.Ignition
	x.Version, y.Version = "", ""
	if p, q := printed(x), printed(y); p.Value != q.Value {
		out = append(out, Change{Kind: render.KindIgnition, Op: Changed, Before: p, After: q, Inert: true})
	}
	return out
}

func compareList[T any](kind string, before, after []T, key func(T) string) []Change {
	list := func(in []T) items {
		var out items
		for _, v := range in {
			out.put(key(v), printed(v))
		}
		return out
	}
	return list(before).compare(list(after), kind)
}

// printed is an item shown as its JSON.
func printed(v any) *Item {
	raw, err := json.Marshal(v)
	if err != nil {
		return &Item{Broken: err.Error()}
	}
	return &Item{Value: string(raw)}
}

// refusedSections lists, in the order the original checks, what a running node
// cannot take. The first one is the reason the original gives.
func refusedSections(before, after *ignition.Config) []Unreconcilable {
	var out []Unreconcilable
	add := func(kind, key, reason string) {
		out = append(out, Unreconcilable{Kind: kind, Key: key, Reason: reason})
	}
	if changed(before.Passwd.Groups, after.Passwd.Groups) {
		add(render.KindGroup, "", reasonGroups)
	}
	if changed(before.Passwd.Users, after.Passwd.Users) {
		if name, reason := refusedUser(after.Passwd.Users); reason != "" {
			add(render.KindUser, name, reason)
		}
	}
	if !reflect.DeepEqual(kargsOf(before), kargsOf(after)) {
		add(render.KindIgnitionKarg, "", reasonKargs)
	}
	a, b := &before.Storage, &after.Storage
	for _, s := range []struct {
		changed      bool
		kind, reason string
	}{
		{changed(a.Disks, b.Disks), render.KindDisk, reasonDisks},
		{changed(a.Filesystems, b.Filesystems), render.KindFilesystem, reasonFilesystems},
		{changed(a.Raid, b.Raid), render.KindRaid, reasonRaid},
		{changed(a.Directories, b.Directories), render.KindDirectory, reasonDirectories},
		{len(b.Links) > 0 && changed(a.Links, b.Links), render.KindLink, reasonLinks},
	} {
		if s.changed {
			add(s.kind, "", s.reason)
		}
	}
	for i := range b.Files {
		if f := &b.Files[i]; len(f.Append) > 0 {
			add(render.KindFile, f.Path, "ignition file "+f.Path+" includes append")
		}
	}
	for i := range b.Files {
		if b.Files[i].Path == forceFile {
			add(render.KindFile, forceFile, reasonForceFile)
		}
	}
	return out
}

// refusedUser tells why users cannot be applied; "" if they can. As in the
// original only the fields of the last entry count.
func refusedUser(users []types.PasswdUser) (name, reason string) {
	if len(users) == 0 {
		return "", ""
	}
	for _, u := range users {
		if u.Name != userCore {
			return u.Name, reasonNonCore
		}
	}
	last := users[len(users)-1]
	if len(last.SSHAuthorizedKeys) == 0 && last.PasswordHash == nil {
		return userCore, reasonNoKeys
	}
	last.SSHAuthorizedKeys, last.PasswordHash = nil, nil
	if !reflect.DeepEqual(last, types.PasswdUser{Name: userCore}) {
		return userCore, reasonCoreFields
	}
	return "", ""
}

func changed[T any](a, b []T) bool {
	return (len(a) > 0 || len(b) > 0) && !reflect.DeepEqual(a, b)
}

func kargsOf(cfg *ignition.Config) [2][]types.KernelArgument {
	k := [2][]types.KernelArgument{cfg.KernelArguments.ShouldExist, cfg.KernelArguments.ShouldNotExist}
	for i := range k {
		if len(k[i]) == 0 {
			k[i] = nil
		}
	}
	return k
}
