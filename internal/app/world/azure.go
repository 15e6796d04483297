package world

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"

	"millwright.io/millwright/internal/agent"
	"millwright.io/millwright/internal/host/program"
	"millwright.io/millwright/internal/pki"
	"millwright.io/millwright/internal/provider/azure"
	"millwright.io/millwright/internal/sim/arm"
	"millwright.io/millwright/internal/sim/kubelet"
	"millwright.io/millwright/internal/sim/vm"
	simworld "millwright.io/millwright/internal/sim/world"
)

// Ports on the world's own loopback addresses, where nobody else listens.
const (
	azurePort = 8443
	caLife    = 10 * 365 * 24 * time.Hour
	// hollowLeases is how often hollow nodes renew their Leases: thousands of
	// them at the usual 10 s would be most of what the API server does.
	hollowLeases = 60 * time.Second
	// hollowQuota is enough vCPUs for 10,000 machines of four.
	hollowQuota = 40000
)

// azureAddr is where the simulated Azure listens: 127.w.255.2.
func (s *supervisor) azureAddr() string {
	return net.JoinHostPort(fmt.Sprintf("127.%d.255.2", s.dir.state.World), fmt.Sprint(azurePort))
}

func (s *supervisor) azureURL() string { return "https://" + s.azureAddr() }

// azureOptions are those of a provider that talks to the simulated Azure.
func (s *supervisor) azureOptions() []azure.Option {
	return []azure.Option{azure.WithCloud(s.azureURL(), s.azureURL()), azure.WithCA(s.caPEM)}
}

// cloudEnv is the same for component processes; they read it in
// internal/app/manager.
func (s *supervisor) cloudEnv() map[string]string {
	return map[string]string{
		"AZURE_RESOURCE_MANAGER_ENDPOINT": s.azureURL(),
		"AZURE_AUTHORITY_HOST":            s.azureURL(),
		"AZURE_CA_FILE":                   s.dir.join("sim", "ca.crt"),
	}
}

// startAzure starts the machines' host and the cloud that sells them.
func (s *supervisor) startAzure(life context.Context) error {
	if err := os.MkdirAll(s.dir.join("sim"), 0o700); err != nil {
		return fmt.Errorf("make simulator directory: %w", err)
	}
	tlsConfig, err := s.azureTLS()
	if err != nil {
		return err
	}
	if err := s.startHypervisor(life); err != nil {
		return err
	}
	l, err := net.Listen("tcp", s.azureAddr())
	if err != nil {
		return fmt.Errorf("listen for the simulated Azure: %w", err)
	}
	s.azure, err = arm.New(arm.Config{
		StateFile:      s.dir.join("sim", "azure.json"),
		SubscriptionID: simworld.SubscriptionID, TenantID: simworld.TenantID, ClientID: simworld.ClientID, ClientSecret: s.dir.state.ClientSecret,
		Location: simworld.Region, Clock: s.clk, CreateDelay: s.opts.VMDelay, DeleteDelay: s.opts.VMDelay,
		Machines: hardware{s}, TLS: tlsConfig, Log: s.opts.Log,
	})
	if err != nil {
		return fmt.Errorf("start the simulated Azure: %w", err)
	}
	if err := s.azure.Seed(arm.Seed{InfraID: s.params.InfraID, MasterPrefix: simworld.MasterSubnet, WorkerPrefix: simworld.WorkerSubnet}); err != nil {
		return fmt.Errorf("seed the simulated Azure: %w", err)
	}
	if s.opts.Machines == MachinesHollow {
		// A subscription that thousands of machines fit into.
		for _, scope := range []string{"cores", "standardDSv3Family"} {
			if err := s.azure.SetQuota(scope, hollowQuota); err != nil {
				return fmt.Errorf("raise quota: %w", err)
			}
		}
	}
	go func() {
		if err := s.azure.Serve(life, l); err != nil {
			s.opts.Say("The simulated Azure ended: %v", err)
		}
	}()
	s.opts.Say("Simulated Azure at %s", s.azureURL())
	return nil
}

// startHypervisor makes the machines' host. Control plane machines always
// have a root, since real processes run on them.
func (s *supervisor) startHypervisor(life context.Context) error {
	node := vm.ConfigNode{
		BinDir: s.binDir, LogDir: s.dir.join("logs", "pods"), PodDir: s.dir.join("pods"), Network: s.egress,
		NodeClientDelay: s.opts.NodeClientDelay, KubeletVersion: "v1.37.2", Clock: s.clk, Log: s.opts.Log,
	}
	cfg := vm.Config{
		Dir: s.dir.path, World: s.dir.state.World, BootDelay: s.bootDelay, Busybox: findBusybox(), Clock: s.clk, Log: s.opts.Log, Joiner: &node,
		Standin: s.findStandin(), Fetcher: s.fetcher(),
	}
	if s.opts.Machines == MachinesHollow {
		pool, err := kubelet.NewHollow(kubelet.PoolConfig{Rest: s.admin, Impersonate: true, LeaseInterval: hollowLeases, Log: s.opts.Log, Clock: s.clk})
		if err != nil {
			return fmt.Errorf("start hollow nodes: %w", err)
		}
		go func() {
			if err := pool.Run(life); err != nil && life.Err() == nil {
				s.opts.Say("Hollow nodes ended: %v", err)
			}
		}()
		cfg.Hollow = func(h vm.Hardware) bool { return !s.isMaster(h.Name) }
		agents, err := agent.NewPool(agent.PoolConfig{Rest: s.admin, Clock: s.clk, Log: quiet{}})
		if err != nil {
			return fmt.Errorf("start agents of hollow nodes: %w", err)
		}
		go s.runAgents(life, agents)
		cfg.HollowJoiner = &vm.HollowNode{ConfigNode: node, Pool: pool, Agents: agents}
	}
	var err error
	if s.opts.Machines == MachinesNspawn {
		if cfg.Nspawn, err = s.nspawn(life); err != nil {
			return err
		}
	}
	if s.hyper, err = vm.New(life, cfg); err != nil {
		return fmt.Errorf("start machines: %w", err)
	}
	return nil
}

