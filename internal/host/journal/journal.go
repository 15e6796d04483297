// Package journal performs planned steps so that a host ends in the old or in the
// new state, whatever kills the process in between. The whole plan and every content
// it needs are on disk before the first step happens; on the next start Resume goes
// on, or back. It decides nothing about configs.
//
//	j, err := journal.Open(h)
//	out, err := j.Resume(ctx)            // at start, before anything else
//	out, err = j.Run(ctx, change, planned)
//
// The journal is a file of JSON lines. A line that a power cut tore is no line. A
// journal of another version is left alone: Open fails.
package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"millwright.io/millwright/internal/engine/transition"
	"millwright.io/millwright/internal/host"
)

// Paths of the journal and of the contents that its steps need.
const (
	Dir   = "/var/lib/millwright"
	Path  = Dir + "/journal"
	Blobs = Dir + "/journal-contents"
)

// Version of the format. Another one is not touched.
const Version = 1

// VersionError says that another program's journal is on the host.
type VersionError struct{ Found int }

// Error names both versions and the way out.
func (e *VersionError) Error() string {
	return fmt.Sprintf("journal %s has version %d, this agent knows version %d: run the agent that wrote it, or move the file away once the host is known to be whole", Path, e.Found, Version)
}

// Change names what a plan leads to.
type Change struct {
	From   string `json:"from"`             // name of a config
	To     string `json:"to"`               // name of a config
	Digest string `json:"digest,omitempty"` // of what the plan was made from; two tries of one change have the same
}

// Kind says how a run ended.
type Kind string

// Kinds of outcomes.
const (
	Idle          Kind = ""              // nothing was under way
	Completed     Kind = "Completed"     // the new state
	RolledBack    Kind = "RolledBack"    // the old state, because of Cause at Step
	RebootPending Kind = "RebootPending" // all is in place, the reboot was asked for
	Stuck         Kind = "Stuck"         // neither went; Resume tries again
)

// Outcome is how a run ended.
type Outcome struct {
	Kind   Kind
	Change Change
	Cause  string          // why it was rolled back or is stuck, in words that users know
	Step   transition.Step // the one that failed
	// Rebooted tells that a completed change had its reboot.
	Rebooted bool
}

// line is one line of the journal; exactly one of its parts is set.
type line struct {
	Version  int       `json:"journalVersion,omitempty"`
	Failures []failure `json:"failures,omitempty"`
	Begin    *begin    `json:"begin,omitempty"`
	Done     int       `json:"done,omitempty"`   // ID of an effect that was performed
	Reboot   string    `json:"reboot,omitempty"` // the boot ID in which it was asked for
	Undo     *undo     `json:"undo,omitempty"`
	End      Kind      `json:"end,omitempty"`
}

type begin struct {
	Change Change            `json:"change"`
	Steps  []transition.Step `json:"steps"`
}

type undo struct {
	Step  int    `json:"step"` // the last one that may have happened
	Cause string `json:"cause"`
}

type failure struct {
	Change Change `json:"change"`
	Count  int    `json:"count"`
	Cause  string `json:"cause"`
}

// keptFailures bounds what is remembered of changes that were rolled back.
const keptFailures = 16

// Journal is the record of one host. Not safe for concurrent use.
type Journal struct {
	host     host.Host
	begin    *begin
	done     map[int]bool
	reboot   string
	undo     *undo
	end      Kind
	failures []failure
	dirty    bool // the file ends in a torn line
	// BeforeReboot is called right before a reboot is asked for; its error takes the
	// change back.
	BeforeReboot func(ctx context.Context, c Change) error
	// Corrupt says why an unreadable journal was moved aside; "" if it was readable.
	Corrupt string
}

