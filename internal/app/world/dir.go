package world

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// FormatVersion is what this build writes into world.json and the newest it
// reads.
const FormatVersion = 1

// maxWorlds bounds w of the loopback addresses 127.w.n.k.
const maxWorlds = 254

// state is world.json: what must not change between two starts.
type state struct {
	FormatVersion int    `json:"formatVersion"`
	World         int    `json:"world"`
	InfraID       string `json:"infraID"`
	ClusterID     string `json:"clusterID"`
	ClientSecret  string `json:"clientSecret"`
	// Seeded says that the installer's objects have been made; they are
	// never made again.
	Seeded  bool `json:"seeded"`
	Workers int  `json:"workers"`
	// PID and StartTime (clock ticks since boot, field 22 of
	// /proc/PID/stat) identify the supervisor; 0 while none runs.
	PID       int    `json:"pid,omitempty"`
	StartTime uint64 `json:"startTime,omitempty"`
}

// dir is the state directory of a world, held under its lock.
type dir struct {
	path  string
	lock  *os.File // held while the supervisor lives
	world *os.File // the lock of the world number
	state state
}

func (d *dir) join(names ...string) string {
	return filepath.Join(append([]string{d.path}, names...)...)
}

// UsageError is a mistake in the call: exit code 2.
type UsageError struct{ Message string }

func (e *UsageError) Error() string { return e.Message }

// openDir makes or opens the directory and takes its lock.
func openDir(path string) (*dir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", path, err)
	}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return nil, fmt.Errorf("make state directory: %w; choose another one with --dir or MILLWRIGHT_DIR", err)
	}
	if err := syscall.Access(abs, 2 /* W_OK */); err != nil {
		return nil, fmt.Errorf("state directory %s is not writable: %w; choose another one with --dir or MILLWRIGHT_DIR", abs, err)
	}
	d := &dir{path: abs}
	if d.state, err = readState(abs); err != nil {
		return nil, err
	}
	d.lock, err = flock(d.join("lock"))
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("a world is running in %s already (pid %d): stop it with `millwright down --dir %s`, or choose another directory with --dir",
			abs, d.state.PID, abs)
	}
	if err != nil {
		return nil, fmt.Errorf("lock state directory: %w", err)
	}
	if d.state.FormatVersion == 0 {
		d.state = state{FormatVersion: FormatVersion, InfraID: "dev-" + randomName(5), ClusterID: randomUUID(), ClientSecret: randomName(32)}
	}
	if err := d.takeNumber(); err != nil {
		d.close()
		return nil, err
	}
	return d, d.save()
}

// readState reads world.json; a directory without one has the zero state.
func readState(path string) (state, error) {
	var s state
	file := filepath.Join(path, "world.json")
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("read world: %w", err)
	}
	reset := fmt.Sprintf("reset it with `millwright down --purge --dir %s`", path)
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("read %s: %w; %s", file, err, reset)
	}
	if s.FormatVersion > FormatVersion {
		return s, fmt.Errorf("%s has formatVersion %d, this build reads up to %d: use the newer build, or %s", file, s.FormatVersion, FormatVersion, reset)
	}
	if s.FormatVersion < 1 || s.World < 0 || s.World > maxWorlds {
		return s, fmt.Errorf("%s: formatVersion %d and world %d make no sense: want 1 and 1..%d; %s", file, s.FormatVersion, s.World, maxWorlds, reset)
	}
	return s, nil
}

// takeNumber locks the world's number, choosing one the first time and when
// another world holds it meanwhile.
func (d *dir) takeNumber() error {
	base := filepath.Join(os.TempDir(), "millwright-worlds")
	if err := os.MkdirAll(base, 0o777); err != nil {
		return fmt.Errorf("make lock directory: %w", err)
	}
	_ = os.Chmod(base, 0o777|os.ModeSticky) // other users have worlds too
	first := d.state.World
	if first == 0 {
		sum := sha256.Sum256([]byte(d.path + d.state.ClusterID))
		first = 1 + int(sum[0])%maxWorlds
	}
	for i := range maxWorlds {
		w := 1 + (first-1+i)%maxWorlds
		f, err := flock(filepath.Join(base, fmt.Sprintf("%d.lock", w)))
		if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, fs.ErrPermission) {
			continue
		}
		if err != nil {
			return fmt.Errorf("lock world number: %w", err)
		}
		d.world, d.state.World = f, w
		return nil
	}
	return fmt.Errorf("all %d world numbers of this machine are in use: stop a world with `millwright down`", maxWorlds)
}

