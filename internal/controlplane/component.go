package controlplane

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	backoffFirst = 250 * time.Millisecond
	backoffMost  = 5 * time.Second
	// settled is how long a component must stay up for its next exit to count
	// as the first again.
	settled = 30 * time.Second
	// giveUpAfter exits in a row the control plane is stopped.
	giveUpAfter = 10
)

// startError is a component that ended before it was ready.
type startError struct {
	component string
	exit      string
	tail      string
	log       string
}

func (e *startError) Error() string {
	return fmt.Sprintf("start %s: it ended with %s; its last lines:\n%s\nwhole log: %s", e.component, e.exit, indent(e.tail), e.log)
}

// portTaken reports whether somebody took a port between choice and use.
func (e *startError) portTaken() bool { return strings.Contains(e.tail, "address already in use") }

func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }

// component keeps one program running.
type component struct {
	name  string
	args  []string
	opts  Options
	spawn *spawner
	lock  *os.File
	// lost is called once when the component gives up.
	lost func(error)

	stopCh chan struct{} // closed: end now
	killCh chan struct{} // closed: end at once
	failed chan struct{} // closed when it ended before it was ready
	gone   chan struct{} // closed when its process and loop have ended

	mu       sync.Mutex
	current  *process
	ready    bool
	startErr error
	stopOnce sync.Once
	killOnce sync.Once
}

func (c *component) launch() error {
	p, err := startProcess(c.spawn, c.opts, c.name, c.args, c.lock)
	if err != nil {
		return err
	}
	c.current = p
	go c.supervise(p)
	return nil
}

// markReady says that from now on an exit is to be repaired, not reported. It
// returns the exit if that came first.
func (c *component) markReady() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ready = c.startErr == nil
	return c.startErr
}

// supervise runs until the component is stopped or gives up.
func (c *component) supervise(p *process) {
	defer close(c.gone)
	exits := 0
	for {
		began := c.opts.Clock.Now()
		select {
		case <-c.stopCh:
			c.end(p)
			return
		case <-p.exited:
		}
		if c.failedEarly(p) {
			return
		}
		if c.opts.Clock.Since(began) >= settled {
			exits = 0
		}
		exits++
		if exits > giveUpAfter {
			c.lost(&startError{c.name, p.exitText(), p.tail(10), p.logPath})
			return
		}
		next, ok := c.restart(p, exits)
		if !ok {
			return
		}
		p = next
	}
}

// failedEarly records an exit before readiness and reports whether it was one.
func (c *component) failedEarly(p *process) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ready {
		return false
	}
	c.startErr = &startError{c.name, p.exitText(), p.tail(10), p.logPath}
	close(c.failed)
	return true
}

// restart starts the program again after a pause that grows with exits. It
// returns false when the component was stopped meanwhile.
func (c *component) restart(p *process, exits int) (*process, bool) {
	for {
		pause := min(backoffFirst<<min(exits-1, 10), backoffMost)
		c.opts.Log("%s ended with %s; starting it again in %s (log: %s)", c.name, p.exitText(), pause, p.logPath)
		select {
		case <-c.stopCh:
			return nil, false
		case <-c.opts.Clock.After(pause):
		}
		next, err := startProcess(c.spawn, c.opts, c.name, c.args, c.lock)
		if err == nil {
			c.mu.Lock()
			c.current = next
			c.mu.Unlock()
			return next, true
		}
		c.opts.Log("%v", err)
		if exits++; exits > giveUpAfter {
			c.lost(err)
			return nil, false
		}
	}
}

// end terminates the process, then kills it when it takes too long.
func (c *component) end(p *process) {
	p.signal(syscall.SIGTERM)
	select {
	case <-p.exited:
		return
	case <-c.killCh:
	case <-c.opts.Clock.After(c.opts.StopTimeout):
		c.opts.Log("%s did not end within %s; killing it", c.name, c.opts.StopTimeout)
	}
	p.signal(syscall.SIGKILL)
	<-p.exited
}

// stop ends the component and returns when its process is gone. When kill is
// closed the process is killed at once.
func (c *component) stop(kill <-chan struct{}) {
	c.stopOnce.Do(func() { close(c.stopCh) })
	select {
	case <-c.gone:
	case <-kill:
		c.killOnce.Do(func() { close(c.killCh) })
		<-c.gone
	}
}

// pid is the current process, for tests that kill it.
func (c *component) pid() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current.cmd.Process.Pid
}
