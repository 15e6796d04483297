package operator

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Names and ports that reach beyond one table row.
const (
	// WebhookService is the Service through which the API server calls
	// admission.
	WebhookService = "machine-api-operator-webhook"
	webhookPort    = 8443
	webhookHealth  = 9443
)

func machineAPIControllers(p Params) *appsv1.Deployment {
	manager := real("manager", p.Version)
	proxy := pretend + "kube-rbac-proxy:" + p.Version
	row := func(name string, health int32, more ...string) container {
		return container{name: name, image: manager, cloud: true, port: health, health: health, args: append([]string{
			"--controllers=" + name, "--namespace=" + NamespaceMachineAPI, "--leader-elect=true", "--health-addr=$(MILLWRIGHT_BIND_IP):" + strconv.Itoa(int(health)), "--v=3"}, more...)}
	}
	metrics := func(port string) string { return "--metrics-bind-address=$(MILLWRIGHT_BIND_IP):" + port }
	return deployment(NamespaceMachineAPI, "machine-api-controllers", 1, map[string]string{"api": "clusterapi", "k8s-app": "controller"},
		onControlPlane("machine-api-controllers", []container{
			row("machineset-controller", 9441, metrics("8082")),
			row("machine-controller", 9440, metrics("8081")),
			row("nodelink-controller", 9443),
			row("machine-healthcheck-controller", 9442, metrics("8083")),
			{name: "kube-rbac-proxy-machineset-mtrc", image: proxy, port: 8442},
			{name: "kube-rbac-proxy-machine-mtrc", image: proxy, port: 8441},
			{name: "kube-rbac-proxy-mhc-mtrc", image: proxy, port: 8444},
		}))
}

// webhook is admission for every dialect, apart from the controllers so that
// it stays up when they are stopped.
func webhook(p Params) []client.Object {
	args := []string{"--controllers=webhook", "--namespace=" + NamespaceMachineAPI, "--leader-elect=false",
		"--webhook-addr=$(MILLWRIGHT_BIND_IP):" + strconv.Itoa(webhookPort), "--health-addr=$(MILLWRIGHT_BIND_IP):" + strconv.Itoa(webhookHealth)}
	for _, a := range p.Admission {
		args = append(args, "--admission="+a)
	}
	labels := map[string]string{"k8s-app": "millwright-webhook"}
	d := deployment(NamespaceMachineAPI, "millwright-webhook", 1, labels, onControlPlane("millwright-webhook", []container{
		{name: "webhook", image: real("manager", p.Version), port: webhookPort, health: webhookHealth, cloud: true, args: args},
	}))
	s := &corev1.Service{ObjectMeta: meta(NamespaceMachineAPI, WebhookService), Spec: corev1.ServiceSpec{
		Selector: labels,
		Ports:    []corev1.ServicePort{{Name: "https", Port: 443, TargetPort: intstr.FromInt32(webhookPort), Protocol: corev1.ProtocolTCP}},
	}}
	return append(webhookConfigurations(), s, d)
}

func machineApprover(p Params) *appsv1.Deployment {
	return deployment(NamespaceMachineApprover, "machine-approver", 1, map[string]string{"app": "machine-approver"},
		onControlPlane("machine-approver-sa", []container{
			{name: "kube-rbac-proxy", image: pretend + "kube-rbac-proxy:" + p.Version, port: 9192},
			{name: "machine-approver-controller", image: real("manager", p.Version), health: 9440, port: 9440, args: []string{
				"--controllers=machine-approver-controller,node-client-approver", "--namespace=" + NamespaceMachineApprover, "--leader-elect=true",
				"--health-addr=$(MILLWRIGHT_BIND_IP):9440"}},
		}))
}

// cloudControllerManager runs node initialisation and node lifecycle.
func cloudControllerManager(p Params) *appsv1.Deployment {
	return deployment(NamespaceCloudController, "azure-cloud-controller-manager", 2, map[string]string{"k8s-app": "azure-cloud-controller-manager", "infrastructure.openshift.io/cloud-controller-manager": "Azure"},
		onControlPlane("cloud-controller-manager", []container{
			{name: "cloud-controller-manager", image: real("manager", p.Version), health: 10258, port: 10258, cloud: true, args: []string{
				"--controllers=cloud-node-controller,cloud-node-lifecycle-controller", "--namespace=" + NamespaceCloudController, "--leader-elect=true",
				"--health-addr=$(MILLWRIGHT_BIND_IP):10258"}},
		}))
}

// cloudNodeManager stands on every Node, as its users know it. The work of
// its original is done by the Deployment's cloud-node-controller.
func cloudNodeManager(p Params) *appsv1.DaemonSet {
	return daemonSet(NamespaceCloudController, "azure-cloud-node-manager", map[string]string{"k8s-app": "azure-cloud-node-manager", "infrastructure.openshift.io/cloud-controller-manager": "Azure"},
		corev1.PodSpec{
			ServiceAccountName: "cloud-controller-manager",
			PriorityClassName:  priorityClassNodeCritical,
			HostNetwork:        true,
			NodeSelector:       map[string]string{"kubernetes.io/os": "linux"},
			Tolerations:        []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:         containers([]container{{name: "cloud-node-manager", image: pretend + "azure-cloud-node-manager:" + p.Version, port: 10263}}),
		})
}

// operatorRow is a container that keeps ClusterOperators.
func operatorRow(p Params, name, controller, namespace string, health int32) container {
	return container{name: name, image: real("manager", p.Version), port: health, health: health, args: []string{
		"--controllers=" + controller, "--namespace=" + namespace, "--leader-elect=true", "--health-addr=$(MILLWRIGHT_BIND_IP):" + strconv.Itoa(int(health))}}
}

func cloudOperator(p Params) *appsv1.Deployment {
	spec := onControlPlane("cluster-cloud-controller-manager", []container{
		operatorRow(p, "cluster-cloud-controller-manager", ControllerCloudController, NamespaceCloudOperator, 9258),
		{name: "config-sync-controllers", image: pretend + "cluster-cloud-controller-manager-operator:" + p.Version},
	})
	return deployment(NamespaceCloudOperator, "cluster-cloud-controller-manager-operator", 1, map[string]string{"k8s-app": "cloud-manager-operator"}, spec)
}

// controlPlaneOperator keeps the ControlPlaneMachineSet and its ClusterOperator.
func controlPlaneOperator(p Params) *appsv1.Deployment {
	const name = "control-plane-machine-set-operator"
	return deployment(NamespaceMachineAPI, name, 1, map[string]string{"k8s-app": name},
		onControlPlane(name, []container{operatorRow(p, name, name, NamespaceMachineAPI, 9447)}))
}

func machineAPIOperator(p Params) *appsv1.Deployment {
	return deployment(NamespaceMachineAPI, "machine-api-operator", 1, map[string]string{"k8s-app": "machine-api-operator"},
		onControlPlane("machine-api-operator", []container{operatorRow(p, "machine-api-operator", ControllerMachineAPI, NamespaceMachineAPI, 8444)}))
}
