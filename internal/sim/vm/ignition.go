package vm

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"strings"

	ignition "github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/vincent-petithory/dataurl"
)

// maxContents bounds one decompressed file, so that a small archive cannot
// fill the host's disk.
const maxContents = 64 << 20

// ApplyIgnition writes a first-boot config (spec 3.0 to 3.5) below root and
// says in one line what it did. Only inline contents (data URLs) can be
// fetched. Paths never leave the root. On an error the disk may hold a part;
// a first boot starts again from the beginning.
func ApplyIgnition(root *os.Root, raw []byte) (string, error) {
	cfg, err := parseIgnition(raw)
	if err != nil {
		return "", err
	}
	for _, d := range cfg.Storage.Directories {
		if err := applyDirectory(root, d); err != nil {
			return "", fmt.Errorf("make directory %s: %w", d.Path, err)
		}
	}
	for _, f := range cfg.Storage.Files {
		if err := applyFile(root, f); err != nil {
			return "", fmt.Errorf("write file %s: %w", f.Path, err)
		}
	}
	for _, l := range cfg.Storage.Links {
		if err := applyLink(root, l); err != nil {
			return "", fmt.Errorf("make link %s: %w", l.Path, err)
		}
	}
	for _, u := range cfg.Systemd.Units {
		if err := applyUnit(root, u); err != nil {
			return "", fmt.Errorf("write unit %s: %w", u.Name, err)
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

// ignitionFiles returns the files of a first-boot config by name below the
// root.
func ignitionFiles(raw []byte) (map[string][]byte, error) {
	cfg, err := parseIgnition(raw)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, f := range cfg.Storage.Files {
		name, err := rel(f.Path)
		if err != nil {
			return nil, err
		}
		if f.Contents.Source == nil {
			continue
		}
		if out[name], err = fetch(f.Contents); err != nil {
			return nil, fmt.Errorf("file %s: %w", f.Path, err)
		}
	}
	return out, nil
}

func rel(p string) (string, error) {
	clean := strings.TrimPrefix(path.Clean("/"+p), "/")
	if clean == "" {
		return "", fmt.Errorf("path %q names the root itself", p)
	}
	return clean, nil
}

func modeOf(mode *int, fallback os.FileMode) os.FileMode {
	if mode == nil {
		return fallback
	}
	return os.FileMode(*mode & 0o777)
}

func applyDirectory(root *os.Root, d types.Directory) error {
	p, err := rel(d.Path)
	if err != nil {
		return err
	}
	if err := root.MkdirAll(p, 0o755); err != nil {
		return err
	}
	return root.Chmod(p, modeOf(d.Mode, 0o755))
}

func applyFile(root *os.Root, f types.File) error {
	p, err := rel(f.Path)
	if err != nil {
		return err
	}
	var body []byte
	for i, r := range append([]types.Resource{f.Contents}, f.Append...) {
		if r.Source == nil {
			continue
		}
		if i == 1 && f.Contents.Source == nil {
			if have, err := root.ReadFile(p); err == nil {
				body = have
			}
		}
		b, err := fetch(r)
		if err != nil {
			return err
		}
		body = append(body, b...)
	}
	return writeFile(root, p, body, modeOf(f.Mode, 0o644))
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

func applyLink(root *os.Root, l types.Link) error {
	p, err := rel(l.Path)
	if err != nil {
		return err
	}
	if l.Target == nil || *l.Target == "" {
		return errors.New("target is missing")
	}
	if err := root.MkdirAll(path.Dir(p), 0o755); err != nil {
		return err
	}
	if err := root.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if l.Hard != nil && *l.Hard {
		t, err := rel(*l.Target)
		if err != nil {
			return err
		}
		return root.Link(t, p)
	}
	return root.Symlink(*l.Target, p)
}

const unitDir = "etc/systemd/system"

func applyUnit(root *os.Root, u types.Unit) error {
	if strings.ContainsAny(u.Name, "/\x00") || u.Name == "" || u.Name == "." || u.Name == ".." {
		return fmt.Errorf("%q is no unit name", u.Name)
	}
	p := path.Join(unitDir, u.Name)
	if u.Mask != nil && *u.Mask {
		_ = root.Remove(p)
		if err := root.MkdirAll(unitDir, 0o755); err != nil {
			return err
		}
		return root.Symlink("/dev/null", p)
	}
	if u.Contents != nil && *u.Contents != "" {
		if err := writeFile(root, p, []byte(*u.Contents), 0o644); err != nil {
			return err
		}
	}
	if err := applyDropins(root, u); err != nil {
		return err
	}
	if u.Enabled == nil || !*u.Enabled {
		return nil
	}
	return enable(root, u.Name)
}

// enable makes the multi-user target want the unit.
func enable(root *os.Root, name string) error {
	wants := path.Join(unitDir, "multi-user.target.wants")
	if err := root.MkdirAll(wants, 0o755); err != nil {
		return err
	}
	if err := root.Symlink("/"+path.Join(unitDir, name), path.Join(wants, name)); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func applyDropins(root *os.Root, u types.Unit) error {
	for _, d := range u.Dropins {
		if d.Contents == nil || *d.Contents == "" {
			continue
		}
		n, err := rel(path.Join(unitDir, u.Name+".d", path.Base(d.Name)))
		if err != nil {
			return err
		}
		if err := writeFile(root, n, []byte(*d.Contents), 0o644); err != nil {
			return err
		}
	}
	return nil
}
