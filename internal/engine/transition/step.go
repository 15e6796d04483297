package transition

import "fmt"

// Kind says which part of a host a Step sets.
type Kind string

// Kinds of steps. The key of a step is in parentheses.
const (
	// KindFile is one path: a file, a link or nothing (the absolute host path).
	KindFile Kind = "file"
	// KindUnit is the enablement of a unit (the unit's name). What is observed, and
	// what an inverse restores exactly, has type Links: the links below
	// /etc/systemd/system that enable the unit, as "path\x00target" values, sorted,
	// and in Value the word of systemctl is-enabled. What is planned has type Value:
	// enabled, disabled or preset, which the host turns into links by the unit's
	// [Install] section or its presets; or Links without Values: none is left.
	KindUnit Kind = "unit"
	// KindPassword is the password hash of a user (the user's name). The hash is a
	// blob; it is never printed.
	KindPassword Kind = "password"
	// KindKernelArguments is the list that a config contributes to the kernel's
	// command line, in order: Before's are deleted if present, After's appended;
	// other arguments of the host are left alone (no key). What is observed is the
	// whole list that the next boot will use.
	KindKernelArguments Kind = "kernelArguments"
	// KindImage is the OS image to boot next (no key).
	KindImage Kind = "osImageURL"
	// KindKernelType is default, realtime or 64k-pages (no key).
	KindKernelType Kind = "kernelType"
	// KindExtensions is the sorted list of extensions (no key).
	KindExtensions Kind = "extensions"
	// KindDaemonReload makes systemd read its units again (no key).
	KindDaemonReload Kind = "daemonReload"
	// KindReload and KindRestart act on a service (its name).
	KindReload  Kind = "reload"
	KindRestart Kind = "restart"
	// KindTrust makes the host rebuild its CA bundle (no key).
	KindTrust Kind = "trust"
	// KindReboot restarts the host (no key). Before.Value is the boot ID in which
	// it is asked for; another boot ID proves that it happened.
	KindReboot Kind = "reboot"
)

// Type says what a State is.
type Type string

// Types of states.
const (
	Absent Type = "absent" // nothing is there
	File   Type = "file"   // Digest, Mode, UID, GID
	Link   Type = "link"   // Target
	Dir    Type = "dir"    // a directory; only ever observed, never planned
	Links  Type = "links"  // Values
	List   Type = "list"   // Values, in order
	Value  Type = "value"  // Value, or Digest of a secret
)

// State is one side of a step. The zero State says nothing: of an effect (reload,
// restart, reboot) there is nothing to restore.
type State struct {
	Type   Type   `json:"type,omitempty"`
	Digest string `json:"digest,omitempty"` // sha256:<hex> of a blob
	Mode   uint32 `json:"mode,omitempty"`   // permission bits and, observed only, setuid, setgid, sticky as in os.FileMode
	UID    int    `json:"uid,omitempty"`
	GID    int    `json:"gid,omitempty"`
	Label  string `json:"label,omitempty"` // SELinux label; "" if the host has none, or the parent's default
	Target string `json:"target,omitempty"`
	Value  string `json:"value,omitempty"`
	// Owner names user and group that the host has to look up when the step is
	// performed, "user:group", each a name or a number; "" for UID and GID.
	Owner  string   `json:"owner,omitempty"`
	Values []string `json:"values,omitempty"`
}

// Ref names one thing on a host.
type Ref struct {
	Kind Kind   `json:"kind"`
	Key  string `json:"key,omitempty"`
}

// Step is one effect on a host. Performing it twice is the same as performing it
// once, except for the effects reload, restart and reboot, which only repeat.
type Step struct {
	ID     int   `json:"id"` // 1, 2, … in the order of the plan
	Ref          // what it sets
	Before State `json:"before"`
	After  State `json:"after"`
	// Cause is the item of the config that asks for it, for people.
	Cause string `json:"cause,omitempty"`
}

// Inverse is the step that leads back. An effect is its own inverse.
func (s Step) Inverse() Step {
	s.Before, s.After = s.After, s.Before
	return s
}

// Effect tells that a step sets nothing that could be looked at afterwards.
func (s Step) Effect() bool {
	switch s.Kind {
	case KindDaemonReload, KindReload, KindRestart, KindTrust, KindReboot:
		return true
	default:
		return false
	}
}

// String names a step for logs: kind, key, what it does. Secrets do not appear.
func (s Step) String() string {
	name := string(s.Kind)
	if s.Key != "" {
		name += " " + s.Key
	}
	switch {
	case s.Effect():
		return name
	case s.After.Type == Absent:
		return fmt.Sprintf("remove %s", name)
	case s.Before.Type == Absent:
		return fmt.Sprintf("create %s", name)
	default:
		return fmt.Sprintf("change %s", name)
	}
}

// Blobs holds contents by their digest, sha256:<hex>.
type Blobs map[string][]byte
