package spec

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	machinev1 "github.com/openshift/api/machine/v1beta1"

	"millwright.io/millwright/internal/cloud"
)

// findings collects problems in the order in which they are found.
type findings []cloud.Problem

func (f *findings) add(rule string, t cloud.ProblemType, path, value, detail string) {
	*f = append(*f, cloud.Problem{Rule: rule, Type: t, Field: path, Value: value, Detail: detail})
}

func (f *findings) required(rule, path, detail string) {
	f.add(rule, cloud.ProblemRequired, path, "", detail)
}

func (f *findings) invalid(rule, path, value, detail string) {
	f.add(rule, cloud.ProblemInvalid, path, value, detail)
}

func (f *findings) text(rule, path, value, detail string) {
	f.add(rule, cloud.ProblemInvalid, path, strconv.Quote(value), detail)
}

// warn adds a warning that is a sentence of its own, without a field.
func (f *findings) warn(rule, detail string) {
	*f = append(*f, cloud.Problem{Rule: rule, Detail: detail, Warning: true})
}

// Validate implements cloud.SpecCodec: first the original's rules in its
// order, then ours.
func (Codec) Validate(s cloud.Spec, c cloud.SpecContext) []cloud.Problem {
	var f findings
	as, err := of(s)
	if err != nil {
		f.text("provider-kind", "providerSpec.value.kind", fmt.Sprintf("%T", s), mustBeKind)
		return f
	}
	if as.Kind != "" && as.Kind != Kind {
		f.text("provider-kind", "providerSpec.value.kind", as.Kind, mustBeKind)
		return f
	}
	f.kind(as)
	f.basics(as, c)
	f.image(as.Image)
	f.secrets(as)
	f.osDisk(as)
	f.security(as)
	f.dataDisks(as, c.MachineName)
	f.diagnostics(as.Diagnostics.Boot)
	if as.SpotVMOptions != nil && c.MachineName != "" && c.CloudName != "" && c.CloudName != "AzurePublicCloud" {
		f.warn("azure-spot-cloud", "spot VMs may not be supported when using GovCloud region")
	}
	f.names(as, c)
	f.market(as, c)
	return f
}

const mustBeKind = "must be " + Kind + " (apiVersion " + apiVersion + ")"

func (f *findings) kind(s *Spec) {
	gvk := s.GroupVersionKind()
	group := gvk.Group == "machine.openshift.io" || gvk.Group == "azureproviderconfig.openshift.io"
	if version := gvk.Version == "v1beta1" || gvk.Version == "v1"; !group || !version || gvk.Kind != Kind {
		f.warn("provider-gvk", fmt.Sprintf("incorrect GroupVersionKind for %s object: %s", Kind, gvk))
	}
}

func (f *findings) basics(s *Spec, c cloud.SpecContext) {
	if s.VMSize == "" {
		f.required("azure-vm-size", "providerSpec.vmSize", "vmSize should be set to one of the supported Azure VM sizes")
	}
	if s.PublicIP && c.Private {
		f.add("azure-public-ip", cloud.ProblemForbidden, "providerSpec.publicIP", "",
			"publicIP is not allowed in Azure disconnected installation with publish strategy as internal")
	}
	if s.Vnet != "" && s.Subnet == "" {
		f.required("azure-subnet", "providerSpec.subnet", "must provide a subnet when a virtual network is specified")
	}
	if s.Subnet != "" && s.Vnet == "" {
		f.required("azure-vnet", "providerSpec.vnet", "must provide a virtual network when supplying subnets")
	}
}

func (f *findings) image(i machinev1.Image) {
	const rule, path = "azure-image", "providerSpec.image"
	switch {
	case i == (machinev1.Image{}):
		f.required(rule, path, "an image reference must be provided")
	case i == (machinev1.Image{ResourceID: i.ResourceID}):
	case i.ResourceID != "":
		f.required(rule, path+".resourceID",
			"resourceID is already specified, other fields such as [Offer, Publisher, SKU, Version] should not be set")
	default:
		for _, part := range []struct{ name, value string }{
			{"Offer", i.Offer}, {"Publisher", i.Publisher}, {"SKU", i.SKU}, {"Version", i.Version},
		} {
			if part.value == "" {
				f.required(rule, path+"."+part.name, part.name+" must be provided")
			}
		}
	}
}

