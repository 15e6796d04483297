//go:build !linux

package controlplane

import "syscall"

// childAttr makes a child that is not reached by the terminal's interrupt:
// stopping has an order of its own.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
