package memapi

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// tracker stands below the fake client and gives stored objects what an API
// server gives them: UIDs, times of the virtual clock, generations. Writes
// that change nothing leave the version alone. It keeps a journal of changes
// for lagging caches, and who owns what for the garbage collector. The API
// serialises all writes.
type tracker struct {
	clienttesting.ObjectTracker
	scheme    *runtime.Scheme
	clk       clock.PassiveClock
	hasStatus map[schema.GroupVersionKind]bool

	lives   map[string]int
	known   map[objectRef]known
	removed map[types.UID]bool
	fresh   bool // something was removed since the collector ran
	journal map[schema.GroupVersionKind][]change
}

type objectRef struct {
	gvk schema.GroupVersionKind
	key client.ObjectKey
}

type known struct {
	uid      types.UID
	owners   []types.UID
	deleting bool
}

// change is one entry of the journal; obj is nil when the object was removed.
type change struct {
	key client.ObjectKey
	obj client.Object
}

func newTracker(scheme *runtime.Scheme, clk clock.PassiveClock, inner clienttesting.ObjectTracker) *tracker {
	return &tracker{
		ObjectTracker: inner, scheme: scheme, clk: clk,
		hasStatus: map[schema.GroupVersionKind]bool{},
		lives:     map[string]int{}, known: map[objectRef]known{},
		removed: map[types.UID]bool{}, journal: map[schema.GroupVersionKind][]change{},
	}
}

// IsWatchListSemanticsUnSupported tells reflectors to list and then watch.
func (t *tracker) IsWatchListSemanticsUnSupported() bool { return true }

// Add implements clienttesting.ObjectTracker for objects present at the start.
func (t *tracker) Add(obj runtime.Object) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	t.born(obj, m)
	if err := t.ObjectTracker.Add(obj); err != nil {
		return err
	}
	return t.stored(obj)
}

// Create implements clienttesting.ObjectTracker.
func (t *tracker) Create(gvr schema.GroupVersionResource, obj runtime.Object, ns string, opts ...metav1.CreateOptions) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	if _, err := t.ObjectTracker.Get(gvr, ns, m.GetName()); err == nil {
		return apierrors.NewAlreadyExists(gvr.GroupResource(), m.GetName())
	}
	m.SetUID("")
	m.SetCreationTimestamp(metav1.Time{})
	m.SetGeneration(0)
	t.born(obj, m)
	if gvk, err := apiutil.GVKForObject(obj, t.scheme); err == nil && t.hasStatus[gvk] {
		clearStatus(obj)
	}
	if err := t.ObjectTracker.Create(gvr, obj, ns, opts...); err != nil {
		return err
	}
	return t.stored(obj)
}

// Update implements clienttesting.ObjectTracker.
func (t *tracker) Update(gvr schema.GroupVersionResource, obj runtime.Object, ns string, opts ...metav1.UpdateOptions) error {
	same, err := t.prepare(gvr, obj, ns)
	if err != nil || same {
		return err
	}
	if err := t.ObjectTracker.Update(gvr, obj, ns, opts...); err != nil {
		return err
	}
	return t.stored(obj)
}

// Patch implements clienttesting.ObjectTracker.
func (t *tracker) Patch(gvr schema.GroupVersionResource, obj runtime.Object, ns string, opts ...metav1.PatchOptions) error {
	same, err := t.prepare(gvr, obj, ns)
	if err != nil || same {
		return err
	}
	if err := t.ObjectTracker.Patch(gvr, obj, ns, opts...); err != nil {
		return err
	}
	return t.stored(obj)
}

// Apply implements clienttesting.ObjectTracker.
func (t *tracker) Apply(gvr schema.GroupVersionResource, obj runtime.Object, ns string, opts ...metav1.PatchOptions) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	old, err := t.ObjectTracker.Get(gvr, ns, m.GetName())
	switch {
	case apierrors.IsNotFound(err):
		t.born(obj, m)
	case err != nil:
		return err
	}
	if err := t.ObjectTracker.Apply(gvr, obj, ns, opts...); err != nil {
		return err
	}
	now, err := t.ObjectTracker.Get(gvr, ns, m.GetName())
	if err != nil {
		return err
	}
	if old != nil && !equalSpec(old, now) {
		om, _ := meta.Accessor(old)
		nm, _ := meta.Accessor(now)
		nm.SetGeneration(om.GetGeneration() + 1)
		if err := t.ObjectTracker.Update(gvr, now, ns); err != nil {
			return err
		}
	}
	return t.stored(now)
}

// Delete implements clienttesting.ObjectTracker.
func (t *tracker) Delete(gvr schema.GroupVersionResource, ns, name string, opts ...metav1.DeleteOptions) error {
	old, err := t.ObjectTracker.Get(gvr, ns, name)
	if err != nil {
		return err
	}
	if err := t.ObjectTracker.Delete(gvr, ns, name, opts...); err != nil {
		return err
	}
	m, err := meta.Accessor(old)
	if err != nil {
		return err
	}
	gvk, err := apiutil.GVKForObject(old, t.scheme)
	if err != nil {
		return err
	}
	ref := objectRef{gvk: gvk, key: client.ObjectKey{Namespace: ns, Name: name}}
	delete(t.known, ref)
	t.removed[m.GetUID()] = true
	t.fresh = true
	t.journal[gvk] = append(t.journal[gvk], change{key: ref.key})
	return nil
}

