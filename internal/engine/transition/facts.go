package transition

// Class is what kind of operating system a host runs.
type Class string

// Classes of hosts.
const (
	CoreOS Class = "CoreOS" // rpm-ostree or bootc: RHCOS, SCOS, Fedora CoreOS
	Plain  Class = "Plain"  // Debian, Fedora, Flatcar, traditional RHEL
)

// Backend is the tool that sets kernel arguments or the OS image of a host.
type Backend string

// Backends. NoBackend means that the host cannot do it.
const (
	NoBackend Backend = ""
	RPMOSTree Backend = "rpm-ostree"
	Bootc     Backend = "bootc"
	Grubby    Backend = "grubby"
	BLS       Backend = "bls"  // entries in /boot/loader/entries
	Grub      Backend = "grub" // /etc/default/grub and update-grub
)

// Facts is what planning must know of a host. All paths are absolute host paths.
type Facts struct {
	ID      string `json:"id"`      // ID of os-release: rhcos, fedora, debian, flatcar
	Version string `json:"version"` // as machine-config-daemon reports it
	Class   Class  `json:"class"`
	// EnterpriseLinux tells that extensions and kernel types exist.
	EnterpriseLinux bool    `json:"enterpriseLinux,omitempty"`
	Arch            string  `json:"arch,omitempty"` // amd64, arm64, …
	Kernel          Backend `json:"kernelArguments,omitempty"`
	Image           Backend `json:"osImage,omitempty"`
	// Live tells that systemd runs on the host and services can be acted on.
	Live   bool   `json:"live,omitempty"`
	BootID string `json:"bootID,omitempty"`
	// Booted is the OS image that runs, "" if unknown.
	Booted string `json:"bootedImage,omitempty"`
	// CommandLine is what /proc/cmdline holds, split at spaces.
	CommandLine []string `json:"commandLine,omitempty"`
	// ReadOnly are folders in which nothing can be written, e.g. /usr on Flatcar.
	ReadOnly []string `json:"readOnly,omitempty"`
	// Volatile are folders that are empty after a reboot.
	Volatile []string `json:"volatile,omitempty"`
	// FIPS is /proc/sys/crypto/fips_enabled; nil if there is none.
	FIPS *bool `json:"fips,omitempty"`
	// SSHKeys is the path of the file that holds the keys of user core.
	SSHKeys string `json:"sshKeys,omitempty"`
	// TrustAnchors is the folder for CA files in place of
	// /etc/pki/ca-trust/source/anchors, "" for that one.
	TrustAnchors string `json:"trustAnchors,omitempty"`
	// Users are the users the host knows, with their home and IDs.
	Users map[string]User `json:"users,omitempty"`
	// UnitFiles are the names of all units with a file on the host, sorted.
	UnitFiles []string `json:"-"`
}

// User is a line of the host's user database.
type User struct {
	UID  int    `json:"uid"`
	GID  int    `json:"gid"`
	Home string `json:"home"`
}
