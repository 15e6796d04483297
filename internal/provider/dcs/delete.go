package dcs

import (
	"context"
	"net/http"

	"millwright.io/millwright/internal/cloud"
)

// Delete implements cloud.Cloud: safe stop, disks that outlive the VM off,
// VM, disc image. A VM that is neither running nor stopped is waited for.
func (c *Cloud) Delete(ctx context.Context, key cloud.Key) error {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	op := "delete vm " + key.Name
	if err := checkKey(op, key); err != nil {
		return err
	}
	unlock, err := c.keys.hold(ctx, op, key.UID)
	if err != nil {
		return err
	}
	defer unlock()
	got, err := c.own(ctx, op, key)
	if err != nil {
		return err
	}
	for _, v := range got {
		if err := c.bringDown(ctx, op, v); err != nil && !busy(err) {
			return err
		}
	}
	if len(got) > 0 {
		return nil
	}
	c.forget(key.UID)
	c.mu.Lock()
	delete(c.late, key.UID)
	c.mu.Unlock()
	return c.removeDiscs(ctx, op, key)
}

// removeDiscs deletes the disc images of a key, and reports NotFound when
// there is none.
func (c *Cloud) removeDiscs(ctx context.Context, op string, key cloud.Key) error {
	c.lost(key.UID)
	discs, err := c.discs(ctx, op, func(d disc) bool { return d.uid == key.UID })
	if err != nil {
		return err
	}
	for _, d := range discs {
		if err := c.removeDisc(ctx, op, d); err != nil {
			return err
		}
	}
	if len(discs) > 0 {
		return nil
	}
	return &cloud.Fault{Kind: cloud.NotFound, Op: op, Reason: "VMNotFound", Message: op + ": nothing is left of it"}
}

func (c *Cloud) bringDown(ctx context.Context, op string, v *vm) error {
	switch v.Status {
	case "running":
		return c.start(ctx, op, "", pathOf(v.URN)+"/action/stop", map[string]any{"mode": "safe"})
	case "stopped", "unknown":
		for _, d := range v.Config.Disks {
			// What is independent outlives its VM; VRM might take it along.
			if d.Independent && d.Persistent {
				return c.start(ctx, op, "", pathOf(v.URN)+"/action/detachvol", map[string]any{"volUrn": d.VolumeURN, "isFormat": false})
			}
		}
		return c.removeVM(ctx, op, "", v)
	}
	return nil
}

func (c *Cloud) removeVM(ctx context.Context, op, name string, v *vm) error {
	var s started
	err := c.call(ctx, op, http.MethodDelete, pathOf(v.URN), nil, &s)
	if cloud.KindOf(err) == cloud.NotFound {
		return nil
	}
	c.remember(name, s.Task)
	return err
}

// Eject implements cloud.Ejector.
func (c *Cloud) Eject(ctx context.Context, key cloud.Key) error {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	op := "eject disc of vm " + key.Name
	got, err := c.own(ctx, op, key)
	if err != nil {
		return err
	}
	for _, v := range got {
		if v.CDROM != "fill" {
			continue
		}
		if err := c.start(ctx, op, "", pathOf(v.URN)+"/action/detachCdrom", nil); err != nil && !busy(err) {
			return err
		}
		return nil
	}
	return c.removeDiscs(ctx, op, key)
}
