package ostree

import (
	"context"
	"encoding/json"
	"fmt"

	"millwright.io/millwright/internal/engine/transition"
	"millwright.io/millwright/internal/host"
	"millwright.io/millwright/internal/host/program"
)

// Bootc is a host.System for osImageURL on hosts that have bootc and no rpm-ostree.
type Bootc struct{ run program.Runner }

// NewBootc returns the system of a host with bootc.
func NewBootc(run program.Runner) *Bootc { return &Bootc{run} }

// bootEntry is a deployment in bootc status --json.
type bootEntry struct {
	Image *struct {
		Image struct {
			Image string `json:"image"`
		} `json:"image"`
	} `json:"image"`
}

func (e *bootEntry) image() string {
	if e == nil || e.Image == nil {
		return ""
	}
	return e.Image.Image.Image
}

// bootcStatus is what matters here of bootc status --json.
type bootcStatus struct {
	Status struct {
		Booted *bootEntry `json:"booted"`
		Staged *bootEntry `json:"staged"`
	} `json:"status"`
}

func parseBootc(raw []byte) (booted, next string, err error) {
	var s bootcStatus
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", "", fmt.Errorf("read bootc status: %w", err)
	}
	booted = s.Status.Booted.image()
	if s.Status.Staged != nil {
		return booted, s.Status.Staged.image(), nil
	}
	return booted, booted, nil
}

func (b *Bootc) images(ctx context.Context) (booted, next string, err error) {
	raw, err := b.run.Query(ctx, "bootc", "status", "--json")
	if err != nil {
		return "", "", err
	}
	return parseBootc([]byte(raw))
}

// Facts implements host.System.
func (b *Bootc) Facts(ctx context.Context, f *transition.Facts) error {
	booted, _, err := b.images(ctx)
	if err != nil {
		return err
	}
	f.Image, f.Booted = transition.Bootc, booted
	return nil
}

// Observe implements host.System.
func (b *Bootc) Observe(ctx context.Context, ref transition.Ref) (transition.State, error) {
	if ref.Kind != transition.KindImage {
		return transition.State{}, nil
	}
	_, next, err := b.images(ctx)
	return transition.State{Type: transition.Value, Value: next}, err
}

// Perform implements host.System.
func (b *Bootc) Perform(ctx context.Context, step transition.Step) error {
	if step.Kind != transition.KindImage {
		return fmt.Errorf("%s: bootc cannot do that", step)
	}
	_, next, err := b.images(ctx)
	if err != nil || next == step.After.Value {
		return err
	}
	return b.run.Run(ctx, "bootc", "switch", step.After.Value)
}

// Verify implements host.System: an image is compared with Observe.
func (b *Bootc) Verify(context.Context, transition.Step) error { return nil }

var _ host.System = (*Bootc)(nil)
