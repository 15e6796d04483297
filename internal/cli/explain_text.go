package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	humanize "k8s.io/apimachinery/pkg/util/duration"
)

// textWidth is where paragraphs for people are broken.
const textWidth = 80

// text prints an explanation for people.
func (e Explanation) text(w io.Writer, now time.Time) error {
	var b strings.Builder
	name := e.Name
	if e.Namespace != "" {
		name = e.Namespace + "/" + name
	}
	fmt.Fprintf(&b, "%s %s: %s", e.Kind, name, strings.ToLower(string(e.State)))
	if e.Cause != "" {
		fmt.Fprintf(&b, " (%s)", e.Cause)
	}
	b.WriteString("\n\n" + wrapped(e.Why, "") + "\n")
	if len(e.Evidence) > 0 {
		b.WriteString("\nEvidence:\n")
	}
	for _, v := range e.Evidence {
		b.WriteString("  " + v.What)
		if v.Since != nil && !v.Since.IsZero() {
			fmt.Fprintf(&b, ", %s ago", humanize.HumanDuration(max(0, now.Sub(*v.Since))))
		}
		b.WriteString("\n")
		for line := range strings.Lines(strings.TrimSpace(v.Text)) {
			b.WriteString("    " + strings.TrimRight(line, "\n") + "\n")
		}
	}
	if len(e.Next) > 0 {
		b.WriteString("\nNext:\n")
	}
	for _, s := range e.Next {
		b.WriteString(wrapped(s.Text, "  ") + "\n")
		if s.Command != "" {
			b.WriteString("    " + s.Command + "\n")
		}
	}
	for i, n := range e.Notes {
		if i == 0 {
			b.WriteString("\n")
		}
		b.WriteString("Note: " + n + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// wrapped breaks text into lines; words longer than a line stay whole.
func wrapped(text, indent string) string {
	var b strings.Builder
	width := 0
	for _, word := range strings.Fields(text) {
		switch {
		case width == 0:
			b.WriteString(indent)
			width = len(indent)
		case width+1+len(word) > textWidth:
			b.WriteString("\n" + indent)
			width = len(indent)
		default:
			b.WriteString(" ")
			width++
		}
		b.WriteString(word)
		width += len(word)
	}
	return b.String()
}
