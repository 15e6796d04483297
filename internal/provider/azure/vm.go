package azure

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math/big"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	machinev1 "github.com/openshift/api/machine/v1beta1"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/provider/azure/spec"
)

const adminUser = "capi"

// virtualMachine builds the body of the PUT. Deletion options of interface and
// OS disk are not set: Delete removes them itself.
func (c *Cloud) virtualMachine(j *job, nicID string) (armcompute.VirtualMachine, error) {
	s := j.spec
	profile, err := osProfile(s, j.in)
	if err != nil {
		return armcompute.VirtualMachine{}, &cloud.Fault{Kind: cloud.Transient, Op: j.op, Cause: err}
	}
	vm := armcompute.VirtualMachine{
		Location: &j.region, Tags: j.tags, Plan: plan(s.Image),
		Properties: &armcompute.VirtualMachineProperties{
			HardwareProfile: &armcompute.HardwareProfile{VMSize: to.Ptr(armcompute.VirtualMachineSizeTypes(s.VMSize))},
			StorageProfile:  c.storage(j),
			SecurityProfile: security(s.SecurityProfile),
			OSProfile:       profile,
			NetworkProfile: &armcompute.NetworkProfile{NetworkInterfaces: []*armcompute.NetworkInterfaceReference{
				{ID: &nicID, Properties: &armcompute.NetworkInterfaceReferenceProperties{Primary: to.Ptr(true)}},
			}},
			DiagnosticsProfile: diagnostics(s.Diagnostics.Boot),
		},
	}
	p := vm.Properties
	if ultra(s) {
		p.AdditionalCapabilities = &armcompute.AdditionalCapabilities{UltraSSDEnabled: to.Ptr(s.UltraSSDCapability != machinev1.AzureUltraSSDCapabilityDisabled)}
	}
	if id := s.ManagedIdentity; id != "" {
		if !strings.HasPrefix(id, "/subscriptions/") {
			id = fmt.Sprintf("/subscriptions/%s/resourcegroups/%s/providers/Microsoft.ManagedIdentity/userAssignedIdentities/%s", c.subscription, j.group, id)
		}
		vm.Identity = &armcompute.VirtualMachineIdentity{Type: to.Ptr(armcompute.ResourceIdentityTypeUserAssigned),
			UserAssignedIdentities: map[string]*armcompute.UserAssignedIdentitiesValue{id: {}}}
	}
	if s.Zone != "" {
		vm.Zones = []*string{&s.Zone}
	}
	if j.set != "" {
		p.AvailabilitySet = &armcompute.SubResource{ID: to.Ptr(c.id(j.group, "Microsoft.Compute", "availabilitySets", j.set))}
	}
	if s.CapacityReservationGroupID != "" {
		p.CapacityReservation = &armcompute.CapacityReservationProfile{CapacityReservationGroup: &armcompute.SubResource{
			ID: to.Ptr(strings.TrimPrefix(s.CapacityReservationGroupID, "azure://"))}}
	}
	if spot := s.SpotVMOptions; spot != nil {
		p.Priority = to.Ptr(armcompute.VirtualMachinePriorityTypesSpot)
		p.EvictionPolicy = to.Ptr(armcompute.VirtualMachineEvictionPolicyTypesDelete)
		p.BillingProfile = &armcompute.BillingProfile{MaxPrice: to.Ptr(-1.0)} // up to the price on demand
		if spot.MaxPrice != nil && !spot.MaxPrice.IsZero() {
			p.BillingProfile.MaxPrice = to.Ptr(spot.MaxPrice.AsApproximateFloat64())
		}
	}
	return vm, nil
}

// plan is sent for marketplace images that ask for one.
func plan(i machinev1.Image) *armcompute.Plan {
	if i.Type == "" || i.Type == machinev1.AzureImageTypeMarketplaceNoPlan || i.Publisher == "" || i.Offer == "" || i.SKU == "" {
		return nil
	}
	return &armcompute.Plan{Name: &i.SKU, Product: &i.Offer, Publisher: &i.Publisher}
}

