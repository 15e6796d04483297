// Package operator holds the tables of the workloads that users list: which
// Deployments and DaemonSets make up the machine layer, under the names,
// containers and order of the originals. It builds objects and decides
// nothing; whoever installs them creates them once and never reverts what an
// administrator changed.
package operator

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/config"
)

// Namespaces of the machine layer.
const (
	NamespaceMachineAPI        = "openshift-machine-api"
	NamespaceMachineConfig     = "openshift-machine-config-operator"
	NamespaceCloudController   = "openshift-cloud-controller-manager"
	NamespaceCloudOperator     = "openshift-cloud-controller-manager-operator"
	NamespaceMachineApprover   = "openshift-cluster-machine-approver"
	NamespaceClusterAPISystem  = "cpaas-system"
	NamespaceConfigManaged     = "openshift-config-managed"
	NamespaceConfig            = "openshift-config"
	pretend                    = "registry.example.com/" // pulls nothing: the simulated kubelet only pretends to run it
	priorityClassNodeCritical  = "system-node-critical"
	priorityClassClusterCritic = "system-cluster-critical"
)

// ConfigMapCloud, in the namespaces of components that talk to the cloud, may
// hold environment variables with the endpoints and the CA of a cloud that is
// not the public one.
const ConfigMapCloud = "millwright-cloud"

// Namespaces lists them all, in the order they are created.
func Namespaces() []string {
	return []string{NamespaceMachineAPI, NamespaceMachineConfig, NamespaceCloudController, NamespaceCloudOperator,
		NamespaceMachineApprover, NamespaceClusterAPISystem, NamespaceConfigManaged, NamespaceConfig}
}

// Params are what differs between installations.
type Params struct {
	Version string // image tag and version labels
	InfraID string
	// APIServer is the URL that new machines reach the API server at.
	APIServer string
	// Admission holds RULE=MODE settings for the webhook.
	Admission []string
}

// Component is one ServiceAccount with its generated role and the workloads
// that run under it.
type Component struct {
	Name           string // of the role in config/rbac
	Namespace      string
	ServiceAccount string
	Workloads      []client.Object
}

// Components returns the table.
func Components(p Params) []Component {
	return []Component{
		{"machine-api-controllers", NamespaceMachineAPI, "machine-api-controllers", []client.Object{machineAPIControllers(p)}},
		{"machine-approver", NamespaceMachineApprover, "machine-approver-sa", []client.Object{machineApprover(p)}},
		{"cloud-controller-manager", NamespaceCloudController, "cloud-controller-manager", []client.Object{cloudControllerManager(p), cloudNodeManager(p)}},
		{"webhook", NamespaceMachineAPI, "millwright-webhook", webhook(p)},
		{"cluster-cloud-controller-manager-operator", NamespaceCloudOperator, "cluster-cloud-controller-manager", []client.Object{cloudOperator(p)}},
		{"control-plane-machine-set-operator", NamespaceMachineAPI, "control-plane-machine-set-operator", []client.Object{controlPlaneOperator(p)}},
		{"machine-api-operator", NamespaceMachineAPI, "machine-api-operator", []client.Object{machineAPIOperator(p)}},
	}
}

// Objects returns what installs the components: ServiceAccounts, roles,
// bindings, workloads, in an order in which they can be created.
func Objects(p Params) ([]client.Object, error) { return install(Components(p)) }

func install(components []Component) ([]client.Object, error) {
	var first, last []client.Object
	for _, c := range components {
		first = append(first, &corev1.ServiceAccount{ObjectMeta: meta(c.Namespace, c.ServiceAccount)})
		if c.Name != "" {
			rbac, err := bind(c)
			if err != nil {
				return nil, err
			}
			first = append(first, rbac...)
		}
		last = append(last, c.Workloads...)
	}
	return append(first, last...), nil
}

// bind gives the ServiceAccount exactly the generated roles.
func bind(c Component) ([]client.Object, error) {
	cluster, namespaced, err := config.Role(c.Name)
	if err != nil {
		return nil, fmt.Errorf("read role of %s: %w", c.Name, err)
	}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: c.Namespace, Name: c.ServiceAccount}}
	var out []client.Object
	if cluster != nil {
		out = append(out, cluster, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: cluster.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: cluster.Name},
			Subjects:   subjects,
		})
	}
	for _, r := range namespaced {
		out = append(out, r, &rbacv1.RoleBinding{
			ObjectMeta: meta(r.Namespace, r.Name),
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: r.Name},
			Subjects:   subjects,
		})
	}
	return out, nil
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// container is one row of a workload's table.
type container struct {
	name   string
	image  string // millwright/… runs for real
	args   []string
	port   int32
	cloud  bool  // talks to the cloud: reads ConfigMapCloud
	health int32 // port of /readyz; 0: none
}

func containers(rows []container) []corev1.Container {
	out := make([]corev1.Container, 0, len(rows))
	portName := "port"
	for _, r := range rows {
		c := corev1.Container{Name: r.name, Image: r.image, Args: r.args, Env: []corev1.EnvVar{podNamespace()}, TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError}
		if r.cloud {
			c.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: ConfigMapCloud}, Optional: ptr.To(true)}}}
		}
		if r.port != 0 {
			c.Ports = []corev1.ContainerPort{{Name: portName, ContainerPort: r.port, Protocol: corev1.ProtocolTCP}}
			portName = "metrics" // a second one is a proxy's; the server warns of equal names at every change
		}
		if r.health != 0 {
			c.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(r.health)}}}
		}
		out = append(out, c)
	}
	return out
}

func podNamespace() corev1.EnvVar {
	return corev1.EnvVar{Name: "POD_NAMESPACE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}
}

func real(binary, version string) string { return "millwright/" + binary + ":" + version }

// onControlPlane places a pod on control plane Nodes.
func onControlPlane(serviceAccount string, rows []container) corev1.PodSpec {
	return corev1.PodSpec{
		ServiceAccountName: serviceAccount,
		PriorityClassName:  priorityClassNodeCritical,
		NodeSelector:       map[string]string{"node-role.kubernetes.io/master": ""},
		Tolerations: []corev1.Toleration{
			{Key: "node-role.kubernetes.io/master", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
			{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
			{Key: "node.cloudprovider.kubernetes.io/uninitialized", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
			{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](120)},
			{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](120)},
		},
		Containers: containers(rows),
	}
}

func deployment(namespace, name string, replicas int32, labels map[string]string, spec corev1.PodSpec) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels, Annotations: map[string]string{"machine.openshift.io/owned": ""}},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}
}

func daemonSet(namespace, name string, labels map[string]string, spec corev1.PodSpec) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: ptr.To(intstr.FromString("10%"))}},
		},
	}
}
