package ignition

import (
	"github.com/coreos/ignition/v2/config/validate"
)

// Validate returns what is wrong with a config of the internal form, errors
// and warnings, in the order of the config.
func Validate(cfg Config) []Problem {
	return problemsOf(validate.ValidateWithContext(cfg, nil), Marshal(cfg))
}
