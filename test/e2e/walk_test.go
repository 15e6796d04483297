package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// step is one step of a walk: commands as the document has them.
type step struct {
	lines    string // of the document
	sees     string
	leftOut  string // reason; empty: it runs
	commands string
}

// readWalk reads a data file of steps; see its head for the form.
func readWalk(t *testing.T, document string) []step {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", document+".walk"))
	if err != nil {
		t.Fatal(err)
	}
	var steps []step
	for _, line := range strings.Split(string(b), "\n") {
		switch lines, at := strings.CutPrefix(line, "@ "); {
		case at:
			steps = append(steps, step{lines: lines})
		case len(steps) == 0:
		case strings.HasPrefix(line, "> "):
			steps[len(steps)-1].sees = line[2:]
		case strings.HasPrefix(line, "! "):
			steps[len(steps)-1].leftOut = line[2:]
		default:
			steps[len(steps)-1].commands += line + "\n"
		}
	}
	for i := range steps {
		steps[i].commands = strings.TrimRight(steps[i].commands, "\n") + "\n"
	}
	return steps
}

// digest fixes the commands: they are the document's, not ours to change.
func digest(steps []step) string {
	h := sha256.New()
	for _, s := range steps {
		fmt.Fprintf(h, "%s\n%s", s.lines, s.commands)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// walker walks one document in one world.
type walker struct {
	*world
	document string
	texts    map[string][][2]string // lines to replacements; "*": of all lines
	values   map[string]string      // of {name} in replacements, known as the walk goes
}

// newWalker reads the table of substitutions and writes the env file.
func newWalker(t *testing.T, w *world, document string) *walker {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "substitutions.txt"))
	if err != nil {
		t.Fatal(err)
	}
	out := &walker{world: w, document: document, texts: map[string][][2]string{}, values: map[string]string{"infra": w.status.InfraID}}
	var env strings.Builder
	for n, line := range strings.Split(string(b), "\n") {
		f := strings.Split(line, "\t")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if len(f) != 5 {
			t.Fatalf("substitutions.txt:%d has %d fields, want 5", n+1, len(f))
		}
		switch doc, lines, _ := strings.Cut(f[1], ":"); {
		case doc != document:
		case f[0] == "env":
			fmt.Fprintf(&env, "%s=%s\n", f[2], strings.ReplaceAll(f[3], "{infra}", w.status.InfraID))
		case f[0] == "text":
			out.texts[lines] = append(out.texts[lines], [2]string{f[2], f[3]})
		default:
			t.Fatalf("substitutions.txt:%d is of kind %q, want env or text", n+1, f[0])
		}
	}
	env.WriteString("cd\n") // files of a walk are in the home directory
	if err := os.WriteFile(out.envFile(), []byte(env.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return out
}

func (w *walker) envFile() string {
	return filepath.Join(w.home, strings.TrimSuffix(w.document, "s")+".env")
}

// script is what runs for a step.
func (w *walker) script(t *testing.T, s step) string {
	t.Helper()
	text := s.commands
	for _, r := range w.texts[s.lines] {
		if !strings.Contains(text, r[0]) {
			t.Fatalf("substitution of %q for lines %s replaces nothing", r[0], s.lines)
		}
		text = strings.ReplaceAll(text, r[0], w.filled(t, r[1]))
	}
	for _, r := range w.texts["*"] {
		if strings.Contains(text, r[0]) {
			text = strings.ReplaceAll(text, r[0], w.filled(t, r[1]))
		}
	}
	return ". " + w.envFile() + "\n" + text
}

var placeholder = regexp.MustCompile(`\{[a-z]+\}`)

// filled puts the world's names into a replacement.
func (w *walker) filled(t *testing.T, text string) string {
	t.Helper()
	return placeholder.ReplaceAllStringFunc(text, func(p string) string {
		v, ok := w.values[strings.Trim(p, "{}")]
		if !ok {
			t.Fatalf("replacement %q: nothing is known of %s yet", text, p)
		}
		return v
	})
}

// seen runs one step and checks what one sees.
type seen func(t *testing.T, w *walker, s step)

// once is for commands that change something: they run one time.
func once(texts ...string) seen {
	return func(t *testing.T, w *walker, s step) {
		t.Helper()
		if err := has(texts...)(w.sh(t, w.script(t, s))); err != nil {
			t.Fatal(err)
		}
	}
}

// shows is for commands that look: they run until they show the texts.
func shows(texts ...string) seen {
	return func(t *testing.T, w *walker, s step) {
		t.Helper()
		w.until(t, w.script(t, s), changeLimit, has(texts...))
	}
}

// lines is for tables: each row but the header has to please.
func rows(count int, texts ...string) seen {
	return func(t *testing.T, w *walker, s step) {
		t.Helper()
		w.until(t, w.script(t, s), changeLimit, func(out string) error {
			got := strings.Split(out, "\n")[1:]
			if len(got) != count {
				return fmt.Errorf("%d rows, want %d", len(got), count)
			}
			for _, row := range got {
				for _, text := range texts {
					if !strings.Contains(row, text) {
						return fmt.Errorf("row %q lacks %q", row, text)
					}
				}
			}
			return nil
		})
	}
}

// walk runs the steps in order and fails when one is neither run nor left out
// with a reason, or when a check belongs to no step.
func walk(t *testing.T, w *walker, steps []step, checks map[string]seen) {
	t.Helper()
	var known []string
	for _, s := range steps {
		known = append(known, s.lines)
		check := checks[s.lines]
		switch {
		case s.commands == "\n" || s.sees == "":
			t.Errorf("lines %s have no commands or do not say what one sees", s.lines)
		case s.leftOut != "" && check != nil:
			t.Errorf("lines %s are left out and run", s.lines)
		case s.leftOut == "" && check == nil:
			t.Errorf("lines %s are neither run nor left out with a reason", s.lines)
		}
	}
	for lines := range checks {
		if !slices.Contains(known, lines) {
			t.Errorf("the check of lines %s belongs to no step", lines)
		}
	}
	if t.Failed() {
		return
	}
	for _, s := range steps {
		if s.leftOut != "" {
			t.Logf("lines %s left out: %s", s.lines, s.leftOut)
			continue
		}
		if !t.Run("lines "+s.lines, func(t *testing.T) { checks[s.lines](t, w, s) }) {
			return
		}
	}
}

// follow runs an endless command until its output contains the text, and
// returns what it printed.
func (w *walker) follow(t *testing.T, s step, text string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), changeLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", w.script(t, s))
	cmd.Env = w.env
	// The command is bash's child: both end with the group.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		out.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), text) {
			break
		}
	}
	cancel()
	_ = cmd.Wait()
	if !strings.Contains(out.String(), text) {
		t.Fatalf("%s\nprinted:\n%swant %q within %s", s.commands, out.String(), text, changeLimit)
	}
	return out.String()
}

// inOrder says whether the texts follow each other.
func inOrder(out string, texts ...string) error {
	rest := out
	for _, text := range texts {
		_, after, ok := strings.Cut(rest, text)
		if !ok {
			return fmt.Errorf("want %q in this order in:\n%s", texts, out)
		}
		rest = after
	}
	return nil
}
