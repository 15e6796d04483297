package controlplane

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
)

// parentEnv tells a server applet whose death it must not survive.
const parentEnv = "MILLWRIGHT_PARENT_PID"

// maxLog is the size at which a log is put aside when its component starts.
const maxLog = 32 << 20

// spawner starts processes from one thread that lives as long as they do: the
// kernel ties a child's parent-death signal to the thread that made it.
type spawner struct {
	jobs chan spawnJob
}

type spawnJob struct {
	cmd  *exec.Cmd
	done chan error
}

func newSpawner() *spawner {
	s := &spawner{jobs: make(chan spawnJob)}
	go func() {
		runtime.LockOSThread()
		for job := range s.jobs {
			job.done <- job.cmd.Start()
		}
		// The goroutine ends locked, so the runtime ends the thread; by now no
		// child is left to notice.
	}()
	return s
}

func (s *spawner) start(cmd *exec.Cmd) error {
	job := spawnJob{cmd: cmd, done: make(chan error, 1)}
	s.jobs <- job
	return <-job.done
}

func (s *spawner) close() { close(s.jobs) }

// process is one running component.
type process struct {
	cmd     *exec.Cmd
	logPath string
	logFrom int64         // where this run's lines begin
	exited  chan struct{} // closed when the process is gone
	err     error         // its exit; read after exited
}

// startProcess runs the devplane as applet name. lock stays open in the child,
// so that the directory counts as busy until the last child is gone.
func startProcess(s *spawner, o Options, name string, args []string, lock *os.File) (*process, error) {
	p := &process{logPath: o.path("logs", name+".log"), exited: make(chan struct{})}
	if info, err := os.Stat(p.logPath); err == nil && info.Size() > maxLog {
		if err := os.Rename(p.logPath, p.logPath+".old"); err != nil {
			return nil, fmt.Errorf("put log of %s aside: %w", name, err)
		}
	}
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", name, err)
	}
	defer log.Close()
	if info, err := log.Stat(); err == nil {
		p.logFrom = info.Size()
	}
	p.cmd = &exec.Cmd{
		Path:        o.Binary,
		Args:        append([]string{name}, args...),
		Dir:         o.Dir,
		Env:         childEnv(),
		Stdout:      log,
		Stderr:      log,
		ExtraFiles:  []*os.File{lock},
		SysProcAttr: childAttr(),
	}
	if err := s.start(p.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// childEnv is what a component gets to see. Everything else of the user's
// environment stays out: proxies would catch calls to loopback, and etcd reads
// every ETCD_ variable as a flag.
func childEnv() []string {
	env := []string{parentEnv + "=" + strconv.Itoa(os.Getpid())}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "GOMAXPROCS", "GOGC", "GOMEMLIMIT"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func (p *process) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// tail returns the last n lines that this run wrote.
func (p *process) tail(n int) string {
	const most = 64 << 10
	file, err := os.Open(p.logPath)
	if err != nil {
		return ""
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return ""
	}
	from := max(p.logFrom, info.Size()-most)
	buf := make([]byte, max(0, info.Size()-from))
	read, _ := file.ReadAt(buf, from)
	return lastLines(buf[:read], n)
}

// exitText says how the process ended; call it after exited.
func (p *process) exitText() string {
	if p.err == nil {
		return "exit status 0"
	}
	return p.err.Error()
}
