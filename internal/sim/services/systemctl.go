package services

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Systemctl does what systemctl does with these arguments and returns its exit code.
func (m *Machine) Systemctl(args []string, out, errOut io.Writer) int {
	var words []string
	properties, value := "", false
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "-p" || a == "--property":
			if i++; i < len(args) {
				properties = args[i]
			}
		case strings.HasPrefix(a, "--property="):
			properties = strings.TrimPrefix(a, "--property=")
		case a == "--value":
			value = true
		case strings.HasPrefix(a, "-"): // --no-block, --now, --quiet, --no-pager: nothing to do here
		default:
			words = append(words, a)
		}
	}
	if len(words) == 0 {
		words = []string{"list-units"}
	}
	c := command{m: m, verb: words[0], units: words[1:], out: out, properties: properties, value: value}
	for i, u := range c.units {
		c.units[i] = unit(u)
	}
	err := c.run()
	var f fault
	switch {
	case err == nil:
		return 0
	case errors.As(err, &f):
		if f.text != "" {
			fmt.Fprintln(errOut, f.text)
		}
		return f.code
	}
	fmt.Fprintf(errOut, "Failed to %s: %v\n", c.verb, err)
	return 1
}

// command is one call of systemctl.
type command struct {
	m          *Machine
	verb       string
	units      []string
	out        io.Writer
	properties string
	value      bool
}

func (c *command) run() error {
	switch c.verb {
	case "daemon-reload", "daemon-reexec", "reset-failed":
		return c.m.note(c.verb)
	case "reboot", "poweroff", "halt":
		verb := strings.Replace(c.verb, "halt", "poweroff", 1)
		if err := c.m.note(verb); err != nil {
			return err
		}
		return c.m.write(PowerPath, verb+"\n")
	case "list-units", "list-unit-files":
		return c.list()
	case "is-system-running":
		fmt.Fprintln(c.out, "running")
		return nil
	case "is-active", "is-failed", "is-enabled":
		return c.words()
	}
	each, ok := map[string]func(string) error{
		"start": c.start, "restart": c.start, "try-restart": c.tryStart, "reload": c.reload, "reload-or-restart": c.reloadOrStart,
		"stop": c.stop, "status": c.status, "show": c.show, "enable": c.enable, "disable": c.disable, "preset": c.enable,
		"mask": c.mask, "unmask": c.unmask, "cat": c.cat,
	}[c.verb]
	if !ok {
		return fault{1, "Unknown command verb '" + c.verb + "'."}
	}
	if len(c.units) == 0 {
		return fault{1, "Too few arguments."}
	}
	for _, u := range c.units {
		if err := each(u); err != nil {
			return err
		}
	}
	return nil
}

// known refuses what systemd would not act on.
func (c *command) known(u string) error {
	switch {
	case c.m.masked(u):
		return fault{1, fmt.Sprintf("Failed to %s %s: Unit %s is masked.", c.verb, u, u)}
	case c.m.file(u) == "":
		return fault{5, fmt.Sprintf("Failed to %s %s: Unit %s not found.", c.verb, u, u)}
	}
	return nil
}

func (c *command) failed(u string) error {
	return fault{1, fmt.Sprintf("Job for %s failed because the control process exited with error code.\nSee \"systemctl status %[1]s\" and \"journalctl -xeu %[1]s\" for details.", u)}
}

func (c *command) set(u, state string) error {
	if err := c.m.note(c.verb + " " + u); err != nil {
		return err
	}
	return c.m.write(path.Join(stateDir, u), state+"\n")
}

func (c *command) start(u string) error {
	if err := c.known(u); err != nil {
		return err
	}
	if c.m.failing(u) {
		return errors.Join(c.set(u, "failed"), c.failed(u))
	}
	if c.verb == "start" && c.m.state(u) == "active" {
		return nil
	}
	return c.set(u, c.m.started(u))
}

func (c *command) tryStart(u string) error {
	if c.m.state(u) != "active" {
		return nil
	}
	return c.start(u)
}

func (c *command) reload(u string) error {
	if err := c.known(u); err != nil {
		return err
	}
	if state := c.m.state(u); state != "active" {
		return fault{1, fmt.Sprintf("%s is not active, cannot reload.", u)}
	}
	if c.m.failing(u) {
		return c.failed(u)
	}
	return c.m.note("reload " + u)
}

func (c *command) reloadOrStart(u string) error {
	if c.m.state(u) == "active" {
		return c.reload(u)
	}
	return c.start(u)
}

func (c *command) stop(u string) error {
	if c.m.file(u) == "" {
		return fault{5, fmt.Sprintf("Failed to stop %s: Unit %s not loaded.", u, u)}
	}
	return c.set(u, "inactive")
}

