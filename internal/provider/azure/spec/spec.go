// Package spec decodes, defaults and checks AzureMachineProviderSpec, and
// writes AzureMachineProviderStatus. It keeps the original's words for the
// original's rules and adds checks against the catalogue of the region.
//
// It is pure: it never talks to Azure and must not import its SDK.
//
//	s, problems, err := spec.Codec{}.Decode(raw)
package spec

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"millwright.io/millwright/internal/cloud"
)

// Kind is the kind that users write.
const Kind = "AzureMachineProviderSpec"

const apiVersion = "machine.openshift.io/v1beta1"

// Names that are filled in when a spec leaves them out.
const (
	DefaultUserDataSecret       = "worker-user-data"
	DefaultCredentialsSecret    = "azure-cloud-credentials"
	DefaultCredentialsNamespace = "openshift-machine-api"
	defaultSizeAMD64            = "Standard_D4s_V3"
	defaultSizeARM64            = "Standard_D4ps_V5"
)

// Spec is a decoded AzureMachineProviderSpec.
type Spec struct {
	machinev1.AzureMachineProviderSpec
}

var _ cloud.Spec = (*Spec)(nil)

// CloudKind implements cloud.Spec.
func (*Spec) CloudKind() string { return Kind }

// Scope implements cloud.Spec: the resource group, if the spec names one.
func (s *Spec) Scope() string { return s.ResourceGroup }

// Codec implements cloud.SpecCodec.
type Codec struct{}

var _ cloud.SpecCodec = Codec{}

// ErrNoValue is what Decode returns for an absent spec.
var ErrNoValue = errors.New("a value must be provided")

// Kind implements cloud.SpecCodec.
func (Codec) Kind() string { return Kind }

// Decode implements cloud.SpecCodec. Numbers and booleans are accepted where
// a string is wanted, never the other way round. A field whose name differs
// from a known one only in case or in at most two letters is refused; other
// unknown fields are dropped with a warning. Of a spec of another kind only
// the kind is read.
func (Codec) Decode(raw []byte) (cloud.Spec, []cloud.Problem, error) {
	if t := bytes.TrimSpace(raw); len(t) == 0 || bytes.Equal(t, []byte("null")) {
		return nil, nil, ErrNoValue
	}
	var tree any
	if err := yaml.Unmarshal(raw, &tree); err != nil {
		return nil, nil, err
	}
	s := &Spec{}
	if m, ok := tree.(map[string]any); ok {
		if k, ok := m["kind"].(string); ok && k != "" && k != Kind {
			// Another cloud's spec: Validate says so. Complaints about its
			// fields would only hide that.
			s.Kind = k
			s.APIVersion, _ = m["apiVersion"].(string)
			return s, nil, nil
		}
	}
	if err := yaml.Unmarshal(raw, &s.AzureMachineProviderSpec); err != nil {
		return nil, nil, err
	}
	return s, unknownFields(tree), nil
}

// Encode implements cloud.SpecCodec: every field that the original always
// writes is there.
func (Codec) Encode(s cloud.Spec) ([]byte, error) {
	as, err := of(s)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(as.AzureMachineProviderSpec)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", Kind, err)
	}
	return raw, nil
}

func of(s cloud.Spec) (*Spec, error) {
	as, ok := s.(*Spec)
	if !ok || as == nil {
		return nil, fmt.Errorf("encode %T: not a %s", s, Kind)
	}
	return as, nil
}

// Default implements cloud.SpecCodec.
func (Codec) Default(s cloud.Spec, c cloud.SpecContext) cloud.Spec {
	in, err := of(s)
	if err != nil {
		return s
	}
	out := &Spec{AzureMachineProviderSpec: *in.DeepCopy()}
	if out.VMSize == "" {
		out.VMSize = defaultSizeAMD64
		if c.Arch == "arm64" {
			out.VMSize = defaultSizeARM64
		}
	}
	if out.Vnet == "" && out.Subnet == "" {
		out.Vnet, out.Subnet = c.InfraID+"-vnet", c.InfraID+"-worker-subnet"
	}
	if out.Image == (machinev1.Image{}) {
		out.Image = defaultImage(c, out.SecurityProfile != nil)
	}
	if out.UserDataSecret == nil {
		out.UserDataSecret = &corev1.SecretReference{}
	}
	if out.UserDataSecret.Name == "" {
		out.UserDataSecret.Name = DefaultUserDataSecret
	}
	if out.CredentialsSecret == nil {
		out.CredentialsSecret = &corev1.SecretReference{}
	}
	if out.CredentialsSecret.Name == "" {
		out.CredentialsSecret.Name = DefaultCredentialsSecret
	}
	if out.CredentialsSecret.Namespace == "" {
		out.CredentialsSecret.Namespace = DefaultCredentialsNamespace
	}
	return out
}

// defaultImage is the marketplace image, or the cluster's own second
// generation gallery image where a security profile needs one.
func defaultImage(c cloud.SpecContext, secured bool) machinev1.Image {
	if secured {
		return machinev1.Image{ResourceID: fmt.Sprintf(
			"/resourceGroups/%s-rg/providers/Microsoft.Compute/galleries/gallery_%s/images/%s-gen2/versions/latest",
			c.InfraID, strings.ReplaceAll(c.InfraID, "-", "_"), c.InfraID)}
	}
	sku := "aro_420"
	if c.Arch == "arm64" {
		sku = "420-arm"
	}
	return machinev1.Image{Publisher: "azureopenshift", Offer: "aro4", SKU: sku, Version: "9.6.20251015"}
}

// Digest implements cloud.SpecCodec.
func (c Codec) Digest(s cloud.Spec) string {
	as, err := of(s)
	if err != nil {
		return ""
	}
	bare := &Spec{AzureMachineProviderSpec: *as.DeepCopy()}
	bare.ObjectMeta = metav1.ObjectMeta{} // says nothing about the machine
	raw, err := c.Encode(bare)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}

// Place implements cloud.SpecCodec.
func (Codec) Place(s cloud.Spec) (region, zone, size string) {
	as, err := of(s)
	if err != nil {
		return "", "", ""
	}
	return as.Location, as.Zone, as.VMSize
}

// References implements cloud.SpecCodec. The namespace of the user data is
// ignored, as it always was: it is read from the owner's namespace.
func (Codec) References(s cloud.Spec) (userData, credentials cloud.SecretRef) {
	as, err := of(s)
	if err != nil {
		return userData, credentials
	}
	if r := as.UserDataSecret; r != nil {
		userData = cloud.SecretRef{Name: r.Name}
	}
	if r := as.CredentialsSecret; r != nil {
		credentials = cloud.SecretRef{Namespace: r.Namespace, Name: r.Name}
	}
	return userData, credentials
}
