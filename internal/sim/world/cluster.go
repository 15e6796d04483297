package world

import (
	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Names of the first-boot identity.
const (
	NamespaceMachineConfig = "openshift-machine-config-operator"
	NamespaceMachineAPI    = "openshift-machine-api"
	NodeBootstrapper       = "node-bootstrapper"
)

// Namespace returns a namespace as an installer labels it.
func Namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		"openshift.io/cluster-monitoring":    "true",
		"pod-security.kubernetes.io/enforce": "privileged",
	}}}
}

// Cluster returns the cluster-wide objects; where a kind has a status, it is
// filled in and must be written through the status subresource.
func Cluster(p Params, now metav1.Time) []client.Object {
	named := func(n string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: n} }
	return []client.Object{
		&configv1.Infrastructure{
			ObjectMeta: named("cluster"),
			Spec:       configv1.InfrastructureSpec{PlatformSpec: configv1.PlatformSpec{Type: configv1.AzurePlatformType, Azure: &configv1.AzurePlatformSpec{}}},
			Status: configv1.InfrastructureStatus{
				InfrastructureName: p.InfraID,
				Platform:           configv1.AzurePlatformType, //nolint:staticcheck // users' scripts read the old field as well
				PlatformStatus: &configv1.PlatformStatus{Type: configv1.AzurePlatformType, Azure: &configv1.AzurePlatformStatus{
					ResourceGroupName: p.ResourceGroup(), NetworkResourceGroupName: p.ResourceGroup(), CloudName: configv1.AzurePublicCloud,
				}},
				APIServerURL: p.APIServer, APIServerInternalURL: "https://" + p.InternalHost() + ":6443",
				ControlPlaneTopology: configv1.HighlyAvailableTopologyMode, InfrastructureTopology: configv1.HighlyAvailableTopologyMode,
				CPUPartitioning: configv1.CPUPartitioningNone,
			},
		},
		&configv1.ClusterVersion{
			ObjectMeta: named("version"),
			Spec:       configv1.ClusterVersionSpec{ClusterID: configv1.ClusterID(p.ClusterID), Channel: "stable-4.20"},
			Status: configv1.ClusterVersionStatus{
				Desired: configv1.Release{Version: p.Version, Image: "registry.example.com/release:" + p.Version},
				History: []configv1.UpdateHistory{{State: configv1.CompletedUpdate, StartedTime: now, CompletionTime: ptr.To(now), Version: p.Version, Image: "registry.example.com/release:" + p.Version, Verified: true}},
				Conditions: []configv1.ClusterOperatorStatusCondition{
					{Type: configv1.OperatorAvailable, Status: configv1.ConditionTrue, LastTransitionTime: now, Message: "Done applying " + p.Version},
					{Type: configv1.OperatorProgressing, Status: configv1.ConditionFalse, LastTransitionTime: now, Message: "Cluster version is " + p.Version},
				},
				VersionHash: p.InfraID,
			},
		},
		&configv1.DNS{ObjectMeta: named("cluster"), Spec: configv1.DNSSpec{
			BaseDomain: p.Domain(), PublicZone: &configv1.DNSZone{ID: p.ResourceGroup() + "/example.com"}}},
		&configv1.Network{ObjectMeta: named("cluster"), Spec: configv1.NetworkSpec{
			ClusterNetwork: []configv1.ClusterNetworkEntry{{CIDR: "10.128.0.0/9", HostPrefix: 24}}, ServiceNetwork: []string{ServiceCIDR}, NetworkType: "OVNKubernetes"}},
	}
}

// Identity returns the first-boot identity and what it may do: ask for
// certificates. Nodes may renew theirs.
func Identity() []client.Object {
	bindGroup := func(name, role, group string) client.Object {
		return &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: group}},
		}
	}
	return []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: NamespaceMachineConfig, Name: NodeBootstrapper}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "system-bootstrap-node-bootstrapper"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-bootstrapper"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: NamespaceMachineConfig, Name: NodeBootstrapper}},
		},
		bindGroup("system-bootstrap-node-renewal", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes"),
	}
}

// CredentialsSecret is azure-cloud-credentials in a namespace.
func CredentialsSecret(p Params, namespace string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "azure-cloud-credentials"},
		StringData: map[string]string{
			"azure_subscription_id": SubscriptionID,
			"azure_tenant_id":       TenantID,
			"azure_client_id":       ClientID,
			"azure_client_secret":   p.ClientSecret,
			"azure_resourcegroup":   p.ResourceGroup(),
			"azure_region":          Region,
			"azure_resource_prefix": p.InfraID,
		},
	}
}
