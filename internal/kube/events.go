package kube

import (
	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