func (f *findings) secrets(s *Spec) {
	const user, cred = "providerSpec.userDataSecret", "providerSpec.credentialsSecret"
	switch r := s.UserDataSecret; {
	case r == nil:
		f.required("azure-user-data", user, "userDataSecret must be provided")
	case r.Name == "":
		f.required("azure-user-data", user+".name", "name must be provided")
	}
	r := s.CredentialsSecret
	if r == nil {
		f.required("azure-credentials", cred, "credentialsSecret must be provided")
		return
	}
	if r.Namespace == "" {
		f.required("azure-credentials", cred+".namespace", "namespace must be provided")
	}
	if r.Name == "" {
		f.required("azure-credentials", cred+".name", "name must be provided")
	}
}

func (f *findings) osDisk(s *Spec) {
	const path = "providerSpec.osDisk"
	d := s.OSDisk
	if d.DiskSizeGB <= 0 || d.DiskSizeGB >= 32768 {
		f.invalid("azure-disk-size", path+".diskSizeGB", strconv.Itoa(int(d.DiskSizeGB)),
			"diskSizeGB must be greater than zero and less than 32768")
	}
	local := d.DiskSettings.EphemeralStorageLocation == "Local"
	if e := d.DiskSettings.EphemeralStorageLocation; e != "" && !local {
		f.text("azure-ephemeral-disk", path+".diskSettings.ephemeralStorageLocation", e,
			"osDisk.diskSettings.ephemeralStorageLocation can either be omitted or set to Local")
	}
	switch d.CachingType {
	case "", "None", "ReadOnly", "ReadWrite":
	default:
		f.text("azure-disk-caching", path+".cachingType", d.CachingType,
			"osDisk.cachingType can be only None, ReadOnly, ReadWrite or omitted")
	}
	if local && d.CachingType != "ReadOnly" {
		f.text("azure-disk-caching", path+".cachingType", d.CachingType,
			"Instances using an ephemeral OS disk support only Readonly caching")
	}
	if id := s.CapacityReservationGroupID; id != "" {
		if why := malformedID(strings.TrimPrefix(id, "azure://")); why != "" {
			f.text("azure-capacity-reservation", "providerSpec.capacityReservationGroupID", id, why)
		}
	}
	switch s.UltraSSDCapability {
	case "", machinev1.AzureUltraSSDCapabilityEnabled, machinev1.AzureUltraSSDCapabilityDisabled:
	default:
		f.text("azure-ultra-ssd", "providerSpec.ultraSSDCapability", string(s.UltraSSDCapability),
			"ultraSSDCapability can be only Enabled, Disabled or omitted")
	}
}

// malformedID says what is wrong with an ARM id, "" when nothing is: it
// begins with a subscription or a provider, and subscriptions and resource
// groups carry their names.
func malformedID(id string) string {
	bad := "invalid resource ID: " + id
	if id == "" {
		return "invalid resource ID: id cannot be empty"
	}
	if !strings.HasPrefix(id, "/") {
		return fmt.Sprintf("invalid resource ID: resource id '%s' must start with '/'", id)
	}
	parts := strings.FieldsFunc(id, func(r rune) bool { return r == '/' })
	if len(parts) < 2 || !strings.EqualFold(parts[0], "subscriptions") && !strings.EqualFold(parts[0], "providers") {
		return bad
	}
	for len(parts) > 0 {
		switch head := strings.ToLower(parts[0]); {
		case len(parts) == 1 && (head == "subscriptions" || head == "resourcegroups"):
			return bad
		case len(parts) == 1:
			return ""
		case head == "providers" && len(parts) == 3:
			return bad // a type without a name
		case head == "providers":
			parts = parts[min(4, len(parts)):]
		default:
			parts = parts[2:]
		}
	}
	return ""
}

