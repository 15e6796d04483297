// Package world is the composition root of the embedded default: one
// supervisor process that holds the simulated clouds, the machines and their
// kubelets, and whose children are the control plane and every component's
// process. It wires; what the parts do is decided elsewhere.
package world

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/controlplane"
	"millwright.io/millwright/internal/sim/arm"
	"millwright.io/millwright/internal/sim/control"
	"millwright.io/millwright/internal/sim/kubelet"
	"millwright.io/millwright/internal/sim/vm"
	simworld "millwright.io/millwright/internal/sim/world"
)

// Machine kinds of --machines.
const (
	MachinesRooted = "rooted"
	MachinesHollow = "hollow"
	MachinesNspawn = "nspawn"
)

// maxWorkers bounds --workers: a machine with a root has a loopback network
// of its own, of which there are 254, and the control plane's need some.
var maxWorkers = map[string]int{MachinesRooted: 200, MachinesHollow: 5000, MachinesNspawn: 20}

// ClusterVersion is the OpenShift version a new world claims to be.
const ClusterVersion = "4.20.0"

// nodeMonitorGrace is how long a silent Node counts as ready. Kubernetes'
// 50 s would make every lesson about a lost machine a long one; kubelets
// here renew their Leases every 10 s.
const nodeMonitorGrace = 25 * time.Second

// Options are the settings of `up`. The zero value of a field is its default
// where one is named.
type Options struct {
	Dir       string        // required
	Workers   int           // nodes made by the worker MachineSets at first start
	Machines  string        // rooted
	BootDelay time.Duration // from power on to the first service
	VMDelay   time.Duration // what the cloud needs to provision a VM
	Admission []string      // RULE=MODE
	Audit     bool          // write logs/audit.log
	// NodeClientDelay is how long after joining a node asks for the 24 h
	// certificates of its components.
	NodeClientDelay time.Duration
	// Module is the folder of the devplane's sources, "" to search for it.
	Module string
	// Say gets one line per thing that happens.
	Say func(format string, args ...any)
	Log logr.Logger
}

// supervisor is one running world.
type supervisor struct {
	opts    Options
	dir     *dir
	binDir  string
	started time.Time
	clk     clock.WithTicker
	params  simworld.Params

	plane  *controlplane.Plane
	kube   client.Client
	admin  *rest.Config
	azure  *arm.Server
	hyper  *vm.Hypervisor
	egress *kubelet.Egress

	caPEM     []byte
	wasSeeded bool     // by an earlier start
	seeded    sync.Map // names of the installer's machines before their first boot
	status    statusBox
}

// Check reports mistakes in the options, before anything is touched.
func (o Options) Check() error {
	switch o.Machines {
	case MachinesRooted, MachinesHollow:
	case MachinesNspawn:
		if err := checkNspawn(); err != nil {
			return err
		}
	default:
		return &UsageError{fmt.Sprintf("--machines %q: want rooted, nspawn or hollow", o.Machines)}
	}
	if o.Workers < 0 || o.Workers > maxWorkers[o.Machines] {
		return &UsageError{fmt.Sprintf("--workers %d: want 0 to %d with --machines %s", o.Workers, maxWorkers[o.Machines], o.Machines)}
	}
	if o.BootDelay < 0 || o.BootDelay > time.Hour {
		return &UsageError{fmt.Sprintf("--boot-delay %s: want 0s to 1h", o.BootDelay)}
	}
	return checkAdmission(o.Admission)
}

