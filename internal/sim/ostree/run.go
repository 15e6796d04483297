package ostree

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// unverified is how an image is named that is trusted by its registry.
const unverified = "ostree-unverified-registry:"

// usageError is a command that nobody knows.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

// Run does what rpm-ostree does with these arguments and returns its exit code.
func (t *Tree) Run(args []string, out, errOut io.Writer) int {
	verb, rest := "", args
	if len(args) > 0 {
		verb, rest = args[0], args[1:]
	}
	if err := t.verb(verb, rest, out); err != nil {
		fmt.Fprintf(errOut, "error: %v\n", err)
		return 1
	}
	return 0
}

func (t *Tree) verb(verb string, args []string, out io.Writer) error {
	if t.Failing("rpm-ostree " + verb) {
		return fmt.Errorf("%s was made to fail by /%s", verb, FailingPath)
	}
	switch verb {
	case "--version":
		_, err := io.WriteString(out, version)
		return err
	case "status":
		return t.status(args, out)
	case "kargs":
		return t.kargs(args, out)
	case "rebase":
		return t.rebase(args, out)
	case "cleanup":
		return t.cleanup(args, out)
	case "override":
		return t.override(args, out)
	case "update", "upgrade", "install", "uninstall":
		return t.layer(verb, args, out)
	}
	return usageError{fmt.Sprintf("Unknown command '%s'", verb)}
}

const version = `rpm-ostree:
 Version: '2025.11'
 Git: 0000000000000000000000000000000000000000
 Features:
  - rust
  - compose
  - container
  - fedora-integration
`

const queued = "Changes queued for next boot. Run \"systemctl reboot\" to start a reboot\n"

// flag is one option of a command line.
type flag struct{ name, value string }

// flags splits a command line; those named take a value.
func flags(args []string, valued ...string) (list []flag, words []string, err error) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		if !strings.HasPrefix(a, "-") || a == "-" {
			words = append(words, a)
			continue
		}
		name, value, has := strings.Cut(a, "=")
		if !has && slices.Contains(valued, name) {
			if i++; i == len(args) {
				return nil, nil, usageError{fmt.Sprintf("Missing argument for %s", name)}
			}
			value = args[i]
		}
		list = append(list, flag{name, value})
	}
	return list, words, nil
}

func (t *Tree) kargs(args []string, out io.Writer) error {
	list, _, err := flags(args, "--append", "--append-if-missing", "--delete", "--delete-if-present", "--replace", "--deploy-index")
	if err != nil {
		return err
	}
	index, changes := 0, list[:0]
	for _, f := range list {
		if f.name == "--deploy-index" {
			if _, err := fmt.Sscan(f.value, &index); err != nil {
				return usageError{fmt.Sprintf("Invalid deployment index: %s", f.value)}
			}
			continue
		}
		changes = append(changes, f)
	}
	if len(changes) == 0 {
		s, err := t.Load()
		if err != nil {
			return err
		}
		all := s.list()
		if index < 0 || index >= len(all) {
			return fmt.Errorf("Out of range deployment index %d, expected < %d", index, len(all))
		}
		fmt.Fprintln(out, strings.Join(all[index].Arguments, " "))
		return nil
	}
	err = t.stage(func(d *Deployment) error { return edit(d, changes) })
	if err == nil {
		fmt.Fprint(out, "Staging deployment...done\nKernel arguments updated.\nRun \"systemctl reboot\" to start a reboot\n")
	}
	return err
}

// edit changes kernel arguments: deletions first, then replacements and additions, as
// rpm-ostree does.
func edit(d *Deployment, changes []flag) error {
	for _, f := range changes {
		switch f.name {
		case "--delete", "--delete-if-present":
			if !remove(d, f.value) && f.name == "--delete" {
				return fmt.Errorf("No key '%s' found", f.value)
			}
		}
	}
	for _, f := range changes {
		switch f.name {
		case "--delete", "--delete-if-present":
		case "--append":
			d.Arguments = append(d.Arguments, f.value)
		case "--append-if-missing":
			if !slices.Contains(d.Arguments, f.value) {
				d.Arguments = append(d.Arguments, f.value)
			}
		case "--replace":
			if err := replace(d, f.value); err != nil {
				return err
			}
		default:
			return usageError{fmt.Sprintf("Unknown option %s", f.name)}
		}
	}
	return nil
}

// remove takes an argument away, by its whole or by its key, and tells that it was
// there.
func remove(d *Deployment, value string) bool {
	at := slices.Index(d.Arguments, value)
	if at < 0 && !strings.Contains(value, "=") {
		at = slices.IndexFunc(d.Arguments, func(a string) bool { return strings.HasPrefix(a, value+"=") })
	}
	if at < 0 {
		return false
	}
	d.Arguments = slices.Delete(d.Arguments, at, at+1)
	return true
}

