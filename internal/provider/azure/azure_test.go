package azure_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	machinev1 "github.com/openshift/api/machine/v1beta1"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/provider/azure"
	"millwright.io/millwright/internal/provider/azure/spec"
	"millwright.io/millwright/internal/sim/arm"
)

// until calls Create until the instance runs or the call fails.
func (s *subject) until(t *testing.T, in cloud.Intent) (cloud.Instance, error) {
	t.Helper()
	for range 20 {
		i, err := s.cloud.Create(t.Context(), in)
		if err != nil || i.State == cloud.StateRunning || i.State == cloud.StateFailed {
			return i, err
		}
		s.clk.Step(time.Minute)
	}
	t.Fatalf("%s does not come up", in.Key.Name)
	return cloud.Instance{}, nil
}

func TestInstanceIsWhatItsUsersKnow(t *testing.T) {
	s := newSubject(t)
	inst, err := s.until(t, intent("w-worker-x7k2p", "uid-1", workerSpec(nil)))
	if err != nil {
		t.Fatal(err)
	}
	if want := "azure:///subscriptions/" + subscription + "/resourceGroups/" + group + "/providers/Microsoft.Compute/virtualMachines/w-worker-x7k2p"; inst.ProviderID != want {
		t.Errorf("provider id: got %s, want %s", inst.ProviderID, want)
	}
	if inst.Zone != "1" || inst.Region != "francecentral" || inst.Size != "Standard_D4s_v3" || inst.Interruptible {
		t.Errorf("place: got %+v", inst)
	}
	var types []string
	for _, a := range inst.Addresses {
		types = append(types, string(a.Type))
	}
	if d := cmp.Diff([]string{"Hostname", "InternalDNS", "InternalDNS", "InternalIP"}, types); d != "" {
		t.Errorf("addresses (-want +got):\n%s", d)
	}
	vms := s.arm.VMs()
	if len(vms) != 1 || string(vms[0].CustomData) != `{"ignition":{"version":"3.4.0"}}` || vms[0].ComputerName != "w-worker-x7k2p" {
		t.Errorf("the VM does not get its first-boot data: %+v", vms)
	}
	want := []string{"disk w-worker-x7k2p_OSDisk", "nic w-worker-x7k2p-nic", "vm w-worker-x7k2p"}
	var got []string
	for _, r := range s.arm.Snapshot() {
		if r.Tags[cloud.TagKey] == "uid-1" && r.Tags["kubernetes.io_cluster."+infra] == "owned" {
			got = append(got, r.Kind+" "+r.Name)
		}
	}
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("what carries the tags (-want +got):\n%s", d)
	}
}

func TestQuotaHoldsAndLetsGo(t *testing.T) {
	s := newSubject(t)
	if err := s.arm.SetQuota("cores", 4); err != nil {
		t.Fatal(err)
	}
	if _, err := s.until(t, intent("first", "uid-1", workerSpec(nil))); err != nil {
		t.Fatal(err)
	}
	second := intent("second", "uid-2", workerSpec(nil))
	_, err := s.until(t, second)
	f := cloud.FaultOf(err)
	if f == nil || f.Kind != cloud.Quota || f.Reason != "OperationNotAllowed" {
		t.Fatalf("got %v, want a quota fault", err)
	}
	if d := cmp.Diff(&cloud.QuotaUse{Scope: "Total Regional Cores", Needed: 4, Used: 4, Limit: 4}, f.Quota); d != "" {
		t.Errorf("quota (-want +got):\n%s", d)
	}
	for _, part := range []string{"failed to create vm second: failed to create VM: cannot create vm: PUT https://", "RESPONSE 409: 409 Conflict", "ERROR CODE: OperationNotAllowed"} {
		if !strings.Contains(f.Error(), part) {
			t.Errorf("text lacks %q:\n%s", part, f.Error())
		}
	}
	if err := s.arm.SetQuota("cores", 8); err != nil {
		t.Fatal(err)
	}
	if _, err := s.until(t, second); err != nil {
		t.Errorf("after the quota was raised: %v", err)
	}
}

func TestWhatCanNeverSucceedIsInvalid(t *testing.T) {
	s := newSubject(t)
	for name, tc := range map[string]struct {
		change func(*spec.Spec)
		want   string
	}{
		"unknown size":       {func(s *spec.Spec) { s.VMSize = "Standard_Nope" }, "resource SKU with name 'Standard_Nope' and category 'virtualMachines' not found in location 'francecentral'"},
		"no vnet":            {func(s *spec.Spec) { s.Vnet = "" }, "MachineConfig vnet is missing on machine m"},
		"long public name":   {func(s *spec.Spec) { s.PublicIP = true }, "machine public IP name is longer than 63 characters"},
		"image version gone": {func(s *spec.Spec) { s.Image.ResourceID = strings.Replace(s.Image.ResourceID, "latest", "1.0.0", 1) }, "ImageNotFound"},
	} {
		t.Run(name, func(t *testing.T) {
			machine := "m"
			if name == "long public name" {
				machine = strings.Repeat("m", 60)
			}
			_, err := s.until(t, intent(machine, "uid-"+machine, workerSpec(tc.change)))
			if cloud.KindOf(err) != cloud.Invalid || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %s: %v, want Invalid with %q", cloud.KindOf(err), err, tc.want)
			}
		})
	}
}

