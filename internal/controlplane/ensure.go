package controlplane

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

const (
	// BinaryEnv names a ready binary and switches finding and building off.
	BinaryEnv = "MILLWRIGHT_DEVPLANE"
	// CacheEnv moves the cache, by default the user's cache directory.
	CacheEnv = "MILLWRIGHT_CACHE"

	binaryName = "millwright-devplane"
	modulePath = "module millwright.io/millwright/devplane"

	// coldBuildBytes is what a build from an empty cache takes on disk: the
	// build cache, the downloaded modules, the binary.
	coldBuildBytes = 8 << 30
	// leastBuildBytes is what linking alone takes; below it no build can end.
	leastBuildBytes = 1 << 30

	progressEvery = 15 * time.Second
	lockPoll      = 200 * time.Millisecond
)

// buildArgs are the arguments of go build. The versions matter: without them
// every client that parses the server's version fails.
func buildArgs() []string {
	const version, client = "k8s.io/component-base/version.", "k8s.io/client-go/pkg/version."
	ld := strings.Join([]string{
		"-s", "-w",
		"-X", version + "gitVersion=v1.37.2",
		"-X", version + "gitMajor=1",
		"-X", version + "gitMinor=37",
		"-X", client + "gitVersion=v0.37.2",
	}, " ")
	return []string{"build", "-buildvcs=false", "-mod=readonly", "-ldflags", ld}
}

// buildEnv are the settings that change what the build makes.
func buildEnv() []string { return []string{"CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off"} }

// Ensure returns the path of a devplane binary that fits the sources: the one
// that MILLWRIGHT_DEVPLANE names, else the cached one, else one that it builds
// into the cache, telling progress what it does and how long it has taken.
//
// moduleDir is the checkout (or its devplane folder); empty means the checkout
// around the working directory. Without any checkout a binary beside the
// running one is taken. Concurrent calls, in any process, build once.
func Ensure(ctx context.Context, moduleDir string, progress io.Writer) (binary string, err error) {
	if path := os.Getenv(BinaryEnv); path != "" {
		if err := executable(path); err != nil {
			return "", fmt.Errorf("use the control plane that %s names: %w", BinaryEnv, err)
		}
		return filepath.Abs(path)
	}
	module, err := findModule(moduleDir)
	if err != nil {
		if beside, ok := besideExecutable(); ok {
			return beside, nil
		}
		return "", err
	}
	digest, err := sourceDigest(ctx, module)
	if err != nil {
		return "", err
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "devplane", digest)
	binary = filepath.Join(dir, binaryName)
	if executable(binary) == nil {
		return binary, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make cache directory: %w", err)
	}
	b := builder{module: module, dir: dir, progress: progress, clk: clock.RealClock{}}
	return binary, b.run(ctx)
}

// findModule returns the folder of the devplane module.
func findModule(from string) (string, error) {
	if from != "" {
		for _, dir := range []string{from, filepath.Join(from, "devplane")} {
			if isModule(dir) {
				return filepath.Abs(dir)
			}
		}
		return "", noModule("in " + from)
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the devplane module: %w", err)
	}
	for at := dir; ; at = filepath.Dir(at) {
		if candidate := filepath.Join(at, "devplane"); isModule(candidate) {
			return candidate, nil
		}
		if at == filepath.Dir(at) {
			return "", noModule("around " + dir)
		}
	}
}

func noModule(where string) error {
	return fmt.Errorf("find the development control plane: no Millwright checkout %s; "+
		"run this inside a checkout, or build it there once with \"make devplane\" and set %s to the binary", where, BinaryEnv)
}

func isModule(dir string) bool {
	data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && (bytes.HasPrefix(data, []byte(modulePath+"\n")) || bytes.Contains(data, []byte("\n"+modulePath+"\n")))
}

func besideExecutable() (string, bool) {
	self, err := os.Executable()
	if err != nil {
		return "", false
	}
	path := filepath.Join(filepath.Dir(self), binaryName)
	return path, executable(path) == nil
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("%s is not an executable file", path)
	}
	return nil
}

func cacheDir() (string, error) {
	if dir := os.Getenv(CacheEnv); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache directory (set %s): %w", CacheEnv, err)
	}
	return filepath.Join(dir, "millwright"), nil
}

// sourceDigest names a build: sources, pinned modules, compiler, flags.
func sourceDigest(ctx context.Context, module string) (string, error) {
	goVersion, err := goEnv(ctx, module, "GOVERSION")
	if err != nil {
		return "", err
	}
	files := []string{}
	err = filepath.WalkDir(module, func(path string, d os.DirEntry, err error) error {
		name := d.Name()
		isSource := strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
		if err == nil && !d.IsDir() && (isSource || name == "go.mod" || name == "go.sum") {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("read devplane sources: %w", err)
	}
	sort.Strings(files)
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n%q\n%q\n", goVersion, buildArgs(), buildEnv())
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("read devplane sources: %w", err)
		}
		rel, err := filepath.Rel(module, path)
		if err != nil {
			return "", fmt.Errorf("read devplane sources: %w", err)
		}
		fmt.Fprintf(sum, "%s %d\n", filepath.ToSlash(rel), len(data))
		sum.Write(data)
	}
	return hex.EncodeToString(sum.Sum(nil))[:20], nil
}

func goEnv(ctx context.Context, dir, name string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "env", name)
	cmd.Dir = dir
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("find Go, which builds the development control plane: %w; install Go, or set %s to a ready binary", err, BinaryEnv)
	}
	if err != nil {
		return "", fmt.Errorf("ask go for %s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}
