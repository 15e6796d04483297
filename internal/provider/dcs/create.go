package dcs

import (
	"context"
	"fmt"
	"net/http"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/provider/dcs/spec"
)

// job is one Create on its way.
type job struct {
	in   cloud.Intent
	spec *spec.Spec
	op   string
	name string // of the VM
	mark mark
}

// Create implements cloud.Cloud: disc image, clone (off), disks of the slot,
// disc, power. Each call does what can be done now and comes back.
func (c *Cloud) Create(ctx context.Context, in cloud.Intent) (cloud.Instance, error) {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	op := "create vm " + in.Key.Name
	if err := checkKey(op, in.Key); err != nil {
		return cloud.Instance{}, err
	}
	j, err := prepare(op, in)
	if err != nil {
		return cloud.Instance{}, err
	}
	unlock, err := c.keys.hold(ctx, op, in.Key.UID)
	if err != nil {
		return cloud.Instance{}, err
	}
	defer unlock()
	got, err := c.own(ctx, op, in.Key)
	if err != nil {
		return cloud.Instance{}, err
	}
	if len(got) > 0 {
		return c.advance(ctx, j, got)
	}
	if running, err := c.pending(ctx, op, in.Key.UID); err != nil || running {
		return c.making(j), err
	}
	if err := c.free(ctx, op, j.name, in.Key.UID); err != nil {
		return cloud.Instance{}, err
	}
	return c.making(j), c.clone(ctx, j)
}

func prepare(op string, in cloud.Intent) (*job, error) {
	s, ok := in.Spec.(*spec.Spec)
	switch {
	case !ok || s == nil:
		return nil, invalid(op, "InvalidSpec", fmt.Sprintf("the spec is a %T, not that of a %s", in.Spec, spec.Kind))
	case s.VMTemplateName == "" || s.VMConfig == nil || s.VMConfig.CPU.Quantity < 1 || s.VMConfig.Memory.Quantity < 1:
		return nil, invalid(op, "InvalidSpec", "vmTemplateName, dcsMachineCpuSpec.quantity and dcsMachineMemorySpec.quantity are needed")
	case s.Slot.IP == "":
		return nil, invalid(op, "InvalidSpec", "the machine has no address; a slot of its pool is claimed first")
	case len(discName(in)) > 200:
		return nil, invalid(op, "InvalidSpec", "owner, name and UID have more than 200 letters together")
	}
	j := &job{in: in, spec: s, op: op, name: s.Slot.MachineName}
	if j.name == "" {
		j.name = in.Key.Name
	}
	j.mark = mark{name: in.Key.Name, uid: in.Key.UID, owner: string(in.Owner), ip: s.Slot.IP, host: s.Slot.Hostname, stage: stageNew}
	if j.mark.host == "" {
		j.mark.host = in.Key.Name
	}
	return j, nil
}

func (c *Cloud) making(j *job) cloud.Instance {
	return cloud.Instance{Key: j.in.Key, State: cloud.StateCreating, Region: c.site,
		Size: spec.Size(j.spec.VMConfig.CPU.Quantity, j.spec.VMConfig.Memory.Quantity), Pending: &cloud.Pending{Op: "create"}}
}

// clone resolves every name, puts the disc where the VM can have it and asks
// for the clone. What is missing is found out before anything is made.
func (c *Cloud) clone(ctx context.Context, j *job) error {
	t, err := c.template(ctx, j.op, j.spec.VMTemplateName)
	if err != nil {
		return err
	}
	body, err := c.request(ctx, j, t)
	if err != nil {
		return err
	}
	if _, err := c.ensureDisc(ctx, j, t); err != nil {
		return err
	}
	return c.start(ctx, j.op, j.in.Key.UID, pathOf(t.URN)+"/action/clone", body)
}

func (c *Cloud) request(ctx context.Context, j *job, t *vm) (map[string]any, error) {
	disks, err := c.diskRequests(ctx, j, t)
	if err != nil {
		return nil, err
	}
	config := map[string]any{"cpu": j.spec.VMConfig.CPU, "memory": map[string]any{"quantityMB": j.spec.VMConfig.Memory.Quantity}, "disks": disks}
	if nics, err := c.nicRequests(ctx, j, t); err != nil {
		return nil, err
	} else if nics != nil {
		config["nics"] = nics
	}
	body := map[string]any{"name": j.name, "description": j.mark.String(), "isTemplate": false, "isLinkClone": false, "autoBoot": false, "vmConfig": config,
		"vmCustomization": map[string]any{"osType": "Linux", "isUpdateVmPassword": false}}
	at, err := c.place(ctx, j.op, j.spec.Resource)
	if err != nil {
		return nil, err
	}
	if at != "" {
		body["location"] = at
	}
	if at, err = c.place(ctx, j.op, j.spec.Location); err != nil {
		return nil, err
	}
	switch {
	case at == "":
	case j.spec.Location.Type == "cluster":
		body["location"] = at
	default:
		body["parentObjUrn"] = at
	}
	return body, nil
}