func (c *Cloud) storage(j *job) *armcompute.StorageProfile {
	s := j.spec
	image := &armcompute.ImageReference{}
	if id := s.Image.ResourceID; id != "" {
		if !strings.HasPrefix(strings.ToLower(id), "/subscriptions/") {
			id = "/subscriptions/" + c.subscription + id
		}
		image.ID = &id
	} else {
		image.Publisher, image.Offer, image.SKU, image.Version = &s.Image.Publisher, &s.Image.Offer, &s.Image.SKU, &s.Image.Version
	}
	osType := s.OSDisk.OSType
	if osType == "" {
		osType = string(armcompute.OperatingSystemTypesLinux)
	}
	disk := &armcompute.OSDisk{
		Name: to.Ptr(diskName(j.in.Key.Name)), OSType: to.Ptr(armcompute.OperatingSystemTypes(osType)),
		CreateOption: to.Ptr(armcompute.DiskCreateOptionTypesFromImage), DiskSizeGB: &s.OSDisk.DiskSizeGB,
		Caching:     set(armcompute.CachingTypes(s.OSDisk.CachingType)),
		ManagedDisk: &armcompute.ManagedDiskParameters{StorageAccountType: set(armcompute.StorageAccountTypes(s.OSDisk.ManagedDisk.StorageAccountType))},
	}
	if d := s.OSDisk.ManagedDisk.DiskEncryptionSet; d != nil && d.ID != "" {
		disk.ManagedDisk.DiskEncryptionSet = &armcompute.DiskEncryptionSetParameters{ID: &d.ID}
	}
	if p := s.OSDisk.ManagedDisk.SecurityProfile; p.SecurityEncryptionType != "" {
		disk.ManagedDisk.SecurityProfile = &armcompute.VMDiskSecurityProfile{
			SecurityEncryptionType: to.Ptr(armcompute.SecurityEncryptionTypes(p.SecurityEncryptionType))}
		if p.DiskEncryptionSet.ID != "" {
			disk.ManagedDisk.SecurityProfile.DiskEncryptionSet = &armcompute.DiskEncryptionSetParameters{ID: &p.DiskEncryptionSet.ID}
		}
	}
	if s.OSDisk.DiskSettings.EphemeralStorageLocation == "Local" {
		disk.DiffDiskSettings = &armcompute.DiffDiskSettings{Option: to.Ptr(armcompute.DiffDiskOptionsLocal)}
	}
	out := &armcompute.StorageProfile{ImageReference: image, OSDisk: disk}
	for i := range s.DataDisks {
		out.DataDisks = append(out.DataDisks, dataDisk(j.in.Key.Name, &s.DataDisks[i]))
	}
	return out
}

// dataDisk builds one data disk. With its deletion option Azure itself deletes
// or keeps it when the VM goes.
func dataDisk(machine string, d *machinev1.DataDisk) *armcompute.DataDisk {
	out := &armcompute.DataDisk{
		Name: to.Ptr(machine + "_" + d.NameSuffix), CreateOption: to.Ptr(armcompute.DiskCreateOptionTypesEmpty),
		DiskSizeGB: &d.DiskSizeGB, Lun: &d.Lun, Caching: set(armcompute.CachingTypes(d.CachingType)),
		DeleteOption: to.Ptr(armcompute.DiskDeleteOptionTypes(d.DeletionPolicy)),
		ManagedDisk:  &armcompute.ManagedDiskParameters{StorageAccountType: set(armcompute.StorageAccountTypes(d.ManagedDisk.StorageAccountType))},
	}
	if e := d.ManagedDisk.DiskEncryptionSet; e != nil && e.ID != "" {
		out.ManagedDisk.DiskEncryptionSet = &armcompute.DiskEncryptionSetParameters{ID: &e.ID}
	}
	return out
}

// ultra says whether the VM must be told about ultra disks at all.
func ultra(s *spec.Spec) bool {
	if s.UltraSSDCapability != "" {
		return true
	}
	for _, d := range s.DataDisks {
		if d.ManagedDisk.StorageAccountType == machinev1.StorageAccountUltraSSDLRS {
			return true
		}
	}
	return false
}

