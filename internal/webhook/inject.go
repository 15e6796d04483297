package webhook

import (
	"bytes"
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/kube"
)

// LabelInject, with the value "true" on a webhook configuration, asks for the
// authority's certificates in the entries that call our Service.
const LabelInject = "millwright.io/inject-ca"

// Configurations lists the kinds that carry CA bundles, for watches.
func Configurations() []client.Object {
	return []client.Object{&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}}
}

// inject writes bundle into the labelled configurations that differ.
func inject(ctx context.Context, c client.Client, service client.ObjectKey, bundle []byte) error {
	labelled := client.MatchingLabels{LabelInject: "true"}
	var mutating admissionregistrationv1.MutatingWebhookConfigurationList
	if err := c.List(ctx, &mutating, labelled); err != nil {
		return fmt.Errorf("list mutating webhook configurations: %w", err)
	}
	for i := range mutating.Items {
		before := &mutating.Items[i]
		after := before.DeepCopy()
		for w := range after.Webhooks {
			set(&after.Webhooks[w].ClientConfig, service, bundle)
		}
		if err := kube.Patch(ctx, c, before, after, kube.OptimisticLock()); err != nil {
			return fmt.Errorf("inject authority into mutating webhook configuration %s: %w", before.Name, err)
		}
	}
	var validating admissionregistrationv1.ValidatingWebhookConfigurationList
	if err := c.List(ctx, &validating, labelled); err != nil {
		return fmt.Errorf("list validating webhook configurations: %w", err)
	}
	for i := range validating.Items {
		before := &validating.Items[i]
		after := before.DeepCopy()
		for w := range after.Webhooks {
			set(&after.Webhooks[w].ClientConfig, service, bundle)
		}
		if err := kube.Patch(ctx, c, before, after, kube.OptimisticLock()); err != nil {
			return fmt.Errorf("inject authority into validating webhook configuration %s: %w", before.Name, err)
		}
	}
	return nil
}

func set(cc *admissionregistrationv1.WebhookClientConfig, service client.ObjectKey, bundle []byte) {
	if s := cc.Service; s != nil && s.Namespace == service.Namespace && s.Name == service.Name && !bytes.Equal(cc.CABundle, bundle) {
		cc.CABundle = bundle
	}
}