func (c *Cloud) diskRequests(ctx context.Context, j *job, t *vm) ([]map[string]any, error) {
	var base vmDisk
	for _, d := range t.Config.Disks {
		if d.Sequence == 1 {
			base = d
		}
	}
	sys := j.spec.System()
	if sys.Quantity == 0 {
		sys.Quantity = base.GB
	}
	if sys.Quantity < base.GB {
		return nil, invalid(j.op, "SystemDiskTooSmall", fmt.Sprintf("the system disk is to have %d GB, the template %s has %d; 0 takes the template's size", sys.Quantity, j.spec.VMTemplateName, base.GB))
	}
	var out []map[string]any
	for i, d := range append([]spec.Disk{sys}, j.spec.DataDisks()...) {
		urn, err := c.datastore(ctx, j.op, d.DatastoreURN, d.Datastore, d.DatastoreGroup)
		if err != nil {
			return nil, err
		}
		if urn == "" {
			urn = base.DatastoreURN
		}
		r := map[string]any{"sequenceNum": 1 + i, "pciType": "VIRTIO", "datastoreUrn": urn, "quantityGB": d.Quantity}
		if i == 0 {
			r["isDataCopy"] = true
		}
		out = append(out, r)
	}
	return out, nil
}

// nicRequests are the interfaces, nil for those of the template.
func (c *Cloud) nicRequests(ctx context.Context, j *job, t *vm) ([]map[string]any, error) {
	cfg := j.spec.VMConfig
	nic := j.spec.Slot.NIC
	if nic.PortGroupName == "" && nic.PortGroupURN == "" {
		nic = spec.NIC{DVSwitchName: cfg.DVSwitchName, PortGroupName: cfg.PortGroupName, PortGroupURN: cfg.PortGroupURN}
	}
	urn, err := c.portGroup(ctx, j.op, nic)
	if err != nil {
		return nil, err
	}
	if urn == "" && len(j.spec.Slot.Additional) == 0 {
		return nil, nil
	}
	if urn == "" && len(t.Config.NICs) > 0 {
		urn = t.Config.NICs[0].PortGroupURN
	}
	urns := []string{urn}
	for _, n := range j.spec.Slot.Additional {
		if urn, err = c.portGroup(ctx, j.op, n); err != nil {
			return nil, err
		}
		urns = append(urns, urn)
	}
	var out []map[string]any
	for i, u := range urns {
		if u == "" {
			return nil, invalid(j.op, "InvalidSpec", fmt.Sprintf("network interface %d has no port group", i))
		}
		out = append(out, map[string]any{"sequenceNum": i, "portGroupUrn": u, "virtIo": 1})
	}
	return out, nil
}

// ensureDisc uploads the disc image unless it is somewhere: the datastore with
// most room is another one each time.
func (c *Cloud) ensureDisc(ctx context.Context, j *job, t *vm) (disc, error) {
	uid := j.in.Key.UID
	c.mu.Lock()
	d, known := c.where[uid]
	c.mu.Unlock()
	if known {
		return d, nil
	}
	found, err := c.discs(ctx, j.op, func(d disc) bool { return d.file == discName(j.in) })
	if err != nil {
		return disc{}, written(err)
	}
	if len(found) > 0 {
		d = found[0]
	} else if d, err = c.uploadDisc(ctx, j, t); err != nil {
		return disc{}, err
	}
	c.mu.Lock()
	c.where[uid] = d
	c.mu.Unlock()
	return d, nil
}

func (c *Cloud) uploadDisc(ctx context.Context, j *job, t *vm) (disc, error) {
	cfg := j.spec.VMConfig
	store, err := c.datastore(ctx, j.op, "", cfg.CDROMDatastore, cfg.CDROMDatastoreGroup)
	if err != nil {
		return disc{}, err
	}
	if store == "" { // where the system disk goes
		disks, err := c.diskRequests(ctx, j, t)
		if err != nil {
			return disc{}, err
		}
		store, _ = disks[0]["datastoreUrn"].(string)
	}
	d := disc{store, discName(j.in), string(j.in.Owner), j.in.Key.Name, j.in.Key.UID}
	return d, c.upload(ctx, j.op, store, d.file, image(j.in.UserData))
}

