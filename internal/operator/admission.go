package operator

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// LabelInjectCA on a webhook configuration asks the webhook process for its
// CA bundle.
const LabelInjectCA = "millwright.io/inject-ca"

// webhookTimeoutSeconds is little: while admission hangs, nobody can write a
// Machine, and the objects are admitted in the end.
const webhookTimeoutSeconds = 5

// webhookConfigurations register admission of MachineConfigs and, under the
// names of the original, of Machines and MachineSets. A webhook that is down admits everything, as it
// always did; the controllers look again.
func webhookConfigurations() []client.Object {
	const create, update = admissionregistrationv1.Create, admissionregistrationv1.Update
	named := metav1.ObjectMeta{Name: "machine-api", Labels: map[string]string{LabelInjectCA: "true"}}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: *named.DeepCopy()}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: *named.DeepCopy()}
	for _, kind := range []string{"machine", "machineset"} {
		path := "-machine-openshift-io-v1beta1-" + kind
		mutating.Webhooks = append(mutating.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name: "default." + kind + ".machine.openshift.io", ClientConfig: webhookClient("/mutate" + path), Rules: webhookRule(kind+"s", create),
			FailurePolicy: ptr.To(admissionregistrationv1.Ignore), SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds: ptr.To[int32](webhookTimeoutSeconds), AdmissionReviewVersions: []string{"v1"},
		})
		validating.Webhooks = append(validating.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: "validation." + kind + ".machine.openshift.io", ClientConfig: webhookClient("/validate" + path), Rules: webhookRule(kind+"s", create, update),
			FailurePolicy: ptr.To(admissionregistrationv1.Ignore), SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds: ptr.To[int32](webhookTimeoutSeconds), AdmissionReviewVersions: []string{"v1"},
		})
	}
	controlPlane := webhookRule("controlplanemachinesets", create, update)
	controlPlane[0].APIVersions = []string{"v1"}
	validating.Webhooks = append(validating.Webhooks, admissionregistrationv1.ValidatingWebhook{
		Name: "controlplanemachineset.machine.openshift.io", ClientConfig: webhookClient("/validate-machine-openshift-io-v1-controlplanemachineset"), Rules: controlPlane,
		FailurePolicy: ptr.To(admissionregistrationv1.Ignore), SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone),
		TimeoutSeconds: ptr.To[int32](webhookTimeoutSeconds), AdmissionReviewVersions: []string{"v1"},
	})
	return []client.Object{mutating, validating, machineConfigWebhook()}
}

func webhookClient(path string) admissionregistrationv1.WebhookClientConfig {
	return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
		Namespace: NamespaceMachineAPI, Name: WebhookService, Path: &path, Port: ptr.To[int32](443)}}
}

func webhookRule(resource string, ops ...admissionregistrationv1.OperationType) []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{Operations: ops, Rule: admissionregistrationv1.Rule{
		APIGroups: []string{"machine.openshift.io"}, APIVersions: []string{"v1beta1"}, Resources: []string{resource}}}}
}
