package vm

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// applets are the names under which a machine's userland is called. A fixed
// list keeps roots equal whatever busybox the host has.
var applets = []string{
	"ash", "awk", "base64", "basename", "cat", "chgrp", "chmod", "chown", "chroot", "cp", "cut", "date", "dd", "df", "diff",
	"dirname", "du", "echo", "env", "expr", "false", "find", "free", "grep", "gunzip", "gzip", "head", "hostname", "id", "kill",
	"less", "ln", "ls", "md5sum", "mkdir", "mktemp", "more", "mv", "nc", "od", "printenv", "printf", "ps", "pwd", "readlink", "realpath",
	"rm", "rmdir", "sed", "seq", "sh", "sha256sum", "sleep", "sort", "stat", "sync", "tail", "tar", "tee", "test", "timeout", "touch",
	"tr", "true", "uname", "uniq", "vi", "wc", "wget", "which", "whoami", "xargs", "yes", "[",
}

// installBusybox puts the userland into usr/bin of the root.
func installBusybox(root, busybox string) error {
	target := filepath.Join(root, "usr", "bin", "busybox")
	if err := copyOnce(busybox, target); err != nil {
		return fmt.Errorf("install busybox: %w", err)
	}
	for _, a := range applets {
		if err := os.Symlink("busybox", filepath.Join(root, "usr", "bin", a)); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("install busybox: %w", err)
		}
	}
	return nil
}

func copyOnce(from, to string) error {
	if _, err := os.Lstat(to); err == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	// A copy, not a link: a machine may overwrite or chmod its own files.
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
