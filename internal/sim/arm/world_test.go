package arm

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	arms "github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v8"
	"k8s.io/utils/ptr"
)

const (
	testSub    = "00000000-0000-4000-8000-000000000001"
	testTenant = "00000000-0000-4000-8000-0000000000ff"
	testRG     = "demo-x7k2p-rg"
	testNet    = "/subscriptions/" + testSub + "/resourceGroups/" + testRG + "/providers/Microsoft.Network/"
	testImage  = "/subscriptions/" + testSub + "/resourceGroups/" + testRG + "/providers/Microsoft.Compute/galleries/gallery_demo_x7k2p/images/demo-x7k2p-gen2/versions/latest"
)

// hardware remembers what it was told.
type hardware struct {
	mu    sync.Mutex
	on    map[string]bool // by VM name
	names map[string]string
	vms   map[string]VM
}

func newHardware() *hardware {
	return &hardware{on: map[string]bool{}, names: map[string]string{}, vms: map[string]VM{}}
}

func (h *hardware) Create(vm VM) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.on[vm.Name], h.names[vm.UUID], h.vms[vm.Name] = vm.Power == PowerRunning, vm.Name, vm
}

func (h *hardware) Power(id string, on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.on[h.names[id]] = on
}

func (h *hardware) Delete(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.on, h.names[id])
}

func (h *hardware) state(name string) (on, exists bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	on, exists = h.on[name]
	return on, exists
}

// world is a server behind TLS with the official clients in front.
type world struct {
	t    *testing.T
	srv  *Server
	web  *httptest.Server
	hw   *hardware
	cfg  Config
	cred azcore.TokenCredential
	opts *arms.ClientOptions
}

