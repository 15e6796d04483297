package diff

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"millwright.io/millwright/internal/engine/ignition"
	"millwright.io/millwright/internal/engine/render"
)

// DefaultMode is the mode of a file that names none.
const DefaultMode = 0o644

// files compares by path. Whether a file may be overwritten is no difference:
// every managed file is.
func files(before, after *ignition.Config) []Change {
	old := make(map[string]*types.File, len(before.Storage.Files))
	for i := range before.Storage.Files {
		old[before.Storage.Files[i].Path] = &before.Storage.Files[i]
	}
	kept := make(map[string]bool, len(after.Storage.Files))
	var out []Change
	for i := range after.Storage.Files {
		f := &after.Storage.Files[i]
		kept[f.Path] = true
		was, ok := old[f.Path]
		if !ok {
			out = append(out, Change{Kind: render.KindFile, Key: f.Path, Op: Added, After: fileItem(f)})
			continue
		}
		if c, differs := changedFile(was, f); differs {
			out = append(out, c)
		}
	}
	for i := range before.Storage.Files {
		f := &before.Storage.Files[i]
		if !kept[f.Path] {
			kept[f.Path] = true
			out = append(out, Change{Kind: render.KindFile, Key: f.Path, Op: Removed, Before: fileItem(f)})
		}
	}
	return out
}

func changedFile(was, f *types.File) (Change, bool) {
	sameSource := sameResource(was.Contents, f.Contents)
	sameAppend := slices.EqualFunc(was.Append, f.Append, sameResource)
	if sameSource && sameAppend && mode(was) == mode(f) && owner(was) == owner(f) {
		return Change{}, false
	}
	c := Change{Kind: render.KindFile, Key: f.Path, Op: Changed, Before: fileItem(was), After: fileItem(f)}
	if !sameSource && !sameContents(c.Before, c.After) {
		c.Fields = append(c.Fields, "contents")
	}
	if !sameAppend {
		c.Fields = append(c.Fields, "append")
	}
	if c.Before.Mode != c.After.Mode {
		c.Fields = append(c.Fields, "mode")
	}
	if c.Before.Owner != c.After.Owner {
		c.Fields = append(c.Fields, "owner")
	}
	return c, len(c.Fields) > 0
}

func sameResource(a, b types.Resource) bool {
	return text(a.Source) == text(b.Source) && text(a.Compression) == text(b.Compression)
}

// sameContents compares what was decoded. Contents that cannot be had are the
// same only if their sources were, which callers have looked at.
func sameContents(a, b *Item) bool {
	if a.Remote != "" || b.Remote != "" || a.Broken != "" || b.Broken != "" {
		return a.Remote != "" && a.Remote == b.Remote && a.Broken == b.Broken
	}
	return bytes.Equal(a.Contents, b.Contents)
}

func fileItem(f *types.File) *Item {
	item := &Item{Mode: mode(f), Owner: owner(f)}
	data, err := ignition.Contents(f.Contents)
	switch {
	case errors.Is(err, ignition.ErrRemote):
		item.Remote = text(f.Contents.Source)
	case err != nil:
		item.Broken = err.Error()
	default:
		item.setContents(data)
	}
	return item
}

func (it *Item) setContents(data []byte) {
	sum := sha256.Sum256(data)
	it.Contents, it.Size, it.Digest = data, len(data), "sha256:"+hex.EncodeToString(sum[:])
}

func mode(f *types.File) int {
	if f.Mode == nil {
		return DefaultMode
	}
	return *f.Mode
}

// owner is user:group. A number beats a name, and root is number 0.
func owner(f *types.File) string {
	one := func(id *int, name *string) string {
		switch {
		case id != nil:
			return strconv.Itoa(*id)
		case name == nil || *name == "" || *name == "root":
			return "0"
		}
		return *name
	}
	return one(f.User.ID, f.User.Name) + ":" + one(f.Group.ID, f.Group.Name)
}

func text(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}
