package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// parentEnv names the process that started this one. Without it the parent is
// whoever it is when the applet starts.
const parentEnv = "MILLWRIGHT_PARENT_PID"

// dieWithParent asks the kernel to kill this process when its parent ends. It
// fails when the parent is gone already, since then the request came too late.
func dieWithParent() error {
	// The kernel keeps the request per thread: it must be one that stays.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	parent := os.Getppid()
	if v := os.Getenv(parentEnv); v != "" {
		pid, err := strconv.Atoi(v)
		if err != nil {
			return fmt.Errorf("read %s: %w", parentEnv, err)
		}
		parent = pid
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("ask for a signal at the parent's end: %w", err)
	}
	if os.Getppid() != parent {
		return errors.New("the process that started this one is gone")
	}
	return nil
}
