package world

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"time"

	ignition "github.com/coreos/ignition/v2/config/v3_5"
	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineconfig/firstboot"
	"millwright.io/millwright/internal/dialect/machineconfig/generator"
	"millwright.io/millwright/internal/dialect/machineconfig/poolconfig"
	"millwright.io/millwright/internal/dialect/machineconfig/render"
	"millwright.io/millwright/internal/dialect/machineconfig/template"
	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	engine "millwright.io/millwright/internal/engine/firstboot"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/memapi"
	"millwright.io/millwright/internal/sim/vm"
	simworld "millwright.io/millwright/internal/sim/world"
)

// bootstrapRounds bounds how long the controllers are stepped in memory: each
// object is done after a few rounds.
const bootstrapRounds = 40

// ignitionVersion is what the images of this world read.
const ignitionVersion = "3.5.0"

// rendered are the configs that the cluster's own controllers will make of what an
// installer leaves, by pool. The same controllers make them here, on an API in
// memory, because the machines that will run the controllers boot with them.
func (s *supervisor) rendered(ctx context.Context) (map[string]*machineconfigv1.MachineConfig, machineconfigv1.ControllerConfigSpec, error) {
	var none machineconfigv1.ControllerConfigSpec
	objects, err := simworld.MachineConfig(s.params, s.plane.CA().CertPEM)
	if err != nil {
		return nil, none, err
	}
	clk := clocktesting.NewFakeClock(s.clk.Now())
	api := memapi.New(newScheme(), clk, objects...)
	rec := events.NewFakeRecorder(1000)
	controllers := []kube.Controller{
		template.New(template.Deps{Client: api, Live: api, Clock: clk, Log: logr.Discard()}),
		poolconfig.New(poolconfig.Deps{Client: api, Live: api, Clock: clk, Recorder: rec, Log: logr.Discard()}),
		render.New(render.Deps{Client: api, Live: api, Clock: clk, Recorder: rec, Log: logr.Discard()}),
	}
	controllers = append(controllers, generator.All(generator.Deps{Client: api, Live: api, Clock: clk, Log: logr.Discard()})...)
	quiet := 0
	for round := 0; quiet < 4; round++ {
		if round == bootstrapRounds {
			return nil, none, fmt.Errorf("the installer's configs do not come to rest in %d rounds", bootstrapRounds)
		}
		before := api.Writes()
		for _, c := range controllers {
			for _, key := range bootstrapKeys(c) {
				if _, err := c.Step(ctx, key); err != nil {
					return nil, none, fmt.Errorf("%s: %w", c.Name, err)
				}
			}
		}
		clk.Step(time.Second)
		if quiet++; api.Writes() != before {
			quiet = 0
		}
	}
	return collectRendered(ctx, api)
}

func bootstrapKeys(c kube.Controller) []client.ObjectKey {
	switch c.For.(type) {
	case *machineconfigv1.MachineConfigPool:
		return []client.ObjectKey{{Name: "master"}, {Name: "worker"}}
	case *machineconfigv1.ControllerConfig:
		return []client.ObjectKey{{Name: wire.ControllerConfig}}
	default:
		return nil // an installer leaves none
	}
}

func collectRendered(ctx context.Context, api client.Reader) (map[string]*machineconfigv1.MachineConfig, machineconfigv1.ControllerConfigSpec, error) {
	var cc machineconfigv1.ControllerConfig
	if err := api.Get(ctx, client.ObjectKey{Name: wire.ControllerConfig}, &cc); err != nil {
		return nil, cc.Spec, err
	}
	out := map[string]*machineconfigv1.MachineConfig{}
	for _, name := range []string{"master", "worker"} {
		var pool machineconfigv1.MachineConfigPool
		if err := api.Get(ctx, client.ObjectKey{Name: name}, &pool); err != nil {
			return nil, cc.Spec, err
		}
		var mc machineconfigv1.MachineConfig
		if err := api.Get(ctx, client.ObjectKey{Name: pool.Spec.Configuration.Name}, &mc); err != nil {
			return nil, cc.Spec, fmt.Errorf("render pool %s: %w", name, err)
		}
		out[name] = &mc
	}
	return out, cc.Spec, nil
}