// words answers the questions of one word each; the exit code is the answer's.
func (c *command) words() error {
	code := 0
	for _, u := range c.units {
		word, good := c.m.state(u), "active"
		switch c.verb {
		case "is-failed":
			good = "failed"
		case "is-enabled":
			word, good = c.m.enabled(u), "enabled"
			if word == "static" {
				good = word
			}
		}
		fmt.Fprintln(c.out, word)
		if word != good {
			code = map[string]int{"is-active": 3}[c.verb]
			if code == 0 {
				code = 1
			}
			if word == "not-found" {
				code = 4
			}
		}
	}
	if code != 0 {
		return fault{code: code}
	}
	return nil
}

// facts are the properties that systemctl show knows here.
func (c *command) facts(u string) []string {
	state := c.m.state(u)
	sub := map[string]string{"active": "running", "inactive": "dead", "failed": "failed"}[state]
	if state == "active" && c.m.oneshot(u) {
		sub = "exited"
	}
	load, result, kind := "loaded", "success", "simple"
	switch {
	case c.m.masked(u):
		load = "masked"
	case c.m.file(u) == "":
		load = "not-found"
	}
	if state == "failed" {
		result = "exit-code"
	}
	if v := c.m.settings(u, "[Service]", "Type"); len(v) > 0 {
		kind = v[len(v)-1]
	}
	return []string{
		"Type=" + kind, "Result=" + result, "Id=" + u, "LoadState=" + load, "ActiveState=" + state, "SubState=" + sub,
		"UnitFileState=" + c.m.enabled(u), "NeedDaemonReload=no",
	}
}

func (c *command) show(u string) error {
	for _, line := range c.facts(u) {
		key, value, _ := strings.Cut(line, "=")
		if c.properties != "" && !slices.Contains(strings.Split(c.properties, ","), key) {
			continue
		}
		if c.value {
			line = value
		}
		fmt.Fprintln(c.out, line)
	}
	return nil
}

func (c *command) status(u string) error {
	f := map[string]string{}
	for _, line := range c.facts(u) {
		key, value, _ := strings.Cut(line, "=")
		f[key] = value
	}
	if f["LoadState"] == "not-found" {
		return fault{4, fmt.Sprintf("Unit %s could not be found.", u)}
	}
	mark := map[string]string{"active": "●", "inactive": "○", "failed": "×"}[f["ActiveState"]]
	fmt.Fprintf(c.out, "%s %s\n     Loaded: %s (/%s; %s)\n     Active: %s (%s)\n", mark, u, f["LoadState"], c.m.file(u), f["UnitFileState"], f["ActiveState"], f["SubState"])
	if f["ActiveState"] != "active" {
		return fault{code: 3}
	}
	return nil
}

func (c *command) cat(u string) error {
	file := c.m.file(u)
	if file == "" {
		return fault{1, fmt.Sprintf("No files found for %s.", u)}
	}
	raw, err := c.m.root.ReadFile(file)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "# /%s\n%s", file, raw)
	return nil
}

func (c *command) enable(u string) error {
	if err := c.known(u); err != nil {
		return err
	}
	for _, p := range c.m.wanted(u) {
		if _, err := c.m.root.Lstat(p); err == nil {
			continue
		}
		if err := c.m.root.MkdirAll(path.Dir(p), 0o755); err != nil {
			return err
		}
		if err := c.m.root.Symlink("/"+c.m.file(u), p); err != nil {
			return err
		}
	}
	return c.m.note(c.verb + " " + u)
}

func (c *command) disable(u string) error {
	for _, p := range c.m.links(u) {
		if err := c.m.root.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return c.m.note("disable " + u)
}

func (c *command) mask(u string) error {
	p := path.Join(ownDir, u)
	if c.m.masked(u) {
		return nil
	}
	if _, err := c.m.root.Lstat(p); err == nil {
		return fault{1, fmt.Sprintf("Failed to mask unit: File '/%s' already exists.", p)}
	}
	if err := c.m.root.MkdirAll(ownDir, 0o755); err != nil {
		return err
	}
	return c.m.root.Symlink("/dev/null", p)
}

func (c *command) unmask(u string) error {
	if !c.m.masked(u) {
		return nil
	}
	return c.m.root.Remove(path.Join(ownDir, u))
}

func (c *command) list() error {
	seen := map[string]bool{}
	for _, dir := range unitDirs {
		entries, err := fs.ReadDir(c.m.root.FS(), dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if path.Ext(e.Name()) != "" && !e.IsDir() {
				seen[e.Name()] = true
			}
		}
	}
	names := make([]string, 0, len(seen))
	for n := range seen {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		word := c.m.enabled(n)
		if c.verb == "list-units" {
			if word = c.m.state(n); word == "inactive" {
				continue
			}
		}
		fmt.Fprintf(c.out, "%-40s %s\n", n, word)
	}
	return nil
}
