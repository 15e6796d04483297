package diff

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"millwright.io/millwright/internal/engine/ignition"
	"millwright.io/millwright/internal/engine/render"
)

// cutDropin splits the key of a drop-in into unit and drop-in.
func cutDropin(key string) (unit, dropin string, ok bool) { return strings.Cut(key, "/") }

// units compares units, then their drop-ins. Empty contents write nothing and
// are absent; a unit that says nothing itself is only the place of its drop-ins.
func units(before, after *ignition.Config) []Change {
	oldUnits, oldDropins := unitItems(before)
	newUnits, newDropins := unitItems(after)
	out := oldUnits.compare(newUnits, render.KindUnit)
	return append(out, oldDropins.compare(newDropins, render.KindDropin)...)
}

// items is an ordered map.
type items struct {
	keys []string
	by   map[string]*Item
}

func (s *items) put(key string, item *Item) {
	if s.by == nil {
		s.by = map[string]*Item{}
	}
	if _, ok := s.by[key]; !ok {
		s.keys = append(s.keys, key)
	}
	s.by[key] = item
}

// compare returns what changed towards other, which comes first in order.
func (s items) compare(other items, kind string) []Change {
	var out []Change
	for _, key := range other.keys {
		after := other.by[key]
		before, ok := s.by[key]
		if !ok {
			out = append(out, Change{Kind: kind, Key: key, Op: Added, After: after})
			continue
		}
		if fields := differing(before, after); len(fields) > 0 {
			out = append(out, Change{Kind: kind, Key: key, Op: Changed, Fields: fields, Before: before, After: after})
		}
	}
	for _, key := range s.keys {
		if _, ok := other.by[key]; !ok {
			out = append(out, Change{Kind: kind, Key: key, Op: Removed, Before: s.by[key]})
		}
	}
	return out
}

func differing(a, b *Item) []string {
	var fields []string
	// What a masked unit would contain is never written.
	if !(a.Masked && b.Masked) && !bytes.Equal(a.Contents, b.Contents) {
		fields = append(fields, "contents")
	}
	if a.Enabled != b.Enabled {
		fields = append(fields, "enabled")
	}
	if a.Masked != b.Masked {
		fields = append(fields, "mask")
	}
	if a.Value != b.Value {
		fields = append(fields, "value")
	}
	return fields
}

func unitItems(cfg *ignition.Config) (units, dropins items) {
	for i := range cfg.Systemd.Units {
		u := &cfg.Systemd.Units[i]
		if item := unitItem(u); item != nil {
			units.put(u.Name, item)
		}
		for _, d := range u.Dropins {
			if text(d.Contents) != "" {
				item := &Item{}
				item.setContents([]byte(*d.Contents))
				dropins.put(u.Name+"/"+d.Name, item)
			}
		}
	}
	return units, dropins
}

// unitItem is nil if the unit itself says nothing.
func unitItem(u *types.Unit) *Item {
	item := &Item{Enabled: "preset", Masked: u.Mask != nil && *u.Mask}
	if u.Enabled != nil {
		item.Enabled = strconv.FormatBool(*u.Enabled)
	}
	if text(u.Contents) != "" {
		item.setContents([]byte(*u.Contents))
	} else if u.Enabled == nil && !item.Masked {
		return nil
	}
	return item
}
