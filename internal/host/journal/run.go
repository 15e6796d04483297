package journal

import (
	"context"
	"encoding/json"
	"fmt"

	"millwright.io/millwright/internal/engine/transition"
)

// Run performs a plan. A step that fails takes everything back, its own half
// included; then the Outcome is RolledBack and the error nil. It returns an error
// only when the context ends: the change then stays under way for Resume.
//
// A plan without steps is Completed without a trace.
func (j *Journal) Run(ctx context.Context, c Change, p transition.Planned) (Outcome, error) {
	if j.Pending() {
		return Outcome{}, fmt.Errorf("run change to %s: the change to %s is under way: resume it first", c.To, j.begin.Change.To)
	}
	if len(p.Refused) > 0 {
		return Outcome{}, fmt.Errorf("run change to %s: %s", c.To, p.Refused[0].Reason)
	}
	if len(p.Steps) == 0 {
		return Outcome{Kind: Completed, Change: c}, nil
	}
	if err := j.saveBlobs(p.Blobs); err != nil {
		j.dropBlobs()
		return Outcome{Kind: RolledBack, Change: c, Cause: err.Error()}, ctx.Err()
	}
	b := &begin{Change: c, Steps: p.Steps}
	if err := j.start(b); err != nil {
		return j.abandon(b, err), ctx.Err()
	}
	return j.forward(ctx, p.Blobs)
}

// abandon ends a change that has done nothing yet. Whether its beginning is on disk
// nobody knows: it is overwritten, and if that fails too, the change counts as under
// way, as the next process may find it.
func (j *Journal) abandon(b *begin, cause error) Outcome {
	if err := j.start(nil); err != nil {
		j.begin = b
		return j.outcome(Stuck, cause, transition.Step{})
	}
	j.dropBlobs()
	return Outcome{Kind: RolledBack, Change: b.Change, Cause: cause.Error()}
}

// Resume completes what was under way, or takes it back. A change that waits for
// its reboot is Completed once the boot ID is another one; before that the reboot is
// asked for again. Resume is Idle if nothing was under way.
func (j *Journal) Resume(ctx context.Context) (Outcome, error) {
	if !j.Pending() {
		j.dropBlobs()
		return Outcome{}, nil
	}
	if j.reboot != "" {
		facts, err := j.host.Facts(ctx)
		if err != nil {
			return j.outcome(Stuck, err, transition.Step{}), ctx.Err()
		}
		if facts.BootID != j.reboot {
			out := j.finish(Completed)
			out.Rebooted = true
			return out, nil
		}
	}
	blobs, err := j.loadBlobs()
	if err != nil {
		return j.outcome(Stuck, err, transition.Step{}), ctx.Err()
	}
	if j.undo != nil {
		return j.backward(ctx, blobs)
	}
	return j.forward(ctx, blobs)
}

// forward performs every step; those that are done already change nothing.
func (j *Journal) forward(ctx context.Context, blobs transition.Blobs) (Outcome, error) {
	for _, s := range j.begin.Steps {
		if err := ctx.Err(); err != nil {
			return Outcome{Change: j.begin.Change}, err
		}
		if s.Effect() && j.done[s.ID] {
			continue
		}
		if err := j.perform(ctx, s, blobs); err != nil {
			if ctx.Err() != nil {
				return Outcome{Change: j.begin.Change}, ctx.Err()
			}
			return j.giveUp(ctx, s, err, blobs)
		}
		if s.Kind == transition.KindReboot {
			return j.outcome(RebootPending, nil, s), nil
		}
	}
	return j.finish(Completed), nil
}

