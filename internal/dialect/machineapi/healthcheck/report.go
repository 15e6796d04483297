package healthcheck

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/engine/health"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/kube"
)

// report logs, counts, tells what is new, and writes the status unless it
// says all of this already.
func (c *controller) report(ctx context.Context, p picture, d plan.Decision[health.Status], done []plan.Action) error {
	key := client.ObjectKeyFromObject(p.mhc)
	kube.LogNotes(c.Log, d.Notes)
	c.Metrics.observe(key, d.Status, done)
	c.record(p, c.said.news(key, d.Events))
	for _, a := range done {
		if e, _ := health.Told(p.in, a, ""); e != nil {
			c.record(p, []plan.Event{*e})
		}
	}
	after := p.mhc.DeepCopy()
	s := &after.Status
	s.ExpectedMachines, s.CurrentHealthy = ptr.To(d.Status.Expected), ptr.To(d.Status.Healthy)
	s.RemediationsAllowed = int32(min(d.Status.Allowed, d.Status.Expected))
	s.Conditions = conditions(s.Conditions, d.Conditions, p.in.Now)
	before, err := written(p.mhc)
	if err != nil {
		return err
	}
	if err := kube.PatchStatus(ctx, c.Client, before, after); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// record attaches events to the Machines they are about, or to the check.
func (c *controller) record(p picture, evs []plan.Event) {
	if c.Recorder == nil {
		return
	}
	for _, e := range evs {
		var about client.Object = p.mhc
		if e.Machine != "" {
			about = p.machine(e.Machine)
		}
		kube.RecordEvents(c.Recorder, about, []plan.Event{e})
	}
}

// written returns the check as the server stores it. Before the first status
// a zero counter is not there at all.
func written(mhc *machinev1.MachineHealthCheck) (client.Object, error) {
	if mhc.Status.ExpectedMachines != nil {
		return mhc, nil
	}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(mhc)
	if err != nil {
		return nil, fmt.Errorf("convert machine health check: %w", err)
	}
	delete(raw, "status")
	return &unstructured.Unstructured{Object: raw}, nil
}

// conditions returns current with ours brought up to date, sorted by type.
// The time moves when status, reason, severity or message do.
func conditions(current []machinev1.Condition, wanted []plan.Condition, now time.Time) []machinev1.Condition {
	var out []machinev1.Condition
	for _, c := range current {
		if !slices.Contains([]string{health.RemediationAllowed, health.TemplateAvailable, health.RequestAvailable}, string(c.Type)) {
			out = append(out, c)
		}
	}
	for _, w := range wanted {
		next := machinev1.Condition{
			Type: machinev1.ConditionType(w.Type), Status: w.Status, Severity: machinev1.ConditionSeverity(w.Severity),
			Reason: w.Reason, Message: w.Message, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		}
		for _, old := range current {
			at := old.LastTransitionTime
			old.LastTransitionTime = next.LastTransitionTime
			if old == next {
				next.LastTransitionTime = at
			}
		}
		out = append(out, next)
	}
	slices.SortFunc(out, func(a, b machinev1.Condition) int { return strings.Compare(string(a.Type), string(b.Type)) })
	return out
}

// said remembers what was told and is not over yet, so that a state is one
// event and not one for each look. Losing it costs a repetition.
type said struct {
	mu sync.Mutex
	of map[types.NamespacedName][]plan.Event
}

func newSaid() *said { return &said{of: map[types.NamespacedName][]plan.Event{}} }

// news returns those of evs that the last look did not tell.
func (s *said) news(key types.NamespacedName, evs []plan.Event) []plan.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.of[key]
	if len(evs) == 0 {
		delete(s.of, key)
	} else {
		s.of[key] = evs
	}
	return slices.DeleteFunc(slices.Clone(evs), func(e plan.Event) bool { return slices.Contains(known, e) })
}

func (s *said) forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, key)
}
