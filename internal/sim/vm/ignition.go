package vm

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"strings"

	ignition "github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/vincent-petithory/dataurl"

	"millwright.io/millwright/internal/host"
)

// maxContents bounds one decompressed file, so that a small archive cannot
// fill the host's disk.
const maxContents = 64 << 20

// ApplyIgnition writes a first-boot config (spec 3.0 to 3.5) below root and says in
// one line what it did. Only inline contents (data URLs) can be fetched. Paths never
// leave the root. Of users only core's keys and password count. On an error the disk
// may hold a part; a first boot starts again from the beginning.
func ApplyIgnition(ctx context.Context, root *os.Root, raw []byte) (string, error) {
	cfg, err := parseIgnition(raw)
	if err != nil {
		return "", err
	}
	// Nothing is synced: a machine killed half-way starts its first boot anew.
	h, err := host.New(root.Name(), host.Options{Wrap: func(d host.Disk) host.Disk { return unsynced{d} }})
	if err != nil {
		return "", err
	}
	a := applier{ctx: ctx, root: root, host: h}
	return a.all(cfg)
}

// all applies a whole config.
func (a *applier) all(cfg types.Config) (string, error) {
	for _, d := range cfg.Storage.Directories {
		if err := a.directory(d); err != nil {
			return "", fmt.Errorf("make directory %s: %w", d.Path, err)
		}
	}
	for _, f := range cfg.Storage.Files {
		if err := a.file(f); err != nil {
			return "", fmt.Errorf("write file %s: %w", f.Path, err)
		}
	}
	for _, l := range cfg.Storage.Links {
		if err := a.link(l); err != nil {
			return "", fmt.Errorf("make link %s: %w", l.Path, err)
		}
	}
	if err := a.units(cfg.Systemd.Units); err != nil {
		return "", err
	}
	for _, u := range cfg.Passwd.Users {
		if err := a.user(u); err != nil {
			return "", fmt.Errorf("set up user %s: %w", u.Name, err)
		}
	}
	return fmt.Sprintf("wrote %d directories, %d files, %d links, %d units", len(cfg.Storage.Directories),
		len(cfg.Storage.Files), len(cfg.Storage.Links), len(cfg.Systemd.Units)), nil
}

func parseIgnition(raw []byte) (types.Config, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return types.Config{}, errors.New("no user data: give the machine a user-data Secret with key userData")
	}
	cfg, report, err := ignition.ParseCompatibleVersion(raw)
	if err == nil {
		return cfg, nil
	}
	if s := strings.TrimSpace(report.String()); s != "" {
		return types.Config{}, fmt.Errorf("parse user data: %w: %s", err, s)
	}
	return types.Config{}, fmt.Errorf("parse user data: %w", err)
}

func rel(p string) (string, error) {
	clean := strings.TrimPrefix(path.Clean("/"+p), "/")
	if clean == "" {
		return "", fmt.Errorf("path %q names the root itself", p)
	}
	return clean, nil
}

// fetch decodes inline contents.
func fetch(r types.Resource) ([]byte, error) {
	u, err := url.Parse(*r.Source)
	if err != nil {
		return nil, fmt.Errorf("read source: %w", err)
	}
	if u.Scheme != "data" {
		return nil, fmt.Errorf("source %s://…: only data URLs can be read at first boot", u.Scheme)
	}
	d, err := dataurl.DecodeString(*r.Source)
	if err != nil {
		return nil, fmt.Errorf("decode data URL: %w", err)
	}
	if r.Compression == nil || *r.Compression == "" {
		return d.Data, nil
	}
	if *r.Compression != "gzip" {
		return nil, fmt.Errorf("compression %q: only gzip is known", *r.Compression)
	}
	z, err := gzip.NewReader(bytes.NewReader(d.Data))
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	out, err := io.ReadAll(io.LimitReader(z, maxContents+1))
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	if len(out) > maxContents {
		return nil, fmt.Errorf("decompress: more than %d bytes", maxContents)
	}
	return out, nil
}
