package azure_test

import (
	"encoding/pem"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	machinev1 "github.com/openshift/api/machine/v1beta1"
	clocktesting "k8s.io/utils/clock/testing"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/cloud/cloudtest"
	"millwright.io/millwright/internal/provider/azure"
	"millwright.io/millwright/internal/provider/azure/spec"
	"millwright.io/millwright/internal/sim/arm"
)

const (
	subscription = "00000000-0000-4000-8000-000000000001"
	tenant       = "00000000-0000-4000-8000-0000000000ff"
	infra        = string(cloudtest.Owner)
	group        = infra + "-rg"
)

// subject is a simulated subscription and a Cloud that talks to it.
type subject struct {
	arm    *arm.Server
	clk    *clocktesting.FakeClock
	opener *azure.Opener
	cloud  cloud.Cloud
}

func account(secret string) cloud.Account {
	data := map[string]cloud.Secret{}
	for k, v := range map[string]string{
		"azure_subscription_id": subscription, "azure_client_id": "client", "azure_client_secret": secret, "azure_tenant_id": tenant,
		"azure_resourcegroup": group, "azure_region": "francecentral", "azure_resource_prefix": infra,
	} {
		data[k] = cloud.Secret(v)
	}
	return cloud.Account{Source: "openshift-machine-api/azure-cloud-credentials", Data: data}
}

func newSubject(t *testing.T, opts ...azure.Option) *subject {
	t.Helper()
	return newSubjectIn(t, "francecentral", opts...)
}

func newSubjectIn(t *testing.T, region string, opts ...azure.Option) *subject {
	t.Helper()
	clk := clocktesting.NewFakeClock(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))
	srv, err := arm.New(arm.Config{
		SubscriptionID: subscription, TenantID: tenant, ClientID: "client", ClientSecret: "secret",
		Location: region, Clock: clk, CreateDelay: 40 * time.Second, DeleteDelay: 40 * time.Second, TokenTTL: 10000 * time.Hour, Log: logr.Discard(),
	})
	if err != nil {
		t.Fatalf("start the simulator: %v", err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	if err := srv.Seed(arm.Seed{InfraID: infra}); err != nil {
		t.Fatal(err)
	}
	for _, scope := range []string{"cores", "standardDSv3Family"} {
		if err := srv.SetQuota(scope, 200); err != nil {
			t.Fatal(err)
		}
	}
	web := httptest.NewTLSServer(srv.Handler())
	t.Cleanup(web.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})
	opener := azure.NewOpener(append([]azure.Option{azure.WithCloud(web.URL, web.URL), azure.WithCA(ca), azure.WithRetries(0)}, opts...)...)
	cl, err := opener.Open(t.Context(), account("secret"))
	if err != nil {
		t.Fatal(err)
	}
	s := &subject{arm: srv, clk: clk, opener: opener, cloud: cl}
	for range 5 {
		clk.Step(time.Minute) // what Seed began ends
	}
	return s
}

func workerSpec(change func(*spec.Spec)) *spec.Spec {
	s := &spec.Spec{AzureMachineProviderSpec: machinev1.AzureMachineProviderSpec{
		Location: "francecentral", Zone: "1", VMSize: "Standard_D4s_v3", ResourceGroup: group, NetworkResourceGroup: group,
		Vnet: infra + "-vnet", Subnet: infra + "-worker-subnet", PublicLoadBalancer: infra, ManagedIdentity: infra + "-identity",
		Image: machinev1.Image{ResourceID: "/resourceGroups/" + group + "/providers/Microsoft.Compute/galleries/gallery_" +
			strings.ReplaceAll(infra, "-", "_") + "/images/" + infra + "-gen2/versions/latest"},
		OSDisk: machinev1.OSDisk{OSType: "Linux", DiskSizeGB: 128, ManagedDisk: machinev1.OSDiskManagedDiskParameters{StorageAccountType: "Premium_LRS"}},
	}}
	if change != nil {
		change(s)
	}
	return s
}

func intent(name, uid string, s *spec.Spec) cloud.Intent {
	return cloud.Intent{Key: cloud.Key{UID: uid, Name: name, Scope: group}, Owner: cloudtest.Owner, Group: infra + "-worker", Spec: s,
		UserData: cloud.Secret(`{"ignition":{"version":"3.4.0"}}`)}
}

// leaks names what instances leave behind.
func (s *subject) leaks() []string {
	var out []string
	for _, r := range s.arm.Snapshot() {
		if r.Tags[cloud.TagKey] != "" || r.Kind == "vm" || r.Kind == "nic" || r.Kind == "disk" || r.Kind == "availabilityset" {
			out = append(out, r.Kind+" "+r.Name+" "+r.State)
		}
	}
	return out
}

func (s *subject) harness(change func(*spec.Spec)) *cloudtest.Harness {
	ops := map[cloudtest.Step]string{
		cloudtest.FailObserve: "vm.get", cloudtest.FailCreate: "vm.put", cloudtest.FailDelete: "vm.delete",
		cloudtest.FailDeletePart: "nic.delete", cloudtest.FailList: "vm.list",
	}
	codes := map[cloud.Kind]arm.Fault{
		cloud.Throttled: {Code: "TooManyRequests", RetryAfter: 7 * time.Second}, cloud.Denied: {Code: "AuthorizationFailed"},
		cloud.Transient: {Code: "InternalServerError"}, cloud.Quota: {Code: "OperationNotAllowed"},
		cloud.NoCapacity: {Code: "SkuNotAvailable"}, cloud.Invalid: {Code: "InvalidParameter", Status: 400, Message: "no"},
	}
	return &cloudtest.Harness{
		Cloud:  s.cloud,
		Intent: func(name, uid string) cloud.Intent { return intent(name, uid, workerSpec(change)) },
		Fail: func(step cloudtest.Step, kind cloud.Kind) bool {
			f, ok := codes[kind]
			if !ok {
				return false
			}
			f.Op = ops[step]
			return s.arm.Fail(f) == nil
		},
		Settle: func() { s.clk.Step(2 * time.Minute) },
		Hang:   func() { _ = s.arm.Slow("vm.get", 100*time.Hour) },
		Vanish: func(name string) { _ = s.arm.DeleteVM(name) },
		Leaks:  s.leaks,
	}
}

func TestConformance(t *testing.T) {
	t.Run("worker", func(t *testing.T) {
		cloudtest.Run(t, func(t *testing.T) *cloudtest.Harness { return newSubject(t).harness(nil) })
	})
	t.Run("without zones", func(t *testing.T) {
		cloudtest.Run(t, func(t *testing.T) *cloudtest.Harness {
			return newSubjectIn(t, "francesouth").harness(func(s *spec.Spec) { s.Location, s.Zone = "francesouth", "" })
		})
	})
	t.Run("public address", func(t *testing.T) {
		cloudtest.Run(t, func(t *testing.T) *cloudtest.Harness {
			return newSubject(t).harness(func(s *spec.Spec) { s.PublicIP = true })
		})
	})
}
