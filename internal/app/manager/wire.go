package manager

import (
	"context"
	"fmt"
	"os"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/cloudnode"
	"millwright.io/millwright/internal/dialect/machineapi/approver"
	"millwright.io/millwright/internal/dialect/machineapi/controlplane"
	"millwright.io/millwright/internal/dialect/machineapi/healthcheck"
	"millwright.io/millwright/internal/dialect/machineapi/machine"
	"millwright.io/millwright/internal/dialect/machineapi/machineset"
	"millwright.io/millwright/internal/dialect/machineapi/nodelink"
	"millwright.io/millwright/internal/operator"
	"millwright.io/millwright/internal/provider/azure"
	azurespec "millwright.io/millwright/internal/provider/azure/spec"
	"millwright.io/millwright/internal/version"
)

var stderr = os.Stderr

const namespaceMachineAPI = "openshift-machine-api"

// caches restricts what the processes hold: Machines of one namespace only,
// and what machineConfigCaches says.
func caches(controllers []string) map[client.Object]cache.ByObject {
	machineAPI := cache.ByObject{Namespaces: map[string]cache.Config{namespaceMachineAPI: {}}}
	out := map[client.Object]cache.ByObject{
		&machinev1beta1.Machine{}:            machineAPI,
		&machinev1beta1.MachineSet{}:         machineAPI,
		&machinev1beta1.MachineHealthCheck{}: machineAPI,
		&machinev1.ControlPlaneMachineSet{}:  machineAPI,
	}
	machineConfigCaches(controllers, out)
	firstBootCaches(controllers, out)
	return out
}

// cloudEnv says where the cloud is when it is not the public one.
type cloudEnv struct {
	endpoint, authority string
	ca                  []byte
}

// readCloudEnv reads AZURE_RESOURCE_MANAGER_ENDPOINT, AZURE_AUTHORITY_HOST
// and AZURE_CA_FILE. Without them the provider talks to the public cloud.
func readCloudEnv() (cloudEnv, error) {
	c := cloudEnv{endpoint: os.Getenv("AZURE_RESOURCE_MANAGER_ENDPOINT"), authority: os.Getenv("AZURE_AUTHORITY_HOST")}
	if file := os.Getenv("AZURE_CA_FILE"); file != "" {
		var err error
		if c.ca, err = os.ReadFile(file); err != nil {
			return c, fmt.Errorf("read AZURE_CA_FILE: %w", err)
		}
	}
	return c, nil
}

func (c cloudEnv) opener() cloud.Opener {
	var opts []azure.Option
	if c.endpoint != "" {
		opts = append(opts, azure.WithCloud(c.endpoint, c.authority))
	}
	if len(c.ca) > 0 {
		opts = append(opts, azure.WithCA(c.ca))
	}
	return azure.NewOpener(opts...)
}

// setupMachineSet also counts Machines and sets, which it has in its cache.
func setupMachineSet(e env) error {
	if err := machine.RegisterCollector(metrics.Registry, e.mgr.GetClient()); err != nil {
		return err
	}
	return machineset.New(machineset.Deps{
		Client: e.mgr.GetClient(), Live: e.mgr.GetAPIReader(), Clock: e.clk,
		Recorder: e.mgr.GetEventRecorder("machineset-controller"), Log: e.log,
	}).Setup(e.mgr)
}

// setupMachine runs, beside the Machines, what tells autoscalers about their
// sets: both ask the cloud.
func setupMachine(e env) error {
	if err := machineset.NewCapacity(machineset.CapacityDeps{
		Client: e.mgr.GetClient(), Live: e.mgr.GetAPIReader(), Clock: e.clk, Opener: e.cloud.opener(), Codec: azurespec.Codec{},
		Recorder: e.mgr.GetEventRecorder("azure-controller"), Log: e.log,
	}).Setup(e.mgr); err != nil {
		return err
	}
	m, err := machine.NewMetrics(metrics.Registry)
	if err != nil {
		return err
	}
	return machine.New(machine.Deps{
		Client: e.mgr.GetClient(), Live: e.mgr.GetAPIReader(), Clock: e.clk,
		Opener: e.cloud.opener(), Codec: azurespec.Codec{}, ProviderStatus: azurespec.Status, Metrics: m,
		Recorder: e.mgr.GetEventRecorder("azure-controller"), Log: e.log,
	}).Setup(e.mgr)
}

