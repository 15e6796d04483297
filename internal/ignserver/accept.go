package ignserver

import (
	"cmp"
	"fmt"
	"mime"
	"slices"
	"strconv"
	"strings"

	"github.com/blang/semver/v4"
)

// oldest is what a client gets that names no version.
const oldest = "2.2.0"

// newest is what a client gets that knows more than this server.
const newest = "3.5.0"

// maxAccept bounds the entries of an Accept header that are looked at.
const maxAccept = 32

// negotiate returns the Ignition version to answer with, by the Accept header. It
// fails on a version that nobody can write.
func negotiate(accept string) (string, error) {
	type entry struct {
		version semver.Version
		q       float64
	}
	var entries []entry
	for _, part := range strings.SplitN(accept, ",", maxAccept) {
		media, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		_, subtype, ok := strings.Cut(media, "/")
		v, err := semver.Parse(params["version"])
		if !ok || subtype != "vnd.coreos.ignition+json" || err != nil {
			continue
		}
		q, err := strconv.ParseFloat(params["q"], 64)
		if err != nil {
			q = 1
		}
		entries = append(entries, entry{v, q})
	}
	if len(entries) == 0 {
		return oldest, nil
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(b.q, a.q) })
	return nearest(entries[0].version)
}

// nearest is the version this server writes for a client that speaks v.
func nearest(v semver.Version) (string, error) {
	switch {
	case v.Major == 2 && v.Minor >= 2:
		return oldest, nil
	case v.Major == 3 && v.Minor > 5:
		return newest, nil
	case v.Major == 3 && v.Minor >= 1:
		return fmt.Sprintf("3.%d.0", v.Minor), nil
	}
	return "", fmt.Errorf("unsupported Ignition version %s: want 2.2 to 2.4 or 3.1 and above", v)
}
