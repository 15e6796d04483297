package cli

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// barWidth is how many characters a pool's bar has.
const barWidth = 20

// bar shows done of total.
func bar(done, total int32) string {
	filled := 0
	if total > 0 {
		filled = int(min(max(done, 0), total)) * barWidth / int(total)
	}
	return "[" + strings.Repeat("#", filled) + strings.Repeat(".", barWidth-filled) + "]"
}

// headline is a pool in one line.
func (p PoolReport) headline(c paint) string {
	text := fmt.Sprintf("pool %s %s %d of %d updated", c.bold(p.Name), bar(p.Updated, p.Machines), p.Updated, p.Machines)
	if p.Unavailable > 0 {
		text += fmt.Sprintf(", %d unavailable", p.Unavailable)
	}
	if p.Degraded > 0 {
		text += fmt.Sprintf(", %d degraded", p.Degraded)
	}
	phase := p.Phase
	switch phase {
	case "Updated":
		phase = c.green(phase)
	case "Degraded", "Stopped":
		phase = c.red(phase)
	default:
		phase = c.yellow(phase)
	}
	return text + ": " + phase + ", " + p.Target
}

// remarks are what there is to say beside the counters, one a line.
func (p PoolReport) remarks(now time.Time) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if p.Goal != "" {
		add("nodes go back to %s", p.Goal)
	}
	if p.Wave > 0 && p.Phase != "Updated" {
		first := ""
		if len(p.First) > 0 {
			first = " of " + strings.Join(p.First, ", ")
		}
		add("wave %d%s", p.Wave, first)
	}
	if p.Stopped != "" {
		add("stopped: %s", p.Stopped)
	}
	if p.WaitsFor != "" {
		add("waits for: %s", p.WaitsFor)
	}
	if p.Blocked != "" {
		add("drains will wait: %s", p.Blocked)
	}
	if p.Problem != "" {
		add("problem: %s", p.Problem)
	}
	if p.Ends != nil {
		add("ends about %s, in %s, at the pace so far", p.Ends.UTC().Format("15:04:05Z"), age(p.Ends.Sub(now)))
	}
	return out
}

// text prints one pool: its line, what it waits for, and the nodes on their way.
func (p PoolReport) text(w io.Writer, c paint, now time.Time) {
	_, _ = fmt.Fprintln(w, p.headline(c))
	for _, r := range p.remarks(now) {
		_, _ = fmt.Fprintln(w, "  "+r)
	}
	rows := [][]string{{"NODE", "STATE", "STEP", "SINCE", "WAITS FOR"}}
	queued, more := 0, 0
	for _, n := range p.Nodes {
		switch {
		case n.Step == StepDone:
		case n.Step == StepQueued:
			queued++
		case len(rows) > shownNodes:
			more++
		default:
			rows = append(rows, n.row(c, now))
		}
	}
	if len(rows) > 1 {
		table(w, "  ", rows)
	}
	if more > 0 {
		_, _ = fmt.Fprintf(w, "  and %s more on their way\n", plural(more, "node"))
	}
	if queued > 0 {
		_, _ = fmt.Fprintf(w, "  %s still to come\n", plural(queued, "node"))
	}
}

func (n PoolNodeReport) row(c paint, now time.Time) []string {
	state, since, step := n.State, "-", n.Step
	if state == "" {
		state = "-"
	}
	if n.Since != nil {
		since = age(now.Sub(n.Since.Time))
	}
	if step == StepBroken {
		step = c.red(step)
	}
	first, _, _ := strings.Cut(n.WaitsFor, "\n")
	return []string{n.Name, state, step, since, first}
}

// age is a duration in people's precision.
func age(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// poolsText prints all pools.
func (r Report) poolsText(w io.Writer) {
	c := newPaint(w)
	if t, ok := w.(terminal); ok {
		c = t.paint
	}
	for _, p := range r.Pools {
		p.text(w, c, r.now)
		_, _ = fmt.Fprintln(w)
	}
	for _, s := range r.Unassigned {
		_, _ = fmt.Fprintln(w, c.red("unassigned: ")+s)
	}
	if len(r.Unassigned) > 0 {
		_, _ = fmt.Fprintln(w)
	}
}

// screen redraws a terminal from its top, without flicker.
func (r Report) screen(w io.Writer) error {
	var b bytes.Buffer
	if err := r.table(terminal{&b, newPaint(w)}); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\x1b[H"+strings.ReplaceAll(b.String(), "\n", "\x1b[K\n")+"\x1b[J")
	return err
}

// terminal is a buffer of what will stand on a terminal.
type terminal struct {
	io.Writer
	paint paint
}

// feed tells what changed since the last look, in plain lines with the time: for
// logs and pipes.
type feed struct{ said []string }

func (f *feed) print(w io.Writer, r Report) {
	lines := r.lines()
	for _, l := range lines {
		if !slices.Contains(f.said, l) {
			_, _ = fmt.Fprintf(w, "%s %s\n", r.now.UTC().Format("15:04:05Z"), l)
		}
	}
	f.said = lines
}

// lines are the facts that a follower wants to be told of: no times, so that equal
// lines mean equal facts.
func (r Report) lines() []string {
	var out []string
	if r.World != nil {
		out = append(out, fmt.Sprintf("world %d: %s %s", r.World.World, r.World.Phase, r.World.Message))
	}
	for _, p := range r.Pools {
		out = append(out, p.headline(false))
		quiet := p
		quiet.Ends = nil
		for _, l := range quiet.remarks(r.now) {
			out = append(out, "pool "+p.Name+": "+l)
		}
		for _, n := range p.Nodes {
			if n.Step == StepDone || n.Step == StepQueued {
				continue
			}
			text := fmt.Sprintf("node %s: %s", n.Name, n.Step)
			if n.WaitsFor != "" {
				text += ", waits for " + n.WaitsFor
			}
			out = append(out, text)
		}
	}
	for _, s := range r.Unassigned {
		out = append(out, "unassigned: "+s)
	}
	for _, s := range r.Sets {
		out = append(out, fmt.Sprintf("machineset %s: %d desired, %d current, %d ready, %d available", s.Name, s.Desired, s.Current, s.Ready, s.Available))
	}
	for _, m := range r.Waiting {
		first, _, _ := strings.Cut(m.Reason, "\n")
		out = append(out, fmt.Sprintf("machine %s: %s, waits for %s", m.Name, m.Phase, first))
	}
	return out
}
