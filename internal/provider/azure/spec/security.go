package spec

import (
	machinev1 "github.com/openshift/api/machine/v1beta1"
)

// security checks the security profile; it stops at its first finding, as the
// later ones would only follow from it.
func (f *findings) security(s *Spec) {
	const path = "providerSpec.securityProfile"
	encryption := s.OSDisk.ManagedDisk.SecurityProfile.SecurityEncryptionType
	if s.SecurityProfile == nil {
		if encryption != "" {
			f.required("azure-security-profile", path,
				"securityProfile should be set when osDisk.managedDisk.securityProfile.securityEncryptionType is defined.")
		}
		return
	}
	settings := s.SecurityProfile.Settings
	switch settings.SecurityType {
	case machinev1.SecurityTypesConfidentialVM:
		f.confidential(s.SecurityProfile, encryption)
	case machinev1.SecurityTypesTrustedLaunch:
		if settings.TrustedLaunch == nil {
			f.required("azure-trusted-launch", path+".settings.trustedLaunch",
				"trustedLaunch should be set when securityType is set to TrustedLaunch.")
		}
	default:
		if encryption != "" {
			f.required("azure-security-type", path+".settings.securityType",
				"securityType should be set to ConfidentialVM when securityEncryptionType is defined.")
			return
		}
		if t := settings.TrustedLaunch; t != nil && (t.UEFISettings.SecureBoot == machinev1.SecureBootPolicyEnabled ||
			t.UEFISettings.VirtualizedTrustedPlatformModule == machinev1.VirtualizedTrustedPlatformModulePolicyEnabled) {
			f.required("azure-security-type", path+".settings.securityType",
				"securityType should be set to TrustedLaunch when uefiSettings are enabled.")
		}
	}
}

func (f *findings) confidential(p *machinev1.SecurityProfile, encryption machinev1.SecurityEncryptionTypes) {
	const rule, path = "azure-confidential-vm", "providerSpec.securityProfile"
	const uefiPath = path + ".settings.confidentialVM.uefiSettings"
	if encryption == "" {
		f.required(rule, "providerSpec.osDisk.managedDisk.securityProfile.securityEncryptionType",
			"securityEncryptionType should be set when securityType is set to ConfidentialVM.")
		return
	}
	if p.Settings.ConfidentialVM == nil {
		f.required(rule, path+".settings.confidentialVM", "confidentialVM should be set when securityType is set to ConfidentialVM.")
		return
	}
	uefi := p.Settings.ConfidentialVM.UEFISettings
	if uefi.VirtualizedTrustedPlatformModule != machinev1.VirtualizedTrustedPlatformModulePolicyEnabled {
		f.text(rule, uefiPath+".virtualizedTrustedPlatformModule", string(uefi.VirtualizedTrustedPlatformModule),
			"virtualizedTrustedPlatformModule should be enabled when securityType is set to ConfidentialVM.")
		return
	}
	if encryption != machinev1.SecurityEncryptionTypesDiskWithVMGuestState {
		return
	}
	if p.EncryptionAtHost != nil && *p.EncryptionAtHost {
		f.invalid(rule, path+".encryptionAtHost", "true",
			"encryptionAtHost cannot be set to true when securityEncryptionType is set to DiskWithVMGuestState.")
		return
	}
	if uefi.SecureBoot != machinev1.SecureBootPolicyEnabled {
		f.text(rule, uefiPath+".secureBoot", string(uefi.SecureBoot),
			"secureBoot should be enabled when securityEncryptionType is set to DiskWithVMGuestState.")
	}
}
