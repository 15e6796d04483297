package operator

import (
	"strconv"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Ports of machine-config-controller.
const (
	machineConfigHealth  = 8798
	machineConfigMetrics = 8797
	machineConfigProxy   = 9001 // in front of the metrics
)

// MachineConfigComponents is the table of what needs the definitions of the
// Machine Config API to be served before it starts.
func MachineConfigComponents(p Params) []Component {
	return []Component{
		{"machine-config-controller", NamespaceMachineConfig, "machine-config-controller", []client.Object{machineConfigController(p)}},
	}
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
