package vrm

import (
	"crypto/tls"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// Config describes one simulated VRM.
type Config struct {
	// StateFile keeps everything across restarts except sessions; empty keeps
	// it in memory.
	StateFile string
	// Site is the id of the only site, eight upper-case hex digits; empty is
	// EC1C108C.
	Site           string
	User, Password string
	// UserType is 2 (interconnect, the default), 1 (domain) or 0 (local).
	UserType string
	// Versions are the API versions that a login may ask for; nil is 8.1,
	// 8.0 and 6.5.
	Versions []string
	Clock    clock.WithTicker
	// TaskDelay is how long a clone takes; other tasks take a quarter of it.
	TaskDelay time.Duration
	// TokenIdle ends a session that was not used for so long; 0 is 30 min.
	TokenIdle time.Duration
	// Lockout is the number of wrong passwords in a row that lock the
	// account, 0 is 5, and LockTime for how long, 0 is 5 min; each further
	// attempt starts it again.
	Lockout  int
	LockTime time.Duration
	// Concurrency refuses requests beyond so many at once; 0: no limit.
	Concurrency int
	Machines    Machines
	TLS         *tls.Config
	Log         logr.Logger
}

// Machines is the hardware behind the VMs. Calls come one at a time, in the
// order in which things happened, from one goroutine that holds no lock of
// the server: an implementation may call back.
type Machines interface {
	// Create says that a VM is turned on for the first time. It is idempotent:
	// after a restart it comes again for every VM that was ever on.
	Create(vm VM)
	// Power turns the VM with that UUID on or off.
	Power(uuid string, on bool)
	// Delete says that the VM with that UUID and its hardware are gone.
	Delete(uuid string)
}

// VM is one virtual machine, or template, as the hardware and the knobs see it.
type VM struct {
	URN, UUID, Name, Description string
	Status                       string // as on the wire: running, stopped, creating, …
	Template                     bool
	// KubeletVersion is what the template carries, e.g. v1.33.1.
	KubeletVersion string
	CPUs           int
	MemoryMB       int
	HostURN        string
	ClusterURN     string
	FolderURN      string
	CDROM          string // <datastore id>@<file>, empty: none
	// UserData is the file ignition/config.ign of the disc it first booted
	// from; nil: none.
	UserData []byte
	Disks    []Disk
	NICs     []NIC
}

// Disk is a volume as attached to a VM.
type Disk struct {
	Sequence  int    `json:"sequenceNum"`
	VolumeURN string `json:"volumeUrn"`
	PCIType   string `json:"pciType"`
}

// NIC is one network interface.
type NIC struct {
	Sequence     int    `json:"sequenceNum"`
	PortGroupURN string `json:"portGroupUrn"`
	MAC          string `json:"mac"`
}

// Volume is one volume.
type Volume struct {
	URN          string `json:"urn"`
	UUID         string `json:"uuid"`
	Name         string `json:"name"`
	GB           int    `json:"quantityGB"`
	DatastoreURN string `json:"datastoreUrn"`
	Thin         bool   `json:"isThin"`
	Independent  bool   `json:"indepDisk"`
	Persistent   bool   `json:"persistentDisk"`
	PCIType      string `json:"pciType,omitempty"`
}

// Seed is what a site holds before anybody asks. References are names.
type Seed struct {
	Clusters          []SeedCluster
	Hosts             []SeedHost
	Datastores        []SeedDatastore
	DatastoreClusters []string
	Switches          []SeedSwitch
	Folders           []string
	Templates         []SeedTemplate
}

// SeedCluster is a compute cluster.
type SeedCluster struct {
	Name string
	DRS  bool
}

// SeedHost is a host of a cluster.
type SeedHost struct{ Name, Cluster, IP string }

// SeedDatastore is a datastore. RefuseUploads is what block storage does.
type SeedDatastore struct {
	Name, Cluster string // Cluster is a datastore cluster; may be empty
	CapacityGB    int
	RefuseUploads bool
}

// SeedSwitch is a distributed switch with its port groups.
type SeedSwitch struct {
	Name       string
	PortGroups []string
}

// SeedTemplate is a VM template.
type SeedTemplate struct {
	Name, KubeletVersion         string
	SystemGB                     int
	Datastore, Cluster           string
	Switch, PortGroup            string
	WithoutPVDriver, Placeholder bool // Placeholder: an ordinary VM, not a template
}

// DefaultSeed is a small site: two clusters of three hosts, three datastores,
// two switches that both have a port group "nodes", a folder and templates
// for two Kubernetes versions.
func DefaultSeed() Seed {
	s := Seed{
		Clusters:          []SeedCluster{{"ManagementCluster", true}, {"SecondCluster", false}},
		DatastoreClusters: []string{"dsc-1"},
		Datastores: []SeedDatastore{
			{Name: "ds-1", Cluster: "dsc-1", CapacityGB: 100000}, {Name: "ds-2", Cluster: "dsc-1", CapacityGB: 90000},
			{Name: "ds-block", CapacityGB: 50000, RefuseUploads: true},
		},
		Switches: []SeedSwitch{{"dvs-1", []string{"nodes", "nodes-old"}}, {"dvs-2", []string{"nodes", "storage"}}},
		Folders:  []string{"workload", "workload-old"},
	}
	for i, n := range []string{"CNA01", "CNA02", "CNA03"} {
		s.Hosts = append(s.Hosts, SeedHost{n, "ManagementCluster", "10.10.0." + string(rune('1'+i))})
	}
	s.Hosts = append(s.Hosts, SeedHost{"CNA11", "SecondCluster", "10.10.1.1"})
	for _, t := range []struct{ n, v string }{{"k8s-v1.33", "v1.33.1"}, {"k8s-v1.33-old", "v1.33.0"}, {"k8s-v1.34", "v1.34.0"}} {
		s.Templates = append(s.Templates, SeedTemplate{Name: t.n, KubeletVersion: t.v, SystemGB: 40, Datastore: "ds-1",
			Cluster: "ManagementCluster", Switch: "dvs-1", PortGroup: "nodes"})
	}
	return s
}

// Fault makes calls of an operation fail.
type Fault struct {
	// Op is an operation (see Ops), all of a kind ("vm.*") or "*".
	Op      string
	Code    string // VRM's error code, digits; empty with a bare HTTP status
	Status  int    // HTTP status; 0 is 200, as VRM often answers errors
	Message string
	Count   int // how many calls fail; 0 is one, -1 every one
	// Async accepts the call and lets its task fail.
	Async bool
	// Lost answers an error although the call took effect, as a connection
	// that breaks after the request does.
	Lost bool
}

// Error is an error in VRM's shape.
type Error struct {
	Status int    `json:"-"`
	Code   string `json:"errorCode"`
	Des    string `json:"errorDes"`
}

func (e *Error) Error() string { return e.Code + ": " + e.Des }

// Error codes. Those marked as assumed are not published.
const (
	codeNoSession = "10000002"
	codeVersion   = "10000022"
	codeLocked    = "10100116"
	codePassword  = "10000003" // assumed
	codeNotFound  = "10300010" // assumed; clients go by HTTP 404
	codeInput     = "10000001" // assumed
	codeBusy      = "10300057"
	codeTransient = "10000009"
	codeNotOff    = "102212808"
	codeVolBusy   = "10420005"
	codeVolGone   = "10420004"
)

func bad(code, des string) *Error { return &Error{Status: 500, Code: code, Des: des} }
func input(des string) *Error     { return &Error{Status: 400, Code: codeInput, Des: des} }
func missing(what string) *Error {
	return &Error{Status: 404, Code: codeNotFound, Des: what + " does not exist."}
}
