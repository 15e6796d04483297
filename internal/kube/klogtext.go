package kube

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// KlogText returns a logger that writes klog's text form on standard error:
//
//	I1130 12:00:00.000000       1 controller.go:302] msg
//
// A message without keys is printed word for word, since people grep for it;
// with keys, the message is quoted and the keys follow, as klog does. Lines of
// V(1) and higher are not written.
func KlogText(name string) logr.Logger {
	return KlogTextTo(name, KlogOptions{Out: os.Stderr})
}

// KlogOptions changes where KlogText writes and how much.
type KlogOptions struct {
	Out       io.Writer          // required
	Verbosity int                // highest V that is written
	Clock     clock.PassiveClock // nil: the real one
}

// KlogTextTo is KlogText with options.
func KlogTextTo(name string, o KlogOptions) logr.Logger {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return logr.New(&klogSink{name: name, opts: o, mu: &sync.Mutex{}})
}

type klogSink struct {
	name  string
	opts  KlogOptions
	mu    *sync.Mutex // one line at a time, shared by derived loggers
	depth int
	pairs string // formatted keys of WithValues, with a leading space
}

// Init implements logr.LogSink.
func (s *klogSink) Init(info logr.RuntimeInfo) { s.depth = info.CallDepth }

// Enabled implements logr.LogSink.
func (s *klogSink) Enabled(level int) bool { return level <= s.opts.Verbosity }

// Info implements logr.LogSink.
func (s *klogSink) Info(_ int, msg string, kv ...any) {
	if len(kv) == 0 && s.pairs == "" {
		s.write('I', msg)
		return
	}
	s.write('I', fmt.Sprintf("%q%s%s%s", msg, s.logger(), s.pairs, pairs(kv)))
}

// Error implements logr.LogSink.
func (s *klogSink) Error(err error, msg string, kv ...any) {
	text := " err=<nil>"
	if err != nil {
		text = fmt.Sprintf(" err=%q", err.Error())
	}
	s.write('E', fmt.Sprintf("%q%s%s%s%s", msg, text, s.logger(), s.pairs, pairs(kv)))
}

// WithValues implements logr.LogSink.
func (s *klogSink) WithValues(kv ...any) logr.LogSink {
	c := *s
	c.pairs += pairs(kv)
	return &c
}

// WithName implements logr.LogSink.
func (s *klogSink) WithName(name string) logr.LogSink {
	c := *s
	if c.name != "" {
		name = c.name + "." + name
	}
	c.name = name
	return &c
}

// WithCallDepth implements logr.CallDepthLogSink.
func (s *klogSink) WithCallDepth(depth int) logr.LogSink {
	c := *s
	c.depth += depth
	return &c
}

// note writes a line word for word, whatever keys the logger carries.
func (s *klogSink) note(msg string) { s.write('I', msg) }

func (s *klogSink) logger() string {
	if s.name == "" {
		return ""
	}
	return fmt.Sprintf(" logger=%q", s.name)
}

// write prints one line. It is always two frames below the caller's call of
// the logger's method, not counting what Init said.
func (s *klogSink) write(severity byte, text string) {
	file, line := "???", 1
	if _, f, l, ok := runtime.Caller(s.depth + 2); ok {
		file, line = filepath.Base(f), l
	}
	stamp := s.opts.Clock.Now().Format("0102 15:04:05.000000")
	s.mu.Lock()
	defer s.mu.Unlock()
	// A log that cannot be written has nowhere to be reported.
	_, _ = fmt.Fprintf(s.opts.Out, "%c%s %7d %s:%d] %s\n", severity, stamp, os.Getpid(), file, line, text)
}

func pairs(kv []any) string {
	var b strings.Builder
	for i := 0; i < len(kv); i += 2 {
		var v any = "(MISSING)"
		if i+1 < len(kv) {
			v = kv[i+1]
		}
		if m, ok := v.(logr.Marshaler); ok {
			if _, plain := v.(fmt.Stringer); !plain {
				v = m.MarshalLog()
			}
		}
		switch x := v.(type) {
		case string:
			fmt.Fprintf(&b, " %v=%q", kv[i], x)
		case error:
			fmt.Fprintf(&b, " %v=%q", kv[i], x.Error())
		case fmt.Stringer:
			fmt.Fprintf(&b, " %v=%q", kv[i], safeString(x))
		default:
			fmt.Fprintf(&b, " %v=%+v", kv[i], x)
		}
	}
	return b.String()
}

// safeString keeps a nil pointer behind a Stringer from ending the process.
func safeString(s fmt.Stringer) (text string) {
	defer func() {
		if recover() != nil {
			text = "<nil>"
		}
	}()
	return s.String()
}