// perform does one step and checks that it took hold.
func (j *Journal) perform(ctx context.Context, s transition.Step, blobs transition.Blobs) error {
	if s.Kind == transition.KindReboot && j.reboot == "" {
		facts, err := j.host.Facts(ctx)
		if err != nil {
			return err
		}
		if err := j.write(line{Reboot: facts.BootID}); err != nil {
			return err
		}
	}
	if s.Kind == transition.KindReboot && j.BeforeReboot != nil {
		if err := j.BeforeReboot(ctx, j.begin.Change); err != nil {
			return err
		}
	}
	if err := j.host.Perform(ctx, s, blobs); err != nil {
		return err
	}
	if !s.Effect() || s.Kind == transition.KindReboot {
		return nil
	}
	if err := j.host.Verify(ctx, s); err != nil {
		return err
	}
	return j.write(line{Done: s.ID})
}

// giveUp turns back at a step.
func (j *Journal) giveUp(ctx context.Context, s transition.Step, cause error, blobs transition.Blobs) (Outcome, error) {
	u := &undo{Step: s.ID, Cause: cause.Error()}
	if err := j.write(line{Undo: u}); err != nil {
		// A disk that is full may still take the way back, which frees space. If the
		// process dies now, Resume goes forward first and fails here again.
		j.undo = u
	}
	return j.backward(ctx, blobs)
}

func (j *Journal) backward(ctx context.Context, blobs transition.Blobs) (Outcome, error) {
	var prefix []transition.Step
	var failed transition.Step
	for _, s := range j.begin.Steps {
		if s.ID <= j.undo.Step {
			prefix = append(prefix, s)
			failed = s
		}
	}
	for _, s := range transition.Undo(prefix) {
		if err := ctx.Err(); err != nil {
			return Outcome{Change: j.begin.Change}, err
		}
		err := j.host.Perform(ctx, s, blobs)
		// A service that does not come back is no reason to stay between two configs.
		if err != nil && !s.Effect() {
			return j.outcome(Stuck, fmt.Errorf("%s; taking it back: %w", j.undo.Cause, err), failed), ctx.Err()
		}
	}
	out := j.finish(RolledBack)
	out.Cause, out.Step = j.undo.Cause, failed
	return out, nil
}

// finish ends the change in the journal. If that cannot be written, the next
// Resume finds everything in place and writes it then.
func (j *Journal) finish(k Kind) Outcome {
	out := j.outcome(k, nil, transition.Step{})
	if err := j.write(line{End: k}); err != nil {
		return Outcome{Kind: Stuck, Change: j.begin.Change, Cause: err.Error()}
	}
	j.dropBlobs()
	return out
}

func (j *Journal) outcome(k Kind, cause error, s transition.Step) Outcome {
	out := Outcome{Kind: k, Change: j.begin.Change, Step: s}
	if cause != nil {
		out.Cause = cause.Error()
	}
	return out
}

// saveBlobs writes all contents into one file: one sync, however many there are.
func (j *Journal) saveBlobs(blobs transition.Blobs) error {
	raw, err := json.Marshal(blobs)
	if err != nil {
		return fmt.Errorf("encode contents: %w", err)
	}
	if err := j.host.Files().Replace(Blobs, raw, journalAttr); err != nil {
		return fmt.Errorf("save contents before the change: %w", err)
	}
	return nil
}

// loadBlobs reads the contents that the steps under way need.
func (j *Journal) loadBlobs() (transition.Blobs, error) {
	raw, err := j.host.Files().ReadFile(Blobs)
	if err != nil {
		return nil, fmt.Errorf("read contents of the change under way: %w", err)
	}
	out := transition.Blobs{}
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, fmt.Errorf("decode contents of the change under way: %w", err)
	}
	for _, s := range j.begin.Steps {
		for _, side := range []transition.State{s.Before, s.After} {
			if side.Digest != "" && transition.Digest(out[side.Digest]) != side.Digest {
				return nil, fmt.Errorf("read contents of the change under way: %s in %s is damaged", side.Digest, Blobs)
			}
		}
	}
	return out, nil
}

// dropBlobs removes contents that no change needs. What stays is removed next time.
func (j *Journal) dropBlobs() {
	if _, err := j.host.Files().Lstat(Blobs); err == nil {
		_ = j.host.Files().Remove(Blobs)
	}
}
