package main

// convertible lists the definitions whose v1beta1 our webhook converts. They
// are the kinds that internal/dialect/clusterapi/convert has a table of; a test
// there compares the two.
var convertible = []string{
	"clusters.cluster.x-k8s.io",
	"machinedeployments.cluster.x-k8s.io",
	"machinedrainrules.cluster.x-k8s.io",
	"machinehealthchecks.cluster.x-k8s.io",
	"machinepools.cluster.x-k8s.io",
	"machines.cluster.x-k8s.io",
	"machinesets.cluster.x-k8s.io",
	"kubeadmconfigs.bootstrap.cluster.x-k8s.io",
	"kubeadmconfigtemplates.bootstrap.cluster.x-k8s.io",
}

// labelInject asks the webhook process for its CA bundle.
const labelInject = "millwright.io/inject-ca"

// conversion is where the webhook process serves conversions. It writes the CA
// bundle itself when it starts.
func conversion() map[string]any {
	return map[string]any{
		"strategy": "Webhook",
		"webhook": map[string]any{
			"conversionReviewVersions": []any{"v1"},
			"clientConfig": map[string]any{"service": map[string]any{
				"namespace": "openshift-machine-api", "name": "machine-api-operator-webhook", "path": "/convert", "port": int64(443)}},
		},
	}
}

func label(meta map[string]any, key, value string) {
	labels, ok := meta["labels"].(map[string]any)
	if !ok {
		labels = map[string]any{}
		meta["labels"] = labels
	}
	labels[key] = value
}
