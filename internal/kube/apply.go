package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"millwright.io/millwright/internal/telemetry"
)

// Apply brings an object that owner owns whole to obj by server-side apply,
// taking over fields that others hold. It makes no write when the same owner
// sent the same object before and everything in it is still so; a digest in an
// annotation tells. It never sends a status. obj is not changed.
func Apply(ctx context.Context, c client.Client, owner string, obj client.Object) error {
	gvk, err := apiutil.GVKForObject(obj, c.Scheme())
	if err != nil {
		return fmt.Errorf("apply %T: %w", obj, err)
	}
	what := fmt.Sprintf("apply %s %s", gvk.Kind, client.ObjectKeyFromObject(obj))
	want, err := applied(gvk.GroupVersion().String(), gvk.Kind, obj)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	have := obj.DeepCopyObject().(client.Object)
	switch err := c.Get(ctx, client.ObjectKeyFromObject(obj), have); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("%s: read it: %w", what, err)
	default:
		raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(have)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		delete(want.Object, "apiVersion") // typed reads leave these empty
		delete(want.Object, "kind")
		same := contains(raw, want.Object)
		want.SetGroupVersionKind(gvk)
		if same {
			return nil
		}
	}
	err = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(want), client.FieldOwner(owner), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// applied returns what is sent for obj, the digest annotation included.
func applied(apiVersion, kind string, obj client.Object) (*unstructured.Unstructured, error) {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(raw)}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	delete(u.Object, "status")
	for _, f := range []string{"creationTimestamp", "managedFields", "resourceVersion", "uid", "generation", "selfLink"} {
		unstructured.RemoveNestedField(u.Object, "metadata", f)
	}
	text, err := json.Marshal(u.Object) // keys are sorted
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	notes := u.GetAnnotations()
	if notes == nil {
		notes = map[string]string{}
	}
	notes[telemetry.AnnotationAppliedDigest] = hex.EncodeToString(sum[:8])
	u.SetAnnotations(notes)
	return u, nil
}

// contains reports whether everything in want is in have. Lists must be equal
// element by element in that sense.
func contains(have, want any) bool {
	switch w := want.(type) {
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok {
			return len(w) == 0 && have == nil
		}
		for k, v := range w {
			if !contains(h[k], v) {
				return false
			}
		}
		return true
	case []any:
		h, ok := have.([]any)
		if !ok || len(h) != len(w) {
			return len(w) == 0 && have == nil
		}
		for i := range w {
			if !contains(h[i], w[i]) {
				return false
			}
		}
		return true
	case nil:
		return true
	default:
		return reflect.DeepEqual(have, want) || fmt.Sprint(have) == fmt.Sprint(want)
	}
}
