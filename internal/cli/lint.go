package cli

import (
	"fmt"
	"io"

	"millwright.io/millwright/internal/engine/render"
)

// Severities of findings.
const (
	severityError   = "error"
	severityWarning = "warning"
)

// Finding is one fault, with the way out of it.
type Finding struct {
	Severity string `json:"severity"` // error or warning
	Rule     string `json:"rule"`
	Object   string `json:"object"`
	File     string `json:"file,omitempty"` // file and document
	Field    string `json:"field,omitempty"`
	Value    string `json:"value,omitempty"`
	Why      string `json:"why"`
	Fix      string `json:"fix,omitempty"`
}

// text prints a finding: where, what, why, what would be right.
func (f Finding) text(w io.Writer, p paint) {
	head := p.yellow(f.Severity)
	if f.Severity == severityError {
		head = p.red(f.Severity)
	}
	place := f.Object
	if f.Field != "" {
		place += ": " + f.Field
	}
	if f.Value != "" {
		place += fmt.Sprintf(" = %q", f.Value)
	}
	_, _ = fmt.Fprintf(w, "%s %s [%s]\n", head, p.bold(place), f.Rule)
	if f.File != "" {
		_, _ = fmt.Fprintf(w, "    in   %s\n", f.File)
	}
	_, _ = fmt.Fprintf(w, "    why  %s\n", f.Why)
	if f.Fix != "" {
		_, _ = fmt.Fprintf(w, "    fix  %s\n", f.Fix)
	}
}

// lintManifests checks the user's MachineConfigs.
func lintManifests(ms []manifest) ([]Finding, error) {
	var out []Finding
	for _, m := range ms {
		mc, err := m.machineConfig()
		if err != nil {
			return out, err
		}
		if mc == nil {
			continue
		}
		for _, p := range render.Validate(render.FromMachineConfig(mc)) {
			f := Finding{Severity: severityError, Rule: "render", Object: m.object(), File: m.Source.String(), Value: p.Value, Why: p.Detail}
			if p.Path != "" {
				f.Field = "spec." + p.Path
			}
			if p.Warning {
				f.Severity = severityWarning
			}
			out = append(out, f)
		}
	}
	return out, nil
}
