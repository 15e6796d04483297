package spec_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	machinev1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/provider/azure/spec"
)

// installer is what an installer writes into a worker MachineSet.
const installer = `{"apiVersion":"machine.openshift.io/v1beta1","kind":"AzureMachineProviderSpec",
"credentialsSecret":{"name":"azure-cloud-credentials","namespace":"openshift-machine-api"},"userDataSecret":{"name":"worker-user-data"},
"image":{"offer":"","publisher":"","sku":"","version":"","resourceID":"/resourceGroups/w-rg/providers/Microsoft.Compute/galleries/gallery_w/images/w-gen2/versions/latest"},
"location":"francecentral","managedIdentity":"w-identity","networkResourceGroup":"w-rg","resourceGroup":"w-rg",
"osDisk":{"diskSizeGB":128,"managedDisk":{"storageAccountType":"Premium_LRS"},"osType":"Linux"},
"publicIP":false,"publicLoadBalancer":"w","subnet":"w-worker-subnet","vnet":"w-vnet","vmSize":"Standard_D4s_v3","zone":"1"}`

func valid(t *testing.T, change func(*spec.Spec)) *spec.Spec {
	t.Helper()
	s, problems, err := spec.Codec{}.Decode([]byte(installer))
	if err != nil || len(problems) != 0 {
		t.Fatalf("decode the installer's spec: %v, %v", problems, err)
	}
	out := s.(*spec.Spec)
	if change != nil {
		change(out)
	}
	return out
}

func texts(problems []cloud.Problem) []string {
	out := []string{}
	for _, p := range problems {
		prefix := ""
		if p.Warning {
			prefix = "warning: "
		}
		out = append(out, prefix+p.String())
	}
	return out
}

type S = spec.Spec

func confidential(change func(s *S, p *machinev1.SecurityProfile)) func(*S) {
	return func(s *S) {
		s.OSDisk.ManagedDisk.SecurityProfile.SecurityEncryptionType = machinev1.SecurityEncryptionTypesDiskWithVMGuestState
		s.SecurityProfile = &machinev1.SecurityProfile{Settings: machinev1.SecuritySettings{
			SecurityType: machinev1.SecurityTypesConfidentialVM,
			ConfidentialVM: &machinev1.ConfidentialVM{UEFISettings: machinev1.UEFISettings{
				SecureBoot: "Enabled", VirtualizedTrustedPlatformModule: "Enabled"}},
		}}
		change(s, s.SecurityProfile)
	}
}

func disk(change func(*machinev1.DataDisk)) func(*S) {
	return func(s *S) {
		d := machinev1.DataDisk{NameSuffix: "etcd", DiskSizeGB: 64, DeletionPolicy: machinev1.DiskDeletionPolicyTypeDelete}
		change(&d)
		s.DataDisks = []machinev1.DataDisk{d}
	}
}

