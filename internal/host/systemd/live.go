package systemd

import (
	"context"
	"fmt"
	"strings"

	"millwright.io/millwright/internal/engine/transition"
	"millwright.io/millwright/internal/host"
)

// Live is a host.UnitSystem: the services of a host whose own systemd enables units.
type Live struct{ *Commands }

// unitWords are what systemctl is-enabled may say.
var unitWords = map[string]bool{
	"enabled": true, "enabled-runtime": true, "linked": true, "linked-runtime": true, "alias": true, "masked": true, "masked-runtime": true,
	"static": true, "indirect": true, "disabled": true, "generated": true, "transient": true, "bad": true, "not-found": true,
}

// ObserveUnit implements host.UnitSystem.
func (l Live) ObserveUnit(ctx context.Context, name string) (string, error) {
	out, err := l.run.Query(ctx, "systemctl", "is-enabled", "--", name)
	word := strings.TrimSpace(out)
	switch {
	case unitWords[word]:
		return word, nil // most words come with an exit code of their own
	case err == nil:
		return "", fmt.Errorf("ask whether %s is enabled: systemctl says %q", name, word)
	case strings.Contains(err.Error(), "No such file or directory"), strings.Contains(err.Error(), "Invalid unit name"):
		return "not-found", nil // how systemd before 253 says it
	}
	return "", fmt.Errorf("ask whether %s is enabled: %w", name, err)
}

// PerformUnit implements host.UnitSystem. A preset is a wish: it may go wrong.
func (l Live) PerformUnit(ctx context.Context, step transition.Step) error {
	switch step.After.Value {
	case "enabled":
		if err := l.run.Run(ctx, "systemctl", "enable", "--", step.Key); err != nil {
			return fmt.Errorf("error enabling units: %w", err)
		}
	case "disabled":
		if err := l.run.Run(ctx, "systemctl", "disable", "--", step.Key); err != nil {
			return fmt.Errorf("error disabling unit: %w", err)
		}
	case "preset":
		if err := l.run.Run(ctx, "systemctl", "preset", "--", step.Key); err != nil && ctx.Err() != nil {
			return err
		}
	default:
		return fmt.Errorf("unit %s: %q is no state that a unit can be given; want enabled, disabled or preset", step.Key, step.After.Value)
	}
	return nil
}

var _ host.UnitSystem = Live{}
