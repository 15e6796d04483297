package kubelet

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	maxLine    = 16 << 10 // longer lines are stored in parts, as CRI does
	maxLogSize = 64 << 20 // then the file is set aside once
	timeLayout = "2006-01-02T15:04:05.000000000Z07:00"
)

// logFile is the log of one run of one container, in CRI line form:
//
//	2026-11-30T12:00:00.000000000Z stdout F message
type logFile struct {
	path  string
	clock clock.PassiveClock

	mu      sync.Mutex
	file    *os.File
	size    int64
	closed  bool
	changed chan struct{} // closed and replaced at every write
}

func createLog(path string, clk clock.PassiveClock) (*logFile, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("create log directory: %w", err)
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("create log: %w", err)
	}
	return &logFile{path: path, clock: clk, file: f, changed: make(chan struct{})}, nil
}

func (l *logFile) append(stream, tag string, line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	if l.file == nil && !l.reopen() {
		return
	}
	if l.size > maxLogSize {
		l.rotate()
	}
	n, _ := fmt.Fprintf(l.file, "%s %s %s %s\n", l.clock.Now().UTC().Format(timeLayout), stream, tag, line)
	l.size += int64(n)
	l.signal()
}

// rotate keeps one older file; a full disk must not stop a component.
func (l *logFile) rotate() {
	if err := os.Rename(l.path, l.path+".1"); err != nil {
		return
	}
	if f, err := os.Create(l.path); err == nil {
		l.file.Close()
		l.file, l.size = f, 0
	}
}

// idle gives the file handle back until the next line; the log stays open.
func (l *logFile) idle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		l.file.Close()
		l.file = nil
	}
}

func (l *logFile) reopen() bool {
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return false
	}
	l.file = f
	return true
}

func (l *logFile) signal() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *logFile) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		if l.file != nil {
			l.file.Close()
		}
		l.signal()
	}
}

// state returns a channel closed at the next write, and whether there may be one.
func (l *logFile) state() (changed <-chan struct{}, open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed, !l.closed
}

// lineWriter cuts a byte stream into log lines.
type lineWriter struct {
	log    *logFile
	stream string
	mu     sync.Mutex
	rest   []byte
}

func (l *logFile) stream(name string) *lineWriter { return &lineWriter{log: l, stream: name} }

func (w *lineWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(b)
	for {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			break
		}
		w.emit("F", append(w.rest, b[:i]...))
		b = b[i+1:]
	}
	w.rest = append(w.rest, b...)
	for len(w.rest) >= maxLine {
		w.log.append(w.stream, "P", w.rest[:maxLine])
		w.rest = append([]byte(nil), w.rest[maxLine:]...)
	}
	return n, nil
}

func (w *lineWriter) emit(tag string, line []byte) {
	for len(line) > maxLine {
		w.log.append(w.stream, "P", line[:maxLine])
		line = line[maxLine:]
	}
	w.log.append(w.stream, tag, line)
	w.rest = w.rest[:0]
}

func (w *lineWriter) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.rest) > 0 {
		w.emit("F", w.rest)
	}
}

// logOptions are those of the pod log subresource.
type logOptions struct {
	Follow     bool
	Timestamps bool
	Tail       int64 // < 0: all
	Limit      int64 // < 0: no limit
	Since      time.Time
}

// record is one stored log line.
type record struct {
	at   time.Time
	when []byte
	part bool
	text []byte
}

// parseRecord reads one stored line, without its newline.
func parseRecord(line []byte) (record, bool) {
	when, rest, ok := bytes.Cut(line, []byte(" "))
	if !ok {
		return record{}, false
	}
	_, rest, ok = bytes.Cut(rest, []byte(" "))
	if !ok {
		return record{}, false
	}
	tag, text, ok := bytes.Cut(rest, []byte(" "))
	if !ok {
		return record{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, string(when))
	if err != nil {
		return record{}, false
	}
	return record{at: at, when: when, part: string(tag) == "P", text: text}, true
}

var errLimit = errors.New("log limit reached")

// sendLog writes the stored log at path to w; live, if not nil, is followed
// until it closes or ctx ends.
func sendLog(ctx context.Context, w io.Writer, flush func(), path string, live *logFile, o logOptions) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer func() { f.Close() }()
	if o.Tail >= 0 {
		off, err := tailOffset(f, o.Tail)
		if err != nil {
			return fmt.Errorf("find tail of log: %w", err)
		}
		if _, err := f.Seek(off, io.SeekStart); err != nil {
			return fmt.Errorf("find tail of log: %w", err)
		}
	}
	out := &logSender{w: w, o: o}
	r := bufio.NewReaderSize(f, 32<<10)
	for {
		var changed <-chan struct{}
		open := false
		if live != nil {
			changed, open = live.state() // before reading, so that no write is missed
		}
		if err := out.drain(r); err != nil {
			if errors.Is(err, errLimit) {
				return nil
			}
			return err
		}
		flush()
		if !o.Follow || !open {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		if r, f, err = reopenIfRotated(r, f, path); err != nil {
			return err
		}
	}
}

func reopenIfRotated(r *bufio.Reader, f *os.File, path string) (*bufio.Reader, *os.File, error) {
	have, err1 := f.Stat()
	now, err2 := os.Stat(path)
	if err1 != nil || err2 != nil || os.SameFile(have, now) {
		return r, f, nil
	}
	next, err := os.Open(path)
	if err != nil {
		return r, f, fmt.Errorf("open rotated log: %w", err)
	}
	f.Close()
	return bufio.NewReaderSize(next, 32<<10), next, nil
}

type logSender struct {
	w    io.Writer
	o    logOptions
	sent int64
	rest []byte // an incomplete stored line
	mid  bool   // the line before was a part
}

func (s *logSender) drain(r *bufio.Reader) error {
	for {
		chunk, err := r.ReadSlice('\n')
		s.rest = append(s.rest, chunk...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		line := s.rest[:len(s.rest)-1]
		if rec, ok := parseRecord(line); ok && !rec.at.Before(s.o.Since) {
			if err := s.send(rec); err != nil {
				return err
			}
		}
		s.rest = s.rest[:0]
	}
}

func (s *logSender) send(rec record) error {
	var b []byte
	if s.o.Timestamps && !s.mid {
		b = append(append(b, rec.when...), ' ')
	}
	b = append(b, rec.text...)
	if !rec.part {
		b = append(b, '\n')
	}
	s.mid = rec.part
	over := s.o.Limit >= 0 && s.sent+int64(len(b)) >= s.o.Limit
	if over {
		b = b[:s.o.Limit-s.sent]
	}
	n, err := s.w.Write(b)
	s.sent += int64(n)
	if err != nil {
		return fmt.Errorf("send log: %w", err)
	}
	if over {
		return errLimit
	}
	return nil
}

// tailOffset is where the last n stored lines begin.
func tailOffset(f io.ReaderAt, n int64) (int64, error) {
	size := int64(0)
	if s, ok := f.(interface{ Stat() (os.FileInfo, error) }); ok {
		info, err := s.Stat()
		if err != nil {
			return 0, err
		}
		size = info.Size()
	}
	if n == 0 {
		return size, nil
	}
	buf := make([]byte, 16<<10)
	seen := int64(0)
	for end := size; end > 0; {
		begin := max(0, end-int64(len(buf)))
		b := buf[:end-begin]
		if _, err := f.ReadAt(b, begin); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		for i := len(b) - 1; i >= 0; i-- {
			if b[i] != '\n' {
				continue
			}
			if seen == n {
				return begin + int64(i) + 1, nil
			}
			seen++
		}
		end = begin
	}
	return 0, nil
}
