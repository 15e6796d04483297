// Package control is the wire between the command line and a running world:
// the knobs' types, the client, and the routing of the server. It travels as
// JSON over a Unix socket that only its owner may open. It knows nothing of
// how a knob works; the world hands in a Knobs.
package control

import (
	"context"
	"time"
)

// Status is what a world says about itself.
type Status struct {
	// Phase is Starting, Ready, Stopping or Failed.
	Phase string `json:"phase"`
	// Message says what the phase waits for, or why it failed.
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"`
	PID     int       `json:"pid"`
	// Dir is the state directory, absolute.
	Dir        string `json:"dir"`
	World      int    `json:"world"`
	InfraID    string `json:"infraID"`
	APIServer  string `json:"apiServer"`
	Kubeconfig string `json:"kubeconfig"`
	BinDir     string `json:"binDir"`
	// ReadySeconds is how long the start took, and APIServerSeconds how much
	// of it the API server needed to answer /readyz; 0 while starting.
	ReadySeconds     float64 `json:"readySeconds"`
	APIServerSeconds float64 `json:"apiServerSeconds"`
}

// Phases of a world.
const (
	PhaseStarting = "Starting"
	PhaseReady    = "Ready"
	PhaseStopping = "Stopping"
	PhaseFailed   = "Failed"
)

// VM is one simulated machine.
type VM struct {
	Name      string    `json:"name"`
	UUID      string    `json:"uuid"`
	Cloud     string    `json:"cloud"`
	Size      string    `json:"size"`
	Zone      string    `json:"zone,omitempty"`
	IP        string    `json:"ip,omitempty"`
	State     string    `json:"state"`          // the cloud's word: Creating, Running, Deallocated, …
	Boot      string    `json:"boot,omitempty"` // what the machine itself does: Off, Booting, Joining, Up, Failed
	Loopback  string    `json:"loopback,omitempty"`
	Root      string    `json:"root,omitempty"`
	BootID    string    `json:"bootID,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
}

// Quota sets a limit of the simulated account.
type Quota struct {
	// Scope is cores (the region's total) or a size family such as
	// standardDSv3Family.
	Scope string `json:"scope"`
	Limit int    `json:"limit"`
	Used  int    `json:"used,omitempty"` // answered, never asked
}

// Fault makes calls of an operation fail.
type Fault struct {
	// Op is the operation, e.g. vm.put, vm.delete, nic.put, token.
	Op      string `json:"op"`
	Code    string `json:"code"`             // the cloud's error code
	Status  int    `json:"status,omitempty"` // HTTP status; 0: the usual one of the code
	Message string `json:"message,omitempty"`
	// Count is how many calls fail; -1 is every call until cleared.
	Count int `json:"count"`
}

// Slow delays every call of an operation.
type Slow struct {
	Op    string        `json:"op"`
	Delay time.Duration `json:"delay"` // nanoseconds; 0 removes it
}

// Knobs is what a world can be made to do. Errors are texts for the person at
// the shell; a *NotFoundError becomes a 404.
type Knobs interface {
	Status(ctx context.Context) Status
	VMs(ctx context.Context) ([]VM, error)
	StartVM(ctx context.Context, name string) error
	StopVM(ctx context.Context, name string) error
	DeleteVM(ctx context.Context, name string) error
	Console(ctx context.Context, name string) ([]byte, error)
	Quotas(ctx context.Context) ([]Quota, error)
	SetQuota(ctx context.Context, q Quota) error
	Faults(ctx context.Context) ([]Fault, error)
	AddFault(ctx context.Context, f Fault) error
	ClearFaults(ctx context.Context) error
	SetSlow(ctx context.Context, s Slow) error
}

// NotFoundError says that a named thing is not there and what is.
type NotFoundError struct{ Message string }

func (e *NotFoundError) Error() string { return e.Message }
