package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// session serves one streaming request for one container.
type session struct {
	k *Kubelet
	r *podRun
	c *corev1.Container
}

// exitStatus carries a command's exit code to the client.
type exitStatus int

func (e exitStatus) Error() string   { return fmt.Sprintf("exit status %d", int(e)) }
func (e exitStatus) String() string  { return e.Error() }
func (e exitStatus) Exited() bool    { return true }
func (e exitStatus) ExitStatus() int { return int(e) }

// ExecInContainer runs cmd inside the machine's root.
func (s *session) ExecInContainer(ctx context.Context, _, _, _ string, cmd []string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	return s.run(ctx, cmd, streams{in: in, out: out, err: errOut, tty: tty, resize: resize})
}

// AttachContainer joins a container. One that waits for somebody to attach
// runs its command now; the container ends with it. Others show their output.
func (s *session) AttachContainer(ctx context.Context, _, _, _ string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	if wantsSession(s.c) {
		cmd := append(append([]string(nil), s.c.Command...), s.c.Args...)
		if len(cmd) == 0 {
			cmd = []string{"/bin/sh"}
		}
		err := s.run(ctx, cmd, streams{in: in, out: out, err: errOut, tty: tty, resize: resize})
		s.end(exitCode(err))
		if _, ok := err.(exitStatus); ok {
			return nil // the client reads it from the container's status
		}
		return err
	}
	s.r.mu.Lock()
	live, st := s.r.logs[s.c.Name], s.r.sb.Containers[s.c.Name]
	s.r.mu.Unlock()
	if out == nil || live == nil {
		return nil
	}
	return sendLog(ctx, out, func() {}, s.r.logPath(s.c.Name, st.Restarts), live, logOptions{Follow: true, Limit: -1})
}

func (s *session) end(code int32) {
	s.r.mu.Lock()
	if st := s.r.sb.Containers[s.c.Name]; st.Phase == Running {
		s.r.sb.Containers[s.c.Name] = st.Exit(code, 0, s.k.cfg.Clock.Now())
		if l := s.r.logs[s.c.Name]; l != nil {
			l.close()
		}
	}
	s.r.mu.Unlock()
	s.k.queue.Add(s.r.key)
}

// PortForward joins the stream and a port of the pod's loopback address.
func (s *session) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	d := net.Dialer{Timeout: callTimeout}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(s.r.loopback, fmt.Sprint(port)))
	if err != nil {
		return fmt.Errorf("connect to port %d of pod %s: %w", port, s.r.key, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(s.r.ctx, func() { conn.Close() })
	defer stop()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.Copy(conn, stream) // an end of either side ends the session
		if c, ok := conn.(*net.TCPConn); ok {
			_ = c.CloseWrite()
		}
	}()
	_, _ = io.Copy(stream, conn)
	stream.Close()
	conn.Close()
	select {
	case <-sent:
	case <-s.k.cfg.Clock.After(waitDelay):
	}
	return nil
}

type streams struct {
	in       io.Reader
	out, err io.WriteCloser
	tty      bool
	resize   <-chan remotecommand.TerminalSize
}

const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func (s *session) run(ctx context.Context, argv []string, st streams) error {
	path, err := lookIn(s.k.cfg.Root, argv[0])
	if err != nil {
		return err
	}
	env := []string{"PATH=" + searchPath, "HOME=/root", "HOSTNAME=" + s.r.name, "MILLWRIGHT_NODE_NAME=" + s.k.cfg.NodeName}
	if st.tty {
		env = append(env, "TERM=xterm")
	}
	var last error
	for _, enter := range entries(s.k.cfg.Root) {
		cmd := &exec.Cmd{Path: path, Args: argv, Env: env, WaitDelay: waitDelay, SysProcAttr: &syscall.SysProcAttr{}}
		enter(cmd)
		var started bool
		if st.tty {
			started, last = s.runTTY(ctx, cmd, st)
		} else {
			started, last = s.runPipes(ctx, cmd, st)
		}
		if started || !errors.Is(last, syscall.EPERM) {
			return last
		}
	}
	return last
}

