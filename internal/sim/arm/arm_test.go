package arm

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v8"
	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
)

func TestVMIsProvisionedAsynchronouslyAndDeletedInOrder(t *testing.T) {
	w := newWorld(t, nil)
	p, err := w.beginVM(vmBody("demo-a", "Standard_D4s_V3", "2"))
	if err != nil {
		t.Fatal(err)
	}
	if _, exists := w.hw.state("demo-a"); exists {
		t.Error("the machine was powered on before the VM was provisioned")
	}
	done, err := p.PollUntilDone(w.ctx(), fast)
	if err != nil {
		t.Fatal(err)
	}
	if got := *done.Properties.ProvisioningState; got != "Succeeded" {
		t.Errorf("provisioning state is %s, want Succeeded", got)
	}
	if done.Properties.OSProfile.CustomData != nil || done.Properties.OSProfile.AdminPassword != nil {
		t.Error("the response holds secrets")
	}
	eventually(t, "machine on", func() bool { on, _ := w.hw.state("demo-a"); return on })
	hw := w.hw.vms["demo-a"]
	if string(hw.CustomData) != "ignition of demo-a" || hw.PrivateIP != "10.0.128.4" || hw.Zone != "2" || hw.VCPUs != 4 || hw.Arch != "amd64" || hw.UUID != *done.Properties.VMID {
		t.Errorf("hardware was told %+v", hw)
	}
	got, err := w.vms().Get(w.ctx(), testRG, "demo-a", &armcompute.VirtualMachinesClientGetOptions{Expand: ptr.To(armcompute.InstanceViewTypesInstanceView)})
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	for _, s := range got.Properties.InstanceView.Statuses {
		codes = append(codes, *s.Code)
	}
	if d := cmp.Diff([]string{"ProvisioningState/succeeded", "PowerState/running"}, codes); d != "" {
		t.Errorf("statuses (-want +got):\n%s", d)
	}
	nic, err := w.nics().Get(w.ctx(), testRG, "demo-a-nic", nil)
	if err != nil {
		t.Fatal(err)
	}
	if s := *nic.Properties.DNSSettings.InternalDomainNameSuffix; !strings.HasSuffix(s, ".parx.internal.cloudapp.net") || nic.Properties.MacAddress == nil {
		t.Errorf("interface has suffix %q, MAC %v", s, nic.Properties.MacAddress)
	}

	_, err = w.nics().BeginDelete(w.ctx(), testRG, "demo-a-nic", nil)
	wantError(t, err, 400, "NicInUse")
	_, err = w.disks().BeginDelete(w.ctx(), testRG, "demo-a_OSDisk", nil)
	wantError(t, err, 409, "OperationNotAllowed")
	w.deleteVM("demo-a")
	_, err = w.vms().Get(w.ctx(), testRG, "demo-a", nil)
	wantError(t, err, 404, "ResourceNotFound")
	eventually(t, "machine gone", func() bool { _, exists := w.hw.state("demo-a"); return !exists })
	dp, err := w.disks().BeginDelete(w.ctx(), testRG, "demo-a_OSDisk", nil)
	if err != nil {
		t.Fatal(err)
	}
	np, err := w.nics().BeginDelete(w.ctx(), testRG, "demo-a-nic", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dp.PollUntilDone(w.ctx(), fast); err != nil {
		t.Error(err)
	}
	if _, err := np.PollUntilDone(w.ctx(), fast); err != nil {
		t.Error(err)
	}
	for _, r := range w.srv.Snapshot() {
		if r.Kind == kindVM || r.Kind == kindNIC || r.Kind == kindDisk {
			t.Errorf("left over: %s", r.ID)
		}
	}
	if _, err := w.vms().BeginDelete(w.ctx(), testRG, "demo-a", nil); err != nil {
		t.Errorf("deleting what is gone: %v", err)
	}
}

func TestVMPutChecks(t *testing.T) {
	w := newWorld(t, nil)
	w.mustVM("taken")
	set := func(f func(*armcompute.VirtualMachine)) func(*armcompute.VirtualMachine) { return f }
	rows := []struct {
		name   string
		change func(*armcompute.VirtualMachine)
		status int
		code   string
		text   string
	}{
		{"size unknown", set(func(v *armcompute.VirtualMachine) {
			v.Properties.HardwareProfile.VMSize = ptr.To[armcompute.VirtualMachineSizeTypes]("Standard_Nope")
		}), 400, "InvalidParameter", "The value Standard_Nope provided for the VM size is not valid"},
		{"zone of no region", set(func(v *armcompute.VirtualMachine) { v.Zones = []*string{ptr.To("4")} }), 400, "InvalidParameter", "'1,2,3'"},
		{"zone without the size", set(func(v *armcompute.VirtualMachine) {
			v.Zones = []*string{ptr.To("3")}
			v.Properties.HardwareProfile.VMSize = ptr.To[armcompute.VirtualMachineSizeTypes]("Standard_D4ps_v5")
		}), 409, "SkuNotAvailable", "zones '3'"},
		{"region without zones", set(func(v *armcompute.VirtualMachine) { v.Location = ptr.To("francesouth") }), 400, "InvalidParameter", "francesouth"},
		{"region with a typo", set(func(v *armcompute.VirtualMachine) { v.Location = ptr.To("francecentrall") }), 400, "LocationNotAvailableForResourceType", "francecentrall"},
		{"image gone", set(func(v *armcompute.VirtualMachine) {
			v.Properties.StorageProfile.ImageReference.ID = ptr.To(strings.Replace(testImage, "latest", "1.2.3", 1))
		}), 404, "GalleryImageNotFound", "1.2.3"},
		{"interface missing", set(func(v *armcompute.VirtualMachine) {
			v.Properties.NetworkProfile.NetworkInterfaces[0].ID = ptr.To(testNet + "networkInterfaces/nope")
		}), 404, "NotFound", "nope"},
		{"interface of another VM", set(func(v *armcompute.VirtualMachine) {
			v.Properties.NetworkProfile.NetworkInterfaces[0].ID = ptr.To(testNet + "networkInterfaces/taken-nic")
		}), 400, "NicReservedForAnotherVm", "taken"},
		{"disk left from before", set(func(v *armcompute.VirtualMachine) { v.Properties.StorageProfile.OSDisk.Name = ptr.To("taken_OSDisk") }), 409, "ConflictingUserInput", "taken_OSDisk"},
		{"identity missing", set(func(v *armcompute.VirtualMachine) {
			v.Identity = &armcompute.VirtualMachineIdentity{Type: ptr.To(armcompute.ResourceIdentityTypeUserAssigned), UserAssignedIdentities: map[string]*armcompute.UserAssignedIdentitiesValue{"/subscriptions/x": {}}}
		}), 400, "FailedIdentityOperation", ""},
		{"required field missing", set(func(v *armcompute.VirtualMachine) { v.Properties.StorageProfile.OSDisk.CreateOption = nil }), 400, "InvalidParameter", "Required parameter 'storageProfile.osDisk.createOption' is missing (null)."},
		{"location missing", set(func(v *armcompute.VirtualMachine) { v.Location = nil }), 400, "InvalidParameter", "'location'"},
		{"no way to log in", set(func(v *armcompute.VirtualMachine) { v.Properties.OSProfile.AdminPassword = nil }), 400, "InvalidParameter", "SSH"},
		{"data too large", set(func(v *armcompute.VirtualMachine) {
			v.Properties.OSProfile.CustomData = ptr.To(strings.Repeat("AAAA", 30000))
		}), 400, "InvalidParameter", "87380"},
	}
	if _, err := w.makeNIC("row-nic"); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			body := vmBody("row", "Standard_D4s_v3", "1")
			r.change(&body)
			_, err := w.vms().BeginCreateOrUpdate(w.ctx(), testRG, "row", body, nil)
			wantError(t, err, r.status, r.code)
			if !strings.Contains(err.Error(), r.text) {
				t.Errorf("text lacks %q:\n%v", r.text, err)
			}
			if vms := w.srv.VMs(); len(vms) != 1 {
				t.Errorf("a refused PUT left %d VMs, want 1", len(vms))
			}
		})
	}
	t.Run("group missing", func(t *testing.T) {
		_, err := w.vms().Get(w.ctx(), "nope-rg", "row", nil)
		wantError(t, err, 404, "ResourceGroupNotFound")
	})
	t.Run("name too long", func(t *testing.T) {
		_, err := w.vms().BeginCreateOrUpdate(w.ctx(), testRG, strings.Repeat("n", 70), vmBody("row", "Standard_D4s_v3", "1"), nil)
		wantError(t, err, 400, "InvalidResourceName")
	})
}