// Run is the supervisor: it starts the world, reports ready once, and stays
// until ctx ends. Whatever it started is stopped when it returns.
func Run(ctx context.Context, o Options, ready func(control.Status)) (err error) {
	if err := o.Check(); err != nil {
		return err
	}
	binDir, err := findBinaries()
	if err != nil {
		return err
	}
	d, err := openDir(o.Dir)
	if err != nil {
		return err
	}
	defer d.close()
	s := &supervisor{opts: o, dir: d, binDir: binDir, clk: clock.RealClock{}, wasSeeded: d.state.Seeded}
	s.started = s.clk.Now()
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		s.status.set(control.PhaseStopping, "")
		s.stop(stop)
		d.state.PID, d.state.StartTime = 0, 0
		err = errors.Join(err, d.save())
	}()
	if err := s.announce(life); err != nil {
		return err
	}
	if err := s.start(ctx, life); err != nil {
		s.status.set(control.PhaseFailed, err.Error())
		return err
	}
	s.status.ready(s.clk.Since(s.started).Seconds())
	if ready != nil {
		ready(s.Status(ctx))
	}
	select {
	case <-ctx.Done():
		o.Say("Stopping")
		return nil
	case <-s.plane.Done():
		return fmt.Errorf("the control plane ended: %w", s.plane.Wait())
	}
}

// announce records who runs the world and opens the control socket, so that
// `down` and `status` work from the first moment.
func (s *supervisor) announce(life context.Context) error {
	t, err := startTime(os.Getpid())
	if err != nil {
		return fmt.Errorf("read own start time: %w", err)
	}
	s.dir.state.PID, s.dir.state.StartTime = os.Getpid(), t
	if err := s.dir.save(); err != nil {
		return err
	}
	s.status.set(control.PhaseStarting, "starting the control plane")
	sockets := socketDir(s.dir.path)
	if err := os.MkdirAll(sockets, 0o700); err != nil {
		return fmt.Errorf("make socket directory: %w", err)
	}
	path := filepath.Join(sockets, "control.sock")
	_ = os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("open control socket: %w", err)
	}
	serve(life, l, control.Handler(s), s.opts.Log)
	return nil
}

// start brings everything up, in the order in which parts need each other.
func (s *supervisor) start(ctx, life context.Context) error {
	binary, err := controlplane.Ensure(ctx, s.module(), sayWriter{s.opts.Say})
	if err != nil {
		return fmt.Errorf("find the control plane's binary: %w", err)
	}
	s.started = s.clk.Now() // building is not starting
	if err := s.startEgress(life); err != nil {
		return err
	}
	s.opts.Say("Starting etcd, kube-apiserver, kube-controller-manager and kube-scheduler")
	if s.plane, err = controlplane.Start(ctx, s.planeOptions(binary)); err != nil {
		return fmt.Errorf("start the control plane: %w\n%s", err, s.planeHint())
	}
	seconds := s.clk.Since(s.started).Seconds()
	s.status.serving(s.plane.URL(), seconds)
	s.opts.Say("API server ready after %.1fs at %s", seconds, s.plane.URL())
	if err := s.connect(); err != nil {
		return err
	}
	if err := s.startFront(life); err != nil {
		return err
	}
	if err := s.startAzure(life); err != nil {
		return err
	}
	if err := s.seed(ctx); err != nil {
		return fmt.Errorf("seed the world: %w", err)
	}
	return s.waitReady(ctx)
}

// planeHint says what to do when the control plane does not start.
func (s *supervisor) planeHint() string {
	if path := os.Getenv(controlplane.BinaryEnv); path != "" {
		return fmt.Sprintf("%s names %s: unset it to use the one that is built from the sources", controlplane.BinaryEnv, path)
	}
	return fmt.Sprintf("if its data are damaged, begin anew with `millwright down --purge --dir %s`", s.dir.path)
}

// module is the folder of the control plane's sources: the one that was named,
// else the one of the checkout that this program was built in, so that it runs
// from any folder; else empty, which searches from the working directory.
func (s *supervisor) module() string {
	if s.opts.Module != "" {
		return s.opts.Module
	}
	own := filepath.Join(filepath.Dir(s.binDir), "devplane")
	if _, err := os.Stat(filepath.Join(own, "go.mod")); err != nil {
		return ""
	}
	return own
}

