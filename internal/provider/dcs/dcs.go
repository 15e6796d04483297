// Package dcs runs instances on Huawei DCS through the API of FusionCompute's
// VRM. It knows its sessions, tasks, inexact filters and error codes and turns
// them into the values of package cloud; it decides nothing about Machines.
//
// An instance is a VM cloned from a template, with its disks, and the disc
// image with its first-boot data. The VM's description carries the owner's
// UID, the image its name; only what carries it is ever changed or deleted.
// VRM lets several VMs have one name and clones cannot be told apart from
// repeated ones, so creates and deletes of one key never overlap in a process.
//
//	opener := dcs.NewOpener(dcs.WithClock(clk))
//	cl, err := opener.Open(ctx, account)
package dcs

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/provider/dcs/spec"
)

// Cloud is one account on one site. It implements cloud.Cloud,
// cloud.PowerCycler, cloud.DiskKeeper and cloud.Ejector.
type Cloud struct {
	*client
	site    string // id
	timeout time.Duration
	keys    keyed // one create or delete of a key at a time
	shelf   shelf

	mu    sync.Mutex
	tasks map[string]string // what was last started, by UID or disk name
	late  map[string]bool   // UIDs whose disc went in after power on
	where map[string]disc   // by UID: where the disc image was last seen
	after bool              // this VRM takes discs only when the VM is on
}

var (
	_ cloud.Cloud       = (*Cloud)(nil)
	_ cloud.PowerCycler = (*Cloud)(nil)
	_ cloud.DiskKeeper  = (*Cloud)(nil)
	_ cloud.Ejector     = (*Cloud)(nil)
)

// keyed is a set of locks by name.
type keyed struct {
	mu   sync.Mutex
	held map[string]chan struct{}
}

func (k *keyed) hold(ctx context.Context, op, name string) (func(), error) {
	for {
		k.mu.Lock()
		if k.held == nil {
			k.held = map[string]chan struct{}{}
		}
		busy, taken := k.held[name]
		if !taken {
			mine := make(chan struct{})
			k.held[name] = mine
			k.mu.Unlock()
			return func() {
				k.mu.Lock()
				delete(k.held, name)
				k.mu.Unlock()
				close(mine)
			}, nil
		}
		k.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, unreachable(op, ctx.Err())
		}
	}
}

// Stages of a VM, kept in its description.
const (
	stageNew = "new" // not yet started with all it needs
	stageUp  = "up"
)

// mark is what a VM's description says.
type mark struct{ name, uid, owner, ip, host, stage string }

func (m mark) String() string {
	return "dcs://" + m.name + " " + cloud.TagKey + "=" + m.uid + " owner=" + m.owner + " ip=" + m.ip + " host=" + m.host + " stage=" + m.stage
}

func readMark(description string) (m mark) {
	for i, word := range strings.Fields(description) {
		k, v, _ := strings.Cut(word, "=")
		switch {
		case i == 0:
			m.name, _ = strings.CutPrefix(word, "dcs://")
		case k == cloud.TagKey:
			m.uid = v
		case k == "owner":
			m.owner = v
		case k == "ip":
			m.ip = v
		case k == "host":
			m.host = v
		case k == "stage":
			m.stage = v
		}
	}
	return m
}

