package memapi

import (
	"context"
	"crypto/sha256"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Op is one request. Kind is the object's kind, followed by /subresource
// where there is one. Verbs: get, list, create, update, patch (server-side
// apply too), delete, deletecollection.
type Op struct {
	Verb, Kind string
	Key        client.ObjectKey
	Err        error // what the client was told; only in Log and in an after hook
}

// String prints e.g. "patch Machine/status default/worker-1".
func (o Op) String() string {
	s := o.Verb + " " + o.Kind + " " + strings.TrimPrefix(o.Key.String(), "/")
	if o.Err != nil {
		s += ": " + o.Err.Error()
	}
	return s
}

// API is an API server in memory. It is safe for concurrent use; writes are
// done one at a time.
type API struct {
	client.WithWatch // what clients see
	raw              client.WithWatch
	scheme           *runtime.Scheme
	clk              clock.PassiveClock
	t                *tracker

	mu     sync.Mutex
	log    []Op
	fails  []failure
	before func(Op) error
	after  func(Op) error
	names  int
}

type failure struct {
	verb, kind string
	err        error
}

// New returns an API that holds copies of objs. Every kind of the scheme with
// a status has the status subresource. Times come from clk.
func New(scheme *runtime.Scheme, clk clock.PassiveClock, objs ...client.Object) *API {
	// The fake client registers kinds it meets; the caller's scheme is not its.
	inner := clienttesting.NewFieldManagedObjectTracker(scheme,
		serializer.NewCodecFactory(scheme).UniversalDecoder(), managedfields.NewDeducedTypeConverter())
	a := &API{scheme: scheme, clk: clk, t: newTracker(scheme, clk, inner)}
	b := fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(a.t).WithGlobalResourceVersionCounter()
	for gvk := range scheme.AllKnownTypes() {
		if o, ok := withStatus(scheme, gvk); ok {
			a.t.hasStatus[gvk] = true
			b = b.WithStatusSubresource(o)
		}
	}
	for _, o := range objs {
		c := o.DeepCopyObject().(client.Object)
		c.SetResourceVersion("")
		b = b.WithObjects(c)
	}
	a.raw = b.Build()
	a.WithWatch = interceptor.NewClient(a.raw, a.funcs())
	if scheme.Recognizes(corev1.SchemeGroupVersion.WithKind("Pod")) {
		// The server knows this field without an index.
		_ = fake.AddIndex(a.raw, &corev1.Pod{}, fieldPodNode, podNode)
	}
	return a
}

// withStatus returns an object of a kind that has a status subresource.
func withStatus(scheme *runtime.Scheme, gvk schema.GroupVersionKind) (client.Object, bool) {
	if gvk.Version == runtime.APIVersionInternal {
		return nil, false
	}
	fresh, err := scheme.New(gvk)
	if err != nil {
		return nil, false
	}
	o, ok := fresh.(client.Object)
	if !ok || reflect.TypeOf(o).Elem().Kind() != reflect.Struct {
		return nil, false
	}
	f, ok := reflect.TypeOf(o).Elem().FieldByName("Status")
	return o, ok && f.Type.Kind() == reflect.Struct
}

// Writes returns how many write requests were made, refused ones included.
func (a *API) Writes() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.log)
}

// Log returns all write requests in order.
func (a *API) Log() []Op {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.log)
}

// FailNext makes the next request of this verb on this kind return err and do
// nothing. "*" stands for any verb or kind; a kind without a subresource
// matches its subresources too. Several calls queue up.
func (a *API) FailNext(verb, kind string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fails = append(a.fails, failure{verb, kind, err})
}

// Hook calls before ahead of each write and after behind it; an error from
// before keeps the write from happening, one from after hides that it did.
// Nil takes a hook away. Hooks must not call the API.
func (a *API) Hook(before, after func(Op) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.before, a.after = before, after
}

// IndexField makes a field known to field selectors, for reads of the API
// itself. Registering it again does nothing.
func (a *API) IndexField(_ context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	err := fake.AddIndex(a.raw, obj, field, extract)
	if err != nil && strings.Contains(err.Error(), "already exists") {
		return nil
	}
	return err
}

