package world

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

const (
	labelCluster = "machine.openshift.io/cluster-api-cluster"
	labelRole    = "machine.openshift.io/cluster-api-machine-role"
	labelType    = "machine.openshift.io/cluster-api-machine-type"
	labelSet     = "machine.openshift.io/cluster-api-machineset"
	finalizer    = "machine.machine.openshift.io"
)

// providerSpec returns the cloud specific part as an installer writes it.
func (p Params) providerSpec(role, zone string) (*runtime.RawExtension, error) {
	s := &machinev1beta1.AzureMachineProviderSpec{
		TypeMeta:             metav1.TypeMeta{Kind: "AzureMachineProviderSpec", APIVersion: "machine.openshift.io/v1beta1"},
		UserDataSecret:       &corev1.SecretReference{Name: role + "-user-data"},
		CredentialsSecret:    &corev1.SecretReference{Name: "azure-cloud-credentials", Namespace: NamespaceMachineAPI},
		Location:             Region,
		VMSize:               p.VMSize,
		Image:                machinev1beta1.Image{ResourceID: p.ImageResourceID()},
		OSDisk:               machinev1beta1.OSDisk{OSType: "Linux", DiskSizeGB: 128, ManagedDisk: machinev1beta1.OSDiskManagedDiskParameters{StorageAccountType: "Premium_LRS"}},
		Vnet:                 p.VNet(),
		Subnet:               p.Subnet(role),
		PublicLoadBalancer:   p.InfraID,
		ManagedIdentity:      p.InfraID + "-identity",
		Zone:                 zone,
		ResourceGroup:        p.ResourceGroup(),
		NetworkResourceGroup: p.ResourceGroup(),
	}
	if role == "master" {
		s.InternalLoadBalancer = p.InfraID + "-internal"
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode provider spec of a %s: %w", role, err)
	}
	return &runtime.RawExtension{Raw: raw}, nil
}

func (p Params) labels(role string) map[string]string {
	return map[string]string{labelCluster: p.InfraID, labelRole: role, labelType: role}
}

// Master returns control plane Machine i.
func Master(p Params, i int) (*machinev1beta1.Machine, error) {
	spec, err := p.providerSpec("master", MasterZone(i))
	if err != nil {
		return nil, err
	}
	return &machinev1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: NamespaceMachineAPI, Name: p.MasterName(i), Labels: p.labels("master"),
			Finalizers: []string{finalizer},
		},
		Spec: machinev1beta1.MachineSpec{ProviderSpec: machinev1beta1.ProviderSpec{Value: spec}},
	}, nil
}

// WorkerSets returns one MachineSet per zone; the workers are spread over
// them, the first zones getting one more.
func WorkerSets(p Params) ([]*machinev1beta1.MachineSet, error) {
	out := make([]*machinev1beta1.MachineSet, 0, len(zones))
	for i, zone := range zones {
		spec, err := p.providerSpec("worker", zone)
		if err != nil {
			return nil, err
		}
		replicas := p.Workers / len(zones)
		if i < p.Workers%len(zones) {
			replicas++
		}
		name := p.WorkerSetName(zone)
		labels := p.labels("worker")
		labels[labelSet] = name
		out = append(out, &machinev1beta1.MachineSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: NamespaceMachineAPI, Name: name, Labels: map[string]string{labelCluster: p.InfraID}},
			Spec: machinev1beta1.MachineSetSpec{
				Replicas: ptr.To(int32(replicas)),
				Selector: metav1.LabelSelector{MatchLabels: map[string]string{labelCluster: p.InfraID, labelSet: name}},
				Template: machinev1beta1.MachineTemplateSpec{
					ObjectMeta: machinev1beta1.ObjectMeta{Labels: labels},
					Spec:       machinev1beta1.MachineSpec{ProviderSpec: machinev1beta1.ProviderSpec{Value: spec}},
				},
			},
		})
	}
	return out, nil
}

// Members returns the Machines that a MachineSet, as the API server returned
// it, has made: named and owned as its controller does.
func Members(set *machinev1beta1.MachineSet) ([]*machinev1beta1.Machine, error) {
	if set.UID == "" || set.Spec.Replicas == nil {
		return nil, fmt.Errorf("machine set %s has no UID or no replicas yet", set.Name)
	}
	out := make([]*machinev1beta1.Machine, 0, *set.Spec.Replicas)
	for i := range *set.Spec.Replicas {
		out = append(out, &machinev1beta1.Machine{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: set.Namespace, Name: set.Name + "-" + suffix(string(set.UID), int(i)), Labels: maps.Clone(set.Spec.Template.Labels),
				Finalizers:      []string{finalizer},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, machinev1beta1.GroupVersion.WithKind("MachineSet"))},
			},
			Spec: *set.Spec.Template.Spec.DeepCopy(),
		})
	}
	return out, nil
}

// suffix is five characters of the generateName alphabet, the same for the
// same set and number.
func suffix(uid string, i int) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", uid, i))
	out := make([]byte, 5)
	for k := range out {
		out[k] = alphabet[int(sum[k])%len(alphabet)]
	}
	return string(out)
}