// advance brings a VM that exists a step towards running. Once it has run it
// is returned as it is.
func (c *Cloud) advance(ctx context.Context, j *job, got []*vm) (cloud.Instance, error) {
	v := got[0]
	if err := c.removeTwins(ctx, j, got[1:]); err != nil {
		return cloud.Instance{}, err
	}
	inst := c.instance(j.in.Key, v)
	if v.mark().stage != stageNew || (v.Status != "stopped" && v.Status != "running" && v.Status != "unknown") {
		return inst, nil
	}
	if v.Status == "unknown" {
		return c.ruin(ctx, j, v)
	}
	running, err := c.pending(ctx, j.op, j.in.Key.UID)
	if running || err != nil {
		return inst, err
	}
	if v.Status == "stopped" {
		err = c.powerUp(ctx, j, v)
	} else {
		err = c.up(ctx, j, v)
	}
	if busy(err) {
		err = nil // a task of which we do not know; we come again
	}
	return inst, err
}

// removeTwins removes clones of which we never heard.
func (c *Cloud) removeTwins(ctx context.Context, j *job, twins []*vm) error {
	for _, twin := range twins {
		if m := twin.mark(); m.stage != stageNew || (twin.Status != "stopped" && twin.Status != "unknown") {
			continue
		}
		if err := c.removeVM(ctx, j.op, "", twin); err != nil && !busy(err) {
			return err
		}
	}
	return nil
}

// ruin removes what a failed clone left and reports why it failed.
func (c *Cloud) ruin(ctx context.Context, j *job, v *vm) (cloud.Instance, error) {
	running, why := c.pending(ctx, j.op, j.in.Key.UID)
	if running {
		return c.instance(j.in.Key, v), nil
	}
	if err := c.removeVM(ctx, j.op, "", v); err != nil && !busy(err) {
		return cloud.Instance{}, err
	}
	if why == nil {
		why = &cloud.Fault{Kind: cloud.Transient, Op: j.op, Reason: "CloneFailed", Message: j.op + ": the clone failed; its remains are removed and it is tried again"}
	}
	return cloud.Instance{}, why
}

// powerUp does the next thing that a VM needs before its first start.
func (c *Cloud) powerUp(ctx context.Context, j *job, v *vm) error {
	for _, d := range j.spec.Slot.Disks {
		done, err := c.attach(ctx, j.op, j.in.Key.UID, v, d.Name, cloud.DiskPlace{Sequence: j.spec.Sequence(d.Slot), Bus: d.Bus})
		if err != nil || !done {
			return err
		}
	}
	if v.CDROM != "fill" {
		needsPower, err := c.putDisc(ctx, j, v)
		if err != nil || !needsPower {
			return err
		}
	}
	return c.start(ctx, j.op, j.in.Key.UID, pathOf(v.URN)+"/action/start", nil)
}

func (c *Cloud) putDisc(ctx context.Context, j *job, v *vm) (bool, error) {
	t, err := c.template(ctx, j.op, j.spec.VMTemplateName)
	if err != nil {
		return false, err
	}
	d, err := c.ensureDisc(ctx, j, t)
	if err != nil {
		return false, err
	}
	needsPower, err := c.insert(ctx, j.op, j.in.Key.UID, v, d)
	if err != nil && !busy(err) {
		c.lost(j.in.Key.UID) // somebody may have removed it
	}
	return needsPower, err
}

// up ends the making of a VM that runs. One that started without its disc, as
// some sites want it, gets it now and starts again.
func (c *Cloud) up(ctx context.Context, j *job, v *vm) error {
	uid := j.in.Key.UID
	c.mu.Lock()
	late := c.late[uid]
	c.mu.Unlock()
	switch {
	case v.CDROM != "fill":
		if _, err := c.putDisc(ctx, j, v); err != nil {
			return err
		}
		c.mu.Lock()
		c.late[uid] = true
		c.mu.Unlock()
		return nil
	case late:
		if err := c.start(ctx, j.op, uid, pathOf(v.URN)+"/action/reboot", map[string]any{"mode": "force"}); err != nil {
			return err
		}
		c.mu.Lock()
		delete(c.late, uid)
		c.mu.Unlock()
		return nil
	}
	m := v.mark()
	m.stage = stageUp
	var s started
	err := c.call(ctx, j.op, http.MethodPut, pathOf(v.URN), map[string]any{"description": m.String()}, &s)
	if err != nil {
		return written(err)
	}
	c.remember(uid, s.Task)
	return nil
}