func setupNodeLink(e env) error {
	return nodelink.New(nodelink.Deps{
		Client: e.mgr.GetClient(), Clock: e.clk, Log: e.log,
	}).Setup(e.mgr)
}

func setupControlPlane(e env) error {
	for _, c := range controlplane.New(controlplane.Deps{
		Client: e.mgr.GetClient(), Live: e.mgr.GetAPIReader(), Codec: azurespec.Codec{}, Clock: e.clk, Log: e.log, Version: version.Version,
	}) {
		if err := c.Setup(e.mgr); err != nil {
			return err
		}
	}
	return nil
}

func setupHealthCheck(e env) error {
	m, err := healthcheck.NewMetrics(metrics.Registry)
	if err != nil {
		return err
	}
	return healthcheck.New(healthcheck.Deps{
		Client: e.mgr.GetClient(), Live: e.mgr.GetAPIReader(), Clock: e.clk, Metrics: m,
		Recorder: e.mgr.GetEventRecorder("machinehealthcheck-controller"), Log: e.log,
	}).Setup(e.mgr)
}

func setupApprover(e env) error {
	if err := approver.RegisterMetrics(metrics.Registry, e.mgr.GetClient(), e.clk); err != nil {
		return err
	}
	return approver.NewMachine(approver.Deps{
		Client: e.mgr.GetClient(), Live: e.mgr.GetAPIReader(), Clock: e.clk,
		Recorder: e.mgr.GetEventRecorder("machine-approver-controller"), Log: e.log, Dial: kubeletDialer(),
	}).Setup(e.mgr)
}

func setupNodeClientApprover(e env) error {
	return approver.NewNodeClient(approver.Deps{
		Client: e.mgr.GetClient(), Live: e.mgr.GetAPIReader(), Clock: e.clk,
		Recorder: e.mgr.GetEventRecorder("node-client-approver"), Log: e.log,
	}).Setup(e.mgr)
}

// setupOperator keeps the ClusterOperators of that controller.
func setupOperator(name string) setup {
	return func(e env) error { return operator.New(name, e.mgr.GetClient(), e.clk).Setup(e.mgr) }
}

// setupCloudNode runs one of cloudnode's loops beside the manager's election.
func setupCloudNode(name string) setup {
	return func(e env) error {
		return e.mgr.Add(leading(func(ctx context.Context) error {
			p, err := cloudNodeProvider(ctx, e)
			if err != nil {
				return err
			}
			return cloudnode.Run(ctx, name, e.cfg, p)
		}))
	}
}

// cloudNodeProvider finds the cluster's name and opens the cloud with the
// credentials of the process's own namespace at each use.
func cloudNodeProvider(ctx context.Context, e env) (*cloudnode.Provider, error) {
	live := e.mgr.GetAPIReader()
	var infra configv1.Infrastructure
	if err := live.Get(ctx, client.ObjectKey{Name: "cluster"}, &infra); err != nil {
		return nil, fmt.Errorf("read infrastructure: %w", err)
	}
	if infra.Status.PlatformStatus == nil || !strings.EqualFold(string(infra.Status.PlatformStatus.Type), "Azure") {
		return nil, fmt.Errorf("infrastructure/cluster: platform %v: only Azure is supported", infra.Status.PlatformStatus)
	}
	opener := e.cloud.opener()
	open := func(ctx context.Context) (cloud.Cloud, error) {
		var s corev1.Secret
		key := client.ObjectKey{Namespace: e.opts.Namespace, Name: "azure-cloud-credentials"}
		if err := live.Get(ctx, key, &s); err != nil {
			return nil, fmt.Errorf("read credentials: %w", err)
		}
		account := cloud.Account{Source: key.String(), Data: map[string]cloud.Secret{}}
		for k, v := range s.Data {
			account.Data[k] = v
		}
		return opener.Open(ctx, account)
	}
	return cloudnode.New("azure", cloud.Owner(infra.Status.InfrastructureName), open, e.clk), nil
}

// leading is a runnable that runs only on the leader.
type leading func(context.Context) error

var _ ctrlmanager.LeaderElectionRunnable = leading(nil)

// Start implements manager.Runnable.
func (l leading) Start(ctx context.Context) error { return l(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (leading) NeedLeaderElection() bool { return true }
