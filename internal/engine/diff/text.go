package diff

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"millwright.io/millwright/internal/engine/render"
)

const contextLines = 3

var titles = map[string]string{
	render.KindOSImage: "OS image", render.KindExtensionsImage: "extensions image",
	render.KindKernelType: "kernel type", render.KindFIPS: "FIPS",
	render.KindKernelArgument: "kernel argument", render.KindExtension: "extension",
	render.KindDropin: "drop-in", KindPasswordHash: "password of user", render.KindSSHKey: "ssh key of user",
	render.KindIgnitionKarg: "Ignition kernel arguments", render.KindIgnition: "Ignition settings",
}

// Label names a change for people: kind, then key.
func (c Change) Label() string { return Label(c.Kind, c.Key) }

// Label names an item for people.
func Label(kind, key string) string {
	title, ok := titles[kind]
	if !ok {
		title = kind
	}
	if kind == render.KindSSHKey {
		key = shortKey(key)
	}
	return strings.TrimSpace(title + " " + printable(key))
}

// shortKey is user and comment, or the end of the key.
func shortKey(id string) string {
	user, key, _ := strings.Cut(id, "/")
	fields := strings.Fields(key)
	switch {
	case len(fields) > 2:
		return user + ": " + strings.Join(fields[2:], " ")
	case len(key) > 16:
		return user + ": …" + strings.ToValidUTF8(key[len(key)-16:], "")
	}
	return user + ": " + key
}

// Text prints a diff for people: one heading per item, contents as a unified
// diff of their decoded lines, kernel arguments in their order. It fails only
// if w does.
func Text(w io.Writer, d Diff) error {
	out := bufio.NewWriter(w)
	for _, u := range d.Unreconcilable {
		fmt.Fprintf(out, "! %s: %s\n", Label(u.Kind, u.Key), printable(u.Reason))
	}
	for _, c := range d.Changes {
		writeChange(out, c)
	}
	return out.Flush()
}

func writeChange(out io.Writer, c Change) {
	head := map[Op]string{Added: "+", Removed: "-", Changed: "~"}[c.Op]
	fmt.Fprintf(out, "%s %s", head, c.Label())
	if c.Inert {
		fmt.Fprint(out, " (a running node does not apply this)")
	}
	fmt.Fprintln(out)
	before, after := c.Before, c.After
	if before == nil {
		before = &Item{}
	}
	if after == nil {
		after = &Item{}
	}
	word := func(name, a, b string) {
		if a != b {
			fmt.Fprintf(out, "    %s: %s → %s\n", name, orNone(a), orNone(b))
		}
	}
	switch c.Kind {
	case render.KindKernelArgument, render.KindExtension, render.KindSSHKey:
		if c.Op == Changed {
			word("was", before.Value, after.Value)
		}
		return
	case KindPasswordHash, render.KindUser:
		return
	}
	word("value", before.Value, after.Value)
	word("mode", modeText(c.Before), modeText(c.After))
	word("owner", before.Owner, after.Owner)
	word("enabled", before.Enabled, after.Enabled)
	if before.Masked != after.Masked {
		fmt.Fprintf(out, "    masked: %t → %t\n", before.Masked, after.Masked)
	}
	word("source", before.Remote, after.Remote)
	for _, broken := range []string{before.Broken, after.Broken} {
		if broken != "" {
			fmt.Fprintf(out, "    contents cannot be decoded: %s\n", printable(broken))
		}
	}
	writeContents(out, before, after)
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return printable(s)
}

func modeText(item *Item) string {
	if item == nil || item.Owner == "" { // only files have owners and modes
		return ""
	}
	return fmt.Sprintf("%04o", item.Mode)
}

func writeContents(out io.Writer, before, after *Item) {
	if before.Digest == after.Digest {
		return
	}
	if !isText(before.Contents) || !isText(after.Contents) {
		fmt.Fprintf(out, "    binary: %d bytes %s → %d bytes %s\n", before.Size, orNone(before.Digest), after.Size, orNone(after.Digest))
		return
	}
	a, b := lines(before.Contents), lines(after.Contents)
	for _, h := range hunks(editRuns(a, b), len(a), len(b)) {
		writeHunk(out, a, b, h)
	}
}

func isText(data []byte) bool {
	for _, r := range string(data) {
		if r == utf8.RuneError || (unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r') {
			return false
		}
	}
	return true
}

// lines splits after each newline.
func lines(data []byte) []string {
	if len(data) == 0 {
		return nil
	}
	all := strings.SplitAfter(string(data), "\n")
	if all[len(all)-1] == "" {
		all = all[:len(all)-1]
	}
	return all
}

// hunk is a stretch with its context and the runs in it.
type hunk struct {
	run
	runs []run
}

func hunks(runs []run, n, m int) []hunk {
	var out []hunk
	for _, r := range runs {
		lead := min(contextLines, r.a0, r.b0)
		tail := min(contextLines, n-r.a1, m-r.b1)
		grown := run{r.a0 - lead, r.a1 + tail, r.b0 - lead, r.b1 + tail}
		if k := len(out); k > 0 && grown.a0 <= out[k-1].a1 {
			out[k-1].a1, out[k-1].b1 = grown.a1, grown.b1
			out[k-1].runs = append(out[k-1].runs, r)
			continue
		}
		out = append(out, hunk{grown, []run{r}})
	}
	return out
}

func writeHunk(out io.Writer, a, b []string, h hunk) {
	fmt.Fprintf(out, "    @@ -%s +%s @@\n", span(h.a0, h.a1), span(h.b0, h.b1))
	put := func(sign byte, text []string) {
		for _, line := range text {
			body, ended := strings.CutSuffix(line, "\n")
			fmt.Fprintf(out, "    %c%s\n", sign, body)
			if !ended {
				fmt.Fprintln(out, `    \ No newline at end`)
			}
		}
	}
	at := h.a0
	for _, r := range h.runs {
		put(' ', a[at:r.a0])
		put('-', a[r.a0:r.a1])
		put('+', b[r.b0:r.b1])
		at = r.a1
	}
	put(' ', a[at:h.a1])
}

// span is line and count, as unified diffs write them.
func span(from, to int) string {
	if from == to {
		return fmt.Sprintf("%d,0", from)
	}
	return fmt.Sprintf("%d,%d", from+1, to-from)
}

// printable keeps terminals safe from foreign text.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '·'
		}
		return r
	}, s)
}
