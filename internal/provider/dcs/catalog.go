package dcs

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/provider/dcs/spec"
)

// shelfLife is how long the site's inventory is believed. A name that is not
// found is looked up afresh.
const shelfLife = 30 * time.Second

// item is anything with a name.
type item struct {
	URN    string `json:"urn"`
	Name   string `json:"name"`
	Status string `json:"status"`
	FreeGB int    `json:"freeSizeGB"`
}

type shelf struct {
	mu      sync.Mutex
	entries map[string]shelved
}

type shelved struct {
	at    time.Time
	items []item
}

// list reads one of the site's lists, from the shelf unless fresh.
func (c *Cloud) list(ctx context.Context, op, path, name string, fresh bool) ([]item, error) {
	unlock, err := c.keys.hold(ctx, op, "list "+path)
	if err != nil {
		return nil, err
	}
	defer unlock()
	c.shelf.mu.Lock()
	have, ok := c.shelf.entries[path]
	c.shelf.mu.Unlock()
	if age := c.sess.clk.Since(have.at); ok && !fresh && age < shelfLife {
		return have.items, nil
	}
	items, err := pages[item](ctx, c.client, op, c.path(path), name, nil)
	if err != nil {
		return nil, err
	}
	c.shelf.mu.Lock()
	c.shelf.entries[path] = shelved{c.sess.clk.Now(), items}
	c.shelf.mu.Unlock()
	return items, nil
}

func absent(op, kind, name string, n int) *cloud.Fault {
	f := &cloud.Fault{Kind: cloud.Transient, Op: op, Reason: "ReferenceNotFound", Message: fmt.Sprintf("%s: the site has no %s %q", op, kind, name)}
	if kind == "VM template" {
		f.Reason = "TemplateNotFound"
	}
	if n > 1 {
		f.Reason, f.Message = "ReferenceAmbiguous", fmt.Sprintf("%s: the site has %d of %s %q; give the URN or rename them", op, n, kind, name)
		if kind == "VM template" {
			f.Reason = "TemplateAmbiguous"
		}
	}
	return f
}

// find resolves an exact name; VRM's own filters are not exact.
func (c *Cloud) find(ctx context.Context, op, kind, path, list, name string) (item, error) {
	for _, fresh := range []bool{false, true} {
		items, err := c.list(ctx, op, path, list, fresh)
		if err != nil {
			return item{}, written(err)
		}
		var got []item
		for _, i := range items {
			if i.Name == name {
				got = append(got, i)
			}
		}
		if len(got) == 1 {
			return got[0], nil
		}
		if fresh {
			return item{}, absent(op, kind, name, len(got))
		}
	}
	return item{}, absent(op, kind, name, 0)
}

// template reads a template with its disks.
func (c *Cloud) template(ctx context.Context, op, name string) (*vm, error) {
	t, err := c.find(ctx, op, "VM template", "vms?isTemplate=true", "vms", name)
	if err != nil {
		return nil, err
	}
	var v vm
	if err := c.call(ctx, op, "GET", pathOf(t.URN), nil, &v); err != nil {
		return nil, written(err)
	}
	return &v, nil
}

// datastore resolves the place of a disk: of a group the one with most room.
func (c *Cloud) datastore(ctx context.Context, op, urn, name, group string) (string, error) {
	switch {
	case urn != "":
		return urn, nil
	case name != "":
		d, err := c.find(ctx, op, "datastore", "datastores", "datastores", name)
		return d.URN, err
	case group == "":
		return "", nil
	}
	groups, err := c.datastoreGroups(ctx, op)
	if err != nil {
		return "", written(err)
	}
	best, n := item{FreeGB: -1}, 0
	for _, g := range groups {
		if g.Name != group {
			continue
		}
		n++
		for _, d := range g.Datastores {
			if d.FreeGB > best.FreeGB && (d.Status == "" || strings.EqualFold(d.Status, "NORMAL")) {
				best = d
			}
		}
	}
	if n != 1 || best.URN == "" {
		return "", absent(op, "datastore cluster", group, n)
	}
	return best.URN, nil
}

// portGroup resolves where a NIC goes; empty: as the template.
func (c *Cloud) portGroup(ctx context.Context, op string, n spec.NIC) (string, error) {
	if n.PortGroupURN != "" || n.PortGroupName == "" {
		return n.PortGroupURN, nil
	}
	w, err := c.find(ctx, op, "distributed switch", "dvswitchs", "dvSwitchs", n.DVSwitchName)
	if err != nil {
		return "", err
	}
	path := strings.TrimPrefix(pathOf(w.URN), c.path("")) + "/portgroups"
	g, err := c.find(ctx, op, "port group of switch "+n.DVSwitchName, path, "portGroups", n.PortGroupName)
	return g.URN, err
}

// place resolves a location.
func (c *Cloud) place(ctx context.Context, op string, p *spec.Place) (string, error) {
	if p == nil || p.URN != "" {
		if p == nil {
			return "", nil
		}
		return p.URN, nil
	}
	lists := map[string][2]string{"folder": {"folder?type=1", "folders"}, "cluster": {"clusters", "clusters"}, "host": {"hosts", "hosts"}}
	l, ok := lists[p.Type]
	if !ok {
		return "", invalid(op, "InvalidSpec", fmt.Sprintf("location type %q; want folder, cluster or host", p.Type))
	}
	i, err := c.find(ctx, op, p.Type, l[0], l[1], p.Name)
	return i.URN, err
}