func TestValidateSpeaksTheOriginalsWords(t *testing.T) {
	on := true
	for _, tc := range []struct {
		name   string
		change func(*S)
		in     cloud.SpecContext
		want   []string
	}{
		{name: "installer's spec is fine"},
		{name: "group and version", change: func(s *S) { s.APIVersion = "example.com/v1" },
			want: []string{"warning: incorrect GroupVersionKind for AzureMachineProviderSpec object: example.com/v1, Kind=AzureMachineProviderSpec"}},
		{name: "legacy group", change: func(s *S) { s.APIVersion = "azureproviderconfig.openshift.io/v1" }},
		{name: "kind", change: func(s *S) { s.Kind = "AWSMachineProviderConfig" },
			want: []string{`providerSpec.value.kind: Invalid value: "AWSMachineProviderConfig": must be AzureMachineProviderSpec (apiVersion machine.openshift.io/v1beta1)`}},
		{name: "size", change: func(s *S) { s.VMSize = "" },
			want: []string{"providerSpec.vmSize: Required value: vmSize should be set to one of the supported Azure VM sizes"}},
		{name: "public address in a private installation", change: func(s *S) { s.PublicIP = true }, in: cloud.SpecContext{Private: true},
			want: []string{"providerSpec.publicIP: Forbidden: publicIP is not allowed in Azure disconnected installation with publish strategy as internal"}},
		{name: "subnet", change: func(s *S) { s.Subnet = "" },
			want: []string{"providerSpec.subnet: Required value: must provide a subnet when a virtual network is specified"}},
		{name: "vnet", change: func(s *S) { s.Vnet = "" },
			want: []string{"providerSpec.vnet: Required value: must provide a virtual network when supplying subnets"}},
		{name: "no image", change: func(s *S) { s.Image = machinev1.Image{} },
			want: []string{"providerSpec.image: Required value: an image reference must be provided"}},
		{name: "two images", change: func(s *S) { s.Image.Type = machinev1.AzureImageTypeID },
			want: []string{"providerSpec.image.resourceID: Required value: resourceID is already specified, other fields such as [Offer, Publisher, SKU, Version] should not be set"}},
		{name: "half an image", change: func(s *S) { s.Image = machinev1.Image{Type: machinev1.AzureImageTypeMarketplaceNoPlan} },
			want: []string{"providerSpec.image.Offer: Required value: Offer must be provided",
				"providerSpec.image.Publisher: Required value: Publisher must be provided",
				"providerSpec.image.SKU: Required value: SKU must be provided",
				"providerSpec.image.Version: Required value: Version must be provided"}},
		{name: "no secrets", change: func(s *S) { s.UserDataSecret, s.CredentialsSecret = nil, nil },
			want: []string{"providerSpec.userDataSecret: Required value: userDataSecret must be provided",
				"providerSpec.credentialsSecret: Required value: credentialsSecret must be provided"}},
		{name: "nameless secrets", change: func(s *S) {
			s.UserDataSecret, s.CredentialsSecret = &corev1.SecretReference{}, &corev1.SecretReference{}
		}, want: []string{"providerSpec.userDataSecret.name: Required value: name must be provided",
			"providerSpec.credentialsSecret.namespace: Required value: namespace must be provided",
			"providerSpec.credentialsSecret.name: Required value: name must be provided"}},
		{name: "disk size", change: func(s *S) { s.OSDisk.DiskSizeGB = 32768 },
			want: []string{"providerSpec.osDisk.diskSizeGB: Invalid value: 32768: diskSizeGB must be greater than zero and less than 32768"}},
		{name: "ephemeral location", change: func(s *S) { s.OSDisk.DiskSettings.EphemeralStorageLocation = "Remote" },
			want: []string{`providerSpec.osDisk.diskSettings.ephemeralStorageLocation: Invalid value: "Remote": osDisk.diskSettings.ephemeralStorageLocation can either be omitted or set to Local`}},
		{name: "caching", change: func(s *S) { s.OSDisk.CachingType = "Write" },
			want: []string{`providerSpec.osDisk.cachingType: Invalid value: "Write": osDisk.cachingType can be only None, ReadOnly, ReadWrite or omitted`}},
		{name: "ephemeral caching", change: func(s *S) { s.OSDisk.DiskSettings.EphemeralStorageLocation = "Local" },
			want: []string{`providerSpec.osDisk.cachingType: Invalid value: "": Instances using an ephemeral OS disk support only Readonly caching`}},
		{name: "reservation without slash", change: func(s *S) { s.CapacityReservationGroupID = "subscriptions/x" },
			want: []string{`providerSpec.capacityReservationGroupID: Invalid value: "subscriptions/x": invalid resource ID: resource id 'subscriptions/x' must start with '/'`}},
		{name: "reservation without group name", change: func(s *S) { s.CapacityReservationGroupID = "/subscriptions/x/resourceGroups" },
			want: []string{`providerSpec.capacityReservationGroupID: Invalid value: "/subscriptions/x/resourceGroups": invalid resource ID: /subscriptions/x/resourceGroups`}},
		{name: "reservation", change: func(s *S) {
			s.CapacityReservationGroupID = "azure:///subscriptions/x/resourceGroups/g/providers/Microsoft.Compute/capacityReservationGroups/c"
		}},
		{name: "ultra", change: func(s *S) { s.UltraSSDCapability = "Yes" },
			want: []string{`providerSpec.ultraSSDCapability: Invalid value: "Yes": ultraSSDCapability can be only Enabled, Disabled or omitted`}},
		{name: "encryption without profile", change: confidential(func(s *S, _ *machinev1.SecurityProfile) { s.SecurityProfile = nil }),
			want: []string{"providerSpec.securityProfile: Required value: securityProfile should be set when osDisk.managedDisk.securityProfile.securityEncryptionType is defined."}},
		{name: "confidential is fine", change: confidential(func(*S, *machinev1.SecurityProfile) {})},
		{name: "confidential without encryption", change: confidential(func(s *S, _ *machinev1.SecurityProfile) {
			s.OSDisk.ManagedDisk.SecurityProfile.SecurityEncryptionType = ""
		}), want: []string{"providerSpec.osDisk.managedDisk.securityProfile.securityEncryptionType: Required value: securityEncryptionType should be set when securityType is set to ConfidentialVM."}},
		{name: "confidential without block", change: confidential(func(_ *S, p *machinev1.SecurityProfile) { p.Settings.ConfidentialVM = nil }),
			want: []string{"providerSpec.securityProfile.settings.confidentialVM: Required value: confidentialVM should be set when securityType is set to ConfidentialVM."}},
		{name: "confidential without TPM", change: confidential(func(_ *S, p *machinev1.SecurityProfile) {
			p.Settings.ConfidentialVM.UEFISettings.VirtualizedTrustedPlatformModule = "Disabled"
		}), want: []string{`providerSpec.securityProfile.settings.confidentialVM.uefiSettings.virtualizedTrustedPlatformModule: Invalid value: "Disabled": virtualizedTrustedPlatformModule should be enabled when securityType is set to ConfidentialVM.`}},
		{name: "confidential with host encryption", change: confidential(func(_ *S, p *machinev1.SecurityProfile) { p.EncryptionAtHost = &on }),
			want: []string{"providerSpec.securityProfile.encryptionAtHost: Invalid value: true: encryptionAtHost cannot be set to true when securityEncryptionType is set to DiskWithVMGuestState."}},
		{name: "confidential without secure boot", change: confidential(func(_ *S, p *machinev1.SecurityProfile) { p.Settings.ConfidentialVM.UEFISettings.SecureBoot = "" }),
			want: []string{`providerSpec.securityProfile.settings.confidentialVM.uefiSettings.secureBoot: Invalid value: "": secureBoot should be enabled when securityEncryptionType is set to DiskWithVMGuestState.`}},
		{name: "trusted without block", change: func(s *S) {
			s.SecurityProfile = &machinev1.SecurityProfile{Settings: machinev1.SecuritySettings{SecurityType: machinev1.SecurityTypesTrustedLaunch}}
		}, want: []string{"providerSpec.securityProfile.settings.trustedLaunch: Required value: trustedLaunch should be set when securityType is set to TrustedLaunch."}},
		{name: "encryption without type", change: confidential(func(_ *S, p *machinev1.SecurityProfile) { p.Settings.SecurityType = "" }),
			want: []string{"providerSpec.securityProfile.settings.securityType: Required value: securityType should be set to ConfidentialVM when securityEncryptionType is defined."}},
		{name: "trusted settings without type", change: func(s *S) {
			s.SecurityProfile = &machinev1.SecurityProfile{Settings: machinev1.SecuritySettings{
				TrustedLaunch: &machinev1.TrustedLaunch{UEFISettings: machinev1.UEFISettings{SecureBoot: "Enabled"}}}}
		}, want: []string{"providerSpec.securityProfile.settings.securityType: Required value: securityType should be set to TrustedLaunch when uefiSettings are enabled."}},
		{name: "data disk is fine", change: disk(func(*machinev1.DataDisk) {})},
		{name: "data disk name", change: disk(func(d *machinev1.DataDisk) { d.NameSuffix = "etcd_" }),
			want: []string{`providerSpec.dataDisks[0].nameSuffix: Invalid value: "etcd_": nameSuffix must be provided, must start and finish with an alphanumeric character and can only contain letters, numbers, underscores, periods or hyphens`}},
		{name: "data disk name too long", change: disk(func(d *machinev1.DataDisk) { d.NameSuffix = strings.Repeat("a", 70) }), in: cloud.SpecContext{MachineName: "w-worker-x"},
			want: []string{`providerSpec.dataDisks[0].nameSuffix: Invalid value: "` + strings.Repeat("a", 70) + `": too long, the overall disk name must not exceed 80 chars`}},
		{name: "data disks alike", change: func(s *S) {
			disk(func(*machinev1.DataDisk) {})(s)
			s.DataDisks = append(s.DataDisks, s.DataDisks[0])
		}, want: []string{`providerSpec.dataDisks[1].nameSuffix: Invalid value: "etcd": each Data Disk must have a unique nameSuffix`,
			"providerSpec.dataDisks[1].lun: Invalid value: 0: each Data Disk must have a unique lun"}},
		{name: "data disk size", change: disk(func(d *machinev1.DataDisk) { d.DiskSizeGB = 3 }),
			want: []string{"providerSpec.dataDisks[0].diskSizeGB: Invalid value: 3: diskSizeGB must be provided and at least 4GB in size"}},
		{name: "data disk lun", change: disk(func(d *machinev1.DataDisk) { d.Lun = 64 }),
			want: []string{"providerSpec.dataDisks[0].lun: Invalid value: 64: must be greater than or equal to 0 and less than 64"}},
		{name: "data disk without policy", change: disk(func(d *machinev1.DataDisk) { d.DeletionPolicy = "" }),
			want: []string{"providerSpec.dataDisks[0].deletionPolicy: Required value: deletionPolicy must be provided and must be either Delete or Detach"}},
		{name: "data disk policy", change: disk(func(d *machinev1.DataDisk) { d.DeletionPolicy = "Keep" }),
			want: []string{`providerSpec.dataDisks[0].deletionPolicy: Invalid value: "Keep": must be either Delete or Detach`}},
		{name: "data disk caching", change: disk(func(d *machinev1.DataDisk) {
			d.ManagedDisk.StorageAccountType, d.CachingType = machinev1.StorageAccountUltraSSDLRS, machinev1.CachingTypeReadOnly
		}), want: []string{`providerSpec.dataDisks[0].cachingType: Invalid value: "ReadOnly": must be "None" or omitted when storageAccountType is "UltraSSD_LRS"`}},
		{name: "diagnostics without account", change: func(s *S) {
			s.Diagnostics.Boot = &machinev1.AzureBootDiagnostics{StorageAccountType: "CustomerManaged"}
		}, want: []string{"providerSpec.diagnostics.boot.customerManaged: Required value: customerManaged configuration must be provided"}},
		{name: "diagnostics without address", change: func(s *S) {
			s.Diagnostics.Boot = &machinev1.AzureBootDiagnostics{StorageAccountType: "CustomerManaged", CustomerManaged: &machinev1.AzureCustomerManagedBootDiagnostics{}}
		}, want: []string{"providerSpec.diagnostics.boot.customerManaged.storageAccountURI: Required value: storageAccountURI must be provided"}},
		{name: "diagnostics with too much", change: func(s *S) {
			s.Diagnostics.Boot = &machinev1.AzureBootDiagnostics{StorageAccountType: "AzureManaged", CustomerManaged: &machinev1.AzureCustomerManagedBootDiagnostics{StorageAccountURI: "https://a/"}}
		}, want: []string{`providerSpec.diagnostics.boot.customerManaged: Invalid value: v1beta1.AzureCustomerManagedBootDiagnostics{StorageAccountURI:"https://a/"}: customerManaged may not be set when type is AzureManaged`}},
		{name: "diagnostics type", change: func(s *S) { s.Diagnostics.Boot = &machinev1.AzureBootDiagnostics{StorageAccountType: "Mine"} },
			want: []string{`providerSpec.diagnostics.boot.storageAccountType: Invalid value: "Mine": storageAccountType must be one of: AzureManaged, CustomerManaged`}},
		{name: "spot elsewhere", change: func(s *S) { s.SpotVMOptions = &machinev1.SpotVMOptions{} },
			in:   cloud.SpecContext{MachineName: "m", CloudName: "AzureUSGovernmentCloud"},
			want: []string{"warning: spot VMs may not be supported when using GovCloud region"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := texts(spec.Codec{}.Validate(valid(t, tc.change), tc.in))
			if d := cmp.Diff(append([]string{}, tc.want...), got); d != "" {
				t.Errorf("problems (-want +got):\n%s", d)
			}
		})
	}
}

