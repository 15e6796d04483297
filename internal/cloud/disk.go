package cloud

import "context"

// DiskKeeper is an optional power of a Cloud: disks that outlive the
// instances they hang on. A disk is known by its name; the caller makes names
// unique in the account.
type DiskKeeper interface {
	// EnsureDisk makes the disk unless there is one of that name, which it
	// then returns as it is. It reports Conflict when several have the name.
	EnsureDisk(ctx context.Context, intent DiskIntent) (Disk, error)
	// ObserveDisk reads a disk. It reports NotFound when there is none.
	ObserveDisk(ctx context.Context, name string) (Disk, error)
	// AttachDisk hangs a disk on an instance at a place. It returns once the
	// cloud has accepted, and at once when it hangs there already.
	AttachDisk(ctx context.Context, name string, key Key, at DiskPlace) error
	// DetachDisk takes a disk off whatever instance it hangs on.
	DetachDisk(ctx context.Context, name string) error
	// DeleteDisk removes a disk that hangs on nothing. It returns nil while
	// that runs and NotFound once the disk is gone.
	DeleteDisk(ctx context.Context, name string) error
}

// DiskIntent is what a disk is to be. It is never changed afterwards.
type DiskIntent struct {
	Name  string
	SizeG int    // GB, ≥ 1
	Store string // where: a datastore; excludes Group
	Group string // or a group of them, of which the one with most room is taken
	Thin  *bool  // nil: as the cloud likes
	Bus   string // empty: VIRTIO
}

// DiskPlace is where on an instance a disk hangs.
type DiskPlace struct {
	Sequence int    // ≥ 1, unique in the instance
	Bus      string // empty: VIRTIO
}

// Disk is a disk as the cloud has it.
type Disk struct {
	ID, Name   string
	SizeG      int
	StoreID    string
	AttachedTo string // the instance's ID; empty: nothing
}

// Ejector is an optional power of a Cloud that hands over first-boot data on
// a medium, which is of no use after the first boot and may be in the way.
type Ejector interface {
	// Eject takes the medium out and removes it. It returns nil while that
	// runs and NotFound once nothing is left of it.
	Eject(ctx context.Context, key Key) error
}
