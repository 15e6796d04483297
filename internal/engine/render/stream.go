package render

import (
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
)

// workerPool is the pool whose OS image stream custom pools follow.
const workerPool = "worker"

// StreamOf returns the name of the OS image stream that a pool follows: its
// own, else, for a custom pool, that of the worker pool. Empty: none, so that
// the cluster's images count. worker may be nil.
func StreamOf(pool, worker *mcfgv1.MachineConfigPool) string {
	if s := pool.Spec.OSImageStream.Name; s != "" || worker == nil {
		return s
	}
	if slices.Contains([]string{"master", workerPool, "arbiter"}, pool.Name) {
		return ""
	}
	return worker.Spec.OSImageStream.Name
}

// WithStream returns b with the images of the OS image stream that a pool
// follows. own is the name that the pool itself gives, empty if it gives none;
// name is what StreamOf says. A name that streams does not have is refused.
func (b Base) WithStream(own, name string, streams []mcfgv1.OSImageStreamSet) (Base, error) {
	if name == "" {
		return b, nil
	}
	i := slices.IndexFunc(streams, func(s mcfgv1.OSImageStreamSet) bool { return s.Name == name })
	if i < 0 {
		known := make([]string, 0, len(streams))
		for _, s := range streams {
			known = append(known, s.Name)
		}
		return b, fmt.Errorf("spec.osImageStream.name: there is no OS image stream %q; known are %s", name, orNone(known))
	}
	b.Stream = own
	b.OSImageURL, b.BaseOSExtensionsContainerImage = string(streams[i].OSImage), string(streams[i].OSExtensionsImage)
	return b, nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
