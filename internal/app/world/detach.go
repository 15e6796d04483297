package world

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// EnvReport names the file descriptor on which a detached supervisor reports
// to whoever started it: lines of progress, then one of the two last lines.
const EnvReport = "MILLWRIGHT_REPORT_FD"

// Last lines of a report. The failed one carries the message.
const (
	reportReady  = "\x01ready"
	reportFailed = "\x01failed "
)

// Detach starts a supervisor with the same arguments that outlives this
// process, and returns once it is ready. When ctx ends first, the supervisor
// is told to stop.
func Detach(ctx context.Context, dirPath string, args []string, say func(string, ...any)) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own program: %w", err)
	}
	abs, err := filepath.Abs(dirPath)
	if err != nil {
		return fmt.Errorf("find %s: %w", dirPath, err)
	}
	// The supervisor's own words, after the start, go to a file. The folder
	// is made here; a directory that cannot be used is reported by the child.
	var log *os.File
	if err := os.MkdirAll(filepath.Join(abs, "logs"), 0o755); err == nil {
		log, _ = os.OpenFile(filepath.Join(abs, "logs", "supervisor.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make report pipe: %w", err)
	}
	cmd := exec.Command(exe, args...)
	cmd.ExtraFiles = []*os.File{w}
	cmd.Env = append(os.Environ(), EnvReport+"=3")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if log != nil {
		cmd.Stdout, cmd.Stderr = log, log
		defer func() { _ = log.Close() }()
	}
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		_ = r.Close()
		return fmt.Errorf("start supervisor: %w", err)
	}
	stopped := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer stopped()
	defer func() { _ = r.Close() }()
	return readReport(r, cmd, say)
}

func readReport(r *os.File, cmd *exec.Cmd, say func(string, ...any)) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		switch line := lines.Text(); {
		case line == reportReady:
			return cmd.Process.Release()
		case strings.HasPrefix(line, reportFailed):
			_ = cmd.Wait()
			return decodeFailure(strings.TrimPrefix(line, reportFailed))
		default:
			say("%s", line)
		}
	}
	err := cmd.Wait()
	return fmt.Errorf("the supervisor ended before the world was ready: %w", errors.Join(err, lines.Err()))
}

// Report is the supervisor's side of Detach. Nil is the report to nobody. It
// is safe for concurrent use; what is said after its end goes nowhere.
type Report struct {
	mu sync.Mutex
	f  *os.File
}

// OpenReport returns the report that the environment names, or nil.
func OpenReport() *Report {
	if os.Getenv(EnvReport) != "3" {
		return nil
	}
	_ = os.Unsetenv(EnvReport)
	syscall.CloseOnExec(3)
	return &Report{f: os.NewFile(3, "report")}
}

// Say writes one line of progress.
func (r *Report) Say(line string) { r.write(strings.ReplaceAll(line, "\n", " "), false) }

// Ready ends the report.
func (r *Report) Ready() { r.write(reportReady, true) }

// Failed ends the report with an error. Line breaks travel as \x02.
func (r *Report) Failed(err error) {
	kind := "e "
	var usage *UsageError
	if errors.As(err, &usage) {
		kind = "u "
	}
	r.write(reportFailed+kind+strings.ReplaceAll(err.Error(), "\n", "\x02"), true)
}

func (r *Report) write(line string, last bool) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.f == nil {
		return
	}
	// Whoever listened may be gone; the world goes on.
	_, _ = fmt.Fprintln(r.f, line)
	if last {
		_ = r.f.Close()
		r.f = nil
	}
}

func decodeFailure(s string) error {
	text := strings.ReplaceAll(s[min(2, len(s)):], "\x02", "\n")
	if strings.HasPrefix(s, "u ") {
		return &UsageError{text}
	}
	return errors.New(text)
}
