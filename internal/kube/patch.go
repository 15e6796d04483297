package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PatchOption changes how a patch is sent.
type PatchOption func(*patchOptions)

type patchOptions struct {
	lock  bool
	owner string
}

// OptimisticLock makes the patch fail with a conflict when the object is no
// longer the one before was read from. Use it when a list changes.
func OptimisticLock() PatchOption { return func(o *patchOptions) { o.lock = true } }

// FieldOwner names the field manager of the patch.
func FieldOwner(name string) PatchOption { return func(o *patchOptions) { o.owner = name } }

// PatchStatus sends the difference between the statuses of before and after
// as a merge patch of the status subresource. It makes no request when they
// are equal. Afterwards after holds what the server has.
func PatchStatus(ctx context.Context, c client.Client, before, after client.Object, opts ...PatchOption) error {
	o := collect(opts)
	data, err := difference(before, after, o.lock, func(diff map[string]any) map[string]any {
		if s, ok := diff["status"]; ok {
			return map[string]any{"status": s}
		}
		return nil
	})
	if err != nil || data == nil {
		return err
	}
	var sub []client.SubResourcePatchOption
	if o.owner != "" {
		sub = append(sub, client.FieldOwner(o.owner))
	}
	if err := c.Status().Patch(ctx, after, client.RawPatch(types.MergePatchType, data), sub...); err != nil {
		return fmt.Errorf("patch status of %s: %w", client.ObjectKeyFromObject(before), err)
	}
	return nil
}

// Patch sends every other difference between before and after as a merge
// patch. It makes no request when there is none. Afterwards after holds what
// the server has, but keeps its own status, so that PatchStatus may follow.
func Patch(ctx context.Context, c client.Client, before, after client.Object, opts ...PatchOption) error {
	o := collect(opts)
	data, err := difference(before, after, o.lock, func(diff map[string]any) map[string]any {
		delete(diff, "status")
		return diff
	})
	if err != nil || data == nil {
		return err
	}
	var rest []client.PatchOption
	if o.owner != "" {
		rest = append(rest, client.FieldOwner(o.owner))
	}
	wanted, ok := after.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("patch %s: %T does not copy to an object", client.ObjectKeyFromObject(before), after)
	}
	if err := c.Patch(ctx, after, client.RawPatch(types.MergePatchType, data), rest...); err != nil {
		return fmt.Errorf("patch %s: %w", client.ObjectKeyFromObject(before), err)
	}
	keepStatus(after, wanted)
	return nil
}

func collect(opts []PatchOption) patchOptions {
	var o patchOptions
	for _, f := range opts {
		f(&o)
	}
	return o
}

// difference returns the merge patch from before to after as far as keep lets
// it through, nil when nothing is left.
func difference(before, after client.Object, lock bool, keep func(map[string]any) map[string]any) ([]byte, error) {
	key := client.ObjectKeyFromObject(before)
	raw, err := client.MergeFrom(before).Data(after)
	if err != nil {
		return nil, fmt.Errorf("compare %s: %w", key, err)
	}
	if string(raw) == "{}" {
		return nil, nil
	}
	var diff map[string]any
	if err := json.Unmarshal(raw, &diff); err != nil {
		return nil, fmt.Errorf("compare %s: %w", key, err)
	}
	// A copy that somebody else wrote meanwhile may carry another version;
	// that is never a wish.
	if m, ok := diff["metadata"].(map[string]any); ok {
		for _, f := range []string{"resourceVersion", "generation", "managedFields", "uid", "creationTimestamp"} {
			delete(m, f)
		}
		if len(m) == 0 {
			delete(diff, "metadata")
		}
	}
	diff = keep(diff)
	if len(diff) == 0 {
		return nil, nil
	}
	if lock {
		m, ok := diff["metadata"].(map[string]any)
		if !ok {
			m = map[string]any{}
			diff["metadata"] = m
		}
		m["resourceVersion"] = before.GetResourceVersion()
	}
	data, err := json.Marshal(diff)
	if err != nil {
		return nil, fmt.Errorf("encode patch of %s: %w", key, err)
	}
	return data, nil
}

// keepStatus copies the status of src into dst, where their type has one.
func keepStatus(dst, src client.Object) {
	if u, ok := dst.(*unstructured.Unstructured); ok {
		from, ok := src.(*unstructured.Unstructured)
		if !ok {
			return
		}
		if s, has := from.Object["status"]; has {
			u.Object["status"] = s
		} else {
			delete(u.Object, "status")
		}
		return
	}
	d, s := reflect.ValueOf(dst), reflect.ValueOf(src)
	if d.Kind() != reflect.Pointer || d.Elem().Kind() != reflect.Struct || d.Type() != s.Type() {
		return
	}
	if f := d.Elem().FieldByName("Status"); f.IsValid() && f.CanSet() {
		f.Set(s.Elem().FieldByName("Status"))
	}
}