func flock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// save writes world.json in one step.
func (d *dir) save() error {
	b, err := json.MarshalIndent(d.state, "", "  ")
	if err != nil {
		return fmt.Errorf("encode world: %w", err)
	}
	tmp := d.join("world.json.new")
	if err := os.WriteFile(tmp, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("write world: %w", err)
	}
	if err := os.Rename(tmp, d.join("world.json")); err != nil {
		return fmt.Errorf("write world: %w", err)
	}
	return nil
}

func (d *dir) close() {
	for _, f := range []*os.File{d.world, d.lock} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// socketDir is short, since a Unix socket's path may have 107 bytes only.
func socketDir(path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(os.TempDir(), fmt.Sprintf("millwright-%d-%s", os.Getuid(), hex.EncodeToString(sum[:6])))
}

// ControlSocket is where the world in dir listens.
func ControlSocket(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", path, err)
	}
	return filepath.Join(socketDir(abs), "control.sock"), nil
}

// startTime returns field 22 of /proc/PID/stat: with the PID it identifies a
// process for as long as the machine is up.
func startTime(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The command's name, in parentheses, may hold spaces.
	rest := string(b[strings.LastIndexByte(string(b), ')')+1:])
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields after the name", pid, len(fields))
	}
	var t uint64
	if _, err := fmt.Sscan(fields[19], &t); err != nil {
		return 0, err
	}
	return t, nil
}

// alive says whether the supervisor of s runs.
func (s state) alive() bool {
	if s.PID == 0 {
		return false
	}
	t, err := startTime(s.PID)
	return err == nil && t == s.StartTime
}

const (
	// stopWait is how long a supervisor may take to stop in good order.
	stopWait = 60 * time.Second
	killWait = 5 * time.Second
)

// Down stops the world in path and, if asked to, removes its state. It
// returns once nothing of it is left. A world that does not run is no error.
func Down(ctx context.Context, path string, purge bool, say func(string, ...any)) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("find %s: %w", path, err)
	}
	s, err := readState(abs)
	if err != nil && !purge {
		return err
	}
	if s.alive() {
		say("Stopping the world in %s (pid %d)", abs, s.PID)
		if err := stopProcess(ctx, s); err != nil {
			return err
		}
	} else {
		say("No world is running in %s", abs)
	}
	_ = os.RemoveAll(socketDir(abs))
	if !purge {
		return nil
	}
	return purgeDir(abs, say)
}

func stopProcess(ctx context.Context, s state) error {
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGTERM, stopWait}, {syscall.SIGKILL, killWait}} {
		if err := syscall.Kill(s.PID, step.signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop the world (pid %d): %w", s.PID, err)
		}
		timeout := time.NewTimer(step.wait)
		tick := time.NewTicker(50 * time.Millisecond)
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				timeout.Stop()
				tick.Stop()
				return ctx.Err()
			case <-timeout.C:
				waiting = false
			case <-tick.C:
				if !s.alive() {
					timeout.Stop()
					tick.Stop()
					return nil
				}
			}
		}
		tick.Stop()
	}
	return fmt.Errorf("the world (pid %d) does not stop, not even by SIGKILL", s.PID)
}

// purgeDir removes a directory that is a world's, and no other.
func purgeDir(path string, say func(string, ...any)) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read state directory: %w", err)
	}
	if _, err := os.Stat(filepath.Join(path, "world.json")); err != nil && len(entries) > 0 {
		return fmt.Errorf("%s holds no world.json: it is not removed, since it may be somebody else's", path)
	}
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("remove state directory: %w", err)
	}
	say("Removed %s", path)
	return nil
}

// nameAlphabet is the one of generated names: no vowels, no look-alikes.
const nameAlphabet = "bcdfghjklmnpqrstvwxz2456789"

func randomName(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	for i := range b {
		b[i] = nameAlphabet[int(b[i])%len(nameAlphabet)]
	}
	return string(b)
}

func randomUUID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