// seedFirstBoot makes what new machines need to reach the config server, with the
// controller that keeps it afterwards.
func (s *supervisor) seedFirstBoot(ctx context.Context) error {
	c := firstboot.New(firstboot.Deps{Client: s.kube, Clock: s.clk, Log: s.opts.Log})
	if _, err := c.Step(ctx, client.ObjectKey{Name: wire.Cluster}); err != nil {
		return fmt.Errorf("make certificates and tokens of first boots: %w", err)
	}
	objects := []client.Object{
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: wire.Namespace, Name: simworld.NodeBootstrapper + "-token",
				Annotations: map[string]string{corev1.ServiceAccountNameKey: simworld.NodeBootstrapper}},
			Type: corev1.SecretTypeServiceAccountToken,
		},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: wire.Namespace, Name: "kubeconfig-data"},
			BinaryData: map[string][]byte{"ca-bundle.crt": s.admin.CAData}},
	}
	for _, role := range []string{"master", "worker"} {
		var managed corev1.Secret
		if err := s.kube.Get(ctx, client.ObjectKey{Namespace: simworld.NamespaceMachineAPI, Name: role + "-user-data-managed"}, &managed); err != nil {
			return fmt.Errorf("read user data of %s: %w", role, err)
		}
		objects = append(objects, simworld.UserDataSecret(role, managed.Data["userData"]))
	}
	return s.createAll(ctx, objects)
}

// masterIgnition is the whole config of a control plane machine of the installer's:
// there is no config server yet to fetch it from.
func masterIgnition(mc *machineconfigv1.MachineConfig, cc machineconfigv1.ControllerConfigSpec, kubeconfig []byte, certs []simworld.File) ([]byte, error) {
	body, err := engine.Build(engine.Served{Config: mc, Controller: cc, Kubeconfig: kubeconfig, Version: ignitionVersion})
	if err != nil {
		return nil, err
	}
	own, err := simworld.Ignition(certs...)
	if err != nil {
		return nil, err
	}
	base, _, err := ignition.Parse(body)
	if err != nil {
		return nil, fmt.Errorf("read config of %s: %w", mc.Name, err)
	}
	more, _, err := ignition.ParseCompatibleVersion(own)
	if err != nil {
		return nil, fmt.Errorf("read certificates' config: %w", err)
	}
	base.Storage.Files = append(base.Storage.Files, more.Storage.Files...)
	raw, err := json.Marshal(base)
	if err != nil {
		return nil, fmt.Errorf("encode config of %s: %w", mc.Name, err)
	}
	return raw, nil
}

// fetcher leads machines' first requests to the config servers on the control plane
// machines: the load balancer behind api-int.
func (s *supervisor) fetcher() *vm.Fetcher {
	return &vm.Fetcher{Clock: s.clk, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		if host != s.params.InternalHost() || port != strconv.Itoa(engine.Port) {
			return nil, fmt.Errorf("dial %s: no such host in this world", address)
		}
		last := fmt.Errorf("dial %s: no control plane machine is up", address)
		for _, r := range s.hyper.List() {
			if !s.isMaster(r.Name) || r.Stage != vm.StageUp {
				continue
			}
			var d net.Dialer
			conn, err := d.DialContext(ctx, network, net.JoinHostPort(s.hyper.BindIP(r.Number), port))
			if err == nil {
				return conn, nil
			}
			last = err
		}
		return nil, last
	}}
}

// infrastructureReady tells that the object which stubs name their host by has its
// status: it is written after the object.
func (s *supervisor) infrastructureReady(ctx context.Context) error {
	return poll(ctx, 20*time.Millisecond, time.Minute, func() (bool, error) {
		var infra configv1.Infrastructure
		err := s.kube.Get(ctx, client.ObjectKey{Name: wire.Cluster}, &infra)
		return err == nil && infra.Status.APIServerInternalURL != "", client.IgnoreNotFound(err)
	})
}
