package host

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"millwright.io/millwright/internal/engine/transition"
)

// Files of users.
const (
	passwdPath = "/etc/passwd"
	groupPath  = "/etc/group"
	shadowPath = "/etc/shadow"
	userCore   = "core"
	keysDir    = ".ssh"
)

// entries reads a file of lines with fields between colons, by the first field.
func (m *machine) entries(p string) map[string][]string {
	out := map[string][]string{}
	raw, err := m.files.ReadFile(p)
	if err != nil {
		return out
	}
	for line := range strings.Lines(string(raw)) {
		fields := strings.Split(strings.TrimRight(line, "\n"), ":")
		if fields[0] != "" && !strings.HasPrefix(fields[0], "#") {
			out[fields[0]] = fields
		}
	}
	return out
}

// users are those of the host's own database. On an ostree host the image brings
// more in /usr/lib/passwd.
func (m *machine) users() map[string]transition.User {
	out := map[string]transition.User{}
	for _, p := range []string{"/usr/lib/passwd", passwdPath} {
		for name, f := range m.entries(p) {
			if len(f) < 6 {
				continue
			}
			uid, errUID := strconv.Atoi(f[2])
			gid, errGID := strconv.Atoi(f[3])
			if errUID == nil && errGID == nil {
				out[name] = transition.User{UID: uid, GID: gid, Home: f[5]}
			}
		}
	}
	return out
}

// sshKeys is the file that the host's sshd reads the keys of user core from: the
// folder that Ignition writes to on CoreOS, else the file that every sshd knows.
func (m *machine) sshKeys(f transition.Facts) string {
	core, ok := f.Users[userCore]
	if !ok {
		return ""
	}
	home := core.Home
	if f.Class == transition.CoreOS {
		home = "/home/core" // as messages name it; /home is a link to /var/home
		return path.Join(home, keysDir, "authorized_keys.d/ignition")
	}
	return path.Join(home, keysDir, "authorized_keys")
}

// keysFolder makes the folders of an ssh key file, which sshd wants to be the
// user's alone.
func (m *machine) keysFolder(p string, attr Attr) error {
	at := strings.Index(p, "/"+keysDir+"/")
	if at < 0 || attr.UID == 0 {
		return nil
	}
	for _, dir := range []string{p[:at] + "/" + keysDir, path.Dir(p)} {
		if err := m.ownFolder(dir, attr); err != nil {
			return err
		}
	}
	return nil
}

func (m *machine) ownFolder(dir string, attr Attr) error {
	full, err := m.files.resolve(dir)
	if err != nil {
		return err
	}
	if err := m.files.folders(path.Dir(full)); err != nil {
		return &DirectoryError{Dir: dir, Err: rename(dir, err)}
	}
	info, err := m.files.disk.Lstat(full)
	if errors.Is(err, fs.ErrNotExist) {
		if err := m.files.disk.Mkdir(full, 0o700); err != nil {
			return rename(dir, err)
		}
	} else if err != nil {
		return rename(dir, err)
	} else if info.Mode&kindDir == 0 {
		// Following a link that the user made would give away what it leads to.
		return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	} else if info.UID == attr.UID && info.Mode&0o777 == 0o700 {
		return nil
	}
	if err := m.files.attributes(full, Attr{Mode: 0o700, UID: attr.UID, GID: attr.GID}); err != nil {
		return rename(dir, err)
	}
	return m.files.disk.SyncDir(path.Dir(full))
}

// owner looks user and group up, each a name or a number.
func (m *machine) owner(p, owner string) (uid, gid int, err error) {
	user, group, _ := strings.Cut(owner, ":")
	if uid, err = m.lookup(user, passwdPath, "UserID", "username"); err == nil {
		gid, err = m.lookup(group, groupPath, "GroupID", "group name")
	}
	if err != nil {
		return 0, 0, fmt.Errorf("failed to retrieve file ownership for file %q: %w", p, err)
	}
	return uid, gid, nil
}

func (m *machine) lookup(name, db, what, kind string) (int, error) {
	if n, err := strconv.Atoi(name); err == nil {
		return n, nil
	}
	for _, p := range []string{db, "/usr/lib" + strings.TrimPrefix(db, "/etc")} {
		if f := m.entries(p)[name]; len(f) > 2 {
			if n, err := strconv.Atoi(f[2]); err == nil {
				return n, nil
			}
		}
	}
	return 0, fmt.Errorf("failed to retrieve %s for %s: %s", what, kind, name)
}

// observePassword returns the digest of a user's hash; a user without a line has
// none.
func (m *machine) observePassword(user string, blobs transition.Blobs) (transition.State, error) {
	f := m.entries(shadowPath)[user]
	if len(f) < 2 {
		return transition.State{Type: transition.Absent}, nil
	}
	body := []byte(f[1])
	digest := transition.Digest(body)
	blobs[digest] = body
	return transition.State{Type: transition.Value, Digest: digest}, nil
}

// performPassword writes a user's hash. An empty one would open the account to
// everybody: it becomes a lock.
func (m *machine) performPassword(step transition.Step, blobs transition.Blobs) error {
	if step.After.Type == transition.Absent {
		return m.editShadow(step.Key, nil)
	}
	hash, ok := blobs[step.After.Digest]
	if !ok {
		return fmt.Errorf("set password of %s: its hash is missing", step.Key)
	}
	if strings.ContainsAny(string(hash), ":\n") {
		return fmt.Errorf("set password of %s: the hash holds a colon or a line break; want one line as mkpasswd prints it", step.Key)
	}
	if len(hash) == 0 {
		hash = []byte("*")
	}
	return m.editShadow(step.Key, hash)
}

// editShadow replaces, adds or, for a nil hash, removes a user's line.
func (m *machine) editShadow(user string, hash []byte) error {
	raw, err := m.files.ReadFile(shadowPath)
	info := Info{Mode: 0}
	if err == nil {
		info, err = m.files.Lstat(shadowPath)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("set password of %s: %w", user, err)
	}
	text := string(raw)
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	lines := slices.Collect(strings.Lines(text))
	at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, user+":") })
	switch {
	case at < 0 && hash == nil:
		return nil
	case hash == nil:
		lines = slices.Delete(lines, at, at+1)
	case at < 0:
		lines = append(lines, user+":"+string(hash)+"::0:99999:7:::\n")
	default:
		fields := strings.Split(lines[at], ":")
		if fields[1] == string(hash) {
			return nil
		}
		fields[1] = string(hash)
		lines[at] = strings.Join(fields, ":")
	}
	return m.files.Replace(shadowPath, []byte(strings.Join(lines, "")), Attr{Mode: info.Mode & 0o777, UID: info.UID, GID: info.GID, Label: info.Label})
}