// born gives a new object identity and age, unless it brings its own.
func (t *tracker) born(obj runtime.Object, m metav1.Object) {
	if m.GetUID() == "" {
		kind := fmt.Sprintf("%T", obj)
		if gvk, err := apiutil.GVKForObject(obj, t.scheme); err == nil {
			kind = gvk.GroupKind().String()
		}
		id := kind + "/" + m.GetNamespace() + "/" + m.GetName()
		t.lives[id]++
		m.SetUID(uidOf(fmt.Sprintf("%s/%d", id, t.lives[id])))
	}
	if m.GetCreationTimestamp().Time.IsZero() {
		m.SetCreationTimestamp(t.now())
	}
	if m.GetGeneration() == 0 {
		m.SetGeneration(1)
	}
}

func (t *tracker) now() metav1.Time { return metav1.NewTime(t.clk.Now().UTC().Truncate(time.Second)) }

// prepare puts into obj what a client cannot change, and reports that nothing
// else differs from what is stored; obj then carries the stored version.
func (t *tracker) prepare(gvr schema.GroupVersionResource, obj runtime.Object, ns string) (same bool, err error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return false, err
	}
	old, err := t.ObjectTracker.Get(gvr, ns, m.GetName())
	if err != nil {
		return false, err
	}
	o, err := meta.Accessor(old)
	if err != nil {
		return false, err
	}
	if m.GetUID() != "" && m.GetUID() != o.GetUID() {
		return false, apierrors.NewConflict(gvr.GroupResource(), m.GetName(),
			fmt.Errorf("the UID is %s, the object has %s", m.GetUID(), o.GetUID()))
	}
	m.SetUID(o.GetUID())
	m.SetCreationTimestamp(o.GetCreationTimestamp())
	m.SetGeneration(o.GetGeneration())
	switch {
	case o.GetDeletionTimestamp() != nil:
		m.SetDeletionTimestamp(o.GetDeletionTimestamp())
	case m.GetDeletionTimestamp() != nil:
		now := t.now()
		m.SetDeletionTimestamp(&now)
		m.SetGeneration(o.GetGeneration() + 1)
	}
	version := m.GetResourceVersion()
	m.SetResourceVersion(o.GetResourceVersion())
	if equalBut(old, obj) {
		return true, nil
	}
	m.SetResourceVersion(version)
	if !equalSpec(old, obj) {
		m.SetGeneration(o.GetGeneration() + 1)
	}
	return false, nil
}

// stored takes note of a stored object.
func (t *tracker) stored(obj runtime.Object) error {
	o, ok := obj.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("store %T: it is no object", obj)
	}
	gvk, err := apiutil.GVKForObject(o, t.scheme)
	if err != nil {
		return err
	}
	o.SetManagedFields(nil)
	o.GetObjectKind().SetGroupVersionKind(gvk)
	k := known{uid: o.GetUID(), deleting: o.GetDeletionTimestamp() != nil}
	for _, r := range o.GetOwnerReferences() {
		k.owners = append(k.owners, r.UID)
	}
	ref := objectRef{gvk: gvk, key: client.ObjectKeyFromObject(o)}
	t.known[ref] = k
	t.journal[gvk] = append(t.journal[gvk], change{key: ref.key, obj: o})
	return nil
}

// equalBut compares whole objects; managedFields and type do not count.
func equalBut(a, b runtime.Object) bool {
	x, y := a.DeepCopyObject(), b.DeepCopyObject()
	for _, o := range []runtime.Object{x, y} {
		if m, err := meta.Accessor(o); err == nil {
			m.SetManagedFields(nil)
		}
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return apiequality.Semantic.DeepEqual(x, y)
}

// equalSpec compares everything but metadata and status.
func equalSpec(a, b runtime.Object) bool {
	x, err := runtime.DefaultUnstructuredConverter.ToUnstructured(a)
	if err != nil {
		return false
	}
	y, err := runtime.DefaultUnstructuredConverter.ToUnstructured(b)
	if err != nil {
		return false
	}
	rest := func(m map[string]any) map[string]any {
		out := map[string]any{}
		for k, v := range m {
			switch k {
			case "metadata", "status", "apiVersion", "kind":
			default:
				out[k] = v
			}
		}
		return out
	}
	return apiequality.Semantic.DeepEqual(rest(x), rest(y))
}

func clearStatus(obj runtime.Object) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		delete(u.Object, "status")
		return
	}
	if f := reflect.ValueOf(obj).Elem().FieldByName("Status"); f.IsValid() && f.CanSet() {
		f.SetZero()
	}
}

// uidOf returns the same UID for the same text.
func uidOf(text string) types.UID {
	h := fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
	return types.UID(h[:8] + "-" + h[8:12] + "-4" + h[13:16] + "-8" + h[17:20] + "-" + h[20:32])
}
