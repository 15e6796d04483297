// Package manager is the composition root of millwright-manager: it names the
// controllers that the binary holds and wires those that were asked for to
// one API server and to the clouds. Wiring only; no rules.
package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"millwright.io/millwright/internal/dialect/machineapi/controlplane"
	"millwright.io/millwright/internal/kube"
)

// Options are the process's settings.
type Options struct {
	Controllers []string // names; see Names
	Namespace   string   // of Leases and, for the Machine API, of everything
	LeaderElect bool
	LeaseName   string // empty: derived from the first controller
	HealthAddr  string // host:port; empty: not served
	MetricsAddr string
	WebhookAddr string
	Admission   []string // RULE=MODE
	Verbosity   int
}

// UsageError is a mistake in the call: exit code 2.
type UsageError struct{ Message string }

func (e *UsageError) Error() string { return e.Message }

// setup wires one controller into a manager.
type setup func(e env) error

// env is what wiring may use.
type env struct {
	ctx   context.Context
	mgr   ctrlmanager.Manager
	cfg   *rest.Config
	opts  Options
	clk   clock.Clock
	log   logr.Logger
	cloud cloudEnv
}

// table lists the controllers under their known names and the Leases under
// which their originals elect.
var table = map[string]struct {
	setup setup
	lease string
}{
	"machineset-controller":             {setupMachineSet, "cluster-api-provider-machineset-leader"},
	"machine-controller":                {setupMachine, "cluster-api-provider-azure-leader"},
	"nodelink-controller":               {setupNodeLink, "cluster-api-provider-nodelink-leader"},
	"machine-healthcheck-controller":    {setupHealthCheck, "cluster-api-provider-healthcheck-leader"},
	"machine-approver-controller":       {setupApprover, "cluster-machine-approver-leader"},
	"node-client-approver":              {setupNodeClientApprover, "cluster-machine-approver-leader"},
	"cloud-node-controller":             {setupCloudNode("cloud-node-controller"), "cloud-controller-manager"},
	controlplane.Controller:             {setupControlPlane, "control-plane-machine-set-leader"},
	"machine-api-operator":              {setupOperator("machine-api-operator"), "machine-api-operator"},
	"cloud-controller-manager-operator": {setupOperator("cloud-controller-manager-operator"), "cluster-cloud-controller-manager-leader"},
	"cloud-node-lifecycle-controller":   {setupCloudNode("cloud-node-lifecycle-controller"), "cloud-controller-manager"},
	"machine-config-controller":         {setupMachineConfig, "machine-config-controller"},
	"machine-config-operator":           {setupMachineConfigOperator, "machine-config"},
	"webhook":                           {setupWebhook, ""},
}

// Names lists the controllers that the binary holds, sorted.
func Names() []string {
	names := make([]string, 0, len(table))
	for n := range table {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func (o Options) check() error {
	if len(o.Controllers) == 0 {
		return &UsageError{"--controllers is empty: want one or more of " + strings.Join(Names(), ", ")}
	}
	for _, n := range o.Controllers {
		if _, ok := table[n]; !ok {
			return &UsageError{fmt.Sprintf("--controllers: unknown controller %q: want one or more of %s", n, strings.Join(Names(), ", "))}
		}
	}
	if o.LeaderElect && o.Namespace == "" {
		return &UsageError{"--leader-elect needs --namespace: the Lease lives there"}
	}
	return nil
}

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, configv1.Install, machinev1.Install, machinev1beta1.Install,
		machineconfigv1.Install, operatorv1.Install, operatorv1alpha1.Install} {
		utilruntime.Must(add(s))
	}
	return s
}

// Run runs the controllers until ctx ends. A lost election is an error: the
// process must end, so that nothing of it goes on.
func Run(ctx context.Context, cfg *rest.Config, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	first := o.Controllers[0]
	log := kube.KlogTextTo("", kube.KlogOptions{Out: stderr, Verbosity: quiet(o.Verbosity)})
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	lease := ""
	if o.LeaderElect {
		if lease = o.LeaseName; lease == "" {
			lease = table[first].lease
		}
	}
	mgr, err := kube.NewManager(cfg, kube.ManagerOptions{
		Component: first, Scheme: newScheme(), LeaderElectionID: lease, LeaderElectionNamespace: o.Namespace,
		MetricsAddr: o.MetricsAddr, HealthAddr: o.HealthAddr, ByObject: caches(o.Controllers), Log: log,
	})
	if err != nil {
		return err
	}
	e := env{ctx: ctx, mgr: mgr, cfg: cfg, opts: o, clk: clock.RealClock{}, log: log}
	if e.cloud, err = readCloudEnv(); err != nil {
		return err
	}
	for _, n := range o.Controllers {
		if err := table[n].setup(e); err != nil {
			return fmt.Errorf("set up %s: %w", n, err)
		}
	}
	log.Info("Starting " + strings.Join(o.Controllers, ", "))
	if err := mgr.Start(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("run %s: %w", first, err)
	}
	return nil
}

// quiet maps the originals' --v=3, which they all run with, to our info.
func quiet(v int) int { return max(0, v-3) }
