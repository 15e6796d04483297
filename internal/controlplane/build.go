package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

// builder makes one binary in one cache directory.
type builder struct {
	module, dir string
	progress    io.Writer
	clk         clock.WithTicker
}

func (b builder) run(ctx context.Context) error {
	lock, err := b.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	target := filepath.Join(b.dir, binaryName)
	if executable(target) == nil {
		return nil // somebody else built it while we waited
	}
	if err := b.checkDisk(ctx); err != nil {
		return err
	}
	b.say("building the development control plane (etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, oc)")
	b.say("the first build takes about 7 minutes on two cores; the result is kept in %s", b.dir)
	start := b.clk.Now()
	fresh := target + ".new"
	if err := b.compile(ctx, fresh); err != nil {
		_ = os.Remove(fresh)
		return err
	}
	if err := os.Rename(fresh, target); err != nil {
		return fmt.Errorf("put the control plane into the cache: %w", err)
	}
	b.say("built the development control plane in %s", b.since(start))
	return nil
}

// lock waits until no other process builds into the same directory.
func (b builder) lock(ctx context.Context) (*os.File, error) {
	path := filepath.Join(b.dir, "lock")
	start, told := b.clk.Now(), b.clk.Now().Add(-progressEvery)
	for {
		file, err := tryLock(path)
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if file != nil {
			return file, nil
		}
		if b.clk.Since(told) >= progressEvery {
			told = b.clk.Now()
			b.say("waiting for another process that builds the development control plane: %s", b.since(start))
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another build of the control plane: %w", ctx.Err())
		case <-b.clk.After(lockPoll):
		}
	}
}

func (b builder) compile(ctx context.Context, out string) error {
	cmd := exec.CommandContext(ctx, "go", append(buildArgs(), "-o", out, ".")...)
	cmd.Dir = b.module
	cmd.Env = append(os.Environ(), buildEnv()...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	// An interrupted go build removes its own temporary files.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("build the control plane: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	start, ticker := b.clk.Now(), b.clk.NewTicker(progressEvery)
	defer ticker.Stop()
	for {
		select {
		case err := <-done:
			if ctx.Err() != nil {
				return fmt.Errorf("build the control plane: %w", ctx.Err())
			}
			if err != nil {
				return fmt.Errorf("build the control plane in %s: %w\n%s", b.module, err, lastLines(log.Bytes(), 20))
			}
			return nil
		case <-ticker.C():
			b.say("building the development control plane: %s", b.since(start))
		}
	}
}

// checkDisk refuses a build that cannot end and warns of one that may not.
func (b builder) checkDisk(ctx context.Context) error {
	cache, err := goEnv(ctx, b.module, "GOCACHE")
	if err != nil {
		return err
	}
	for _, dir := range []string{cache, b.dir} {
		free, err := freeBytes(dir)
		if err != nil {
			continue // not there yet, or the system does not tell
		}
		if free < leastBuildBytes {
			return fmt.Errorf("build the control plane: only %s free at %s, a build needs at least %s (%s the first time); "+
				"free some space, or move it with GOCACHE and %s", gigabytes(free), dir, gigabytes(leastBuildBytes), gigabytes(coldBuildBytes), CacheEnv)
		}
		if free < coldBuildBytes {
			b.say("only %s free at %s: a first build needs about %s", gigabytes(free), dir, gigabytes(coldBuildBytes))
		}
	}
	return nil
}

func (b builder) say(format string, args ...any) {
	if b.progress != nil {
		fmt.Fprintf(b.progress, format+"\n", args...)
	}
}

func (b builder) since(t time.Time) time.Duration { return b.clk.Since(t).Round(time.Second) }

func gigabytes(n uint64) string { return fmt.Sprintf("%.1f GB", float64(n)/(1<<30)) }

// lastLines returns at most n lines from the end of text, without blank ones.
func lastLines(text []byte, n int) string {
	lines := []string{}
	for _, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimRight(line, " \r\t"); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
