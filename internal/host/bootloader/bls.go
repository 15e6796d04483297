package bootloader

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"millwright.io/millwright/internal/engine/diff"
	"millwright.io/millwright/internal/engine/transition"
	"millwright.io/millwright/internal/host"
)

// entryDirs hold boot loader entries.
var entryDirs = []string{"/boot/loader/entries", "/boot/efi/loader/entries", "/efi/loader/entries"}

// kernelCmdline is what the entries of kernels to come are made from.
const kernelCmdline = "/etc/kernel/cmdline"

// bls keeps arguments in boot loader entries.
type bls struct{ files host.Files }

func (bls) backend() transition.Backend { return transition.BLS }

// entries are the paths of all entries but those for rescue, the newest first.
func (b bls) entries() ([]string, error) {
	for _, dir := range entryDirs {
		names, err := b.files.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list boot entries: %w", err)
		}
		names = slices.DeleteFunc(names, func(n string) bool { return path.Ext(n) != ".conf" || strings.Contains(n, "rescue") })
		slices.SortFunc(names, func(a, b string) int { return compareVersions(b, a) })
		for i, n := range names {
			names[i] = path.Join(dir, n)
		}
		if len(names) > 0 {
			return names, nil
		}
	}
	return nil, nil
}

// compareVersions orders names as people read them: numbers by their value.
func compareVersions(a, b string) int {
	a, b = strings.TrimSuffix(a, ".conf"), strings.TrimSuffix(b, ".conf")
	for a != "" && b != "" {
		na, nb := digits(a), digits(b)
		if na > 0 && nb > 0 {
			x, y := strings.TrimLeft(a[:na], "0"), strings.TrimLeft(b[:nb], "0")
			if len(x) != len(y) {
				return len(x) - len(y)
			}
			if c := strings.Compare(x, y); c != 0 {
				return c
			}
			a, b = a[na:], b[nb:]
			continue
		}
		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}
		a, b = a[1:], b[1:]
	}
	return len(a) - len(b)
}

// digits is how many digits a text begins with.
func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

func (b bls) arguments(context.Context) ([]string, error) {
	entries, err := b.entries()
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, errors.New("no boot loader entries are left in /boot/loader/entries")
	}
	raw, err := b.files.ReadFile(entries[0])
	if err != nil {
		return nil, err
	}
	return optionsOf(string(raw)), nil
}

func (b bls) set(_ context.Context, edit func([]string) []string, _, _ []string) error {
	// What makes the entries of later kernels comes first: a kernel that is installed
	// meanwhile has the new arguments at least.
	raw, err := b.files.ReadFile(kernelCmdline)
	if err == nil {
		if list, same := edited(diff.Arguments([]string{string(raw)}), edit); !same {
			if err := replace(b.files, kernelCmdline, strings.Join(list, " ")+"\n"); err != nil {
				return err
			}
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries, err := b.entries()
	if err != nil {
		return err
	}
	for _, p := range entries {
		raw, err := b.files.ReadFile(p)
		if err != nil {
			return err
		}
		list, same := edited(optionsOf(string(raw)), edit)
		if same {
			continue
		}
		if err := replace(b.files, p, withOptions(string(raw), list)); err != nil {
			return err
		}
	}
	return nil
}

// option returns what an options line of an entry holds.
func option(line string) (string, bool) {
	trimmed := strings.TrimSpace(line)
	rest, ok := strings.CutPrefix(trimmed, "options")
	if !ok || rest != "" && rest[0] != ' ' && rest[0] != '\t' {
		return "", false
	}
	return rest, true
}

// optionsOf are the kernel arguments of an entry; several lines are one list.
func optionsOf(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if o, ok := option(line); ok {
			out = append(out, diff.Arguments([]string{o})...)
		}
	}
	return out
}

// withOptions is an entry with other arguments: where its first options line stands,
// else at its end.
func withOptions(text string, list []string) string {
	var b strings.Builder
	line := "options " + strings.Join(list, " ") + "\n"
	done := false
	for have := range strings.Lines(text) {
		if _, ok := option(have); !ok {
			b.WriteString(have)
			continue
		}
		if !done {
			b.WriteString(line)
			done = true
		}
	}
	if !done {
		if b.Len() > 0 && !strings.HasSuffix(b.String(), "\n") {
			b.WriteByte('\n')
		}
		b.WriteString(line)
	}
	return b.String()
}