// runAgents runs the agents of hollow nodes once the kinds they watch are served.
func (s *supervisor) runAgents(life context.Context, agents *agent.Pool) {
	err := poll(life, time.Second, firstReady, func() (bool, error) {
		return s.kube.List(life, &machineconfigv1.ControllerConfigList{}) == nil, nil
	})
	if err == nil {
		err = agents.Run(life)
	}
	if err != nil && life.Err() == nil {
		s.opts.Say("Agents of hollow nodes ended: %v", err)
	}
}

// quiet drops the lines of thousands of agents; their Nodes tell how they are.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}

func (s *supervisor) isMaster(name string) bool {
	return strings.HasPrefix(name, s.params.InfraID+"-master-")
}

// bootDelay spares an installer's machines: they have been up for long when a
// world begins.
func (s *supervisor) bootDelay(h vm.Hardware) time.Duration {
	if _, ok := s.seeded.LoadAndDelete(h.Name); ok {
		return 0
	}
	return s.opts.BootDelay
}

// azureTLS returns the server's side and keeps the CA beside the state.
func (s *supervisor) azureTLS() (*tls.Config, error) {
	ca, err := s.loadCA()
	if err != nil {
		return nil, err
	}
	s.caPEM = ca.CertPEM
	host, _, err := net.SplitHostPort(s.azureAddr())
	if err != nil {
		return nil, err
	}
	certPEM, keyPEM, err := ca.Issue(pki.Leaf{CommonName: "management.azure.com", DNSNames: []string{"management.azure.com"}, IPs: []net.IP{net.ParseIP(host)}, Server: true, TTL: caLife})
	if err != nil {
		return nil, fmt.Errorf("issue certificate of the simulated Azure: %w", err)
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("load certificate of the simulated Azure: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, nil
}

func (s *supervisor) loadCA() (*pki.CA, error) {
	certFile, keyFile := s.dir.join("sim", "ca.crt"), s.dir.join("sim", "ca.key")
	certPEM, errCert := os.ReadFile(certFile)
	keyPEM, errKey := os.ReadFile(keyFile)
	if errCert == nil && errKey == nil {
		return pki.LoadCA(certPEM, keyPEM)
	}
	ca, err := pki.NewCA("millwright simulated clouds", caLife, s.clk)
	if err != nil {
		return nil, err
	}
	if err := writeFile(keyFile, ca.KeyPEM, 0o600); err != nil {
		return nil, err
	}
	return ca, writeFile(certFile, ca.CertPEM, 0o644)
}

func findBusybox() string {
	for _, p := range []string{"/bin/busybox", "/usr/bin/busybox"} {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	return ""
}

// findStandin is what answers for rpm-ostree and systemctl on the machines; "" when
// it was not built.
func (s *supervisor) findStandin() string {
	p := filepath.Join(s.binDir, program.Standin)
	if _, err := os.Stat(p); err != nil {
		return ""
	}
	return p
}

// hardware turns the cloud's news into power switches.
type hardware struct{ s *supervisor }

func (h hardware) Create(v arm.VM) {
	if v.Power != arm.PowerRunning && v.Power != arm.PowerStarting {
		return
	}
	err := h.s.hyper.PowerOn(vm.Hardware{
		UUID: v.UUID, Name: v.ComputerName, Cloud: "azure", Size: v.Size, Location: v.Location, Zone: v.Zone,
		PrivateIP: v.PrivateIP, VCPUs: v.VCPUs, MemoryMiB: int64(v.MemoryMiB), UserData: v.CustomData, CreatedAt: v.CreatedAt,
	})
	if err != nil {
		h.s.opts.Say("Power on %s: %v", v.Name, err)
	}
}

func (h hardware) Power(id string, on bool) {
	if !on {
		if err := h.s.hyper.PowerOff(id); err != nil {
			h.s.opts.Say("Power off %s: %v", id, err)
		}
		return
	}
	for _, v := range h.s.azure.VMs() {
		if v.UUID == id {
			v.Power = arm.PowerRunning
			h.Create(v)
		}
	}
}

func (h hardware) Delete(id string) {
	if err := h.s.hyper.Remove(id); err != nil {
		h.s.opts.Say("Delete machine %s: %v", id, err)
	}
}