func TestMissingNetworkIsTriedAgain(t *testing.T) {
	s := newSubject(t)
	_, err := s.until(t, intent("m", "uid", workerSpec(func(s *spec.Spec) { s.Subnet = "nowhere" })))
	if cloud.KindOf(err) != cloud.Transient || !strings.HasPrefix(err.Error(), "failed to create nic m-nic for machine m: ") {
		t.Errorf("got %s: %v, want a transient fault about the nic", cloud.KindOf(err), err)
	}
}

func TestAsynchronousFailureIsSeen(t *testing.T) {
	s := newSubject(t)
	if err := s.arm.Fail(arm.Fault{Op: "vm.put", Code: "ZonalAllocationFailed"}); err != nil {
		t.Fatal(err)
	}
	inst, err := s.until(t, intent("m", "uid", workerSpec(nil)))
	if err != nil {
		t.Fatal(err)
	}
	if inst.State != cloud.StateFailed || inst.Fault == nil || inst.Fault.Kind != cloud.NoCapacity || !strings.HasPrefix(inst.Fault.Error(), "vm has unexpected 'Failed' provisioning state") {
		t.Errorf("got %s, %+v, want Failed for want of capacity", inst.State, inst.Fault)
	}
}

func TestCredentialsAreTold(t *testing.T) {
	s := newSubject(t)
	a := account("secret")
	delete(a.Data, "azure_region")
	_, err := s.opener.Open(t.Context(), a)
	if want := "azure region not found in secret openshift-machine-api/azure-cloud-credentials (azure_region)"; cloud.KindOf(err) != cloud.Credentials || err.Error() != want {
		t.Errorf("missing key: got %v, want %s", err, want)
	}
	wrong, err := s.opener.Open(t.Context(), account("wrong"))
	if err != nil {
		t.Fatal(err)
	}
	if wrong == s.cloud {
		t.Error("another secret opens the same account")
	}
	_, err = wrong.Observe(t.Context(), cloud.Key{UID: "u", Name: "m", Scope: group})
	if f := cloud.FaultOf(err); f == nil || f.Kind != cloud.Credentials || f.Reason != "AADSTS7000215" {
		t.Errorf("wrong secret: got %v, want Credentials AADSTS7000215", err)
	}
	if strings.Contains(err.Error(), "wrong") {
		t.Errorf("the secret is in the text: %v", err)
	}
	again, err := s.opener.Open(t.Context(), account("secret"))
	if err != nil || again != s.cloud {
		t.Errorf("the same secret opens another client: %v", err)
	}
}

func TestCatalogIsReadOnce(t *testing.T) {
	s := newSubject(t)
	catalog := s.cloud.(cloud.Catalog)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			sizes, err := catalog.Sizes(t.Context(), "francecentral")
			if err != nil {
				t.Errorf("sizes: %v", err)
			}
			i := slices.IndexFunc(sizes, func(z cloud.Size) bool { return z.Name == "Standard_D4s_v3" })
			if i < 0 {
				t.Error("Standard_D4s_v3 is not sold")
				return
			}
			if z := sizes[i]; z.VCPUs != 4 || z.MemoryMiB != 16384 || z.Family != "standardDSv3Family" || z.Arch != "amd64" || len(z.Zones) == 0 {
				t.Errorf("size: got %+v", z)
			}
		})
	}
	wg.Wait()
	if got := s.arm.Requests()["sku.list"]; got != 1 {
		t.Errorf("catalogue requests: got %d, want 1", got)
	}
	regions, err := catalog.Regions(t.Context())
	if err != nil || !slices.Contains(regions, "francecentral") || !slices.IsSorted(regions) {
		t.Errorf("regions: got %v, %v", regions, err)
	}
}

func TestRequestsPerInstance(t *testing.T) {
	s := newSubject(t)
	if _, err := s.until(t, intent("m0", "uid-m0", workerSpec(nil))); err != nil {
		t.Fatal(err) // warms token and catalogue
	}
	before := s.arm.Requests()
	if _, err := s.cloud.Observe(t.Context(), cloud.Key{UID: "uid-m0", Name: "m0", Scope: group}); err != nil {
		t.Fatal(err)
	}
	total := 0
	for op, n := range s.arm.Requests() {
		total += n - before[op]
	}
	if total != 2 {
		t.Errorf("requests of one Observe: got %d, want 2 (the VM and its interface)", total)
	}
}