// replace takes KEY=NEW, or KEY=OLD=NEW.
func replace(d *Deployment, value string) error {
	key, rest, _ := strings.Cut(value, "=")
	old, after, both := strings.Cut(rest, "=")
	at := slices.IndexFunc(d.Arguments, func(a string) bool {
		if both {
			return a == key+"="+old
		}
		return a == key || strings.HasPrefix(a, key+"=")
	})
	if at < 0 {
		return fmt.Errorf("No key '%s' found", key)
	}
	if !both {
		after = rest
	}
	d.Arguments[at] = key + "=" + after
	return nil
}

// reference takes the transport off an image's name.
func reference(ref string) (string, error) {
	for _, p := range []string{
		unverified, "ostree-unverified-image:docker://", "ostree-unverified-image:registry:", "ostree-image-signed:docker://",
		"ostree-image-signed:registry:", "ostree-unverified-image:containers-storage:", "docker://",
	} {
		if image, ok := strings.CutPrefix(ref, p); ok && image != "" && !strings.ContainsAny(image, " \n") {
			return image, nil
		}
	}
	return "", fmt.Errorf("Invalid container image reference '%s'", ref)
}

func (t *Tree) rebase(args []string, out io.Writer) error {
	_, words, err := flags(args, "--custom-origin-url", "--custom-origin-description")
	if err != nil {
		return err
	}
	if len(words) != 1 {
		return usageError{"rebase needs one image"}
	}
	image, err := reference(words[0])
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Pulling manifest: %s\nImporting: %[1]s\n", words[0])
	err = t.stage(func(d *Deployment) error {
		d.Image, d.Origin, d.Version = image, words[0], VersionOf(image)
		return nil
	})
	if err == nil {
		fmt.Fprint(out, "Staging deployment...done\n"+queued)
	}
	return err
}

func (t *Tree) cleanup(args []string, out io.Writer) error {
	list, _, err := flags(args)
	if err != nil {
		return err
	}
	return t.change(func(s *State) error {
		for _, f := range list {
			switch f.name {
			case "-p", "--pending":
				s.Staged = nil
			case "-r", "--rollback":
				s.Rollback = nil
			case "-b", "--base", "-m", "--repomd":
			default:
				return usageError{fmt.Sprintf("Unknown option %s", f.name)}
			}
		}
		fmt.Fprintln(out, "Deployments unchanged.")
		return nil
	})
}

var errNothing = errors.New("No packages specified")

// override removes packages of the image, or brings them back.
func (t *Tree) override(args []string, out io.Writer) error {
	if len(args) == 0 {
		return usageError{"override needs remove or reset"}
	}
	list, words, err := flags(args[1:], "--install", "--uninstall")
	if err != nil {
		return err
	}
	all := slices.ContainsFunc(list, func(f flag) bool { return f.name == "-a" || f.name == "--all" })
	if len(words) == 0 && !all {
		return errNothing
	}
	err = t.stage(func(d *Deployment) error {
		switch args[0] {
		case "remove":
			d.Removals = sorted(append(d.Removals, words...))
		case "reset":
			for _, w := range words {
				if !slices.Contains(d.Removals, w) {
					return fmt.Errorf("No overrides for package '%s'", w)
				}
			}
			d.Removals = slices.DeleteFunc(d.Removals, func(p string) bool { return all || slices.Contains(words, p) })
		default:
			return usageError{fmt.Sprintf("Unknown command 'override %s'", args[0])}
		}
		return packages(d, list)
	})
	if err == nil {
		fmt.Fprint(out, "Staging deployment...done\n"+queued)
	}
	return err
}

// packages layers and unlayers.
func packages(d *Deployment, list []flag) error {
	for _, f := range list {
		switch f.name {
		case "--install":
			d.Packages = sorted(append(d.Packages, f.value))
		case "--uninstall":
			if !slices.Contains(d.Packages, f.value) {
				return fmt.Errorf("Package/capability '%s' is not currently requested", f.value)
			}
			d.Packages = slices.DeleteFunc(d.Packages, func(p string) bool { return p == f.value })
		}
	}
	return nil
}

func (t *Tree) layer(verb string, args []string, out io.Writer) error {
	list, words, err := flags(args, "--install", "--uninstall")
	if err != nil {
		return err
	}
	for _, w := range words {
		switch verb {
		case "install", "uninstall":
			list = append(list, flag{"--" + verb, w})
		default:
			return usageError{fmt.Sprintf("Unexpected argument '%s'", w)}
		}
	}
	if len(list) == 0 {
		fmt.Fprintln(out, "No upgrade available.")
		return nil
	}
	if err := t.stage(func(d *Deployment) error { return packages(d, list) }); err != nil {
		return err
	}
	fmt.Fprint(out, "Staging deployment...done\n"+queued)
	return nil
}
