// Package webhook serves admission over HTTPS and keeps the trust that the API
// server needs for it: an authority in a Secret that all replicas share, a
// serving certificate that renews itself, and the authority's certificate in
// every webhook configuration and every definition that asks for it by label.
//
// It applies modes and accepted risks to the problems that reviews find, and
// words the answer. What is a problem it is told: handlers are handed in. It
// must never change a webhook configuration or a definition in more than its CA
// bundles.
//
//	ca := webhook.NewAuthority(webhook.AuthorityDeps{…})
//	server := webhook.New(addr, ca.GetCertificate, map[string]http.Handler{
//		"/validate": webhook.Handler(review),
//	})
package webhook

//+kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations;validatingwebhookconfigurations,verbs=get;list;watch;patch
//+kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch;patch
//+kubebuilder:rbac:groups="",resources=secrets,verbs=create,namespace=openshift-machine-api
//+kubebuilder:rbac:groups="",resources=secrets,resourceNames=millwright-webhook-ca,verbs=get;update,namespace=openshift-machine-api
