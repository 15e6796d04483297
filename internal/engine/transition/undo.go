package transition

import "slices"

// Undo returns the steps that lead back from a prefix of a plan, in the order in
// which they have to be performed: the inverses, last first; then the effects of the
// prefix once more, so that services see what was restored. A reboot is no part of
// it: what it made effective needs another one, which Undone tells.
func Undo(done []Step) []Step {
	var out []Step
	for _, s := range slices.Backward(done) {
		if !s.Effect() {
			out = append(out, s.Inverse())
		}
	}
	seen := map[Ref]bool{}
	for _, s := range done {
		if s.Effect() && s.Kind != KindReboot && !seen[s.Ref] {
			seen[s.Ref] = true
			out = append(out, s)
		}
	}
	for i := range out {
		out[i].ID = i + 1
	}
	return out
}

// NeedsReboot tells that steps change something which only a reboot makes true.
func NeedsReboot(steps []Step) bool {
	return slices.ContainsFunc(steps, func(s Step) bool {
		switch s.Kind {
		case KindKernelArguments, KindImage, KindKernelType, KindExtensions, KindReboot:
			return true
		default:
			return false
		}
	})
}
