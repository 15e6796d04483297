package webhook

import (
	"context"
	"encoding/base64"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/kube"
)

// DefinitionKind is the kind of the definitions that carry CA bundles for the
// conversion of their versions.
var DefinitionKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// Definitions is what to watch of definitions: their metadata, since whole
// definitions would fill the cache.
func Definitions() client.Object {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(DefinitionKind)
	return m
}

// injectDefinitions writes bundle into the labelled definitions that convert
// by our Service and differ. Which are labelled the cache of metadata tells;
// what they hold is read live, and only here.
func injectDefinitions(ctx context.Context, c client.Client, live client.Reader, service client.ObjectKey, bundle []byte) error {
	labelled := &metav1.PartialObjectMetadataList{}
	labelled.SetGroupVersionKind(DefinitionKind.GroupVersion().WithKind("CustomResourceDefinitionList"))
	if err := c.List(ctx, labelled, client.MatchingLabels{LabelInject: "true"}); err != nil {
		return fmt.Errorf("list definitions: %w", err)
	}
	text := base64.StdEncoding.EncodeToString(bundle)
	for i := range labelled.Items {
		before := &unstructured.Unstructured{}
		before.SetGroupVersionKind(DefinitionKind)
		if err := live.Get(ctx, client.ObjectKey{Name: labelled.Items[i].Name}, before); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return fmt.Errorf("read definition %s: %w", labelled.Items[i].Name, err)
		}
		config, _, _ := unstructured.NestedMap(before.Object, "spec", "conversion", "webhook", "clientConfig")
		name, _, _ := unstructured.NestedString(config, "service", "name")
		namespace, _, _ := unstructured.NestedString(config, "service", "namespace")
		if name != service.Name || namespace != service.Namespace || config["caBundle"] == text {
			continue
		}
		after := before.DeepCopy()
		if err := unstructured.SetNestedField(after.Object, text, "spec", "conversion", "webhook", "clientConfig", "caBundle"); err != nil {
			return fmt.Errorf("inject authority into definition %s: %w", before.GetName(), err)
		}
		if err := kube.Patch(ctx, c, before, after, kube.OptimisticLock()); err != nil {
			return fmt.Errorf("inject authority into definition %s: %w", before.GetName(), err)
		}
	}
	return nil
}
