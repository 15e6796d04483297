package memapi

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

var _ client.Reader = (*Store)(nil)

// Store is a set of objects behind client.Reader. Lists are ordered by
// namespace and name. It is safe for concurrent use.
type Store struct {
	scheme *runtime.Scheme

	mu       sync.RWMutex
	objects  map[schema.GroupVersionKind]map[client.ObjectKey]client.Object
	indexes  map[schema.GroupVersionKind]map[string]client.IndexerFunc
	problems []string
}

func newStore(scheme *runtime.Scheme) *Store {
	return &Store{
		scheme:  scheme,
		objects: map[schema.GroupVersionKind]map[client.ObjectKey]client.Object{},
		indexes: map[schema.GroupVersionKind]map[string]client.IndexerFunc{},
	}
}

// Problems says what could not be read, one line each, in the order met.
func (s *Store) Problems() []string { return slices.Clone(s.problems) }

// Objects returns copies of everything in the store, ordered by kind,
// namespace and name.
func (s *Store) Objects() []client.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	kinds := slices.Collect(maps.Keys(s.objects))
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	var out []client.Object
	for _, gvk := range kinds {
		for _, k := range sortedKeys(s.objects[gvk], "") {
			out = append(out, s.objects[gvk][k].DeepCopyObject().(client.Object))
		}
	}
	return out
}

// IndexField makes a field known to field selectors. Registering it again
// replaces it.
func (s *Store) IndexField(_ context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	gvk, err := apiutil.GVKForObject(obj, s.scheme)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.indexes[gvk] == nil {
		s.indexes[gvk] = map[string]client.IndexerFunc{}
	}
	s.indexes[gvk][field] = extract
	return nil
}

// put keeps obj, which the store owns from now on.
func (s *Store) put(gvk schema.GroupVersionKind, obj client.Object) error {
	typed, err := toTyped(s.scheme, gvk, obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[gvk] == nil {
		s.objects[gvk] = map[client.ObjectKey]client.Object{}
	}
	s.objects[gvk][client.ObjectKeyFromObject(typed)] = typed
	return nil
}

func (s *Store) drop(gvk schema.GroupVersionKind, key client.ObjectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects[gvk], key)
}

// Get implements client.Reader.
func (s *Store) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(obj, s.scheme)
	if err != nil {
		return err
	}
	s.mu.RLock()
	have, ok := s.objects[gvk][key]
	s.mu.RUnlock()
	if !ok {
		gvr, _ := meta.UnsafeGuessKindToResource(gvk)
		return apierrors.NewNotFound(gvr.GroupResource(), key.Name)
	}
	like, err := shapedLike(s.scheme, gvk, have, obj)
	if err != nil {
		return err
	}
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(like).Elem())
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	return nil
}

// List implements client.Reader.
func (s *Store) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	gvk, err := apiutil.GVKForObject(list, s.scheme)
	if err != nil {
		return err
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	var o client.ListOptions
	o.ApplyOptions(opts)
	s.mu.RLock()
	defer s.mu.RUnlock()
	items := []runtime.Object{}
	for _, key := range sortedKeys(s.objects[gvk], o.Namespace) {
		obj := s.objects[gvk][key]
		if o.LabelSelector != nil && !o.LabelSelector.Matches(labels.Set(obj.GetLabels())) {
			continue
		}
		ok, err := s.selected(gvk, obj, o.FieldSelector)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		item, err := itemOf(s.scheme, gvk, obj, list)
		if err != nil {
			return err
		}
		item.GetObjectKind().SetGroupVersionKind(gvk)
		items = append(items, item)
	}
	return meta.SetList(list, items)
}

// selected evaluates a field selector: names, and the indexed fields.
func (s *Store) selected(gvk schema.GroupVersionKind, obj client.Object, sel fields.Selector) (bool, error) {
	if sel == nil {
		return true, nil
	}
	for _, req := range sel.Requirements() {
		if req.Operator != selection.Equals && req.Operator != selection.DoubleEquals {
			return false, fmt.Errorf("field selector %s: only equality is supported", sel)
		}
		var values []string
		switch extract := s.indexes[gvk][req.Field]; {
		case extract != nil:
			values = extract(obj)
		case req.Field == "metadata.name":
			values = []string{obj.GetName()}
		case req.Field == "metadata.namespace":
			values = []string{obj.GetNamespace()}
		case req.Field == fieldPodNode && gvk == corev1.SchemeGroupVersion.WithKind("Pod"):
			values = podNode(obj)
		default:
			return false, fmt.Errorf("field selector %s: %s of %s is not indexed", sel, req.Field, gvk.Kind)
		}
		if !slices.Contains(values, req.Value) {
			return false, nil
		}
	}
	return true, nil
}

const fieldPodNode = "spec.nodeName"

func podNode(obj client.Object) []string {
	if p, ok := obj.(*corev1.Pod); ok {
		return []string{p.Spec.NodeName}
	}
	return nil
}

func sortedKeys(m map[client.ObjectKey]client.Object, namespace string) []client.ObjectKey {
	var keys []client.ObjectKey
	for k := range m {
		if namespace == "" || k.Namespace == namespace {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b client.ObjectKey) int {
		if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return keys
}

// toTyped turns an unstructured object into the scheme's type of its kind,
// where the scheme has one.
func toTyped(scheme *runtime.Scheme, gvk schema.GroupVersionKind, obj client.Object) (client.Object, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || !scheme.Recognizes(gvk) {
		return obj, nil
	}
	fresh, err := scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	typed, ok := fresh.(client.Object)
	if !ok {
		return obj, nil
	}
	if _, same := fresh.(*unstructured.Unstructured); same {
		return obj, nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", gvk.Kind, client.ObjectKeyFromObject(obj), err)
	}
	return typed, nil
}

// shapedLike returns a copy of have with the Go type of like.
func shapedLike(scheme *runtime.Scheme, gvk schema.GroupVersionKind, have, like client.Object) (client.Object, error) {
	if reflect.TypeOf(have) == reflect.TypeOf(like) {
		return have.DeepCopyObject().(client.Object), nil
	}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(have)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(raw)}
	u.SetGroupVersionKind(gvk)
	if _, ok := like.(*unstructured.Unstructured); ok {
		return u, nil
	}
	out, ok := reflect.New(reflect.TypeOf(like).Elem()).Interface().(client.Object)
	if !ok {
		return nil, fmt.Errorf("%T is no object", like)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out); err != nil {
		return nil, fmt.Errorf("convert %s %s to %T: %w", gvk.Kind, client.ObjectKeyFromObject(have), like, err)
	}
	return out, nil
}

// itemOf returns a copy of have as list holds it.
func itemOf(scheme *runtime.Scheme, gvk schema.GroupVersionKind, have client.Object, list client.ObjectList) (client.Object, error) {
	switch list.(type) {
	case *unstructured.UnstructuredList:
		return shapedLike(scheme, gvk, have, &unstructured.Unstructured{})
	case *metav1.PartialObjectMetadataList:
		return shapedLike(scheme, gvk, have, &metav1.PartialObjectMetadata{})
	}
	return have.DeepCopyObject().(client.Object), nil
}
