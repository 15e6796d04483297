package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// progress says on a terminal what long work is at; elsewhere it prints one
// plain line when the work took long.
type progress struct {
	w        io.Writer
	terminal bool
	now      func() time.Time

	verb, noun  string
	done, total int
	began, told time.Time
	shown       bool
}

func newProgress(w io.Writer) *progress {
	return &progress{w: w, terminal: interactive(w), now: time.Now}
}

// patience is how long work may be silent.
const patience = 500 * time.Millisecond

func (p *progress) start(verb, noun string, total int) {
	p.verb, p.noun, p.done, p.total = verb, noun, 0, total
	p.began = p.now()
	p.told, p.shown = p.began, false
}

func (p *progress) step() {
	p.done++
	now := p.now()
	if !p.terminal || now.Sub(p.told) < patience/2 || now.Sub(p.began) < patience {
		return
	}
	p.told, p.shown = now, true
	_, _ = fmt.Fprintf(p.w, "\r%s %d of %d %s, %s\x1b[K", p.verb, p.done, p.total, p.noun, now.Sub(p.began).Round(100*time.Millisecond))
}

func (p *progress) stop() {
	switch took := p.now().Sub(p.began); {
	case p.shown:
		_, _ = fmt.Fprint(p.w, "\r\x1b[K")
	case !p.terminal && took > 4*patience:
		_, _ = fmt.Fprintf(p.w, "%s %d %s took %s\n", p.verb, p.done, p.noun, took.Round(100*time.Millisecond))
	}
}

// paint colours text on a terminal that wants it.
type paint bool

func newPaint(w io.Writer) paint {
	return paint(interactive(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
}

func (p paint) code(code, s string) string {
	if !p || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p paint) bold(s string) string   { return p.code("1", s) }
func (p paint) red(s string) string    { return p.code("31", s) }
func (p paint) green(s string) string  { return p.code("32", s) }
func (p paint) yellow(s string) string { return p.code("33", s) }

// table prints aligned columns; colour codes do not count as width.
func table(w io.Writer, indent string, rows [][]string) {
	var widths []int
	for _, r := range rows {
		for i, c := range r {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], width(c))
		}
	}
	for _, r := range rows {
		var b strings.Builder
		b.WriteString(indent)
		for i, c := range r {
			b.WriteString(c)
			if i < len(r)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-width(c)+3))
			}
		}
		_, _ = fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

func width(s string) int {
	n, escape := 0, false
	for _, r := range s {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r != 'm'
		default:
			n++
		}
	}
	return n
}

// plural counts things in words: 1 error, 2 errors.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