// Open reads a host's journal. It fails with *VersionError on another version, or
// when the file cannot be read.
func Open(h host.Host) (*Journal, error) {
	j := &Journal{host: h}
	raw, err := h.Files().ReadFile(Path)
	if errors.Is(err, fs.ErrNotExist) {
		j.reset()
		return j, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	if err := j.decode(raw); err != nil {
		var version *VersionError
		if errors.As(err, &version) {
			return nil, err
		}
		j.reset()
		j.Corrupt = err.Error()
		if err := h.Files().Rename(Path, Path+".corrupt"); err != nil {
			return nil, fmt.Errorf("move unreadable journal aside: %w", err)
		}
	}
	return j, nil
}

func (j *Journal) reset() {
	j.begin, j.done, j.reboot, j.undo, j.end, j.dirty = nil, map[int]bool{}, "", nil, "", false
}

// decode reads the lines. What follows the last newline was torn and is dropped;
// what cannot be read before it is an error.
func (j *Journal) decode(raw []byte) error {
	j.reset()
	whole := raw[:bytes.LastIndexByte(raw, '\n')+1]
	j.dirty = len(whole) < len(raw)
	first := true
	for text := range strings.Lines(string(whole)) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			return fmt.Errorf("decode journal: %w", err)
		}
		if first && l.Version != Version {
			if l.Version == 0 {
				return errors.New("decode journal: no journalVersion in its first line")
			}
			return &VersionError{Found: l.Version}
		}
		first = false
		j.take(l)
	}
	return nil
}

func (j *Journal) take(l line) {
	switch {
	case l.Version != 0:
		j.failures = l.Failures
	case l.Begin != nil:
		j.begin = l.Begin
	case l.Done != 0:
		j.done[l.Done] = true
	case l.Reboot != "":
		j.reboot = l.Reboot
	case l.Undo != nil:
		j.undo = l.Undo
	case l.End != "":
		j.end = l.End
		j.count()
	}
}

// count remembers how the change that just ended did.
func (j *Journal) count() {
	if j.begin == nil {
		return
	}
	at := slices.IndexFunc(j.failures, func(f failure) bool { return f.Change == j.begin.Change })
	switch {
	case j.end == Completed:
		j.failures = slices.DeleteFunc(slices.Clone(j.failures), func(f failure) bool { return f.Change.To == j.begin.Change.To })
	case at >= 0:
		j.failures[at].Count++
		j.failures[at].Cause = j.cause()
	default:
		j.failures = append(j.failures, failure{Change: j.begin.Change, Count: 1, Cause: j.cause()})
		if n := len(j.failures) - keptFailures; n > 0 {
			j.failures = j.failures[n:]
		}
	}
}

func (j *Journal) cause() string {
	if j.undo == nil {
		return ""
	}
	return j.undo.Cause
}

// Failures returns how often this very change was rolled back, and why last time.
func (j *Journal) Failures(c Change) (int, string) {
	for _, f := range j.failures {
		if f.Change == c {
			return f.Count, f.Cause
		}
	}
	return 0, ""
}

// Pending tells that a change is under way.
func (j *Journal) Pending() bool { return j.begin != nil && j.end == "" }

var journalAttr = host.Attr{Mode: 0o600}

// write adds a line to the disk, then to memory.
func (j *Journal) write(l line) error {
	raw, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encode journal: %w", err)
	}
	if j.dirty {
		if err := j.mend(); err != nil {
			return err
		}
	}
	if err := j.host.Files().Append(Path, append(raw, '\n'), journalAttr); err != nil {
		// Nobody knows how much of the line is there.
		j.dirty = true
		return fmt.Errorf("write journal: %w", err)
	}
	j.take(l)
	return nil
}

// mend cuts a torn line off.
func (j *Journal) mend() error {
	raw, err := j.host.Files().ReadFile(Path)
	if err != nil {
		return fmt.Errorf("read journal: %w", err)
	}
	if err := j.host.Files().Replace(Path, raw[:bytes.LastIndexByte(raw, '\n')+1], journalAttr); err != nil {
		return fmt.Errorf("mend journal: %w", err)
	}
	j.dirty = false
	return nil
}

// start replaces the journal by one of a new change, or of none.
func (j *Journal) start(b *begin) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	lines := []line{{Version: Version, Failures: j.failures}}
	if b != nil {
		lines = append(lines, line{Begin: b})
	}
	for _, l := range lines {
		if err := enc.Encode(l); err != nil {
			return fmt.Errorf("encode journal: %w", err)
		}
	}
	if err := j.host.Files().Replace(Path, buf.Bytes(), journalAttr); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	failures := j.failures
	j.reset()
	j.failures, j.begin = failures, b
	return nil
}
