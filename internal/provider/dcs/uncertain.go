package dcs

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"millwright.io/millwright/internal/cloud"
)

// What no public source tells for sure about VRM is in this file alone, to be
// put right against a real site: the values of X-Auth-UserType for domain
// users, the list of datastore clusters, upload and deletion of files, the
// device path of a disc and when it may be inserted, and the codes of missing
// capacity.

var userTypes = map[string]string{"interconnect": "2", "domain": "1"}

// kindOfText classifies what has no published code.
func kindOfText(text string, status int) cloud.Kind {
	text = strings.ToLower(text)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	switch {
	case has("quota", "upper limit"):
		return cloud.Quota
	case has("insufficient", "not enough"):
		return cloud.NoCapacity
	case status == http.StatusBadRequest:
		return cloud.Invalid
	}
	return cloud.Transient
}

type datastoreGroup struct {
	item
	Datastores []item `json:"datastores"`
}

func (c *Cloud) datastoreGroups(ctx context.Context, op string) ([]datastoreGroup, error) {
	return pages[datastoreGroup](ctx, c.client, op, c.path("datastoreclusters"), "datastoreClusters", nil)
}

// disc is a disc image on a datastore; its name says whose it is. Underscores
// are in no name of Kubernetes.
type disc struct{ store, file, owner, name, uid string }

func discName(in cloud.Intent) string {
	return string(in.Owner) + "_" + in.Key.Name + "_" + in.Key.UID + ".iso"
}

// discs lists the disc images of ours that want accepts.
func (c *Cloud) discs(ctx context.Context, op string, want func(disc) bool) ([]disc, error) {
	stores, err := c.list(ctx, op, "datastores", "datastores", false)
	if err != nil {
		return nil, err
	}
	var out []disc
	for _, s := range stores {
		files, err := pages[struct {
			Name string `json:"fileName"`
		}](ctx, c.client, op, pathOf(s.URN)+"/file", "files", nil)
		if cloud.KindOf(err) == cloud.NotFound {
			continue // the datastore went meanwhile
		}
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			part := strings.Split(strings.TrimSuffix(f.Name, ".iso"), "_")
			if len(part) != 3 || !strings.HasSuffix(f.Name, ".iso") {
				continue
			}
			if d := (disc{s.URN, f.Name, part[0], part[1], part[2]}); want(d) {
				out = append(out, d)
			}
		}
	}
	return out, nil
}

// upload puts a file on a datastore: VRM names a URL of one of its hosts,
// which takes the bytes.
func (c *Cloud) upload(ctx context.Context, op, store, file string, data []byte) error {
	var to struct {
		URL string `json:"url"`
	}
	if err := c.call(ctx, op, http.MethodPost, pathOf(store)+"/action/applyUpload", map[string]any{"fileName": file, "fileSize": len(data)}, &to); err != nil {
		f := cloud.FaultOf(written(err))
		if f != nil && f.Kind == cloud.Invalid {
			// Another datastore, or this one later, may take it.
			return &cloud.Fault{Kind: cloud.Transient, Op: op, Reason: "UploadRejected", Cause: err,
				Message: op + ": the datastore takes no uploads; set cdRomDatastoreName to shared storage: " + f.Message}
		}
		return written(err)
	}
	h := http.Header{}
	h.Set("Content-Type", "application/octet-stream")
	if _, _, err := c.send(ctx, op, http.MethodPut, to.URL, h, data); err != nil {
		host := to.URL
		if u, perr := url.Parse(to.URL); perr == nil {
			host = u.Host
		}
		return &cloud.Fault{Kind: cloud.Transient, Op: op, Reason: "UploadFailed", Cause: err,
			Message: op + ": upload " + file + " to host " + host + ": " + err.Error() + "; the management nodes must reach this port of every host"}
	}
	return nil
}

func (c *Cloud) removeDisc(ctx context.Context, op string, d disc) error {
	err := c.call(ctx, op, http.MethodDelete, pathOf(d.store)+"/file?fileName="+url.QueryEscape(d.file), nil, nil)
	if cloud.KindOf(err) == cloud.NotFound || busy(err) {
		return nil
	}
	return err
}

// insert puts the disc into a VM's drive. It reports true when VRM wants the
// VM to be on first.
func (c *Cloud) insert(ctx context.Context, op, uid string, v *vm, d disc) (needsPower bool, err error) {
	c.mu.Lock()
	needsPower = c.after && v.Status == "stopped"
	c.mu.Unlock()
	if needsPower {
		return true, nil
	}
	id := d.store[strings.LastIndexByte(d.store, ':')+1:]
	err = c.start(ctx, op, uid, pathOf(v.URN)+"/action/attachCdrom", map[string]any{"devicePath": id + "@" + d.file, "protocol": "file"})
	if err != nil && v.Status == "stopped" && busy(err) {
		c.mu.Lock()
		c.after = true
		c.mu.Unlock()
		return true, nil
	}
	return false, err
}
