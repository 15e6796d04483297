package world

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/coreos/ignition/v2/config/v3_2/types"
	configv1 "github.com/openshift/api/config/v1"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// sshKey is the public half of a pair whose other half was thrown away.
const sshKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOM5Rksp8YGPeJdADxOFgS6pKUl8kByA7jKQQwUH0rLc millwright simulated cluster"

const (
	mcGroup         = "machineconfiguration.openshift.io"
	namespaceConfig = "openshift-config"
	pullSecretName  = "pull-secret"
	clusterDNS      = "172.30.0.10"
)

// image is the pull spec of a release's image, with a digest of its own.
func (p Params) image(name string) string {
	sum := sha256.Sum256([]byte(name + ":" + p.Version))
	return "registry.example.com/" + name + "@sha256:" + hex.EncodeToString(sum[:])
}

// MachineConfig returns what an installer leaves of Machine Config: the two
// pools, the ControllerConfig, the disruption settings, the cluster-wide
// settings that generated configs come from, the pull secret and the keys of
// user core. ca is the API server's, PEM.
func MachineConfig(p Params, ca []byte) ([]client.Object, error) {
	out := []client.Object{
		pool("master"), pool("worker"), controllerConfig(p, ca),
		disruptionSettings(),
		&configv1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}},
		&configv1.FeatureGate{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}},
		&configv1.Image{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespaceConfig, Name: pullSecretName}, Type: corev1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)}},
	}
	for _, role := range []string{"master", "worker"} {
		mc, err := sshConfig(role)
		if err != nil {
			return nil, err
		}
		out = append(out, mc)
	}
	return out, nil
}

// disruptionSettings is MachineConfiguration cluster with nothing set. Its type
// writes empty lists where the definition wants none or some.
func disruptionSettings() client.Object {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": operatorv1.GroupVersion.String(), "kind": "MachineConfiguration",
		"metadata": map[string]any{"name": "cluster"},
		"spec":     map[string]any{"managementState": string(operatorv1.Managed)},
	}}
}

func pool(name string) *machineconfigv1.MachineConfigPool {
	labels := map[string]string{
		mcGroup + "/mco-built-in":                "",
		"pools.operator." + mcGroup + "/" + name: "",
	}
	if name == "master" {
		labels["operator."+mcGroup+"/required-for-upgrade"] = ""
	}
	return &machineconfigv1.MachineConfigPool{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: machineconfigv1.MachineConfigPoolSpec{
			MachineConfigSelector: &metav1.LabelSelector{MatchLabels: map[string]string{mcGroup + "/role": name}},
			NodeSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" + name: ""}},
		},
	}
}

// controllerConfig is what the cluster tells the templates about itself.
func controllerConfig(p Params, ca []byte) *machineconfigv1.ControllerConfig {
	cc := &machineconfigv1.ControllerConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "machine-config-controller", Annotations: map[string]string{mcGroup + "/release-image-version": p.Version}},
		Spec: machineconfigv1.ControllerConfigSpec{
			ClusterDNSIP: clusterDNS, CloudProviderConfig: cloudConfig(p),
			KubeAPIServerServingCAData: ca, RootCAData: ca,
			PullSecret:                     &corev1.ObjectReference{Namespace: namespaceConfig, Name: pullSecretName},
			Images:                         map[string]string{"kubeRbacProxy": p.image("kube-rbac-proxy")},
			BaseOSContainerImage:           p.image("rhel-coreos"),
			BaseOSExtensionsContainerImage: p.image("rhel-coreos-extensions"),
			ReleaseImage:                   "registry.example.com/release:" + p.Version,
			IPFamilies:                     machineconfigv1.IPFamiliesIPv4,
			NetworkType:                    "OVNKubernetes",
		},
	}
	for _, o := range Cluster(p, metav1.Time{}) {
		switch o := o.(type) {
		case *configv1.Infrastructure:
			o.TypeMeta = metav1.TypeMeta{APIVersion: configv1.GroupVersion.String(), Kind: "Infrastructure"}
			cc.Spec.Infra = o
		case *configv1.DNS:
			o.TypeMeta = metav1.TypeMeta{APIVersion: configv1.GroupVersion.String(), Kind: "DNS"}
			cc.Spec.DNS = o
		}
	}
	return cc
}

// cloudConfig is what kubelets and the cloud's components read about the
// cluster's place in it.
func cloudConfig(p Params) string {
	raw, _ := json.MarshalIndent(map[string]any{ // strings only: it cannot fail
		"cloud": "AzurePublicCloud", "tenantId": TenantID, "subscriptionId": SubscriptionID, "location": Region,
		"resourceGroup": p.ResourceGroup(), "vnetResourceGroup": p.ResourceGroup(), "vnetName": p.VNet(), "subnetName": p.Subnet("worker"),
		"loadBalancerSku": "standard", "useInstanceMetadata": true,
	}, "", "\t")
	return string(raw) + "\n"
}

// sshConfig is 99-<role>-ssh.
func sshConfig(role string) (*machineconfigv1.MachineConfig, error) {
	raw, err := json.Marshal(map[string]any{
		"ignition": map[string]any{"version": types.MaxVersion.String()},
		"passwd":   map[string]any{"users": []any{map[string]any{"name": "core", "sshAuthorizedKeys": []string{sshKey}}}},
	})
	if err != nil {
		return nil, fmt.Errorf("encode keys of %s: %w", role, err)
	}
	return &machineconfigv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "99-" + role + "-ssh", Labels: map[string]string{mcGroup + "/role": role}},
		Spec:       machineconfigv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: raw}},
	}, nil
}