func (a *API) funcs() interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := a.scripted(Op{Verb: "get", Kind: a.kind(obj, ""), Key: key}); err != nil {
				return err
			}
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := a.scripted(Op{Verb: "list", Kind: strings.TrimSuffix(a.kind(list, ""), "List")}); err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return a.write(ctx, "create", obj, "", func() error { return a.create(ctx, c, obj, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			return a.write(ctx, "update", obj, "", func() error {
				return a.reread(ctx, obj, c.Update(ctx, obj, opts...))
			})
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			return a.write(ctx, "patch", obj, "", func() error { return c.Patch(ctx, obj, p, opts...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			u, err := configuration(obj)
			if err != nil {
				return err
			}
			return a.write(ctx, "patch", u, "", func() error { return c.Apply(ctx, obj, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return a.write(ctx, "delete", obj, "", func() error { return a.delete(ctx, obj, opts...) })
		},
		DeleteAllOf: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteAllOfOption) error {
			return a.write(ctx, "deletecollection", obj, "", func() error { return c.DeleteAllOf(ctx, obj, opts...) })
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, sub string, obj, body client.Object, opts ...client.SubResourceCreateOption) error {
			return a.write(ctx, "create", obj, sub, func() error {
				if sub == "eviction" {
					return a.evict(ctx, obj, body)
				}
				return c.SubResource(sub).Create(ctx, obj, body, opts...)
			})
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
			return a.write(ctx, "update", obj, sub, func() error {
				if sub == "approval" {
					return a.approve(ctx, obj)
				}
				return a.reread(ctx, obj, c.SubResource(sub).Update(ctx, obj, opts...))
			})
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return a.write(ctx, "patch", obj, sub, func() error { return c.SubResource(sub).Patch(ctx, obj, p, opts...) })
		},
	}
}

// write performs one write request.
func (a *API) write(ctx context.Context, verb string, obj client.Object, sub string, do func() error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	op := Op{Verb: verb, Kind: a.kind(obj, sub), Key: client.ObjectKeyFromObject(obj)}
	defer func() {
		op.Key = client.ObjectKeyFromObject(obj) // a generated name, perhaps
		op.Err = err
		a.log = append(a.log, op)
	}()
	if err := a.failed(op); err != nil {
		return err
	}
	if a.before != nil {
		if err := a.before(op); err != nil {
			return err
		}
	}
	if err := do(); err != nil {
		return err
	}
	a.collect(ctx)
	if a.after != nil {
		return a.after(op)
	}
	return nil
}

func (a *API) scripted(op Op) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed(op)
}

// failed takes the first scripted failure that fits.
func (a *API) failed(op Op) error {
	for i, f := range a.fails {
		kind, _, _ := strings.Cut(op.Kind, "/")
		if (f.verb == "*" || f.verb == op.Verb) && (f.kind == "*" || f.kind == op.Kind || f.kind == kind) {
			a.fails = slices.Delete(a.fails, i, i+1)
			return f.err
		}
	}
	return nil
}

func (a *API) kind(obj runtime.Object, sub string) string {
	kind := reflect.TypeOf(obj).Elem().Name()
	if gvk, err := apiutil.GVKForObject(obj, a.scheme); err == nil {
		kind = gvk.Kind
	}
	if sub != "" {
		kind += "/" + sub
	}
	return kind
}

func (a *API) create(ctx context.Context, c client.Client, obj client.Object, opts ...client.CreateOption) error {
	if obj.GetName() == "" && obj.GetGenerateName() != "" {
		obj.SetName(a.generate(ctx, obj))
	}
	return a.reread(ctx, obj, c.Create(ctx, obj, opts...))
}

// generate returns a free name, the same one in the same run.
func (a *API) generate(ctx context.Context, obj client.Object) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	base := obj.GetGenerateName()
	base = base[:min(len(base), 58)]
	for {
		a.names++
		sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", base, a.names))
		name := []byte(base)
		for _, b := range sum[:5] {
			name = append(name, alphabet[int(b)%len(alphabet)])
		}
		have := obj.DeepCopyObject().(client.Object)
		err := a.raw.Get(ctx, client.ObjectKey{Namespace: obj.GetNamespace(), Name: string(name)}, have)
		if apierrors.IsNotFound(err) {
			return string(name)
		}
	}
}

// reread brings what the server added into objects that the fake client only
// stores a converted copy of.
func (a *API) reread(ctx context.Context, obj client.Object, err error) error {
	if err != nil {
		return err
	}
	switch obj.(type) {
	case *unstructured.Unstructured, *metav1.PartialObjectMetadata:
		if err := a.raw.Get(ctx, client.ObjectKeyFromObject(obj), obj); !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// configuration returns the identity of what an apply configuration means.
func configuration(obj runtime.ApplyConfiguration) (*unstructured.Unstructured, error) {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("read apply configuration: %w", err)
	}
	return &unstructured.Unstructured{Object: raw}, nil
}

func resourceOf(scheme *runtime.Scheme, obj client.Object) (schema.GroupResource, error) {
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return schema.GroupResource{}, err
	}
	gvr, _ := meta.UnsafeGuessKindToResource(gvk)
	return gvr.GroupResource(), nil
}
