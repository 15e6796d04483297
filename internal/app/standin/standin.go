// Package standin answers for the programs of a simulated machine that change its
// operating system: rpm-ostree, bootc, systemctl and update-ca-trust. It only picks
// who answers, and stays free of everything large: each machine has a copy of the
// binary.
//
//	os.Exit(standin.Run("rpm-ostree", []string{"--root", dir, "kargs"}))
package standin

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"millwright.io/millwright/internal/sim/ostree"
	"millwright.io/millwright/internal/sim/services"
)

const usage = "usage: millwright-standin rpm-ostree|bootc|systemctl|update-ca-trust|reboot|poweroff [--root DIR] [arguments]"

// Run does what the named program does, by the last part of its name; called
// millwright-standin, its first argument is that name. --root DIR in front of the
// arguments names another root than /. It returns the exit code.
func Run(name string, args []string) int {
	name = filepath.Base(name)
	if strings.HasPrefix(name, "millwright-standin") {
		if len(args) == 0 {
			fmt.Fprintln(os.Stderr, usage)
			return 2
		}
		name, args = args[0], args[1:]
	}
	root := "/"
	if len(args) > 1 && args[0] == "--root" {
		root, args = args[1], args[2:]
	}
	switch name {
	case "rpm-ostree", "bootc":
		t, err := ostree.Open(root)
		if err != nil {
			return complain(name, err)
		}
		defer func() { _ = t.Close() }()
		if name == "bootc" {
			return t.RunBootc(args, os.Stdout, os.Stderr)
		}
		return t.Run(args, os.Stdout, os.Stderr)
	case "systemctl", "update-ca-trust", "reboot", "poweroff":
		m, err := services.Open(root)
		if err != nil {
			return complain(name, err)
		}
		defer func() { _ = m.Close() }()
		switch name {
		case "systemctl":
			return m.Systemctl(args, os.Stdout, os.Stderr)
		case "update-ca-trust":
			return m.UpdateTrust(os.Stderr)
		}
		return m.Systemctl([]string{name}, os.Stdout, os.Stderr)
	}
	fmt.Fprintln(os.Stderr, usage)
	return 2
}

func complain(name string, err error) int {
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	return 1
}