// entries are the ways into a root, best first: chroot as root, chroot in a
// user namespace, and only looking from its top.
func entries(root string) []func(*exec.Cmd) {
	plain := func(c *exec.Cmd) {
		c.Path, c.Dir = filepath.Join(root, c.Path), root
	}
	chroot := func(c *exec.Cmd) {
		c.Dir, c.SysProcAttr.Chroot = "/", root
	}
	namespace := func(c *exec.Cmd) {
		chroot(c)
		c.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	if os.Geteuid() == 0 {
		return []func(*exec.Cmd){chroot, namespace, plain}
	}
	return []func(*exec.Cmd){namespace, plain}
}

// lookIn finds a command inside root; the result is as seen from inside.
// Links are not followed: they are resolved by the kernel after the chroot.
func lookIn(root, name string) (string, error) {
	if strings.Contains(name, "/") {
		path := filepath.Join("/", name)
		if _, err := os.Lstat(filepath.Join(root, path)); err != nil && !throughLink(root, path) {
			return "", fmt.Errorf("exec: %q: stat %s: no such file or directory", name, name)
		}
		return path, nil
	}
	for _, dir := range filepath.SplitList(searchPath) {
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(filepath.Join(root, path)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("exec: %q: executable file not found in $PATH", name)
}

// throughLink tells whether a directory on the way is a link, which only the
// kernel can follow in the right root.
func throughLink(root, path string) bool {
	for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
		if info, err := os.Lstat(filepath.Join(root, dir)); err == nil && info.Mode()&os.ModeSymlink != 0 {
			return true
		}
	}
	return false
}

// runPipes runs cmd without a terminal. started tells whether it came so far.
func (s *session) runPipes(ctx context.Context, cmd *exec.Cmd, st streams) (started bool, err error) {
	cmd.SysProcAttr.Setpgid = true
	if st.out != nil {
		cmd.Stdout = st.out
	}
	if st.err != nil {
		cmd.Stderr = st.err
	}
	var stdin io.WriteCloser
	if st.in != nil {
		if stdin, err = cmd.StdinPipe(); err != nil {
			return false, fmt.Errorf("open standard input: %w", err)
		}
	}
	if err := s.k.spawn.start(cmd); err != nil {
		return false, fmt.Errorf("start %s: %w", cmd.Args[0], err)
	}
	if stdin != nil {
		go func() {
			_, _ = io.Copy(stdin, st.in) // ends with the command or the client
			stdin.Close()
		}()
	}
	return true, s.wait(ctx, cmd)
}

// wait ends the command with the pod or the request.
func (s *session) wait(ctx context.Context, cmd *exec.Cmd) error {
	kill := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	stop1 := context.AfterFunc(ctx, kill)
	stop2 := context.AfterFunc(s.r.ctx, kill)
	err := cmd.Wait()
	stop1()
	stop2()
	if code, _ := exitOf(cmd); code != 0 {
		return exitStatus(code)
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) && cmd.ProcessState == nil {
		return fmt.Errorf("wait for %s: %w", cmd.Args[0], err)
	}
	return nil
}

// runTTY runs cmd on a new pseudo-terminal.
func (s *session) runTTY(ctx context.Context, cmd *exec.Cmd, st streams) (started bool, err error) {
	master, slave, err := openPTY()
	if err != nil {
		return false, err
	}
	defer master.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, true
	err = s.k.spawn.start(cmd)
	slave.Close()
	if err != nil {
		return false, fmt.Errorf("start %s: %w", cmd.Args[0], err)
	}
	ended := make(chan struct{})
	defer close(ended)
	if st.in != nil {
		go func() { _, _ = io.Copy(master, st.in) }() // ends with the terminal or the client
	}
	go func() {
		for {
			select {
			case size, ok := <-st.resize:
				if !ok {
					return
				}
				resizePTY(master, size.Width, size.Height)
			case <-ended:
				return
			}
		}
	}()
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		if st.out != nil {
			_, _ = io.Copy(st.out, master) // ends when the last holder of the terminal does
		}
	}()
	err = s.wait(ctx, cmd)
	select {
	case <-shown:
	case <-s.k.cfg.Clock.After(waitDelay):
	}
	return true, err
}
