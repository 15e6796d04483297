package ignition

import (
	"errors"
	"fmt"
	"strings"

	v2_4 "github.com/coreos/ignition/config/v2_4/types"
	ignerrors "github.com/coreos/ignition/v2/config/shared/errors"
	latest "github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/vcontext/report"
)

// Refusals in the words of OpenShift's machine config controller.
const (
	wireSupported      = "Supported spec versions: 2.2,3.0,3.1,3.2,3.3,3.4,3.5"
	wireUnknownVersion = "parsing Ignition config failed: unknown version. " + wireSupported
	wireInvalidVersion = "parsing Ignition config failed: invalid version. " + wireSupported
)

func wireV3(what, report string) string {
	return fmt.Sprintf("parsing Ignition config spec v3 failed with error: %s\nReport: %s", what, report)
}

func wireV2(what, report string) string {
	return fmt.Sprintf("parsing Ignition spec v2 failed with error: %s\nReport: %s", what, report)
}

// Parse reads a config of any version from 2.0 to 2.4 and from 3.0 to 3.5 and
// returns the internal form. Errors are *Error. In configs of spec 2 the last
// of several entries with one name wins, and only user core is allowed, as
// machine configs of that age expect.
func Parse(raw []byte) (Config, error) {
	s, err := read(raw, 4)
	if err != nil {
		return Config{}, err
	}
	return s.Config()
}

// Source is a config that has been read and checked, but not translated: the
// original refuses some configs of spec 2 only when it merges them.
type Source struct {
	v3 Config
	v2 *v2_4.Config // the config if it is of spec 2
}

// ReadMachineConfig reads the config inside a MachineConfig, where the original
// refuses 2.3 and 2.4. Error.Wire has the original's words.
func ReadMachineConfig(raw []byte) (Source, error) { return read(raw, 2) }

// Config translates to the internal form.
func (s Source) Config() (Config, error) {
	if s.v2 == nil {
		return s.v3, nil
	}
	return fromV2(*s.v2)
}

// ModeProblems returns the files whose mode has bits beyond 0777, which
// MachineConfigs may not have, in the order of the source. Detail is in the
// original's words.
func (s Source) ModeProblems() []Problem {
	var out []Problem
	if s.v2 != nil {
		for i, f := range s.v2.Storage.Files {
			if badMode(f.Mode) {
				out = append(out, modeProblem(i, f.Path, *f.Mode))
			}
		}
		return out
	}
	for i := range s.v3.Storage.Files {
		if f := &s.v3.Storage.Files[i]; badMode(f.Mode) {
			out = append(out, modeProblem(i, f.Path, *f.Mode))
		}
	}
	return out
}

// read accepts spec 2 up to 2.maxMinor2.
func read(raw []byte, maxMinor2 int64) (s Source, err error) {
	defer recovered(&err)
	version, err := readVersion(raw)
	if err != nil {
		return Source{}, err
	}
	known := version.PreRelease == "" && version.Metadata == "" && version.Patch == 0
	switch {
	case known && version.Major == 3 && version.Minor <= 5:
		if cfg, ok := parseFast(raw); ok {
			return Source{v3: cfg}, nil
		}
		cfg, err := parseV3(raw)
		return Source{v3: cfg}, err
	case known && version.Major == 2 && version.Minor <= maxMinor2:
		old, err := readV2(raw, version.Minor)
		return Source{v2: &old}, err
	}
	detail := "this version is not known; want one of 2.0.0 to 2.4.0 or 3.0.0 to 3.5.0"
	if known && version.Major == 2 && version.Minor <= 4 {
		detail = "MachineConfigs may not use this version; want 2.0.0, 2.1.0, 2.2.0 or 3.0.0 to 3.5.0"
	}
	return Source{}, &Error{
		Problems: []Problem{{Path: "ignition.version", Value: short(version.String()), Detail: detail}},
		Wire:     wireUnknownVersion,
	}
}

// parseV3 is the official parser. It is slow but has the words.
func parseV3(raw []byte) (Config, error) {
	cfg, rpt, perr := latest.ParseCompatibleVersion(raw)
	if perr == nil && !rpt.IsFatal() {
		return cfg, nil
	}
	if perr == nil {
		perr = ignerrors.ErrInvalid
	}
	wire := wireV3(perr.Error(), rpt.String())
	if errors.Is(perr, ignerrors.ErrUnknownVersion) {
		wire = wireUnknownVersion
	}
	e := &Error{Problems: fatal(problemsOf(rpt, raw)), Wire: wire}
	if len(e.Problems) == 0 {
		e.Problems = []Problem{{Detail: perr.Error()}}
	}
	return Config{}, e
}

// recovered turns a panic of a foreign parser into an error.
func recovered(err *error) {
	if r := recover(); r != nil {
		text := fmt.Sprintf("the parser gave up: %v", r)
		*err = &Error{Problems: []Problem{{Detail: text}}, Wire: wireV3(text, "")}
	}
}

func fatal(all []Problem) []Problem {
	var out []Problem
	for _, p := range all {
		if !p.Warning {
			out = append(out, p)
		}
	}
	return out
}

// problemsOf turns an official report into problems. raw, if known, supplies
// the values.
func problemsOf(rpt report.Report, raw []byte) []Problem {
	var out []Problem
	tree := decodeTree(raw)
	for _, e := range rpt.Entries {
		p := Problem{
			Path:    strings.TrimPrefix(strings.TrimPrefix(e.Context.String(), "$"), "."),
			Detail:  explain(e.Message),
			Warning: !e.Kind.IsFatal(),
		}
		p.Value = valueAt(tree, p.Path)
		if p.Path == "" && e.Marker.StartP != nil {
			p.Detail += " (" + e.Marker.String() + ")"
		}
		out = append(out, p)
	}
	return out
}
