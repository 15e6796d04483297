package dcs

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"millwright.io/millwright/internal/cloud"
)

type volume struct {
	URN          string `json:"urn"`
	Name         string `json:"name"`
	GB           int    `json:"quantityGB"`
	DatastoreURN string `json:"datastoreUrn"`
	Independent  bool   `json:"indepDisk"`
	Persistent   bool   `json:"persistentDisk"`
}

// volume finds a volume by its exact name; VRM's names are not unique.
func (c *Cloud) volume(ctx context.Context, op, name string) (*volume, error) {
	all, err := pages[volume](ctx, c.client, op, c.path("volumes"), "volumes", url.Values{"name": {name}})
	if err != nil {
		return nil, err
	}
	var got []volume
	for _, v := range all {
		if v.Name == name {
			got = append(got, v)
		}
	}
	switch len(got) {
	case 0:
		return nil, &cloud.Fault{Kind: cloud.NotFound, Op: op, Reason: "VolumeNotFound", Message: op + ": the site has no volume " + name}
	case 1:
		return &got[0], nil
	}
	return nil, &cloud.Fault{Kind: cloud.Conflict, Op: op, Reason: "VolumeAmbiguous", Message: fmt.Sprintf("%s: the site has %d volumes %s; remove or rename all but one", op, len(got), name)}
}

// holder is the VM that has a volume, nil when none has.
func (c *Cloud) holder(ctx context.Context, op, urn string) (*vm, error) {
	got, err := c.vms(ctx, op, "scope", urn, func(v *vm) bool {
		for _, d := range v.Config.Disks {
			if d.VolumeURN == urn {
				return true
			}
		}
		return false
	})
	if err != nil || len(got) == 0 {
		return nil, err
	}
	return got[0], nil
}

// EnsureDisk implements cloud.DiskKeeper.
func (c *Cloud) EnsureDisk(ctx context.Context, in cloud.DiskIntent) (cloud.Disk, error) {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	op := "create volume " + in.Name
	if in.Name == "" || in.SizeG < 1 || (in.Store == "") == (in.Group == "") {
		return cloud.Disk{}, invalid(op, "InvalidDisk", "a volume needs a name, at least 1 GB and either a datastore or a datastore cluster")
	}
	unlock, err := c.keys.hold(ctx, op, "volume "+in.Name)
	if err != nil {
		return cloud.Disk{}, err
	}
	defer unlock()
	if running, err := c.pending(ctx, op, "volume "+in.Name); err != nil || running {
		return cloud.Disk{Name: in.Name}, err
	}
	v, err := c.volume(ctx, op, in.Name)
	if err == nil {
		return c.diskOf(ctx, op, v)
	}
	if cloud.KindOf(err) != cloud.NotFound {
		return cloud.Disk{}, err
	}
	store, err := c.datastore(ctx, op, "", in.Store, in.Group)
	if err != nil {
		return cloud.Disk{}, err
	}
	body := map[string]any{"name": in.Name, "quantityGB": in.SizeG, "datastoreUrn": store, "type": "normal", "indepDisk": true, "persistentDisk": true, "volType": 0}
	if in.Thin != nil {
		body["isThin"] = *in.Thin
	}
	return cloud.Disk{Name: in.Name}, c.start(ctx, op, "volume "+in.Name, c.path("volumes"), body)
}

func (c *Cloud) diskOf(ctx context.Context, op string, v *volume) (cloud.Disk, error) {
	d := cloud.Disk{ID: v.URN, Name: v.Name, SizeG: v.GB, StoreID: v.DatastoreURN}
	h, err := c.holder(ctx, op, v.URN)
	if h != nil {
		d.AttachedTo = h.URN
	}
	return d, err
}

// ObserveDisk implements cloud.DiskKeeper.
func (c *Cloud) ObserveDisk(ctx context.Context, name string) (cloud.Disk, error) {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	op := "get volume " + name
	v, err := c.volume(ctx, op, name)
	if err != nil {
		return cloud.Disk{}, err
	}
	return c.diskOf(ctx, op, v)
}

// AttachDisk implements cloud.DiskKeeper.
func (c *Cloud) AttachDisk(ctx context.Context, name string, key cloud.Key, at cloud.DiskPlace) error {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	op := "attach volume " + name
	got, err := c.own(ctx, op, key)
	if err != nil {
		return err
	}
	if len(got) == 0 {
		return &cloud.Fault{Kind: cloud.NotFound, Op: op, Reason: "VMNotFound"}
	}
	_, err = c.attach(ctx, op, "", got[0], name, at)
	return err
}

// attach reports whether the volume hangs on the VM. One of another VM is
// waited for.
func (c *Cloud) attach(ctx context.Context, op, task string, v *vm, name string, at cloud.DiskPlace) (bool, error) {
	vol, err := c.volume(ctx, op, name)
	if err != nil {
		return false, written(err)
	}
	for _, d := range v.Config.Disks {
		if d.VolumeURN == vol.URN {
			return true, nil
		}
	}
	h, err := c.holder(ctx, op, vol.URN)
	if err != nil {
		return false, err
	}
	if h != nil {
		return false, &cloud.Fault{Kind: cloud.Transient, Op: op, Reason: "WaitingForDetach", Message: op + ": the volume " + name + " still hangs on the VM " + h.Name}
	}
	if at.Bus == "" {
		at.Bus = "VIRTIO"
	}
	return false, c.start(ctx, op, task, pathOf(v.URN)+"/action/attachvol", map[string]any{"volUrn": vol.URN, "pciType": at.Bus, "sequenceNum": at.Sequence})
}

// DetachDisk implements cloud.DiskKeeper.
func (c *Cloud) DetachDisk(ctx context.Context, name string) error {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	op := "detach volume " + name
	v, err := c.volume(ctx, op, name)
	if err != nil {
		return err
	}
	h, err := c.holder(ctx, op, v.URN)
	if err != nil || h == nil {
		return err
	}
	return c.start(ctx, op, "", pathOf(h.URN)+"/action/detachvol", map[string]any{"volUrn": v.URN, "isFormat": false})
}

// DeleteDisk implements cloud.DiskKeeper.
func (c *Cloud) DeleteDisk(ctx context.Context, name string) error {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	op := "delete volume " + name
	v, err := c.volume(ctx, op, name)
	if err != nil {
		return err
	}
	h, err := c.holder(ctx, op, v.URN)
	if err != nil {
		return err
	}
	if h != nil {
		return &cloud.Fault{Kind: cloud.Transient, Op: op, Reason: "WaitingForDetach", Message: op + ": the volume " + name + " still hangs on the VM " + h.Name}
	}
	err = c.call(ctx, op, http.MethodDelete, pathOf(v.URN)+"?isFormat=0", nil, nil)
	if busy(err) {
		return nil
	}
	return err
}
