package arm

import (
	"crypto/tls"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// Config describes one simulated subscription.
type Config struct {
	// StateFile keeps everything across restarts; empty keeps it in memory.
	StateFile      string
	SubscriptionID string
	TenantID       string
	ClientID       string
	ClientSecret   string
	// Location is the region of what Seed makes; empty is francecentral.
	Location string
	// Clock defaults to the real one.
	Clock clock.WithTicker
	// CreateDelay is how long a VM takes to provision, DeleteDelay how long
	// to disappear. Network interfaces, disks and power operations take a
	// quarter of them.
	CreateDelay, DeleteDelay time.Duration
	// TokenTTL is the life of an access token; 0 is an hour.
	TokenTTL time.Duration
	// Machines is told what happens to the hardware; nil: nobody is.
	Machines Machines
	// TLS serves HTTPS in Serve; nil serves plain HTTP, for tests that bring
	// their own listener.
	TLS *tls.Config
	Log logr.Logger
}

// Machines is the hardware behind the VMs. Calls come one at a time, in the
// order in which things happened, from one goroutine that holds no lock of the
// server: an implementation may call back.
type Machines interface {
	// Create says that a VM was provisioned; vm.Power tells whether it is on.
	// It is idempotent: after a restart it is called again for every VM that
	// the state file holds.
	Create(vm VM)
	// Power turns the VM with that UUID on or off. A restart is off, then on.
	Power(vmID string, on bool)
	// Delete says that the VM with that UUID and its hardware are gone.
	Delete(vmID string)
}

// PowerState is the part after PowerState/ in an instance view.
type PowerState string

// Power states. A VM that is being created has none.
const (
	PowerStarting     PowerState = "starting"
	PowerRunning      PowerState = "running"
	PowerStopping     PowerState = "stopping"
	PowerStopped      PowerState = "stopped"
	PowerDeallocating PowerState = "deallocating"
	PowerDeallocated  PowerState = "deallocated"
)

// VM is one virtual machine as the hardware and the knobs see it.
type VM struct {
	ResourceID    string // as ARM returns it
	Name          string
	ResourceGroup string
	UUID          string // properties.vmId
	Location      string
	Zone          string // bare, e.g. 1; empty when there is none
	FaultDomain   int
	Size          string // as the caller spelled it
	VCPUs         int
	MemoryMiB     int64
	GPUs          int
	Arch          string // amd64 or arm64
	ComputerName  string
	ImageID       string // ARM id, or publisher:offer:sku:version
	CustomData    []byte // decoded
	PrivateIP     string // of the primary interface
	NICs          []NIC  // the primary one first
	Tags          map[string]string
	Spot          bool
	Power         PowerState
	// Provisioning is Creating, Updating, Succeeded, Failed or Deleting.
	Provisioning string
	CreatedAt    time.Time
}

// NIC is one network interface of a VM.
type NIC struct {
	ResourceID   string
	Name         string
	MAC          string // as ARM writes it: 00-0D-3A-…
	PrivateIPs   []string
	PublicIP     string
	SubnetID     string
	DomainSuffix string // internalDomainNameSuffix
}

// Fault makes calls of an operation fail.
type Fault struct {
	// Op is an operation (see Ops), all of a kind ("vm.*") or "*".
	Op string
	// Code is the cloud's error code, e.g. AllocationFailed.
	Code string
	// Status is the HTTP status; 0 is the usual one of the code.
	Status int
	// Message is the text; empty is the usual one of the code.
	Message string
	// Count is how many calls fail; 0 is one, -1 is every call.
	Count int
	// RetryAfter is sent along, as throttling does.
	RetryAfter time.Duration
	// Async accepts the call and lets its long operation fail. Codes that the
	// cloud only ever reports that way (AllocationFailed,
	// ZonalAllocationFailed, OSProvisioningTimedOut, …) do so on vm.put
	// unless Status is set.
	Async bool
}

// Quota is one limit and its use, in vCPUs.
type Quota struct {
	Scope       string // cores, lowPriorityCores or a family such as standardDSv3Family
	Location    string
	Limit, Used int
}

// Error is an error in the shape of the Resource Manager.
type Error struct {
	Status     int           `json:"status"`
	Code       string        `json:"code"`
	Message    string        `json:"message"`
	Target     string        `json:"target,omitempty"`
	RetryAfter time.Duration `json:"-"`
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

func fail(status int, code, message string) *Error {
	return &Error{Status: status, Code: code, Message: message}
}

func invalidParameter(target, message string) *Error {
	return &Error{Status: http.StatusBadRequest, Code: "InvalidParameter", Message: message, Target: target}
}
