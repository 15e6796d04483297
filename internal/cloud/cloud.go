// Package cloud is the contract between controllers and the clouds that run
// their instances. It holds types only: five methods that every cloud has, the
// optional powers that some have, the values they exchange and the faults they
// report. It never talks to anything.
//
// A provider implements Cloud and SpecCodec; internal/app hands both to the
// dialects. Every implementation, the in-memory fake included, passes the
// suite in cloudtest.
package cloud

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Cloud is one account of one cloud. All methods are safe for concurrent use,
// return within the context's deadline and never wait for a long operation:
// they start it and return what is known. Every error they return is a *Fault
// or wraps one (see KindOf).
type Cloud interface {
	// Observe reads one instance. It never writes. It reports NotFound when
	// the cloud has no such instance, and Conflict when an instance of that
	// name exists but carries another key; such an instance is not ours and
	// must not be touched.
	Observe(ctx context.Context, key Key) (Instance, error)

	// Create makes the instance and all its parts. It is idempotent on
	// Intent.Key: called again it continues where the last call stopped, and
	// once the instance exists it returns it unchanged. It may be called only
	// after the owner's finalizer has been seen in the API. Parts made before
	// a failure stay and are found again by the next Create or by Delete.
	Create(ctx context.Context, intent Intent) (Instance, error)

	// Update brings the mutable properties (tags) of an existing instance to
	// the intent. Clouds that change nothing in place return the instance as
	// Observe would. It reports NotFound when there is none.
	Update(ctx context.Context, key Key, intent Intent) (Instance, error)

	// Delete removes the instance and every part Create made, in the order
	// the cloud needs. It returns nil while anything is left or a deletion
	// runs, and NotFound once nothing is left. Call it until NotFound.
	// It never touches a resource that carries another key.
	Delete(ctx context.Context, key Key) error

	// List returns the instances that carry the owner, ordered by name. It
	// also returns instances of which only parts are left (State Leftover),
	// so that orphans can be collected.
	List(ctx context.Context, owner Owner) ([]Instance, error)
}

// Catalog is an optional power of a Cloud: what can be bought where. Used by
// admission (with a one-second limit) and by previews, never to decide whether
// something exists.
type Catalog interface {
	// Regions lists the regions of the account, sorted.
	Regions(ctx context.Context) ([]string, error)
	// Sizes lists the instance sizes sold in a region, sorted by name.
	Sizes(ctx context.Context, region string) ([]Size, error)
}

// PowerCycler is an optional power of a Cloud.
type PowerCycler interface {
	// Restart turns the instance off and on again. It returns once the cloud
	// has accepted the request.
	Restart(ctx context.Context, key Key) error
}

// Size is one sellable instance size.
type Size struct {
	Name      string   // as the cloud spells it, e.g. Standard_D4s_v3
	Family    string   // quota family
	VCPUs     int      // ≥ 1
	MemoryMiB int64    // ≥ 1
	GPUs      int      // ≥ 0
	Arch      string   // amd64 or arm64
	Zones     []string // zones of the region that sell it, sorted; empty: the region has no zones
}

// Key identifies one instance. UID alone decides identity; Name and Scope say
// where to look for it.
type Key struct {
	// UID is the UID of the API object that owns the instance. It is stored
	// on the instance and on each of its parts (Azure: tag
	// TagKey) and never changes.
	UID string
	// Name is the instance's name in the cloud, equal to the owner's name.
	Name string
	// Scope is the container inside the account (Azure: the resource group).
	// Empty means the account's default.
	Scope string
}

// TagKey is the tag or attribute under which providers keep Key.UID.
const TagKey = "millwright.io_key"

func (k Key) String() string { return k.Name + " (" + k.UID + ")" }

// Owner names all instances of one cluster: its infrastructure name.
type Owner string

// Spec is a decoded, cloud specific description of an instance. Only the
// provider that made it looks inside.
type Spec interface {
	// CloudKind is the kind its users write, e.g. AzureMachineProviderSpec.
	CloudKind() string
	// Scope fills Key.Scope; empty means the account's default.
	Scope() string
}

// Intent is what we want the cloud to have.
type Intent struct {
	Key      Key
	Owner    Owner
	Group    string // the set the instance belongs to; may be empty
	Spec     Spec
	UserData Secret            // first-boot data, exactly as the machine must read it
	Tags     map[string]string // added to the spec's own tags; the spec's win
}

// State is the life stage of an instance, one spelling for all clouds.
type State string

// States. Leftover means that the instance is gone and parts of it are not.
const (
	StateCreating     State = "Creating"
	StateUpdating     State = "Updating"
	StateStarting     State = "Starting"
	StateRunning      State = "Running"
	StateStopping     State = "Stopping"
	StateStopped      State = "Stopped"
	StateDeallocating State = "Deallocating"
	StateDeallocated  State = "Deallocated"
	StateDeleting     State = "Deleting"
	StateFailed       State = "Failed"
	StateUnknown      State = "Unknown"
	StateLeftover     State = "Leftover"
)

// Instance is what the cloud has.
type Instance struct {
	Key        Key
	ID         string // the cloud's own identifier (Azure: the ARM id as returned)
	ProviderID string // what Node.spec.providerID will say, byte for byte
	State      State
	// Addresses in the order they are stored in a Machine's status. The first
	// InternalDNS address equals the name the Node will have.
	Addresses     []corev1.NodeAddress
	Region        string
	Zone          string // bare zone, e.g. 1; empty when there is none
	Size          string
	Interruptible bool
	Pending       *Pending // the running operation, if the cloud reports one
	Fault         *Fault   // why State is Failed
}

// Pending is a long operation that the cloud is still working on. Task is
// persisted only by clouds that cannot find a create again by name or tag.
type Pending struct {
	Op   string // create, delete, start, …
	Task string // the cloud's handle; may be empty
}

// Account is the contents of a credentials Secret.
type Account struct {
	Source string            // namespace/name, for messages
	Data   map[string]Secret // keys as in the Secret
}

// Opener opens an account. Implementations cache by a digest of the
// credentials, so calling it in each reconcile is cheap. It reports
// Credentials faults, naming Source and the missing key.
type Opener interface {
	Open(ctx context.Context, account Account) (Cloud, error)
}

// Secret is bytes that are never printed.
type Secret []byte

const redacted = "[redacted]"

// String returns [redacted].
func (Secret) String() string { return redacted }

// GoString returns [redacted].
func (Secret) GoString() string { return redacted }

// Format prints [redacted] for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalJSON returns "[redacted]": a Secret does not survive a round trip.
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// RetryAfter returns how long a fault asks to wait, 0 when it does not say.
func RetryAfter(err error) time.Duration {
	if f := FaultOf(err); f != nil {
		return f.RetryAfter
	}
	return 0
}
