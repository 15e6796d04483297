package operator

import (
	"strconv"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Ports of machine-config-controller.
const (
	machineConfigHealth  = 8798
	machineConfigMetrics = 8797
	machineConfigProxy   = 9001 // in front of the metrics

	machineConfigOperatorHealth = 8799
	machineConfigServerPort     = 22623
	machineConfigServerPlain    = 22624
)

// MachineConfigComponents is the table of what needs the definitions of the
// Machine Config API to be served before it starts.
func MachineConfigComponents(p Params) []Component {
	return []Component{
		{"machine-config-controller", NamespaceMachineConfig, "machine-config-controller", []client.Object{machineConfigController(p)}},
		{"machine-config-operator", NamespaceMachineConfig, "machine-config-operator", []client.Object{machineConfigOperator(p)}},
		{"machine-config-server", NamespaceMachineConfig, "machine-config-server", []client.Object{machineConfigServer(p)}},
		{"machine-config-daemon", NamespaceMachineConfig, "machine-config-daemon", []client.Object{machineConfigDaemon(p)}},
	}
}

// machineConfigOperator keeps certificates, tokens and user data, and the
// ClusterOperator.
func machineConfigOperator(p Params) *appsv1.Deployment {
	d := deployment(NamespaceMachineConfig, "machine-config-operator", 1, map[string]string{"k8s-app": "machine-config-operator"},
		onControlPlane("machine-config-operator", []container{
			operatorRow(p, "machine-config-operator", ControllerMachineConfig, NamespaceMachineConfig, machineConfigOperatorHealth),
			{name: "kube-rbac-proxy", image: pretend + "kube-rbac-proxy:" + p.Version, port: machineConfigProxy},
		}))
	d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
	return d
}

// machineConfigDaemon is the agent on every Node.
func machineConfigDaemon(p Params) *appsv1.DaemonSet {
	rows := containers([]container{
		{name: "machine-config-daemon", image: real("agent", p.Version), args: []string{
			"start", "--root-mount=/rootfs", "--metrics-url=$(MILLWRIGHT_BIND_IP):" + strconv.Itoa(machineConfigMetrics), "--kubelet-healthz-enabled=false"}},
		{name: "kube-rbac-proxy", image: pretend + "kube-rbac-proxy:" + p.Version, port: machineConfigProxy},
	})
	rows[0].Env = append(rows[0].Env, corev1.EnvVar{Name: "NODE_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}})
	rows[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	rows[0].VolumeMounts = []corev1.VolumeMount{{Name: "rootfs", MountPath: "/rootfs", MountPropagation: ptr.To(corev1.MountPropagationHostToContainer)}}
	return daemonSet(NamespaceMachineConfig, "machine-config-daemon", map[string]string{"k8s-app": "machine-config-daemon"}, corev1.PodSpec{
		ServiceAccountName: "machine-config-daemon", PriorityClassName: priorityClassNodeCritical,
		HostNetwork: true, HostPID: true, TerminationGracePeriodSeconds: ptr.To[int64](600),
		NodeSelector: map[string]string{"kubernetes.io/os": "linux"},
		Tolerations:  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers:   rows,
		Volumes:      []corev1.Volume{{Name: "rootfs", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}},
	})
}

// machineConfigServer answers first boots on every control plane Node's own
// address.
func machineConfigServer(p Params) *appsv1.DaemonSet {
	spec := onControlPlane("machine-config-server", []container{
		{name: "machine-config-server", image: real("ignition", p.Version), port: machineConfigServerPort, args: []string{
			"--apiserver-url=" + p.APIServer, "--namespace=" + NamespaceMachineConfig,
			"--secure-addr=$(MILLWRIGHT_BIND_IP):" + strconv.Itoa(machineConfigServerPort),
			"--insecure-addr=$(MILLWRIGHT_BIND_IP):" + strconv.Itoa(machineConfigServerPlain)}},
	})
	spec.HostNetwork = true
	spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(machineConfigServerPlain)}}}
	return daemonSet(NamespaceMachineConfig, "machine-config-server", map[string]string{"k8s-app": "machine-config-server"}, spec)
}

// MachineConfigObjects is Objects for MachineConfigComponents.
func MachineConfigObjects(p Params) ([]client.Object, error) {
	return install(MachineConfigComponents(p))
}

func machineConfigController(p Params) *appsv1.Deployment {
	return deployment(NamespaceMachineConfig, "machine-config-controller", 1, map[string]string{"k8s-app": "machine-config-controller"},
		onControlPlane("machine-config-controller", []container{
			{name: "machine-config-controller", image: real("manager", p.Version), port: machineConfigHealth, health: machineConfigHealth, args: []string{
				"--controllers=machine-config-controller", "--namespace=" + NamespaceMachineConfig, "--leader-elect=true",
				"--health-addr=$(MILLWRIGHT_BIND_IP):" + strconv.Itoa(machineConfigHealth),
				"--metrics-bind-address=$(MILLWRIGHT_BIND_IP):" + strconv.Itoa(machineConfigMetrics), "--v=3"}},
			{name: "kube-rbac-proxy", image: pretend + "kube-rbac-proxy:" + p.Version, port: machineConfigProxy},
		}))
}

// machineConfigWebhook registers admission of MachineConfigs, their pools and
// the kinds they are made from. Rendered ones are their controller's. A webhook that is down admits everything; rendering looks
// again.
func machineConfigWebhook() client.Object {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "machine-config", Labels: map[string]string{LabelInjectCA: "true"}},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:         "validation.machineconfig.machineconfiguration.openshift.io",
			ClientConfig: webhookClient("/validate-machineconfiguration-openshift-io-v1"),
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{"machineconfiguration.openshift.io"}, APIVersions: []string{"v1"}, Resources: []string{"machineconfigs", "machineconfigpools", "kubeletconfigs", "containerruntimeconfigs"}},
			}},
			MatchConditions: []admissionregistrationv1.MatchCondition{{
				Name: "not-rendered", Expression: "!object.metadata.name.startsWith('rendered-')"}},
			FailurePolicy: ptr.To(admissionregistrationv1.Ignore), SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds: ptr.To[int32](webhookTimeoutSeconds), AdmissionReviewVersions: []string{"v1"},
		}},
	}
}
