// Package testenv gives a test a real API server: etcd and kube-apiserver of
// the development control plane, with kube-controller-manager on request, and
// the project's definitions installed.
//
// It decides nothing about the tests and touches only a temporary directory
// and loopback ports, so packages run in parallel without clashes. It never
// skips: a control plane that is missing is built, and one that does not start
// fails the test. Only tests may import it.
//
//	func TestMain(m *testing.M) { testenv.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		env := testenv.Start(t)
//		ns := env.Namespace(t)
//		…env.Client.Create(t.Context(), object(ns))…
//	}
package testenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/config"
	"millwright.io/millwright/internal/controlplane"
)

const (
	// nodeGrace keeps Nodes that no kubelet speaks for from being tainted.
	nodeGrace = time.Hour

	installLimit = 2 * time.Minute
	poll         = 50 * time.Millisecond
	stopLimit    = 30 * time.Second
)

// Env is a running API server and an administrator's way in.
type Env struct {
	// Config is a member of system:masters, without a rate limit.
	Config *rest.Config
	Client client.Client
	Plane  *controlplane.Plane

	controllerManager bool
}

// Option changes what Start gives.
type Option func(*settings)

type settings struct {
	controllerManager bool
	families          []string
	crds              []*apiextensionsv1.CustomResourceDefinition
	scheme            *runtime.Scheme
}

// WithControllerManager runs kube-controller-manager too: disruption budgets,
// signing requests, garbage collection and namespace deletion need it.
func WithControllerManager() Option { return func(s *settings) { s.controllerManager = true } }

// WithCRDs installs definitions besides the project's own.
func WithCRDs(crds ...*apiextensionsv1.CustomResourceDefinition) Option {
	return func(s *settings) { s.crds = append(s.crds, crds...) }
}

// WithFamilies installs only these families of the project's definitions (see
// config.CRDs); with no name, none. The default is all of them.
func WithFamilies(family ...string) Option {
	return func(s *settings) { s.families = append([]string{}, family...) }
}

// WithScheme sets the scheme of Client. The default knows Kubernetes, CRDs,
// and the Machine API, Machine Config and config kinds.
func WithScheme(scheme *runtime.Scheme) Option { return func(s *settings) { s.scheme = scheme } }

// server is one running control plane; definitions are added to it as needed.
type server struct {
	plane *controlplane.Plane
	dir   string
	admin client.Client

	mu        sync.Mutex
	installed map[string]bool
}

// shared holds the servers of one process that runs under Main, with and
// without kube-controller-manager. It is package state because testing hands
// nothing from TestMain to the tests.
var shared struct {
	sync.Mutex
	on      bool
	servers map[bool]*server
}

// Main runs a package's tests against one server, which the first Start
// starts, and ends the process with their result.
func Main(m *testing.M) {
	shared.on, shared.servers = true, map[bool]*server{}
	code := m.Run()
	for _, s := range shared.servers {
		if err := s.stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// Start gives t an API server: the package's one under Main, else one of its
// own that ends with t.
func Start(t testing.TB, opts ...Option) *Env {
	t.Helper()
	set := settings{families: config.Families()}
	for _, opt := range opts {
		opt(&set)
	}
	srv, err := serverFor(t, set)
	if err != nil {
		t.Fatalf("start test control plane: %v", err)
	}
	if err := srv.install(t.Context(), set); err != nil {
		t.Fatalf("install definitions: %v", err)
	}
	if set.scheme == nil {
		if set.scheme, err = Scheme(); err != nil {
			t.Fatal(err)
		}
	}
	admin := srv.plane.Admin()
	c, err := client.New(admin, client.Options{Scheme: set.scheme})
	if err != nil {
		t.Fatalf("make client: %v", err)
	}
	env := &Env{Config: admin, Client: c, Plane: srv.plane, controllerManager: set.controllerManager}
	env.waitAccount(t, "default")
	return env
}

func serverFor(t testing.TB, set settings) (*server, error) {
	shared.Lock()
	defer shared.Unlock()
	if srv := shared.servers[set.controllerManager]; srv != nil {
		return srv, nil
	}
	// A shared server outlives the test that happens to be first.
	ctx := t.Context()
	if shared.on {
		ctx = context.WithoutCancel(ctx)
	}
	srv, err := startServer(ctx, set.controllerManager)
	if err != nil {
		return nil, err
	}
	if shared.on {
		shared.servers[set.controllerManager] = srv
		return srv, nil
	}
	t.Cleanup(func() {
		if err := srv.stop(); err != nil {
			t.Error(err)
		}
	})
	return srv, nil
}

func startServer(ctx context.Context, controllerManager bool) (*server, error) {
	binary, err := controlplane.Ensure(ctx, "", os.Stderr)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "millwright-testenv-")
	if err != nil {
		return nil, err
	}
	plane, err := controlplane.Start(ctx, controlplane.Options{
		Dir: dir, Binary: binary, ControllerManager: controllerManager, NodeMonitorGrace: nodeGrace,
		Log: func(format string, args ...any) { logTo(os.Stderr, format, args...) },
	})
	if err != nil {
		// The directory stays: the error names a log in it.
		return nil, err
	}
	srv := &server{plane: plane, dir: dir, installed: map[string]bool{}}
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return nil, errors.Join(err, srv.stop())
	}
	if srv.admin, err = client.New(plane.Admin(), client.Options{Scheme: scheme}); err != nil {
		return nil, errors.Join(err, srv.stop())
	}
	return srv, nil
}