func TestValidateKnowsTheMarket(t *testing.T) {
	in := cloud.SpecContext{
		InfraID: "w", Regions: []string{"francecentral", "germanywestcentral", "westeurope"},
		Sizes: []cloud.Size{
			{Name: "Standard_D2s_v3", Zones: []string{"1", "2", "3"}},
			{Name: "Standard_D4s_v3", Zones: []string{"1", "2", "3"}},
			{Name: "Standard_D8s_v3", Zones: []string{"2"}},
		},
	}
	for _, tc := range []struct {
		name    string
		change  func(*S)
		machine string
		want    []string
	}{
		{name: "sold here"},
		{name: "names compare as ARM compares them", change: func(s *S) { s.VMSize, s.Location = "standard_d4s_V3", "France Central" }},
		{name: "typo in the location", change: func(s *S) { s.Location = "francecentrl" },
			want: []string{`azure-region providerSpec.location: Invalid value: "francecentrl": no such region for this subscription, did you mean "francecentral"?`}},
		{name: "unknown size", change: func(s *S) { s.VMSize = "Standard_D4s_v33" },
			want: []string{`azure-size providerSpec.vmSize: Invalid value: "Standard_D4s_v33": not sold in francecentral; sizes near it: Standard_D4s_v3 (zones 1, 2, 3), Standard_D2s_v3 (zones 1, 2, 3), Standard_D8s_v3 (zones 2)`}},
		{name: "size of another zone", change: func(s *S) { s.VMSize = "Standard_D8s_v3" },
			want: []string{`azure-size-zone providerSpec.vmSize: Invalid value: "Standard_D8s_v3": not sold in zone 1 of francecentral, but in the zones 2; sizes near it in zone 1: Standard_D2s_v3 (zones 1, 2, 3), Standard_D4s_v3 (zones 1, 2, 3)`}},
		{name: "unknown zone", change: func(s *S) { s.Zone = "4" },
			want: []string{`azure-zone providerSpec.zone: Invalid value: "4": region francecentral has the zones 1, 2, 3`}},
		{name: "long name", machine: strings.Repeat("m", 70),
			want: []string{`azure-machine-name metadata.name: Invalid value: "` + strings.Repeat("m", 70) + `": has 70 characters, must have at most 63: it becomes the host name of the VM and the name of its Node`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := in
			c.MachineName = tc.machine
			got := []string{}
			for _, p := range (spec.Codec{}).Validate(valid(t, tc.change), c) {
				got = append(got, p.Rule+" "+p.String())
			}
			if d := cmp.Diff(append([]string{}, tc.want...), got); d != "" {
				t.Errorf("problems (-want +got):\n%s", d)
			}
		})
	}
}

