package ignition

import (
	"fmt"

	"github.com/coreos/ignition/v2/config/validate"
)

// Validate returns what is wrong with a config of the internal form, errors
// and warnings, in the order of the config.
func Validate(cfg Config) []Problem {
	return problemsOf(validate.ValidateWithContext(cfg, nil), Marshal(cfg))
}

// ModeProblems returns the files whose mode has bits beyond 0777, which
// MachineConfigs may not have.
func ModeProblems(cfg Config) []Problem {
	var out []Problem
	for i := range cfg.Storage.Files {
		if f := &cfg.Storage.Files[i]; f.Mode != nil && badMode(*f.Mode) {
			out = append(out, modeProblem(i, f.Path, *f.Mode))
		}
	}
	return out
}

func badMode(mode int) bool { return mode < 0 || mode > 0o777 }

// modeProblem refuses a mode in the original's words.
func modeProblem(i int, path string, mode int) Problem {
	return Problem{
		Path:   fmt.Sprintf("storage.files.%d.mode", i),
		Value:  fmt.Sprintf("%d (0%o)", mode, mode),
		Detail: fmt.Sprintf("invalid mode %#o for %v, cannot exceed 0777", mode, path),
	}
}
