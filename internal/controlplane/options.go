package controlplane

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"k8s.io/utils/clock"
)

// Defaults of Options.
const (
	DefaultServiceCIDR = "172.30.0.0/16"
	// DefaultClusterCIDR holds 32,768 nodes of a /24 each.
	DefaultClusterCIDR  = "10.128.0.0/9"
	DefaultStartTimeout = 2 * time.Minute
	DefaultStopTimeout  = 15 * time.Second
)

// maxSocketPath is what a Unix socket's address holds, with its final zero.
const maxSocketPath = 107

// Options say what to run and where. Dir and Binary are required.
type Options struct {
	// Dir holds everything: pki/, etcd/, logs/, bin/, ports.json. A second
	// Start on it continues with the same data and, if they are free, ports.
	Dir string
	// Binary is the devplane, as Ensure returns it.
	Binary string
	// EgressSocket is a Unix socket that speaks HTTP CONNECT. With it the API
	// server reaches kubelets, webhooks and aggregated APIs only through it.
	EgressSocket string
	// AuditLog is a file that gets one JSON line per request, metadata only.
	AuditLog string

	ControllerManager bool
	Scheduler         bool

	ServiceCIDR string
	ClusterCIDR string
	// NodeMonitorGrace is how long a Node may be silent before it counts as
	// unknown; 0 leaves Kubernetes' default.
	NodeMonitorGrace time.Duration
	// ServerNames are additional names and addresses in the API server's certificate.
	ServerNames []string

	ExtraAPIServerArgs         []string
	ExtraControllerManagerArgs []string
	ExtraSchedulerArgs         []string

	// Log gets one line per start, exit and restart of a component.
	Log func(format string, args ...any)
	// Clock measures certificates, waits and back-off; nil is the real one.
	Clock clock.WithTicker

	StartTimeout time.Duration
	// StopTimeout is how long one component may take to end before it is killed.
	StopTimeout time.Duration
}

func (o Options) withDefaults() (Options, error) {
	if o.Dir == "" {
		return o, errors.New("start control plane: no directory")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return o, fmt.Errorf("start control plane: %w", err)
	}
	o.Dir = dir
	if err := executable(o.Binary); err != nil {
		return o, fmt.Errorf("start control plane: %w", err)
	}
	if o.Binary, err = filepath.Abs(o.Binary); err != nil {
		return o, fmt.Errorf("start control plane: %w", err)
	}
	if o.ServiceCIDR == "" {
		o.ServiceCIDR = DefaultServiceCIDR
	}
	if o.ClusterCIDR == "" {
		o.ClusterCIDR = DefaultClusterCIDR
	}
	for _, cidr := range []string{o.ServiceCIDR, o.ClusterCIDR} {
		if _, err := netip.ParsePrefix(cidr); err != nil {
			return o, fmt.Errorf("start control plane: read address range: %w", err)
		}
	}
	if len(o.EgressSocket) > maxSocketPath {
		return o, fmt.Errorf("start control plane: egress socket path %s has %d characters, a Unix socket takes %d; use a shorter directory",
			o.EgressSocket, len(o.EgressSocket), maxSocketPath)
	}
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = DefaultStartTimeout
	}
	if o.StopTimeout == 0 {
		o.StopTimeout = DefaultStopTimeout
	}
	return o, nil
}

// path joins names below the directory.
func (o Options) path(names ...string) string {
	return filepath.Join(append([]string{o.Dir}, names...)...)
}

// prepare makes the directory and proves that it can be written.
func (o Options) prepare() error {
	for _, dir := range []string{"", "pki", "etcd", "logs", "bin"} {
		if err := os.MkdirAll(o.path(dir), 0o700); err != nil {
			return fmt.Errorf("make control plane directory: %w", err)
		}
	}
	for _, name := range []string{"kubectl", "oc"} {
		if err := link(o.Binary, o.path("bin", name)); err != nil {
			return fmt.Errorf("link %s: %w", name, err)
		}
	}
	return nil
}

// link makes path a symbolic link to target in one step, so that a caller of
// the old link never finds nothing.
func link(target, path string) error {
	if old, err := os.Readlink(path); err == nil && old == target {
		return nil
	}
	fresh := path + ".new"
	_ = os.Remove(fresh)
	if err := os.Symlink(target, fresh); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}
