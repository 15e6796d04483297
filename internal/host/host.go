// Package host has effects on one machine: files, units, users, kernel arguments,
// OS images, services and reboots, below a root directory or in memory. It performs
// Steps that engine/transition has planned and says what is there; it never decides
// whether a step is right and knows no Kubernetes.
//
//	h, err := host.New("/", host.Options{})
//	facts, err := h.Facts(ctx)
//	states, blobs, err := h.Observe(ctx, refs)
//	err = h.Perform(ctx, step, blobs)
package host

import (
	"context"

	"millwright.io/millwright/internal/engine/transition"
)

// Host is one machine. Paths are absolute host paths; every path and link is
// resolved inside the host's root. Safe for one caller at a time, except Watch and
// reads.
type Host interface {
	// Facts looks at the machine anew.
	Facts(ctx context.Context) (transition.Facts, error)
	// Observe returns the state of each ref and the blobs of all files in them. An
	// absent file is a state, not an error.
	Observe(ctx context.Context, refs []transition.Ref) (map[transition.Ref]transition.State, transition.Blobs, error)
	// Perform brings about step.After. It is safe to repeat, also after a crash in
	// the middle of it. Messages name host paths, as in
	// "lstat /tmp/tmpfile: no such file or directory".
	Perform(ctx context.Context, step transition.Step, blobs transition.Blobs) error
	// Verify checks that an effect took hold: the restarted or reloaded unit is
	// active, the reboot changed the boot ID. Other steps are compared with Observe.
	Verify(ctx context.Context, step transition.Step) error
	// Files gives the machine's files for the agent's own records.
	Files() Files
	// Watch calls changed for each path below one of the given files' folders that
	// changes, until ctx ends. A host that cannot watch returns ErrNoWatch.
	Watch(ctx context.Context, paths []string, changed func(path string)) error
}

// Files reads and writes single files. Every method resolves links inside the root.
// Errors are *fs.PathError with the host path.
type Files interface {
	ReadFile(path string) ([]byte, error)
	// Lstat does not follow a link at the end of path.
	Lstat(path string) (Info, error)
	ReadLink(path string) (string, error)
	// ReadDir returns the names in a folder, sorted.
	ReadDir(path string) ([]string, error)
	// Replace writes a file in one step: temporary file beside it, mode, owner,
	// contents, sync, rename, sync of the folder. Missing folders are made (0755).
	Replace(path string, body []byte, attr Attr) error
	// Append adds to a file and syncs it; a new file gets attr, and its folder is
	// synced.
	Append(path string, body []byte, attr Attr) error
	// Link makes or replaces a symbolic link in one step and syncs the folder.
	Link(target, path string) error
	// Remove removes a file, a link or an empty folder and syncs the folder. What is
	// not there is removed already.
	Remove(path string) error
	// Rename moves a file and syncs both folders.
	Rename(from, to string) error
}

// Attr is mode and owner of a file. Label is an SELinux label, "" for the folder's
// default.
type Attr struct {
	Mode     uint32 // permission bits
	UID, GID int
	Label    string
}

// Info is what Lstat tells.
type Info struct {
	Mode     uint32 // as os.FileMode: type, permission and special bits
	UID, GID int
	Size     int64
	Label    string
}
