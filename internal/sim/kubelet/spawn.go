package kubelet

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// spawner starts every child of one kubelet from one OS thread that lives as
// long as the kubelet: a parent-death signal is sent when the thread that
// forked ends, not when the process does.
type spawner struct {
	reqs chan spawnRequest
	done chan struct{}
	once sync.Once
}

type spawnRequest struct {
	cmd *exec.Cmd
	err chan error
}

var errStopped = errors.New("the kubelet is stopping")

func newSpawner() *spawner {
	s := &spawner{reqs: make(chan spawnRequest), done: make(chan struct{})}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and with it all children
		for {
			select {
			case r := <-s.reqs:
				r.err <- r.cmd.Start()
			case <-s.done:
				return
			}
		}
	}()
	return s
}

// start starts cmd so that it dies with this process.
func (s *spawner) start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	r := spawnRequest{cmd: cmd, err: make(chan error, 1)}
	select {
	case s.reqs <- r:
		return <-r.err
	case <-s.done:
		return errStopped
	}
}

func (s *spawner) stop() { s.once.Do(func() { close(s.done) }) }

// process is one run of one real container.
type process struct {
	pid  int
	done chan struct{} // closed once the exit is recorded below

	code, signal int32
	lines        *logFile
}

// waitDelay bounds how long a grandchild that kept the output pipe open can
// hold up the end of its container.
const waitDelay = time.Second

// launch starts the container's process and calls exited once, after it ended.
func launch(s *spawner, cmd *exec.Cmd, lines *logFile, exited func(*process)) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, stderr := lines.stream("stdout"), lines.stream("stderr")
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.WaitDelay = waitDelay
	if err := s.start(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	p := &process{pid: cmd.Process.Pid, done: make(chan struct{}), lines: lines}
	go func() {
		_ = cmd.Wait() // the state below says all
		stdout.flush()
		stderr.flush()
		p.code, p.signal = exitOf(cmd)
		_ = syscall.Kill(-p.pid, syscall.SIGKILL) // what the container left behind in its group
		lines.close()
		close(p.done)
		exited(p)
	}()
	return p, nil
}

// kill signals the whole process group of the container.
func (p *process) kill(sig syscall.Signal) {
	select {
	case <-p.done:
	default:
		_ = syscall.Kill(-p.pid, sig) // it may have ended in between
	}
}

func exitOf(cmd *exec.Cmd) (code, signal int32) {
	if cmd.ProcessState == nil {
		return 255, 0
	}
	ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && ws.Signaled() {
		return 128 + int32(ws.Signal()), int32(ws.Signal())
	}
	return int32(cmd.ProcessState.ExitCode()), 0
}
