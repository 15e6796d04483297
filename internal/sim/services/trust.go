package services

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
)

const (
	anchorsDir = "etc/pki/ca-trust/source/anchors"
	bundlePath = "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"
)

// UpdateTrust does what update-ca-trust does: it collects the anchors into the bundle
// that programs read. It returns its exit code.
func (m *Machine) UpdateTrust(errOut io.Writer) int {
	if m.failing("update-ca-trust") {
		fmt.Fprintf(errOut, "update-ca-trust: made to fail by /%s\n", failingPath)
		return 1
	}
	var b strings.Builder
	entries, err := fs.ReadDir(m.root.FS(), anchorsDir)
	if err == nil {
		for _, e := range entries {
			raw, err := m.root.ReadFile(path.Join(anchorsDir, e.Name()))
			if err != nil {
				continue
			}
			fmt.Fprintf(&b, "# %s\n%s\n", e.Name(), raw)
		}
	}
	if err := m.write(bundlePath, b.String()); err != nil {
		fmt.Fprintf(errOut, "update-ca-trust: %v\n", err)
		return 1
	}
	return 0
}