func newWorld(t *testing.T, change func(*Config)) *world {
	t.Helper()
	w := &world{t: t, hw: newHardware()}
	w.cfg = Config{
		StateFile: filepath.Join(t.TempDir(), "azure.json"), SubscriptionID: testSub, TenantID: testTenant, ClientID: "client", ClientSecret: "secret",
		CreateDelay: 40 * time.Millisecond, DeleteDelay: 40 * time.Millisecond, Machines: w.hw,
	}
	if change != nil {
		change(&w.cfg)
	}
	w.start()
	if err := w.srv.Seed(Seed{InfraID: "demo-x7k2p"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.web.Close()
		if err := w.srv.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) start() {
	w.t.Helper()
	srv, err := New(w.cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.srv, w.web = srv, httptest.NewTLSServer(srv.Handler())
	w.opts = w.options(0)
	w.cred = w.credential(testTenant, "secret")
}

// restart closes the server and starts another on the same state file.
func (w *world) restart() {
	w.t.Helper()
	w.web.Close()
	if err := w.srv.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.start()
}

func (w *world) options(retries int32) *arms.ClientOptions {
	if retries == 0 {
		retries = -1
	}
	return &arms.ClientOptions{DisableRPRegistration: true, ClientOptions: policy.ClientOptions{
		Transport: w.web.Client(), Retry: policy.RetryOptions{MaxRetries: retries, RetryDelay: time.Millisecond},
		Cloud: cloud.Configuration{ActiveDirectoryAuthorityHost: w.web.URL + "/", Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
			cloud.ResourceManager: {Endpoint: w.web.URL, Audience: "https://management.core.windows.net/"},
		}},
	}}
}

func (w *world) credential(tenant, secret string) azcore.TokenCredential {
	w.t.Helper()
	cred, err := azidentity.NewClientSecretCredential(tenant, "client", secret, &azidentity.ClientSecretCredentialOptions{ClientOptions: w.opts.ClientOptions, DisableInstanceDiscovery: true})
	if err != nil {
		w.t.Fatal(err)
	}
	return cred
}

func client[T any](w *world, make func(string, azcore.TokenCredential, *arms.ClientOptions) (*T, error)) *T {
	w.t.Helper()
	c, err := make(testSub, w.cred, w.opts)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) vms() *armcompute.VirtualMachinesClient {
	return client(w, armcompute.NewVirtualMachinesClient)
}

func (w *world) nics() *armnetwork.InterfacesClient { return client(w, armnetwork.NewInterfacesClient) }
func (w *world) disks() *armcompute.DisksClient     { return client(w, armcompute.NewDisksClient) }

var fast = &runtime.PollUntilDoneOptions{Frequency: 5 * time.Millisecond}

func (w *world) ctx() context.Context { return w.t.Context() }

func nicBody() armnetwork.Interface {
	return armnetwork.Interface{Location: ptr.To("francecentral"), Properties: &armnetwork.InterfacePropertiesFormat{
		IPConfigurations: []*armnetwork.InterfaceIPConfiguration{{Name: ptr.To("pipConfig"), Properties: &armnetwork.InterfaceIPConfigurationPropertiesFormat{
			Subnet: &armnetwork.Subnet{ID: ptr.To(testNet + "virtualNetworks/demo-x7k2p-vnet/subnets/demo-x7k2p-worker-subnet")},
		}}},
	}}
}

func vmBody(name, size, zone string) armcompute.VirtualMachine {
	return armcompute.VirtualMachine{
		Location: ptr.To("francecentral"), Zones: []*string{&zone}, Tags: map[string]*string{"owner": ptr.To("us")},
		Properties: &armcompute.VirtualMachineProperties{
			Priority: ptr.To(armcompute.VirtualMachinePriorityTypes("")), EvictionPolicy: ptr.To(armcompute.VirtualMachineEvictionPolicyTypes("")),
			HardwareProfile: &armcompute.HardwareProfile{VMSize: ptr.To(armcompute.VirtualMachineSizeTypes(size))},
			OSProfile:       &armcompute.OSProfile{ComputerName: &name, AdminUsername: ptr.To("capi"), AdminPassword: ptr.To("Passw0rd!x"), CustomData: ptr.To(base64.StdEncoding.EncodeToString([]byte("ignition of " + name)))},
			StorageProfile: &armcompute.StorageProfile{
				ImageReference: &armcompute.ImageReference{ID: ptr.To(testImage)},
				OSDisk:         &armcompute.OSDisk{Name: ptr.To(name + "_OSDisk"), CreateOption: ptr.To(armcompute.DiskCreateOptionTypesFromImage), DiskSizeGB: ptr.To[int32](128)},
			},
			NetworkProfile: &armcompute.NetworkProfile{NetworkInterfaces: []*armcompute.NetworkInterfaceReference{{ID: ptr.To(testNet + "networkInterfaces/" + name + "-nic"), Properties: &armcompute.NetworkInterfaceReferenceProperties{Primary: ptr.To(true)}}}},
		},
	}
}

func (w *world) makeNIC(name string) (armnetwork.Interface, error) {
	p, err := w.nics().BeginCreateOrUpdate(w.ctx(), testRG, name, nicBody(), nil)
	if err != nil {
		return armnetwork.Interface{}, err
	}
	r, err := p.PollUntilDone(w.ctx(), fast)
	return r.Interface, err
}

// beginVM makes the interface and starts the VM.
func (w *world) beginVM(body armcompute.VirtualMachine) (*runtime.Poller[armcompute.VirtualMachinesClientCreateOrUpdateResponse], error) {
	name := *body.Properties.OSProfile.ComputerName
	if _, err := w.makeNIC(name + "-nic"); err != nil {
		return nil, err
	}
	return w.vms().BeginCreateOrUpdate(w.ctx(), testRG, name, body, nil)
}

func (w *world) makeVM(body armcompute.VirtualMachine) (armcompute.VirtualMachine, error) {
	p, err := w.beginVM(body)
	if err != nil {
		return armcompute.VirtualMachine{}, err
	}
	r, err := p.PollUntilDone(w.ctx(), fast)
	return r.VirtualMachine, err
}

func (w *world) mustVM(name string) armcompute.VirtualMachine {
	w.t.Helper()
	vm, err := w.makeVM(vmBody(name, "Standard_D4s_v3", "2"))
	if err != nil {
		w.t.Fatal(err)
	}
	return vm
}

func (w *world) deleteVM(name string) {
	w.t.Helper()
	p, err := w.vms().BeginDelete(w.ctx(), testRG, name, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := p.PollUntilDone(w.ctx(), fast); err != nil {
		w.t.Fatal(err)
	}
}

// wantError wants an ARM error of that status and code and returns it.
func wantError(t *testing.T, err error, status int, code string) *azcore.ResponseError {
	t.Helper()
	var re *azcore.ResponseError
	if !errors.As(err, &re) {
		t.Fatalf("got %v, want an ARM error %d %s", err, status, code)
	}
	if re.StatusCode != status || re.ErrorCode != code {
		t.Fatalf("got %d %s, want %d %s:\n%v", re.StatusCode, re.ErrorCode, status, code, err)
	}
	return re
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// raw sends one request with a good token.
func (w *world) raw(method, path string) *http.Response {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.ctx(), method, w.web.URL+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+w.srv.issue())
	resp, err := w.web.Client().Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}