func TestThrottlingIsReportedAtOnce(t *testing.T) {
	s := newSubject(t, azure.WithRetries(2))
	if err := s.arm.Fail(arm.Fault{Op: "vm.get", Code: "TooManyRequests", RetryAfter: 90 * time.Second}); err != nil {
		t.Fatal(err)
	}
	_, err := s.cloud.Observe(t.Context(), cloud.Key{UID: "u", Name: "m", Scope: group})
	if cloud.KindOf(err) != cloud.Throttled || cloud.RetryAfter(err) != 90*time.Second {
		t.Errorf("got %v, want throttling for 90 s", err)
	}
}

func TestDataDisksFollowTheirPolicy(t *testing.T) {
	s := newSubject(t)
	in := intent("m", "uid", workerSpec(func(s *spec.Spec) {
		s.DataDisks = []machinev1.DataDisk{
			{NameSuffix: "keep", DiskSizeGB: 8, Lun: 0, DeletionPolicy: machinev1.DiskDeletionPolicyTypeDetach},
			{NameSuffix: "drop", DiskSizeGB: 8, Lun: 1, DeletionPolicy: machinev1.DiskDeletionPolicyTypeDelete},
		}
	}))
	if _, err := s.until(t, in); err != nil {
		t.Fatal(err)
	}
	s.remove(t, in.Key)
	var left []string
	for _, l := range s.leaks() {
		left = append(left, strings.Fields(l)[1])
	}
	if d := cmp.Diff([]string{"m_keep"}, left); d != "" {
		t.Errorf("what is left (-want +got):\n%s", d)
	}
	if list, err := s.cloud.List(t.Context(), in.Owner); err != nil || len(list) != 0 {
		t.Errorf("a disk kept on purpose is listed: %v, %v", list, err)
	}
}

func TestAvailabilitySetLivesAsLongAsItsVMs(t *testing.T) {
	s := newSubjectIn(t, "francesouth")
	set := func() (out []string) {
		for _, r := range s.arm.Snapshot() {
			if r.Kind == "availabilityset" {
				out = append(out, r.Name)
			}
		}
		return out
	}
	for i, name := range []string{"m1", "m2"} {
		if _, err := s.until(t, intent(name, "uid-"+name, workerSpec(func(s *spec.Spec) { s.Location, s.Zone = "francesouth", "" }))); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]string{infra + "-worker-as"}, set()); d != "" {
			t.Errorf("sets with %d VMs (-want +got):\n%s", i+1, d)
		}
	}
	for i, name := range []string{"m1", "m2"} {
		s.remove(t, cloud.Key{UID: "uid-" + name, Name: name, Scope: group})
		if got, want := len(set()), 1-i; got != want {
			t.Errorf("sets after %s went: got %d, want %d", name, got, want)
		}
	}
}

// remove calls Delete until nothing is left.
func (s *subject) remove(t *testing.T, key cloud.Key) {
	t.Helper()
	for range 20 {
		err := s.cloud.Delete(t.Context(), key)
		if cloud.KindOf(err) == cloud.NotFound {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		s.clk.Step(time.Minute)
	}
	t.Fatalf("%s does not go away", key.Name)
}

func TestFailedInterfaceIsToldAndRepaired(t *testing.T) {
	s := newSubject(t)
	if err := s.arm.Fail(arm.Fault{Op: "nic.put", Code: "InternalServerError", Async: true}); err != nil {
		t.Fatal(err)
	}
	in := intent("m", "uid", workerSpec(nil))
	_, err := s.until(t, in)
	if want := "failed to create nic m-nic for machine m: network interface m-nic failed to provision"; cloud.KindOf(err) != cloud.Transient || err.Error() != want {
		t.Fatalf("got %v, want %s", err, want)
	}
	if _, err := s.until(t, in); err != nil {
		t.Errorf("after the repair: %v", err)
	}
}

func TestUnreachableAuthorityIsNoFaultOfTheCredentials(t *testing.T) {
	web := httptest.NewTLSServer(http.NotFoundHandler())
	url := web.URL
	web.Close()
	cl, err := azure.NewOpener(azure.WithCloud(url, url), azure.WithRetries(0)).Open(t.Context(), account("secret"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = cl.Observe(t.Context(), cloud.Key{UID: "u", Name: "m", Scope: group})
	if f := cloud.FaultOf(err); f == nil || f.Kind != cloud.Transient {
		t.Errorf("got %v, want a transient fault", err)
	}
	if _, err := azure.NewOpener(azure.WithCA([]byte("none"))).Open(t.Context(), account("secret")); cloud.KindOf(err) != cloud.Credentials {
		t.Errorf("a CA bundle without certificates: got %v, want a fault", err)
	}
}
