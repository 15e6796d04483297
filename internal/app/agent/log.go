package agent

import (
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"sync"

	"k8s.io/utils/clock"
)

// klogText writes lines in klog's text form, which people and their tools read:
//
//	I1130 12:00:00.000000    5494 agent.go:302] text
type klogText struct {
	out   io.Writer
	pid   int
	clock clock.PassiveClock
	mu    sync.Mutex // one line at a time
}

// Infof implements agent.Log.
func (l *klogText) Infof(format string, args ...any) { l.write('I', fmt.Sprintf(format, args...)) }

// Errorf implements agent.Log.
func (l *klogText) Errorf(format string, args ...any) { l.write('E', fmt.Sprintf(format, args...)) }

func (l *klogText) write(severity byte, text string) {
	file, line := "???", 1
	if _, f, n, ok := runtime.Caller(2); ok {
		file, line = filepath.Base(f), n
	}
	stamp := l.clock.Now().Format("0102 15:04:05.000000")
	l.mu.Lock()
	defer l.mu.Unlock()
	// A log that cannot be written has nowhere to be reported.
	_, _ = fmt.Fprintf(l.out, "%c%s %7d %s:%d] %s\n", severity, stamp, l.pid, file, line, text)
}
