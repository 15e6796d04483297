package bootloader

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"millwright.io/millwright/internal/engine/diff"
	"millwright.io/millwright/internal/engine/transition"
	"millwright.io/millwright/internal/host"
	"millwright.io/millwright/internal/host/program"
)

const (
	grubPath = "/etc/default/grub"
	// grubKey holds the arguments of every entry, grubDefaultKey those of normal ones.
	grubKey        = "GRUB_CMDLINE_LINUX"
	grubDefaultKey = "GRUB_CMDLINE_LINUX_DEFAULT"
)

// grub keeps arguments in /etc/default/grub, from which grub's menu is built.
type grub struct {
	run   program.Runner
	files host.Files
}

func (grub) backend() transition.Backend { return transition.Grub }

// rebuild is the command that builds the menu, nil if the host has none.
func (g grub) rebuild() []string {
	if g.run.Has("update-grub") {
		return []string{"update-grub"}
	}
	for _, c := range []struct{ program, menu string }{{"grub2-mkconfig", "/boot/grub2/grub.cfg"}, {"grub-mkconfig", "/boot/grub/grub.cfg"}} {
		if g.run.Has(c.program) {
			return []string{c.program, "-o", c.menu}
		}
	}
	return nil
}

func (g grub) read() (string, error) {
	raw, err := g.files.ReadFile(grubPath)
	return string(raw), err
}

func (g grub) arguments(context.Context) ([]string, error) {
	text, err := g.read()
	if err != nil {
		return nil, err
	}
	own, _, err := assignment(text, grubKey)
	if err != nil {
		return nil, err
	}
	more, _, err := assignment(text, grubDefaultKey)
	if err != nil {
		return nil, err
	}
	return diff.Arguments([]string{own, more}), nil
}

func (g grub) set(ctx context.Context, edit func([]string) []string, _, _ []string) error {
	text, err := g.read()
	if err != nil {
		return err
	}
	value, line, err := assignment(text, grubKey)
	if err != nil {
		return err
	}
	list, same := edited(diff.Arguments([]string{value}), edit)
	if _, err := g.files.Lstat(stalePath); same && err != nil {
		return nil // and the menu was built since the last write
	}
	command := g.rebuild()
	if command == nil {
		return fmt.Errorf("build grub's menu: this host has none of update-grub, grub2-mkconfig and grub-mkconfig")
	}
	if err := g.files.Replace(stalePath, nil, host.Attr{Mode: 0o600}); err != nil {
		return fmt.Errorf("note that grub's menu is stale: %w", err)
	}
	if !same {
		if err := replace(g.files, grubPath, assign(text, line, grubKey, strings.Join(list, " "))); err != nil {
			return err
		}
	}
	if err := g.run.Run(ctx, command[0], command[1:]...); err != nil {
		// The menu is as it was: so is the file that it is built from.
		if back := replace(g.files, grubPath, text); back == nil {
			_ = g.files.Remove(stalePath)
		}
		return err
	}
	return g.files.Remove(stalePath)
}

// stalePath exists while the menu may be older than the file that it is built from.
const stalePath = "/var/lib/millwright/grub-menu-stale"

// assignment returns the value that a shell would give a variable in a file of
// assignments, and the number of the line that gives it, -1 for none. A value that
// needs a shell is an error.
func assignment(text, key string) (value string, line int, err error) {
	line = -1
	n := 0
	for l := range strings.Lines(text) {
		if raw, ok := strings.CutPrefix(strings.TrimSpace(l), key+"="); ok {
			if value, err = unquote(raw); err != nil {
				return "", n, fmt.Errorf("%s, line %d: %s: %w; want a value in double quotes on one line", grubPath, n+1, key, err)
			}
			line = n
		}
		n++
	}
	return value, line, nil
}

var (
	errOpenQuote = errors.New("its quote is not closed")
	errGoesOn    = errors.New("it goes on in the next line")
)

// unquote reads a shell word that needs no expansion.
func unquote(s string) (string, error) {
	var b strings.Builder
	for s != "" {
		c, rest := s[0], s[1:]
		switch {
		case c == '\'':
			inside, after, ok := strings.Cut(rest, "'")
			if !ok {
				return "", errOpenQuote
			}
			b.WriteString(inside)
			s = after
		case c == '"':
			after, err := doubleQuoted(rest, &b)
			if err != nil {
				return "", err
			}
			s = after
		case c == '\\':
			if rest == "" {
				return "", errGoesOn
			}
			b.WriteByte(rest[0])
			s = rest[1:]
		case c == '$' || c == '`':
			return "", fmt.Errorf("it needs a shell (%q)", c)
		case strings.IndexByte(" \t;#", c) >= 0:
			if more := strings.TrimSpace(s); more != "" && more[0] != '#' {
				return "", fmt.Errorf("%q follows it", more)
			}
			return b.String(), nil
		default:
			b.WriteByte(c)
			s = rest
		}
	}
	return b.String(), nil
}

// doubleQuoted reads up to the closing quote and returns what follows it.
func doubleQuoted(s string, b *strings.Builder) (string, error) {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '"':
			return s[i+1:], nil
		case '$', '`':
			return "", fmt.Errorf("it needs a shell (%q)", c)
		case '\\':
			if i++; i == len(s) {
				return "", errGoesOn
			}
			if strings.IndexByte("\"\\$`", s[i]) < 0 {
				b.WriteByte(c)
			}
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", errOpenQuote
}

// assign gives a variable another value, in its line or, if line is -1, at the end.
func assign(text string, line int, key, value string) string {
	quoted := key + `="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(value) + "\"\n"
	var b strings.Builder
	n := 0
	for l := range strings.Lines(text) {
		if n == line {
			l = quoted
		}
		b.WriteString(l)
		n++
	}
	if line < 0 {
		if b.Len() > 0 && !strings.HasSuffix(b.String(), "\n") {
			b.WriteByte('\n')
		}
		b.WriteString(quoted)
	}
	return b.String()
}

// grubby asks the tool that knows every loader of the Red Hat family.
type grubby struct{ run program.Runner }

func (grubby) backend() transition.Backend { return transition.Grubby }

func (g grubby) arguments(ctx context.Context) ([]string, error) {
	text, err := g.run.Query(ctx, "grubby", "--info=DEFAULT")
	if err != nil {
		return nil, err
	}
	return grubbyArguments(text)
}

// grubbyArguments reads args="…" and root="…" of grubby --info. The quotes are
// grubby's own and not escaped inside.
func grubbyArguments(text string) ([]string, error) {
	values := map[string]string{}
	for l := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSpace(l), "=")
		if !ok || len(value) < 2 || value[0] != '"' || value[len(value)-1] != '"' {
			continue
		}
		if _, seen := values[key]; !seen {
			values[key] = value[1 : len(value)-1]
		}
	}
	args, ok := values["args"]
	if !ok {
		return nil, fmt.Errorf("read grubby's answer: no line args=\"…\" in it")
	}
	list := diff.Arguments([]string{args})
	if root := values["root"]; root != "" {
		list = append([]string{"root=" + root}, list...)
	}
	return list, nil
}

func (g grubby) set(ctx context.Context, edit func([]string) []string, before, after []string) error {
	have, err := g.arguments(ctx)
	if err != nil {
		return err
	}
	if _, same := edited(have, edit); same {
		return nil
	}
	args := []string{"--update-kernel=ALL"}
	if len(before) > 0 {
		args = append(args, "--remove-args="+strings.Join(before, " "))
	}
	if len(after) > 0 {
		args = append(args, "--args="+strings.Join(after, " "))
	}
	return g.run.Run(ctx, "grubby", args...)
}