func TestDecodeReportsUnknownFields(t *testing.T) {
	for _, tc := range []struct{ name, raw, want string }{
		{"foreign", `{"flavour":"big"}`, `warning: providerSpec.value: Unsupported value: "flavour": Unknown field (flavour) will be ignored`},
		{"near", `{"vmsise":"x"}`, `providerSpec.value: Unsupported value: "vmsise": unknown field, did you mean "vmSize"?`},
		{"case", `{"vmsize":"x"}`, `providerSpec.value: Unsupported value: "vmsize": unknown field, did you mean "vmSize"?`},
		{"swapped", `{"loaction":"x"}`, `providerSpec.value: Unsupported value: "loaction": unknown field, did you mean "location"?`},
		{"deep", `{"osDisk":{"diskSizeGb":4}}`, `providerSpec.value.osDisk: Unsupported value: "diskSizeGb": unknown field, did you mean "diskSizeGB"?`},
		{"in a list", `{"dataDisks":[{},{"speed":4}]}`, `warning: providerSpec.value: Unsupported value: "dataDisks[1].speed": Unknown field (dataDisks[1].speed) will be ignored`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, problems, err := spec.Codec{}.Decode([]byte(tc.raw))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff([]string{tc.want}, texts(problems)); d != "" {
				t.Errorf("problems (-want +got):\n%s", d)
			}
		})
	}
}

