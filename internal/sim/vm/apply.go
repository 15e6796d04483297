package vm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"millwright.io/millwright/internal/engine/transition"
	"millwright.io/millwright/internal/host"
)

const unitDir = "/etc/systemd/system"

// presetPath is where Ignition says which units are wanted.
const presetPath = "/etc/systemd/system-preset/20-ignition.preset"

// keysPath is where Ignition puts the keys of user core.
const keysPath = "/home/core/.ssh/authorized_keys.d/ignition"

// unsynced is a disk that does not wait for the platter.
type unsynced struct{ host.Disk }

func (unsynced) Sync(string) error    { return nil }
func (unsynced) SyncDir(string) error { return nil }

// applier writes the parts of a first-boot config with the steps of a node agent.
type applier struct {
	ctx  context.Context
	root *os.Root // nil: a machine in memory, which has neither empty folders nor hard links
	host host.Host
}

// set performs one step.
func (a *applier) set(kind transition.Kind, key string, after transition.State, body []byte) error {
	blobs := transition.Blobs{}
	if body != nil {
		after.Digest = transition.Digest(body)
		blobs[after.Digest] = body
	}
	return a.host.Perform(a.ctx, transition.Step{Ref: transition.Ref{Kind: kind, Key: key}, After: after}, blobs)
}

func (a *applier) write(p string, body []byte, mode uint32, owner string) error {
	if body == nil {
		body = []byte{}
	}
	return a.set(transition.KindFile, p, transition.State{Type: transition.File, Mode: mode, Owner: owner}, body)
}

func modeOf(mode *int, fallback uint32) uint32 {
	if mode == nil {
		return fallback
	}
	return uint32(*mode) & 0o777
}

// ownerOf is user:group as a step has it, "" for root's.
func ownerOf(n types.Node) string {
	name := func(id *int, word *string) string {
		switch {
		case id != nil:
			return strconv.Itoa(*id)
		case word != nil && *word != "":
			return *word
		}
		return "0"
	}
	owner := name(n.User.ID, n.User.Name) + ":" + name(n.Group.ID, n.Group.Name)
	if owner == "0:0" || owner == "root:root" {
		return ""
	}
	return owner
}

func (a *applier) directory(d types.Directory) error {
	p, err := rel(d.Path)
	if err != nil {
		return err
	}
	if a.root == nil {
		return nil
	}
	if err := a.root.MkdirAll(p, 0o755); err != nil {
		return err
	}
	return a.root.Chmod(p, os.FileMode(modeOf(d.Mode, 0o755)))
}

func (a *applier) file(f types.File) error {
	p, err := rel(f.Path)
	if err != nil {
		return err
	}
	var body []byte
	for i, r := range append([]types.Resource{f.Contents}, f.Append...) {
		if r.Source == nil {
			continue
		}
		if i == 1 && f.Contents.Source == nil {
			if have, err := a.host.Files().ReadFile("/" + p); err == nil {
				body = have
			}
		}
		b, err := fetch(r)
		if err != nil {
			return err
		}
		body = append(body, b...)
	}
	return a.write("/"+p, body, modeOf(f.Mode, 0o644), ownerOf(f.Node))
}

func (a *applier) link(l types.Link) error {
	p, err := rel(l.Path)
	if err != nil {
		return err
	}
	if l.Target == nil || *l.Target == "" {
		return errors.New("target is missing")
	}
	if l.Hard == nil || !*l.Hard || a.root == nil {
		return a.set(transition.KindFile, "/"+p, transition.State{Type: transition.Link, Target: *l.Target}, nil)
	}
	t, err := rel(*l.Target)
	if err != nil {
		return err
	}
	if err := a.root.MkdirAll(path.Dir(p), 0o755); err != nil {
		return err
	}
	if err := a.root.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return a.root.Link(t, p)
}

// units writes all units before it enables any: one may bring another along.
func (a *applier) units(list []types.Unit) error {
	var presets strings.Builder
	for _, u := range list {
		if strings.ContainsAny(u.Name, "/\x00\n") || u.Name == "" || u.Name == "." || u.Name == ".." {
			return fmt.Errorf("write unit %s: %q is no unit name", u.Name, u.Name)
		}
		if err := a.unit(u); err != nil {
			return fmt.Errorf("write unit %s: %w", u.Name, err)
		}
		if u.Enabled != nil {
			fmt.Fprintf(&presets, "%s %s\n", map[bool]string{true: "enable", false: "disable"}[*u.Enabled], u.Name)
		}
	}
	if presets.Len() == 0 {
		return nil
	}
	if err := a.write(presetPath, []byte(presets.String()), 0o644, ""); err != nil {
		return fmt.Errorf("write presets: %w", err)
	}
	for _, u := range list {
		if u.Enabled == nil {
			continue
		}
		// A preset is a wish: what has no file, or is masked, stays as it is.
		if err := a.set(transition.KindUnit, u.Name, transition.State{Type: transition.Value, Value: "preset"}, nil); err != nil {
			continue
		}
	}
	return nil
}

func (a *applier) unit(u types.Unit) error {
	p := path.Join(unitDir, u.Name)
	for _, d := range u.Dropins {
		if d.Contents == nil || *d.Contents == "" {
			continue
		}
		if err := a.write(path.Join(unitDir, u.Name+".d", path.Base(d.Name)), []byte(*d.Contents), 0o644, ""); err != nil {
			return err
		}
	}
	switch {
	case u.Mask != nil && *u.Mask:
		return a.set(transition.KindFile, p, transition.State{Type: transition.Link, Target: "/dev/null"}, nil)
	case u.Contents != nil && *u.Contents != "":
		return a.write(p, []byte(*u.Contents), 0o644, "")
	}
	return nil
}

// user sets up user core; a machine has no others that a person logs in as.
func (a *applier) user(u types.PasswdUser) error {
	if u.Name != "core" {
		return nil
	}
	var keys strings.Builder
	for _, k := range u.SSHAuthorizedKeys {
		fmt.Fprintln(&keys, k)
	}
	if err := a.write(keysPath, []byte(keys.String()), 0o600, "core:core"); err != nil {
		return err
	}
	if u.PasswordHash == nil {
		return nil
	}
	return a.set(transition.KindPassword, u.Name, transition.State{Type: transition.Value}, []byte(*u.PasswordHash))
}
