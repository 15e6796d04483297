package kube

import (
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"millwright.io/millwright/internal/engine/plan"
)

// RecordEvents attaches events to obj, in order. Take rec from
// Manager.GetEventRecorder(name); it writes events.k8s.io and folds
// repetitions into series.
func RecordEvents(rec events.EventRecorder, obj client.Object, evs []plan.Event) {
	for _, e := range evs {
		action := e.Action
		if action == "" {
			action = e.Reason
		}
		kind := e.Type
		if kind == "" {
			kind = plan.Normal
		}
		// The message is data, never a format.
		rec.Eventf(obj, nil, string(kind), e.Reason, action, "%s", e.Message)
	}
}

// LoggedEvents returns rec with each event as one line of the log, too, in the
// form in which people look for events in the log of a process that shows
// them. scheme tells the kinds of objects that do not say their own.
func LoggedEvents(rec events.EventRecorder, log logr.Logger, scheme *runtime.Scheme) events.EventRecorder {
	return loggedEvents{rec, log, scheme}
}

type loggedEvents struct {
	events.EventRecorder
	log    logr.Logger
	scheme *runtime.Scheme
}

// Eventf implements events.EventRecorder.
func (l loggedEvents) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	ref := corev1.ObjectReference{}
	if o, err := meta.Accessor(regarding); err == nil {
		ref.Namespace, ref.Name, ref.UID, ref.ResourceVersion = o.GetNamespace(), o.GetName(), o.GetUID(), o.GetResourceVersion()
	}
	gvk, err := apiutil.GVKForObject(regarding, l.scheme)
	if err != nil {
		gvk = schema.GroupVersionKind{}
	}
	ref.APIVersion, ref.Kind = gvk.ToAPIVersionAndKind()
	LogNotes(l.log, []plan.Note{{Message: fmt.Sprintf("Event(%#v): type: '%s' reason: '%s' %s", ref, kind, reason, fmt.Sprintf(note, args...))}})
	l.EventRecorder.Eventf(regarding, related, kind, reason, action, note, args...)
}

// LogNotes writes each note word for word as one line.
func LogNotes(log logr.Logger, notes []plan.Note) {
	for _, n := range notes {
		if s, ok := log.GetSink().(interface{ note(msg string) }); ok {
			s.note(n.Message)
			continue
		}
		log.WithCallDepth(1).Info(n.Message)
	}
}
