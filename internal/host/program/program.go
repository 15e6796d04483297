// Package program runs the programs of a host. It decides where they are and how they
// are told which root is meant; what they are asked is the caller's business. It never
// runs a program of another root than the host's.
//
//	p := program.New("/rootfs", log.Infof)
//	text, err := p.Captured(ctx, "rpm-ostree", "kargs")
package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Runner runs the programs of one host. Errors hold what the program said:
// "error running rpm-ostree kargs: <its words>: exit status 1".
type Runner interface {
	// Run runs a program and logs its call.
	Run(ctx context.Context, name string, args ...string) error
	// Captured returns what it prints and logs its call.
	Captured(ctx context.Context, name string, args ...string) (string, error)
	// Query returns what it prints, for questions that are asked all the time.
	Query(ctx context.Context, name string, args ...string) (string, error)
	// Has tells that the host has a program.
	Has(name string) bool
}

// Limit bounds every call of a program, QueryLimit every mere question.
const (
	Limit      = 30 * time.Minute
	QueryLimit = 2 * time.Minute
)

// Standin is the program in a root's /usr/bin by which a root is known whose programs
// run outside of it and are told with --root which one is meant.
const Standin = "millwright-standin"

// way is how programs of a root are run.
type way int

const (
	here    way = iota // the root is ours
	inside             // in a chroot
	outside            // with --root in front of the arguments
)

// Programs are those of a root.
type Programs struct {
	root string
	way  way
	log  func(format string, args ...any)
}

// New returns the programs of the host at root. log takes a line for each call that is
// no mere question; nil: none.
func New(root string, log func(format string, args ...any)) *Programs {
	if log == nil {
		log = func(string, ...any) {}
	}
	p := &Programs{root: root, way: inside, log: log}
	switch {
	case filepath.Clean(root) == "/":
		p.way = here
	case IsStandin(root):
		p.way = outside
	}
	return p
}

// IsStandin tells that the programs of a root are a simulated machine's.
func IsStandin(root string) bool {
	info, err := os.Lstat(filepath.Join(root, "usr", "bin", Standin))
	return err == nil && info.Mode().IsRegular()
}

// searched are where a host's programs are.
var searched = []string{"usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin", "bin", "sbin"}

// find returns the path of a program below the root.
func (p *Programs) find(name string) (string, error) {
	if p.way == here {
		full, err := exec.LookPath(name)
		if err == nil || !errors.Is(err, exec.ErrNotFound) {
			return full, err
		}
	}
	root, err := os.OpenRoot(p.root)
	if err != nil {
		return "", fmt.Errorf("open root: %w", err)
	}
	defer func() { _ = root.Close() }()
	for _, dir := range searched {
		rel := filepath.Join(dir, name)
		info, err := root.Stat(rel)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && p.way == inside {
			// A link that a root of ours cannot follow may be right inside it.
			info, err = root.Lstat(rel)
		}
		if err != nil || info.IsDir() {
			continue
		}
		if p.way == outside {
			return filepath.Join(p.root, rel), nil
		}
		return "/" + rel, nil
	}
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}

// Has implements Runner.
func (p *Programs) Has(name string) bool {
	_, err := p.find(name)
	return err == nil
}

// Run implements Runner.
func (p *Programs) Run(ctx context.Context, name string, args ...string) error {
	p.log("Running: %s", call(name, args))
	_, err := p.call(ctx, Limit, name, args)
	return err
}

// Captured implements Runner.
func (p *Programs) Captured(ctx context.Context, name string, args ...string) (string, error) {
	p.log("Running captured: %s", call(name, args))
	return p.call(ctx, Limit, name, args)
}

// Query implements Runner.
func (p *Programs) Query(ctx context.Context, name string, args ...string) (string, error) {
	return p.call(ctx, QueryLimit, name, args)
}

// call runs a program and returns what it printed, also when it went wrong.
func (p *Programs) call(ctx context.Context, limit time.Duration, name string, args []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	full, err := p.find(name)
	if err != nil {
		return "", fmt.Errorf("error running %s: %w", call(name, args), err)
	}
	given := args
	if p.way == outside {
		given = append([]string{"--root", p.root}, args...)
	}
	cmd := exec.CommandContext(ctx, full, given...)
	cmd.WaitDelay = time.Second
	if p.way == inside {
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: p.root}
		cmd.Dir = "/"
	}
	if p.way != here {
		cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}
	}
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return out.String(), fmt.Errorf("error running %s: %s: %w", call(name, args), strings.TrimSpace(said.String()), err)
	}
	return out.String(), nil
}

func call(name string, args []string) string {
	return strings.TrimSpace(name + " " + strings.Join(args, " "))
}

var _ Runner = (*Programs)(nil)