var suffixPattern = regexp.MustCompile(`^[a-zA-Z0-9](?:[\w.-]*[a-zA-Z0-9])?$`)

func (f *findings) dataDisks(s *Spec, machine string) {
	names, luns := map[string]bool{}, map[int32]bool{}
	for i, d := range s.DataDisks {
		path := fmt.Sprintf("providerSpec.dataDisks[%d].", i)
		if len(machine)+1+len(d.NameSuffix) > 80 {
			f.text("azure-data-disk-name", path+"nameSuffix", d.NameSuffix, "too long, the overall disk name must not exceed 80 chars")
		}
		if !suffixPattern.MatchString(d.NameSuffix) {
			f.text("azure-data-disk-name", path+"nameSuffix", d.NameSuffix, "nameSuffix must be provided, must start and finish with"+
				" an alphanumeric character and can only contain letters, numbers, underscores, periods or hyphens")
		}
		if names[d.NameSuffix] {
			f.text("azure-data-disk-name", path+"nameSuffix", d.NameSuffix, "each Data Disk must have a unique nameSuffix")
		}
		if d.DiskSizeGB < 4 {
			f.invalid("azure-data-disk-size", path+"diskSizeGB", strconv.Itoa(int(d.DiskSizeGB)),
				"diskSizeGB must be provided and at least 4GB in size")
		}
		if d.Lun < 0 || d.Lun > 63 {
			f.invalid("azure-data-disk-lun", path+"lun", strconv.Itoa(int(d.Lun)), "must be greater than or equal to 0 and less than 64")
		}
		if luns[d.Lun] {
			f.invalid("azure-data-disk-lun", path+"lun", strconv.Itoa(int(d.Lun)), "each Data Disk must have a unique lun")
		}
		switch d.DeletionPolicy {
		case machinev1.DiskDeletionPolicyTypeDelete, machinev1.DiskDeletionPolicyTypeDetach:
		case "":
			f.required("azure-data-disk-deletion", path+"deletionPolicy", "deletionPolicy must be provided and must be either Delete or Detach")
		default:
			f.text("azure-data-disk-deletion", path+"deletionPolicy", string(d.DeletionPolicy), "must be either Delete or Detach")
		}
		ultra := d.ManagedDisk.StorageAccountType == machinev1.StorageAccountUltraSSDLRS
		if ultra && d.CachingType != "" && d.CachingType != machinev1.CachingTypeNone {
			f.text("azure-data-disk-caching", path+"cachingType", string(d.CachingType),
				`must be "None" or omitted when storageAccountType is "UltraSSD_LRS"`)
		}
		names[d.NameSuffix], luns[d.Lun] = true, true
	}
}

func (f *findings) diagnostics(b *machinev1.AzureBootDiagnostics) {
	const rule, path = "azure-diagnostics", "providerSpec.diagnostics.boot"
	if b == nil {
		return
	}
	switch b.StorageAccountType {
	case machinev1.CustomerManagedAzureDiagnosticsStorage:
		if b.CustomerManaged == nil {
			f.required(rule, path+".customerManaged", "customerManaged configuration must be provided")
		} else if b.CustomerManaged.StorageAccountURI == "" {
			f.required(rule, path+".customerManaged.storageAccountURI", "storageAccountURI must be provided")
		}
	case machinev1.AzureManagedAzureDiagnosticsStorage:
		if b.CustomerManaged != nil {
			f.invalid(rule, path+".customerManaged", fmt.Sprintf("%#v", *b.CustomerManaged),
				"customerManaged may not be set when type is AzureManaged")
		}
	default:
		f.text(rule, path+".storageAccountType", string(b.StorageAccountType),
			"storageAccountType must be one of: AzureManaged, CustomerManaged")
	}
}
