package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Since is a time for an Evidence; nil when it is not known.
func Since(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	u := t.UTC()
	return &u
}

// ConditionEvidence is one condition, with its reason and text.
func ConditionEvidence(kind, status, reason, message string, since time.Time) Evidence {
	what := fmt.Sprintf("condition %s=%s", kind, status)
	if reason != "" {
		what += " (" + reason + ")"
	}
	return Evidence{What: what, Text: message, Since: Since(since)}
}

// maxEvents bounds how many events an explanation shows.
const maxEvents = 5

// Events returns what was told last about an object, newest first. Events that
// may not be read are a note.
func (in ExplainInput) Events(ctx context.Context, kind string, obj client.Object) ([]Evidence, error) {
	namespace := obj.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	var list corev1.EventList
	if err := in.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{fieldEventObject: obj.GetName()}); err != nil {
		return nil, err
	}
	evs := slices.DeleteFunc(list.Items, func(e corev1.Event) bool {
		o := e.InvolvedObject
		return o.Kind != kind || o.Name != obj.GetName() || o.UID != "" && obj.GetUID() != "" && o.UID != obj.GetUID() && o.UID != types.UID(obj.GetName())
	})
	slices.SortStableFunc(evs, func(a, b corev1.Event) int {
		return cmp.Or(lastSeen(&b).Compare(lastSeen(&a)), strings.Compare(a.Name, b.Name))
	})
	var out []Evidence
	for i := range evs[:min(len(evs), maxEvents)] {
		e := &evs[i]
		what := "event " + e.Reason
		if n := times(e); n > 1 {
			what += fmt.Sprintf(" (%d times), last", n)
		}
		out = append(out, Evidence{What: what, Text: e.Message, Since: Since(lastSeen(e))})
	}
	return out, nil
}

func times(e *corev1.Event) int32 {
	if e.Series != nil {
		return max(e.Count, e.Series.Count)
	}
	return e.Count
}

func lastSeen(e *corev1.Event) time.Time {
	t := e.LastTimestamp.Time
	for _, other := range []time.Time{e.EventTime.Time, e.FirstTimestamp.Time} {
		if t.IsZero() {
			t = other
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(t) {
		t = e.Series.LastObservedTime.Time
	}
	return t
}

// List fills list. A kind that the cluster does not serve has no objects; one
// that may not be listed has none, and a note says so.
func (in ExplainInput) List(ctx context.Context, list client.ObjectList, which ...client.ListOption) error {
	kind := strings.TrimSuffix(fmt.Sprintf("%T", list), "List")
	kind = kind[strings.LastIndex(kind, ".")+1:]
	err := in.Reader.List(ctx, list, which...)
	switch {
	case err == nil || meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		return nil
	case apierrors.IsForbidden(err):
		in.Note(kind + " objects may not be listed with these credentials and are not considered")
		return nil
	}
	return fmt.Errorf("list %s objects: %w", kind, err)
}

// newest is the last moment that objects know of: a directory was written then
// or later.
func newest(objs []client.Object) time.Time {
	var last time.Time
	for _, o := range objs {
		for _, t := range moments(o) {
			if t.After(last) {
				last = t
			}
		}
	}
	return last
}

// moments are the past times in an object. The end of a grace period lies in
// the future and is none.
func moments(o client.Object) []time.Time {
	out := []time.Time{o.GetCreationTimestamp().Time}
	for _, f := range o.GetManagedFields() {
		if f.Time != nil {
			out = append(out, f.Time.Time)
		}
	}
	switch o := o.(type) {
	case *corev1.Event:
		return append(out, lastSeen(o))
	case *certificatesv1.CertificateSigningRequest:
		return out
	}
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return out
	}
	conditions, _, _ := unstructured.NestedSlice(u, "status", "conditions")
	for _, c := range conditions {
		fields, _ := c.(map[string]any)
		for _, key := range []string{"lastTransitionTime", "lastHeartbeatTime"} {
			text, _ := fields[key].(string)
			if t, err := time.Parse(time.RFC3339, text); err == nil {
				out = append(out, t)
			}
		}
	}
	if text, found, _ := unstructured.NestedString(u, "status", "lastUpdated"); found {
		if t, err := time.Parse(time.RFC3339, text); err == nil {
			out = append(out, t)
		}
	}
	return out
}