// logTo prints what goes wrong with the control plane; that it started is no
// news in a test.
func logTo(w io.Writer, format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if !strings.HasPrefix(line, "control plane ready") {
		fmt.Fprintln(w, "testenv: "+line)
	}
}

func (s *server) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if err := s.plane.Stop(ctx); err != nil {
		return fmt.Errorf("stop test control plane: %w", err)
	}
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("remove test directory: %w", err)
	}
	return nil
}

// install adds the wanted definitions that the server lacks and waits until
// they are served.
func (s *server) install(ctx context.Context, set settings) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := set.crds
	if len(set.families) > 0 {
		ours, err := config.CRDs(set.families...)
		if err != nil {
			return err
		}
		wanted = append(ours, wanted...)
	}
	ctx, cancel := context.WithTimeout(ctx, installLimit)
	defer cancel()
	fresh := []string{}
	for _, crd := range wanted {
		if s.installed[crd.Name] {
			continue
		}
		if err := s.admin.Create(ctx, crd.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %s: %w", crd.Name, err)
		}
		fresh = append(fresh, crd.Name)
	}
	for _, name := range fresh {
		if err := s.waitEstablished(ctx, name); err != nil {
			return err
		}
		s.installed[name] = true
	}
	return nil
}

func (s *server) waitEstablished(ctx context.Context, name string) error {
	return until(ctx, func() error {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := s.admin.Get(ctx, types.NamespacedName{Name: name}, crd); err != nil {
			return err
		}
		for _, c := range crd.Status.Conditions {
			if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("%s is not established: %v", name, crd.Status.Conditions)
	})
}

// until polls done until it returns nil or ctx ends.
func until(ctx context.Context, done func() error) error {
	clk := clock.RealClock{}
	for {
		err := done()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-clk.After(poll):
		}
	}
}

// Scheme returns a new scheme with the kinds that the project's tests use.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme,
		configv1.Install, machinev1.Install, machinev1beta1.Install, machineconfigv1.Install,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("build scheme: %w", err)
		}
	}
	return scheme, nil
}

// Namespace makes a namespace of t's own, in which pods can be created if
// there is a controller manager, and deletes it when t ends.
func (e *Env) Namespace(t testing.TB) string {
	t.Helper()
	ns := &corev1.Namespace{}
	ns.GenerateName = "test-"
	if err := e.Client.Create(t.Context(), ns); err != nil {
		t.Fatalf("create namespace: %v", err)
	}
	t.Cleanup(func() {
		if err := e.Client.Delete(context.Background(), ns); err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("delete namespace %s: %v", ns.Name, err)
		}
	})
	e.waitAccount(t, ns.Name)
	return ns.Name
}

// waitAccount waits for the ServiceAccount without which no pod can be made in
// namespace. Without a controller manager nobody makes it, so there it is made.
func (e *Env) waitAccount(t testing.TB, namespace string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), installLimit)
	defer cancel()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: namespace}}
	if !e.controllerManager {
		err := until(ctx, func() error {
			err := e.Client.Create(ctx, account.DeepCopy())
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err // the namespace default appears a moment after the server
		})
		if err != nil {
			t.Fatalf("create service account of %s: %v", namespace, err)
		}
		return
	}
	err := until(ctx, func() error { return e.Client.Get(ctx, client.ObjectKeyFromObject(account), account) })
	if err != nil {
		t.Fatalf("wait for service account of %s: %v", namespace, err)
	}
}
