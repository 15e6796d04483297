package world

import (
	"fmt"
	"strings"
)

// checkAdmission refuses settings that no rule could have. Whether a rule of
// that name exists is the webhook's to say.
func checkAdmission(settings []string) error {
	for _, a := range settings {
		rule, mode, ok := strings.Cut(a, "=")
		if !ok || rule == "" {
			return &UsageError{fmt.Sprintf("--admission %q: want RULE=MODE, e.g. azure-disk-size=warn", a)}
		}
		switch mode {
		case "enforce", "warn", "off":
		default:
			return &UsageError{fmt.Sprintf("--admission %s: mode %q: want enforce, warn or off", a, mode)}
		}
	}
	return nil
}
