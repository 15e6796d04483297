package wire

import (
	"fmt"
)

// Events of the Machine controller that no decision makes.
const (
	ReasonFailedValidate = "FailedValidate"
	ActionValidate       = "Validate"
)

// TextNoProviderSpec refuses a Machine without providerSpec.value.
const TextNoProviderSpec = `spec.spec.providerspec: Invalid value: "null": value field must be set`

// TextNoClusterLabel refuses a Machine without the cluster label.
func TextNoClusterLabel(labels map[string]string) string {
	return fmt.Sprintf("spec.labels: Invalid value: %v: missing %s label.", labels, LabelCluster)
}

// TextInvalid is the event and log line for a refused Machine.
func TextInvalid(name, why string) string {
	return fmt.Sprintf("%s: machine validation failed: %s", name, why)
}

// TextReconcileFailed heads a text that only a new spec ends.
func TextReconcileFailed(name, why string) string {
	return fmt.Sprintf("failed to reconcile machine %q: %s", name, why)
}

// TextReconcileRetried heads a text that ends by itself; the s after the name
// is the original's.
func TextReconcileRetried(name, why string) string {
	return fmt.Sprintf("failed to reconcile machine %qs: %s", name, why)
}

// TextDeleteFailed heads the text of a refused removal.
func TextDeleteFailed(name, why string) string {
	return fmt.Sprintf("failed to delete machine %q: %s", name, why)
}

// TextUserDataSecret says that first-boot data cannot be read.
func TextUserDataSecret(name, namespace string, err error) string {
	return fmt.Sprintf("error getting user data secret %s in namespace %s: %v", name, namespace, err)
}

// TextNoUserData says that the Secret has no first-boot data.
func TextNoUserData(namespace, name string) string {
	return fmt.Sprintf("Secret %s/%s does not have userData field set. Thus, no user data applied when creating an instance.", namespace, name)
}

// TextScope heads everything that keeps a cloud account from being opened.
func TextScope(why string) string { return "failed to create scope: " + why }

// TextCredentials says that the credentials Secret cannot be read.
func TextCredentials(secret string, err error) string {
	return fmt.Sprintf("error getting credentials secret %s: %v", secret, err)
}
