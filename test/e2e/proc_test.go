package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is one that lived when it was looked at; with its start time the
// number means no other.
type process struct {
	pid     int
	started string
	command string
}

func (p process) alive() bool {
	_, started, ok := stat(p.pid)
	return ok && started == p.started
}

// parts are the processes of a world and the addresses they listen on, as
// /proc/net has them.
type parts struct {
	processes []process
	ports     []string
}

func (p parts) and(o parts) parts {
	for _, x := range o.processes {
		if !slices.Contains(p.processes, x) {
			p.processes = append(p.processes, x)
		}
	}
	for _, x := range o.ports {
		if !slices.Contains(p.ports, x) {
			p.ports = append(p.ports, x)
		}
	}
	return p
}

// stat returns a process's parent and start time; false when it is gone or a
// zombie.
func stat(pid int) (parent int, started string, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, "", false
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return 0, "", false
	}
	parent, _ = strconv.Atoi(fields[1])
	return parent, fields[19], true
}

func pids() []int {
	entries, _ := os.ReadDir("/proc")
	var out []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

func commandLine(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " "))
}

// tree returns a process and all below it.
func tree(root int) []process {
	children := map[int][]int{}
	for _, pid := range pids() {
		if parent, _, ok := stat(pid); ok {
			children[parent] = append(children[parent], pid)
		}
	}
	var out []process
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		if _, started, ok := stat(queue[0]); ok {
			out = append(out, process{pid: queue[0], started: started, command: commandLine(queue[0])})
		}
		queue = append(queue, children[queue[0]]...)
	}
	return out
}

// look lists what a supervisor and its children are and listen on.
func look(supervisor int) parts {
	if supervisor == 0 {
		return parts{}
	}
	p := parts{processes: tree(supervisor)}
	sockets := map[string]bool{}
	for _, proc := range p.processes {
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", proc.pid))
		for _, fd := range fds {
			if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "socket:[") {
				sockets[strings.Trim(to, "socket:[]")] = true
			}
		}
	}
	for address, inode := range listening() {
		if sockets[inode] {
			p.ports = append(p.ports, address)
		}
	}
	return p
}

// listening returns the inode of each TCP address that somebody listens on.
func listening() map[string]string {
	out := map[string]string{}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, _ := os.ReadFile(file)
		for _, line := range strings.Split(string(b), "\n") {
			f := strings.Fields(line)
			if len(f) > 9 && f[3] == "0A" {
				out[f[1]] = f[9]
			}
		}
	}
	return out
}

// nothingLeft waits until no process and no port of the world is there any
// more. Processes that were seen below the supervisor count, and any that
// names the world's directory.
func (w *world) nothingLeft(limit time.Duration) error {
	return poll(context.Background(), limit, func() error {
		var left []string
		for _, p := range w.parts.processes {
			if p.alive() {
				left = append(left, fmt.Sprintf("process %d: %s", p.pid, p.command))
			}
		}
		for _, pid := range pids() {
			if pid == os.Getpid() {
				continue
			}
			env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			cwd, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
			line := commandLine(pid)
			if strings.Contains(line+"\x00"+string(env)+"\x00"+cwd, w.dir+"/") {
				left = append(left, fmt.Sprintf("process %d: %s", pid, line))
			}
		}
		open := listening()
		for _, port := range w.parts.ports {
			if _, ok := open[port]; ok {
				left = append(left, "listening: "+port)
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("left of the world in %s:\n%s", w.dir, strings.Join(left, "\n"))
		}
		return nil
	})
}

// controller finds the process of a container by the controllers it runs.
func (w *world) controller(names string) (process, error) {
	var found []process
	for _, p := range tree(w.status.PID) {
		if strings.Contains(p.command+" ", "--controllers="+names+" ") {
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		return process{}, fmt.Errorf("%d processes run %s, want 1", len(found), names)
	}
	return found[0], nil
}

func (p process) kill() error { return syscall.Kill(p.pid, syscall.SIGKILL) }