func security(p *machinev1.SecurityProfile) *armcompute.SecurityProfile {
	if p == nil {
		return nil
	}
	out := &armcompute.SecurityProfile{EncryptionAtHost: p.EncryptionAtHost, SecurityType: set(armcompute.SecurityTypes(p.Settings.SecurityType))}
	var uefi *machinev1.UEFISettings
	switch {
	case p.Settings.SecurityType == machinev1.SecurityTypesConfidentialVM && p.Settings.ConfidentialVM != nil:
		uefi = &p.Settings.ConfidentialVM.UEFISettings
	case p.Settings.SecurityType == machinev1.SecurityTypesTrustedLaunch && p.Settings.TrustedLaunch != nil:
		uefi = &p.Settings.TrustedLaunch.UEFISettings
	default:
		return out
	}
	out.UefiSettings = &armcompute.UefiSettings{
		SecureBootEnabled: to.Ptr(uefi.SecureBoot == machinev1.SecureBootPolicyEnabled),
		VTpmEnabled:       to.Ptr(uefi.VirtualizedTrustedPlatformModule == machinev1.VirtualizedTrustedPlatformModulePolicyEnabled),
	}
	return out
}

func diagnostics(b *machinev1.AzureBootDiagnostics) *armcompute.DiagnosticsProfile {
	if b == nil {
		return nil
	}
	out := &armcompute.BootDiagnostics{Enabled: to.Ptr(true)}
	if b.StorageAccountType == machinev1.CustomerManagedAzureDiagnosticsStorage && b.CustomerManaged != nil {
		out.StorageURI = &b.CustomerManaged.StorageAccountURI
	}
	return &armcompute.DiagnosticsProfile{BootDiagnostics: out}
}

// osProfile carries the first-boot data. Azure insists on a login; the one it
// gets opens nothing: a password and a key that nobody keeps.
func osProfile(s *spec.Spec, in cloud.Intent) (*armcompute.OSProfile, error) {
	random := make([]byte, 32)
	if _, err := rand.Read(random); err != nil {
		return nil, fmt.Errorf("make admin password: %w", err)
	}
	key, err := sshKey(s.SSHPublicKey)
	if err != nil {
		return nil, err
	}
	return &armcompute.OSProfile{
		ComputerName: to.Ptr(in.Key.Name), AdminUsername: to.Ptr(adminUser), AdminPassword: to.Ptr(base64.URLEncoding.EncodeToString(random)),
		CustomData: to.Ptr(base64.StdEncoding.EncodeToString(in.UserData)),
		LinuxConfiguration: &armcompute.LinuxConfiguration{DisablePasswordAuthentication: to.Ptr(true), SSH: &armcompute.SSHConfiguration{
			PublicKeys: []*armcompute.SSHPublicKey{{Path: to.Ptr("/home/" + adminUser + "/.ssh/authorized_keys"), KeyData: &key}},
		}},
	}, nil
}

// throwaway makes one key pair per process and forgets its private half.
var throwaway = sync.OnceValues(func() (string, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return "", fmt.Errorf("make ssh key: %w", err)
	}
	var wire []byte
	field := func(b []byte) {
		wire = binary.BigEndian.AppendUint32(wire, uint32(len(b)))
		wire = append(wire, b...)
	}
	number := func(n *big.Int) {
		b := n.Bytes()
		if len(b) > 0 && b[0]&0x80 != 0 {
			b = append([]byte{0}, b...) // the format's numbers have a sign
		}
		field(b)
	}
	field([]byte("ssh-rsa"))
	number(big.NewInt(int64(key.E)))
	number(key.N)
	return "ssh-rsa " + base64.StdEncoding.EncodeToString(wire), nil
})

// sshKey returns the authorized key: the spec's, which is base64, or a
// throw-away one.
func sshKey(encoded string) (string, error) {
	if encoded == "" {
		return throwaway()
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return "", fmt.Errorf("decode sshPublicKey: %w", err)
	}
	return string(raw), nil
}