func TestPutIsIdempotentAndKeepsWhatMayNotChange(t *testing.T) {
	w := newWorld(t, nil)
	first := w.mustVM("demo-a")
	again := w.mustVM("demo-a")
	if *first.Properties.VMID != *again.Properties.VMID {
		t.Error("the same PUT made another VM")
	}
	if n := len(w.srv.VMs()); n != 1 {
		t.Errorf("got %d VMs, want 1", n)
	}
	echo := again // a GET sent back, read-only fields included
	echo.Tags["more"] = ptr.To("tags")
	p, err := w.vms().BeginCreateOrUpdate(w.ctx(), testRG, "demo-a", echo, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.PollUntilDone(w.ctx(), fast); err != nil {
		t.Fatal(err)
	}
	if w.srv.Ignored()["Microsoft.Compute/virtualMachines properties.vmId"] == 0 {
		t.Errorf("read-only fields were not counted: %v", w.srv.Ignored())
	}
	if vm := w.srv.VMs()[0]; vm.UUID != *first.Properties.VMID || vm.Tags["more"] != "tags" || string(vm.CustomData) != "ignition of demo-a" {
		t.Errorf("after the update: %+v", vm)
	}
	moved := vmBody("demo-a", "Standard_D4s_v3", "1")
	_, err = w.vms().BeginCreateOrUpdate(w.ctx(), testRG, "demo-a", moved, nil)
	wantError(t, err, 409, "PropertyChangeNotAllowed")
	_, err = w.vms().BeginCreateOrUpdate(w.ctx(), testRG, "demo-a", vmBody("demo-a", "Standard_D4s_v3", "2"), &armcompute.VirtualMachinesClientBeginCreateOrUpdateOptions{IfNoneMatch: ptr.To("*")})
	wantError(t, err, 412, "PreconditionFailed")
	up, err := w.vms().BeginUpdate(w.ctx(), testRG, "demo-a", armcompute.VirtualMachineUpdate{Tags: map[string]*string{"only": ptr.To("one")}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := up.PollUntilDone(w.ctx(), fast); err != nil || len(r.Tags) != 1 {
		t.Errorf("patched tags: %v, %v", r.Tags, err)
	}
}

func TestQuotaPerRegionAndFamily(t *testing.T) {
	w := newWorld(t, nil)
	for scope, n := range map[string]int{"cores": 10, "standardDSv5Family": 4} {
		if err := w.srv.SetQuota(scope, n); err != nil {
			t.Fatal(err)
		}
	}
	w.mustVM("demo-a")
	_, err := w.makeVM(vmBody("demo-b", "Standard_D8s_v3", "1"))
	wantError(t, err, 409, "OperationNotAllowed")
	want := "Operation could not be completed as it results in exceeding approved Total Regional Cores quota. Additional details - Deployment Model: Resource Manager, Location: francecentral, Current Limit: 10, Current Usage: 4, Additional Required: 8, (Minimum) New Limit Required: 12. Submit a request for Quota increase at "
	if !strings.Contains(err.Error(), want) {
		t.Errorf("text is\n%v\nwant\n%s", err, want)
	}
	if err := w.srv.SetQuota("CORES", 100); err != nil {
		t.Fatal(err)
	}
	_, err = w.makeVM(vmBody("demo-b", "Standard_D8s_v5", "1"))
	wantError(t, err, 409, "OperationNotAllowed")
	if want := "exceeding approved standardDSv5Family Cores quota. Additional details - Deployment Model: Resource Manager, Location: francecentral, Current Limit: 4, Current Usage: 0, Additional Required: 8, (Minimum) New Limit Required: 8."; !strings.Contains(err.Error(), want) {
		t.Errorf("text is\n%v\nwant\n%s", err, want)
	}
	if _, err = w.makeVM(vmBody("demo-b", "Standard_D8s_v3", "1")); err != nil {
		t.Errorf("after raising the quota: %v", err)
	}
	if err := w.srv.SetQuota("nope", 1); err == nil || !strings.Contains(err.Error(), "standardDSv3Family") {
		t.Errorf("unknown scope: %v", err)
	}
	pager := client(w, armcompute.NewUsageClient).NewListPager("francecentral", nil)
	for pager.More() {
		page, err := pager.NextPage(w.ctx())
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range page.Value {
			if *u.Name.Value == "standardDSv3Family" && (*u.CurrentValue != 12 || *u.Limit != defaultQuota) {
				t.Errorf("usage is %d of %d, want 12 of %d", *u.CurrentValue, *u.Limit, defaultQuota)
			}
		}
	}
}

func TestRestartKeepsStateAndRunningOperations(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.CreateDelay = 600 * time.Millisecond })
	w.mustVM("old")
	p, err := w.beginVM(vmBody("demo-a", "Standard_D4s_v3", "1"))
	if err != nil {
		t.Fatal(err)
	}
	token, err := p.ResumeToken()
	if err != nil {
		t.Fatal(err)
	}
	before, addr := w.srv.Snapshot(), w.web.URL
	w.restart()
	if d := cmp.Diff(before, w.srv.Snapshot()); d != "" {
		t.Errorf("resources changed in the restart (-before +after):\n%s", d)
	}
	token = strings.ReplaceAll(token, addr, w.web.URL)
	p, err = w.vms().BeginCreateOrUpdate(w.ctx(), testRG, "demo-a", armcompute.VirtualMachine{}, &armcompute.VirtualMachinesClientBeginCreateOrUpdateOptions{ResumeToken: token})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := p.PollUntilDone(w.ctx(), fast); err != nil || *r.Properties.ProvisioningState != "Succeeded" {
		t.Fatalf("resumed operation: %v", err)
	}
	eventually(t, "both machines on", func() bool {
		a, _ := w.hw.state("demo-a")
		b, _ := w.hw.state("old")
		return a && b
	})
	nic, err := w.makeNIC("third-nic")
	if err != nil || *nic.Properties.IPConfigurations[0].Properties.PrivateIPAddress != "10.0.128.6" {
		t.Errorf("third address: %v", err)
	}
}

func TestFaults(t *testing.T) {
	w := newWorld(t, nil)
	add := func(f Fault) {
		t.Helper()
		if err := w.srv.Fail(f); err != nil {
			t.Fatal(err)
		}
	}
	add(Fault{Op: "vm.put", Code: "QuotaExceeded"})
	_, err := w.makeVM(vmBody("demo-a", "Standard_D4s_v3", "1"))
	wantError(t, err, 409, "QuotaExceeded")

	add(Fault{Op: "vm.put", Code: "ZonalAllocationFailed"})
	_, err = w.makeVM(vmBody("demo-a", "Standard_D4s_v3", "1"))
	if err == nil || !strings.Contains(err.Error(), "ZonalAllocationFailed") {
		t.Errorf("asynchronous failure: %v", err)
	}
	if got := w.srv.VMs()[0].Provisioning; got != "Failed" {
		t.Errorf("provisioning state is %s, want Failed", got)
	}
	if _, exists := w.hw.state("demo-a"); exists {
		t.Error("a VM that could not be allocated has hardware")
	}

	gets := w.srv.Requests()["nic.get"]
	add(Fault{Op: "nic.*", Code: "TooManyRequests", RetryAfter: 7 * time.Second, Count: -1})
	for range 2 {
		_, err = w.nics().Get(w.ctx(), testRG, "demo-a-nic", nil)
		if re := wantError(t, err, 429, "TooManyRequests"); re.RawResponse.Header.Get("Retry-After") != "7" {
			t.Errorf("Retry-After is %q, want 7", re.RawResponse.Header.Get("Retry-After"))
		}
	}
	w.srv.ClearFaults()
	if _, err = w.nics().Get(w.ctx(), testRG, "demo-a-nic", nil); err != nil {
		t.Errorf("after clearing: %v", err)
	}
	if err := w.srv.Fail(Fault{Op: "nope.put", Code: "x"}); err == nil || !strings.Contains(err.Error(), "vm.put") {
		t.Errorf("unknown operation: %v", err)
	}
	if n := w.srv.Requests()["nic.get"] - gets; n != 3 {
		t.Errorf("counted %d nic.get, want 3", n)
	}
	if err := w.srv.Slow("nic.get", 60*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if _, err = w.nics().Get(w.ctx(), testRG, "demo-a-nic", nil); err != nil || time.Since(start) < 60*time.Millisecond {
		t.Errorf("slow call: %v after %v", err, time.Since(start))
	}
}

func TestTokens(t *testing.T) {
	w := newWorld(t, nil)
	for _, r := range []struct{ tenant, secret, want string }{
		{testTenant, "wrong", "AADSTS7000215"},
		{"00000000-0000-4000-8000-0000000000aa", "secret", "AADSTS90002"},
	} {
		c, err := armcompute.NewVirtualMachinesClient(testSub, w.credential(r.tenant, r.secret), w.opts)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = c.Get(w.ctx(), testRG, "x", nil); err == nil || !strings.Contains(err.Error(), r.want) {
			t.Errorf("got %v, want %s", err, r.want)
		}
	}
	w.mustVM("demo-a")
	w.srv.RevokeTokens()
	_, err := w.vms().Get(w.ctx(), testRG, "demo-a", nil)
	// The credential made for the first call caches its token.
	wantError(t, err, 401, "InvalidAuthenticationToken")
	if e := w.srv.checkToken(""); e == nil || e.Code != "AuthenticationFailed" {
		t.Errorf("no header: %v", e)
	}
	if e := w.srv.checkToken("Bearer rubbish"); e == nil || e.Code != "InvalidAuthenticationToken" {
		t.Errorf("rubbish: %v", e)
	}
	old := w.srv.issue()
	w.srv.cfg.TokenTTL = -time.Second
	if e := w.srv.checkToken("Bearer " + w.srv.issue()); e == nil || e.Code != "ExpiredAuthenticationToken" {
		t.Errorf("expired: %v", e)
	}
	if e := w.srv.checkToken("Bearer " + old); e != nil {
		t.Errorf("good token: %v", e)
	}
}

func TestFrontDoor(t *testing.T) {
	w := newWorld(t, nil)
	base := "/subscriptions/" + testSub
	for path, want := range map[string]int{
		base + "/resourceGroups/" + testRG:                                                  400, // no api-version
		base + "/resourceGroups/" + testRG + "?api-version=1":                               200,
		base + "/resourceGroups/" + testRG + "/resources?api-version=1":                     200,
		base + "/resourceGroups/nope?api-version=1":                                         404,
		"/subscriptions/other/resourceGroups?api-version=1":                                 404,
		base + "/resourcegroups/" + strings.ToUpper(testRG) + "?api-version=1":              200,
		base + "/providers/Microsoft.Nope/things?api-version=1":                             404,
		base + "/providers/Microsoft.Compute/skus?api-version=1&$filter=x":                  400,
		base + "/locations?api-version=1":                                                   200,
		base + "/providers/Microsoft.Compute/locations/nowhere/usages?api-version=1":        400,
		base + "/providers/Microsoft.Compute/locations/x/operations/y?api-version=1":        404,
		base + "//providers?api-version=1":                                                  404,
		base + "/providers/Microsoft.Compute?api-version=1":                                 404,
		base + "/resourceGroups/" + testRG + "/providers/Microsoft.Network?api-version=1":   404,
		base + "/resourceGroups/" + testRG + "/providers/Microsoft.Compute/virtualMachines": 400,
	} {
		if got := w.raw(http.MethodGet, path).StatusCode; got != want {
			t.Errorf("GET %s: %d, want %d", path, got, want)
		}
	}
}

func TestSKUsNameCapabilitiesAndZones(t *testing.T) {
	w := newWorld(t, nil)
	pager := client(w, armcompute.NewResourceSKUsClient).NewListPager(&armcompute.ResourceSKUsClientListOptions{Filter: ptr.To("location eq 'francecentral'")})
	found := map[string]*armcompute.ResourceSKU{}
	for pager.More() {
		page, err := pager.NextPage(w.ctx())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page.Value {
			found[*s.Name] = s
		}
	}
	if found["Standard_NC6s_v3"] != nil {
		t.Error("francecentral sells Standard_NC6s_v3")
	}
	arm64 := found["Standard_D4ps_v5"]
	if arm64 == nil || len(arm64.LocationInfo[0].Zones) != 2 || !slices.ContainsFunc(arm64.Capabilities, func(c *armcompute.ResourceSKUCapabilities) bool {
		return *c.Name == "CpuArchitectureType" && *c.Value == "Arm64"
	}) {
		t.Errorf("Standard_D4ps_v5 is %+v", arm64)
	}
	if d4 := found["Standard_D4s_v3"]; d4 == nil || *d4.Family != "standardDSv3Family" || len(d4.LocationInfo[0].Zones) != 3 {
		t.Errorf("Standard_D4s_v3 is %+v", d4)
	}
}

func TestNetworkReferences(t *testing.T) {
	w := newWorld(t, nil)
	body := nicBody()
	body.Properties.IPConfigurations[0].Properties.Subnet.ID = ptr.To(testNet + "virtualNetworks/demo-x7k2p-vnet/subnets/nope")
	_, err := w.nics().BeginCreateOrUpdate(w.ctx(), testRG, "n", body, nil)
	wantError(t, err, 400, "InvalidResourceReference")

	body = nicBody()
	pool := testNet + "loadBalancers/demo-x7k2p-internal/backendAddressPools/demo-x7k2p"
	body.Properties.IPConfigurations[0].Properties.LoadBalancerBackendAddressPools = []*armnetwork.BackendAddressPool{{ID: &pool}}
	p, err := w.nics().BeginCreateOrUpdate(w.ctx(), testRG, "n", body, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.PollUntilDone(w.ctx(), fast); err != nil {
		t.Fatal(err)
	}
	lb, err := client(w, armnetwork.NewLoadBalancersClient).Get(w.ctx(), testRG, "demo-x7k2p-internal", nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(lb.Properties.BackendAddressPools[0].Properties.BackendIPConfigurations); n != 1 || *lb.Properties.FrontendIPConfigurations[0].Properties.PrivateIPAddress != "10.0.0.4" {
		t.Errorf("pool has %d members, want 1", n)
	}
	if _, err := client(w, armnetwork.NewSubnetsClient).Get(w.ctx(), testRG, "demo-x7k2p-vnet", "demo-x7k2p-worker-subnet", nil); err != nil {
		t.Error(err)
	}
	_, err = client(w, armnetwork.NewSubnetsClient).BeginDelete(w.ctx(), testRG, "demo-x7k2p-vnet", "demo-x7k2p-worker-subnet", nil)
	wantError(t, err, 400, "InUseSubnetCannotBeDeleted")
	ips := client(w, armnetwork.NewPublicIPAddressesClient)
	ip, err := ips.BeginCreateOrUpdate(w.ctx(), testRG, "pip", armnetwork.PublicIPAddress{Location: ptr.To("francecentral"), Properties: &armnetwork.PublicIPAddressPropertiesFormat{DNSSettings: &armnetwork.PublicIPAddressDNSSettings{DomainNameLabel: ptr.To("pip")}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := ip.PollUntilDone(w.ctx(), fast); err != nil || *r.Properties.DNSSettings.Fqdn != "pip.francecentral.cloudapp.azure.com" {
		t.Errorf("public address: %v", err)
	}
	if d, err := ips.BeginDelete(w.ctx(), testRG, "pip", nil); err != nil {
		t.Error(err)
	} else if _, err := d.PollUntilDone(w.ctx(), fast); err != nil {
		t.Error(err)
	}
	_, err = ips.BeginDelete(w.ctx(), testRG, "demo-x7k2p-pip-v4", nil)
	wantError(t, err, 400, "PublicIPAddressCannotBeDeleted")
	sets := client(w, armcompute.NewAvailabilitySetsClient)
	if _, err := sets.CreateOrUpdate(w.ctx(), testRG, "s-as", armcompute.AvailabilitySet{Location: ptr.To("francecentral"), SKU: &armcompute.SKU{Name: ptr.To("Aligned")}}, nil); err != nil {
		t.Error(err)
	}
	if _, err := sets.Delete(w.ctx(), testRG, "s-as", nil); err != nil {
		t.Error(err)
	}
}

func TestPowerAndKnobs(t *testing.T) {
	w := newWorld(t, nil)
	w.mustVM("demo-a")
	p, err := w.vms().BeginDeallocate(w.ctx(), testRG, "demo-a", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.PollUntilDone(w.ctx(), fast); err != nil {
		t.Fatal(err)
	}
	if vm := w.srv.VMs()[0]; vm.Power != PowerDeallocated {
		t.Errorf("power is %s, want deallocated", vm.Power)
	}
	eventually(t, "machine off", func() bool { on, exists := w.hw.state("demo-a"); return exists && !on })
	if err := w.srv.StartVM("demo-a"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "machine on", func() bool { on, _ := w.hw.state("demo-a"); return on })
	if err := w.srv.DeleteVM("demo-a"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "VM gone", func() bool { return len(w.srv.VMs()) == 0 })
	kinds := map[string]int{}
	for _, r := range w.srv.Snapshot() {
		kinds[r.Kind]++
	}
	if kinds[kindNIC] != 1 || kinds[kindDisk] != 1 {
		t.Errorf("a deletion behind the back took parts along: %v", kinds)
	}
	if err := w.srv.DeleteVM("demo-a"); err == nil {
		t.Error("deleting a VM twice was accepted")
	}
	vm, err := w.srv.SeedVM(Seed{InfraID: "demo-x7k2p"}, SeedVM{Name: "demo-x7k2p-master-0", Zone: "1", Role: "master", UserData: []byte("x")})
	if err != nil || vm.PrivateIP != "10.0.0.5" || vm.Power != PowerRunning {
		t.Errorf("seeded %+v, %v", vm, err)
	}
}

func TestManyVMsAtOnce(t *testing.T) {
	w := newWorld(t, nil)
	const n = 60
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() {
			_, errs[i] = w.makeVM(vmBody(fmt.Sprintf("demo-%02d", i), "Standard_D4s_v3", "1"))
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	for _, vm := range w.srv.VMs() {
		if seen[vm.PrivateIP] || vm.Power != PowerRunning {
			t.Errorf("%s has address %s, power %s", vm.Name, vm.PrivateIP, vm.Power)
		}
		seen[vm.PrivateIP] = true
	}
	if len(seen) != n {
		t.Errorf("got %d addresses, want %d", len(seen), n)
	}
	pager := w.vms().NewListPager(testRG, nil)
	listed := 0
	for pager.More() {
		page, err := pager.NextPage(w.ctx())
		if err != nil {
			t.Fatal(err)
		}
		listed += len(page.Value)
	}
	if listed != n {
		t.Errorf("listed %d, want %d", listed, n)
	}
}

func TestThrottlingIsRetriedByTheClient(t *testing.T) {
	w := newWorld(t, nil)
	if err := w.srv.Fail(Fault{Op: "vm.get", Code: "TooManyRequests", RetryAfter: 20 * time.Millisecond, Count: 2}); err != nil {
		t.Fatal(err)
	}
	w.opts = w.options(3)
	_, err := w.vms().Get(w.ctx(), testRG, "nope", nil)
	wantError(t, err, 404, "ResourceNotFound")
}

func TestGarbageStateIsRefusedByName(t *testing.T) {
	for name, text := range map[string]string{
		"not JSON": "garbage", "empty": "", "another file": "{}", "newer": `{"formatVersion": 99}`,
		"other subscription": `{"formatVersion": 1, "subscription": "x"}`,
		"unknown kind":       `{"formatVersion": 1, "subscription": "` + testSub + `", "resources": [{"kind": "nope", "doc": {}}]}`,
	} {
		path := filepath.Join(t.TempDir(), "azure.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := New(Config{StateFile: path, SubscriptionID: testSub, TenantID: "t", ClientID: "c", ClientSecret: "s"})
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want an error that names the file", name, err)
		}
	}
}

// FuzzState loads any bytes: an error, or a server that can render and save
// what it read and read it back.
func FuzzState(f *testing.F) {
	f.Add([]byte(`{"formatVersion":1,"subscription":"s","resources":[{"kind":"vm","doc":{"id":"/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/a","name":"a","location":"nowhere","properties":{"vmId":"1","networkProfile":3}},"born":true}],"operations":[{"id":"1","status":"InProgress","do":"remove","resource":"x"}]}`))
	f.Add([]byte(`{"formatVersion":1,"subscription":"s","resources":[{"kind":"lb","doc":{"id":"/a","name":"a","properties":{"backendAddressPools":[{"id":1}]}}}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<16 {
			t.Skip("large")
		}
		mk := func() *Server {
			s, err := New(Config{SubscriptionID: "s", TenantID: "t", ClientID: "c", ClientSecret: "s"})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return s
		}
		s := mk()
		if err := s.decode(b); err != nil {
			return
		}
		for _, r := range s.sorted("") {
			s.render(r, "instanceView")
		}
		out, err := s.encode()
		if err != nil {
			t.Fatal(err)
		}
		if err := mk().decode(out); err != nil {
			t.Fatalf("read back: %v", err)
		}
		before := len(s.resources)
		s.VMs()
		s.Quotas()
		if len(s.Snapshot()) > before {
			t.Error("reading made resources")
		}
	})
}
