package vm

import "os"

// Disk is what survives a machine's reboots. Names are relative to its root.
type Disk interface {
	// Read returns a file, or an error that is fs.ErrNotExist.
	Read(name string) ([]byte, error)
	// Write replaces a file in one step.
	Write(name string, body []byte, mode os.FileMode) error
	close()
}

// rootDisk is a directory.
type rootDisk struct{ root *os.Root }

func (d rootDisk) Read(name string) ([]byte, error) { return d.root.ReadFile(name) }
func (d rootDisk) Write(name string, body []byte, mode os.FileMode) error {
	return writeFile(d.root, name, body, mode)
}
func (d rootDisk) close() { _ = d.root.Close() }