func (s *supervisor) planeOptions(binary string) controlplane.Options {
	o := controlplane.Options{
		Dir: s.dir.join("controlplane"), Binary: binary, EgressSocket: s.egressSocket(),
		ControllerManager: true, Scheduler: true, ServiceCIDR: simworld.ServiceCIDR,
		NodeMonitorGrace: s.nodeMonitorGrace(), Log: s.opts.Say, Clock: s.clk,
	}
	if s.opts.Audit {
		o.AuditLog = s.dir.join("logs", "audit.log")
	}
	return o
}

// nodeMonitorGrace leaves room for three Leases of the slowest kubelets.
func (s *supervisor) nodeMonitorGrace() time.Duration {
	if s.opts.Machines == MachinesHollow {
		return 3 * hollowLeases
	}
	return nodeMonitorGrace
}

func (s *supervisor) egressSocket() string {
	return filepath.Join(socketDir(s.dir.path), "egress.sock")
}

func (s *supervisor) startEgress(life context.Context) error {
	if err := os.MkdirAll(s.dir.join("logs"), 0o755); err != nil {
		return fmt.Errorf("make log directory: %w", err)
	}
	s.egress = kubelet.NewEgress(s.egressSocket())
	go func() {
		if err := s.egress.Serve(life); err != nil && life.Err() == nil {
			s.opts.Say("Egress proxy ended: %v", err)
		}
	}()
	return nil
}

// connect makes the admin client and writes the kubeconfig.
func (s *supervisor) connect() error {
	s.admin = s.plane.Admin()
	if err := writeFile(s.dir.join("kubeconfig"), s.plane.AdminKubeconfig(), 0o600); err != nil {
		return err
	}
	var err error
	s.kube, err = client.New(s.admin, client.Options{Scheme: newScheme()})
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	s.params = simworld.Params{
		InfraID: s.dir.state.InfraID, ClusterID: s.dir.state.ClusterID, ClientSecret: s.dir.state.ClientSecret,
		Version: ClusterVersion, APIServer: s.plane.URL(), Workers: s.opts.Workers, VMSize: "Standard_D4s_v3",
	}
	return nil
}

// stop ends everything in reverse order; it is safe half-way through start.
func (s *supervisor) stop(cancel context.CancelFunc) {
	ctx, done := context.WithTimeout(context.Background(), stopWait/2)
	defer done()
	if s.hyper != nil {
		s.hyper.Stop()
	}
	if s.plane != nil {
		if err := s.plane.Stop(ctx); err != nil {
			s.opts.Say("Stop the control plane: %v", err)
		}
	}
	cancel()
	if s.azure != nil {
		if err := s.azure.Close(); err != nil {
			s.opts.Say("Save the simulated Azure: %v", err)
		}
	}
	_ = os.RemoveAll(socketDir(s.dir.path))
}

// findBinaries returns the folder of this program, where its siblings are.
func findBinaries() (string, error) {
	exe, err := os.Executable()
	if err == nil {
		exe, err = filepath.EvalSymlinks(exe)
	}
	if err != nil {
		return "", fmt.Errorf("find own program: %w", err)
	}
	dir := filepath.Dir(exe)
	if _, err := os.Stat(filepath.Join(dir, "millwright-manager")); err != nil {
		return "", fmt.Errorf("millwright-manager is not beside %s: build all programs with `make build`", exe)
	}
	return dir, nil
}

func writeFile(path string, body []byte, mode os.FileMode) error {
	if err := os.WriteFile(path+".new", body, mode); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// serve runs an HTTP server until ctx ends.
func serve(ctx context.Context, l net.Listener, h http.Handler, log logr.Logger) {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		_ = srv.Close()
	}()
	go func() {
		if err := srv.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			log.Error(err, "Server ended", "address", l.Addr().String())
		}
	}()
}

// sayWriter turns written lines into said lines.
type sayWriter struct{ say func(string, ...any) }

var _ io.Writer = sayWriter{}

func (w sayWriter) Write(p []byte) (int, error) {
	start := 0
	for i, c := range p {
		if c == '\n' {
			w.say("%s", p[start:i])
			start = i + 1
		}
	}
	if start < len(p) {
		w.say("%s", p[start:])
	}
	return len(p), nil
}