func TestDecodeIsAsTolerantAsTheOriginal(t *testing.T) {
	s, _, err := spec.Codec{}.Decode([]byte(`{"zone": 1, "vmSize": true}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, zone, size := (spec.Codec{}).Place(s); zone != "1" || size != "true" {
		t.Errorf("got zone %q and size %q, want both as strings", zone, size)
	}
	for raw, want := range map[string]string{
		`{"osDisk":{"diskSizeGB":"128"}}`: "osDisk.diskSizeGB of type int32",
		`{"publicIP":"yes"}`:              "publicIP of type bool",
		`{"location":{}}`:                 "location of type string",
		`[]`:                              "cannot unmarshal array",
		``:                                "a value must be provided",
		`null`:                            "a value must be provided",
	} {
		if _, _, err := (spec.Codec{}).Decode([]byte(raw)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("decode %q: got %v, want it to say %q", raw, err, want)
		}
	}
}

func TestForeignKindIsNamedAndNothingElse(t *testing.T) {
	s, problems, err := spec.Codec{}.Decode([]byte(`{"kind":"AWSMachineProviderConfig","apiVersion":"machine.openshift.io/v1beta1","subnet":{"filters":[]},"instanceType":"m5.large"}`))
	if err != nil || len(problems) != 0 {
		t.Fatalf("decode: %v, %v", problems, err)
	}
	got := texts(spec.Codec{}.Validate(spec.Codec{}.Default(s, cloud.SpecContext{InfraID: "w"}), cloud.SpecContext{}))
	want := []string{`providerSpec.value.kind: Invalid value: "AWSMachineProviderConfig": must be AzureMachineProviderSpec (apiVersion machine.openshift.io/v1beta1)`}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("problems (-want +got):\n%s", d)
	}
}

func TestDefaultFillsWhatIsMissing(t *testing.T) {
	s, _, err := spec.Codec{}.Decode([]byte(`{"kind":"AzureMachineProviderSpec","apiVersion":"machine.openshift.io/v1beta1","osDisk":{"diskSizeGB":64}}`))
	if err != nil {
		t.Fatal(err)
	}
	d := spec.Codec{}.Default(s, cloud.SpecContext{InfraID: "w-1"})
	if problems := (spec.Codec{}).Validate(d, cloud.SpecContext{}); len(problems) != 0 {
		t.Errorf("a defaulted spec has problems: %v", texts(problems))
	}
	raw, err := spec.Codec{}.Encode(d)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"kind": "AzureMachineProviderSpec", "apiVersion": "machine.openshift.io/v1beta1", "metadata": map[string]any{},
		"userDataSecret":    map[string]any{"name": "worker-user-data"},
		"credentialsSecret": map[string]any{"name": "azure-cloud-credentials", "namespace": "openshift-machine-api"},
		"vmSize":            "Standard_D4s_V3", "vnet": "w-1-vnet", "subnet": "w-1-worker-subnet", "publicIP": false, "diagnostics": map[string]any{},
		"image": map[string]any{"publisher": "azureopenshift", "offer": "aro4", "sku": "aro_420", "version": "9.6.20251015", "resourceID": ""},
		"osDisk": map[string]any{"osType": "", "diskSizeGB": 64.0, "diskSettings": map[string]any{},
			"managedDisk": map[string]any{"storageAccountType": "", "securityProfile": map[string]any{"diskEncryptionSet": map[string]any{}}}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("stored spec (-want +got):\n%s", d)
	}
	if in := s.(*spec.Spec); in.VMSize != "" {
		t.Error("Default changed its argument")
	}
	arm := spec.Codec{}.Default(&spec.Spec{AzureMachineProviderSpec: machinev1.AzureMachineProviderSpec{SecurityProfile: &machinev1.SecurityProfile{}}},
		cloud.SpecContext{InfraID: "w-1", Arch: "arm64"}).(*spec.Spec)
	if arm.VMSize != "Standard_D4ps_V5" || arm.Image.ResourceID != "/resourceGroups/w-1-rg/providers/Microsoft.Compute/galleries/gallery_w_1/images/w-1-gen2/versions/latest" {
		t.Errorf("arm64 with a security profile: got %s, %+v", arm.VMSize, arm.Image)
	}
}

func TestDigestFollowsMeaning(t *testing.T) {
	var c spec.Codec
	a := valid(t, nil)
	b := valid(t, func(s *S) { s.Name = "ignored" })
	if c.Digest(a) != c.Digest(b) {
		t.Error("metadata changed the digest")
	}
	if c.Digest(a) == c.Digest(valid(t, func(s *S) { s.Zone = "2" })) {
		t.Error("another zone has the same digest")
	}
}

func FuzzDecodeProviderSpec(f *testing.F) {
	f.Add([]byte(installer))
	f.Add([]byte("zone: 1\nosDisk:\n  diskSizeGB: 3\n"))
	f.Add([]byte(`{"dataDisks":[null,{"lun":1}],"spotVMOptions":{"maxPrice":"0.5"},"tags":{"a":"b"}}`))
	f.Add([]byte(`{"metadata":{"creationTimestamp":null},"securityProfile":{"settings":{"confidentialVM":{}}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var c spec.Codec
		s, _, err := c.Decode(raw)
		if err != nil {
			return
		}
		c.Validate(c.Default(s, cloud.SpecContext{InfraID: "w"}), cloud.SpecContext{MachineName: "m", Sizes: []cloud.Size{{Name: "Standard_D4s_v3"}}})
		out, err := c.Encode(s)
		if err != nil {
			t.Fatalf("encode what was decoded: %v", err)
		}
		if !strings.Contains(string(out), `"publicIP"`) {
			t.Fatalf("a field that is always stored is missing: %s", out)
		}
		again, problems, err := c.Decode(out)
		if err != nil || len(problems) != 0 {
			t.Fatalf("decode what was encoded: %v, %v", problems, err)
		}
		if c.Digest(s) != c.Digest(again) {
			t.Fatalf("round trip changed the meaning: %s", out)
		}
	})
}
