// Package ignition reads, checks, translates and writes Ignition configs, the
// part of a MachineConfig that describes files, units and users. It decides
// what a config says and whether it may be said; it never fetches a source,
// never reads a clock and never panics on foreign bytes.
//
// Every accepted version becomes one internal form, that of spec 3.5:
//
//	cfg, err := ignition.Parse([]byte(`{"ignition":{"version":"3.2.0"}}`))
//	// cfg.Ignition.Version == "3.5.0"
package ignition

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/coreos/go-semver/semver"
	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// Config is the internal form: spec 3.5.
type Config = types.Config

// InternalVersion is the spec version of the internal form.
const InternalVersion = "3.5.0"

// MaxSize is how many bytes of JSON one config may have. A rendered
// MachineConfig may have 1.5 MiB; offline checks read more than a cluster
// would store, so the bound only keeps memory finite.
const MaxSize = 64 << 20

// Problem is one thing that is wrong with a config, or, as a Warning, one that
// works but rarely means what it says.
type Problem struct {
	Path    string // JSON path below the config, e.g. "storage.files.0.mode"; empty: the whole
	Value   string // what stands there, shortened; empty if nothing or secret
	Detail  string // what is wrong and what would be right
	Warning bool
}

// String prints path, value and detail on one line.
func (p Problem) String() string {
	var b strings.Builder
	if p.Path != "" {
		b.WriteString(p.Path)
		b.WriteString(": ")
	}
	if p.Value != "" {
		fmt.Fprintf(&b, "%q: ", p.Value)
	}
	b.WriteString(p.Detail)
	return b.String()
}

// Error is a config that cannot be used.
type Error struct {
	Problems []Problem // at least one, none of them a warning
	// Wire is the same refusal in the words of OpenShift's machine config
	// controller, without prefix.
	Wire string
}

// Error names every problem with its path and value.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return "parse Ignition config: " + strings.Join(lines, "; ")
}

// Version returns the spec version a config names, e.g. "3.2.0", without
// looking at anything else. It fails on JSON that is not an object and on a
// missing or unreadable version.
func Version(raw []byte) (string, error) {
	v, err := readVersion(raw)
	if err != nil {
		return "", err
	}
	return v.String(), nil
}

func readVersion(raw []byte) (semver.Version, error) {
	if len(raw) > MaxSize {
		return semver.Version{}, tooLarge(len(raw))
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return semver.Version{}, &Error{
			Problems: []Problem{{Detail: `the config is empty; the least one is {"ignition":{"version":"3.5.0"}}`}},
			Wire:     wireV3("not a config (empty)", ""),
		}
	}
	if text, ok := quickVersion(raw); ok {
		if v, err := semver.NewVersion(text); err == nil {
			return *v, nil
		}
	}
	var head struct {
		Ignition struct {
			Version *string `json:"version"`
		} `json:"ignition"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return semver.Version{}, syntaxError(raw, err)
	}
	if head.Ignition.Version == nil || *head.Ignition.Version == "" {
		return semver.Version{}, &Error{
			Problems: []Problem{{Path: "ignition.version", Detail: "no version is given; want one of 2.0.0 to 2.4.0 or 3.0.0 to 3.5.0"}},
			Wire:     wireInvalidVersion,
		}
	}
	v, err := semver.NewVersion(*head.Ignition.Version)
	if err != nil {
		return semver.Version{}, &Error{
			Problems: []Problem{{Path: "ignition.version", Value: short(*head.Ignition.Version), Detail: "this is not a version; want one of 2.0.0 to 2.4.0 or 3.0.0 to 3.5.0"}},
			Wire:     wireInvalidVersion,
		}
	}
	return *v, nil
}

// quickVersion finds the version of a config that starts, as encoders write
// them, with the ignition section and it with the version.
func quickVersion(raw []byte) (string, bool) {
	const head = `{"ignition":{"version":"`
	if !bytes.HasPrefix(raw, []byte(head)) {
		return "", false
	}
	// A later duplicate key would win, so only a full parse may skip it.
	if bytes.Count(raw, []byte(`"ignition"`)) != 1 {
		return "", false
	}
	rest := raw[len(head):]
	end := bytes.IndexByte(rest, '"')
	if end < 0 || end > 32 {
		return "", false
	}
	return string(rest[:end]), true
}

// short keeps values readable in messages.
func short(s string) string {
	const limit = 80
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

func tooLarge(size int) *Error {
	text := fmt.Sprintf("the config has %d bytes; at most %d are read", size, MaxSize)
	return &Error{Problems: []Problem{{Detail: text}}, Wire: text}
}

func syntaxError(raw []byte, err error) *Error {
	return &Error{
		Problems: []Problem{{Detail: "this is not the JSON of an Ignition config: " + err.Error() + position(raw, err)}},
		Wire:     wireInvalidVersion,
	}
}

// position names the line and column a JSON error is about.
func position(raw []byte, err error) string {
	var offset int64
	switch e := err.(type) {
	case *json.SyntaxError:
		offset = e.Offset
	case *json.UnmarshalTypeError:
		offset = e.Offset
	default:
		return ""
	}
	before := raw[:min(int(offset), len(raw))]
	line := bytes.Count(before, []byte("\n")) + 1
	col := len(before) - bytes.LastIndexByte(before, '\n') - 1
	return fmt.Sprintf(" (line %d, column %d)", line, col)
}