// vm is a VM as VRM returns it.
type vm struct {
	URN         string `json:"urn"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Status      string `json:"status"`
	CDROM       string `json:"cdRomStatus"`
	ClusterURN  string `json:"clusterUrn"`
	IsTemplate  bool   `json:"isTemplate"`
	Config      struct {
		CPU    spec.Quantity `json:"cpu"`
		Memory struct {
			MB int `json:"quantityMB"`
		} `json:"memory"`
		Disks []vmDisk `json:"disks"`
		NICs  []struct {
			PortGroupURN string `json:"portGroupUrn"`
		} `json:"nics"`
	} `json:"vmConfig"`
}

type vmDisk struct {
	Sequence     int    `json:"sequenceNum"`
	PCIType      string `json:"pciType"`
	VolumeURN    string `json:"volumeUrn"`
	GB           int    `json:"quantityGB"`
	DatastoreURN string `json:"datastoreUrn"`
	Independent  bool   `json:"indepDisk"`
	Persistent   bool   `json:"persistentDisk"`
}

func (v *vm) mark() mark { return readMark(v.Description) }

// pathOf turns a URN into the path of the API.
func pathOf(urn string) string {
	return "/service" + strings.ReplaceAll(strings.TrimPrefix(urn, "urn"), ":", "/")
}

func (c *Cloud) path(parts string) string { return "/service/sites/" + c.site + "/" + parts }

func (c *Cloud) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.timeout)
}

// vms lists VMs by an inexact filter and keeps those that want accepts.
func (c *Cloud) vms(ctx context.Context, op, filter, value string, want func(*vm) bool) ([]*vm, error) {
	all, err := pages[*vm](ctx, c.client, op, c.path("vms"), "vms", url.Values{filter: {value}, "detail": {"2"}})
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(v *vm) bool { return v == nil || v.IsTemplate || !want(v) })
	slices.SortFunc(all, func(a, b *vm) int { return strings.Compare(a.URN, b.URN) })
	return all, nil
}

// own finds the VMs of a key, the oldest first. There is one, unless a clone
// took effect of which we never heard.
func (c *Cloud) own(ctx context.Context, op string, key cloud.Key) ([]*vm, error) {
	return c.vms(ctx, op, "description", cloud.TagKey+"="+key.UID, func(v *vm) bool { return v.mark().uid == key.UID })
}

// free reports Conflict when somebody else's VM has the name.
func (c *Cloud) free(ctx context.Context, op, name, uid string) error {
	got, err := c.vms(ctx, op, "name", name, func(v *vm) bool { return v.Name == name && v.mark().uid != uid })
	if err != nil || len(got) == 0 {
		return err
	}
	return &cloud.Fault{Kind: cloud.Conflict, Op: op, Reason: "NameConflict",
		Message: op + ": the VM " + got[0].URN + " has the name " + name + " and is not ours; rename the slot's machineName or remove that VM"}
}

func checkKey(op string, key cloud.Key) error {
	if key.UID == "" || key.Name == "" || strings.ContainsAny(key.UID+key.Name, " _=") {
		return invalid(op, "InvalidKey", "the key needs a name and a UID, without spaces, _ and =")
	}
	return nil
}

// Observe implements cloud.Cloud.
func (c *Cloud) Observe(ctx context.Context, key cloud.Key) (cloud.Instance, error) {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	op := "get vm " + key.Name
	if err := checkKey(op, key); err != nil {
		return cloud.Instance{}, err
	}
	got, err := c.own(ctx, op, key)
	if err != nil {
		return cloud.Instance{}, err
	}
	if len(got) > 0 {
		return c.instance(key, got[0]), nil
	}
	if err := c.free(ctx, op, key.Name, key.UID); err != nil {
		return cloud.Instance{}, err
	}
	return cloud.Instance{}, &cloud.Fault{Kind: cloud.NotFound, Op: op, Reason: "VMNotFound", Message: op + ": the site " + c.site + " has no such VM"}
}

// Update implements cloud.Cloud. Nothing of a VM is changed in place.
func (c *Cloud) Update(ctx context.Context, key cloud.Key, _ cloud.Intent) (cloud.Instance, error) {
	return c.Observe(ctx, key)
}

// Restart implements cloud.PowerCycler.
func (c *Cloud) Restart(ctx context.Context, key cloud.Key) error {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	op := "restart vm " + key.Name
	got, err := c.own(ctx, op, key)
	if err != nil {
		return err
	}
	if len(got) == 0 {
		return &cloud.Fault{Kind: cloud.NotFound, Op: op, Reason: "VMNotFound"}
	}
	if got[0].Status == "stopped" {
		return c.start(ctx, op, "", pathOf(got[0].URN)+"/action/start", nil)
	}
	return c.start(ctx, op, "", pathOf(got[0].URN)+"/action/reboot", map[string]any{"mode": "force"})
}

var states = map[string]cloud.State{
	"running": cloud.StateRunning, "stopped": cloud.StateStopped, "creating": cloud.StateCreating, "starting": cloud.StateStarting,
	"stopping": cloud.StateStopping, "shutting-down": cloud.StateDeleting, "recycling": cloud.StateDeleting, "migrating": cloud.StateRunning,
}

func (c *Cloud) instance(key cloud.Key, v *vm) cloud.Instance {
	m := v.mark()
	i := cloud.Instance{Key: key, ID: v.URN, ProviderID: "dcs://" + key.Name, Region: c.site, State: states[v.Status],
		Size: spec.Size(v.Config.CPU.Quantity, v.Config.Memory.MB)}
	if i.State == "" {
		i.State = cloud.StateUnknown // pause, hibernated, …: somebody else's doing
	}
	if m.stage == stageNew && i.State == cloud.StateStopped {
		i.State = cloud.StateCreating
	}
	if m.host != "" {
		i.Addresses = append(i.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalDNS, Address: m.host}, corev1.NodeAddress{Type: corev1.NodeHostName, Address: m.host})
	}
	if m.ip != "" {
		i.Addresses = append(i.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: m.ip})
	}
	return i
}

// List implements cloud.Cloud. Discs without a VM are leftovers.
func (c *Cloud) List(ctx context.Context, owner cloud.Owner) ([]cloud.Instance, error) {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	const op = "list vms"
	got, err := c.vms(ctx, op, "description", "owner="+string(owner), func(v *vm) bool { return v.mark().owner == string(owner) && v.mark().uid != "" })
	if err != nil {
		return nil, err
	}
	var out []cloud.Instance
	seen := map[string]bool{}
	for _, v := range got {
		if m := v.mark(); !seen[m.uid] {
			seen[m.uid] = true
			out = append(out, c.instance(cloud.Key{UID: m.uid, Name: m.name}, v))
		}
	}
	discs, err := c.discs(ctx, op, func(d disc) bool { return d.owner == string(owner) && !seen[d.uid] })
	if err != nil {
		return nil, err
	}
	for _, d := range discs {
		out = append(out, cloud.Instance{Key: cloud.Key{UID: d.uid, Name: d.name}, State: cloud.StateLeftover, Region: c.site})
	}
	slices.SortFunc(out, func(a, b cloud.Instance) int {
		return strings.Compare(a.Key.Name+" "+a.Key.UID, b.Key.Name+" "+b.Key.UID)
	})
	return out, nil
}
