package machine

import (
	"fmt"
	"strings"
	"time"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	"github.com/prometheus/client_golang/prometheus"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/engine/instance"
	engine "millwright.io/millwright/internal/engine/machine"
)

// Metrics are the names that alerts use. The nil Metrics measures nothing.
type Metrics struct {
	phases *prometheus.HistogramVec
	failed map[instance.Op]*prometheus.CounterVec
}

// phaseBuckets are those of the original, in seconds.
func phaseBuckets() []float64 {
	return []float64{5, 10, 20, 30, 60, 90, 120, 180, 240, 300, 360, 480, 600}
}

// NewMetrics registers the metrics of one process: how long Machines take to
// reach a phase, and what the cloud refused.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"name", "namespace", "reason"})
	}
	m := &Metrics{
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: wire.MetricPhaseSeconds, Help: "Seconds from a Machine's creation to its entry into a phase.", Buckets: phaseBuckets(),
		}, []string{"phase"}),
		failed: map[instance.Op]*prometheus.CounterVec{
			instance.OpCreate: counter(wire.MetricCreateFailed, "Refused or failed creations of an instance."),
			instance.OpRecord: counter(wire.MetricUpdateFailed, "Failed updates of a Machine from its instance."),
			instance.OpDelete: counter(wire.MetricDeleteFailed, "Refused or failed removals of an instance."),
		},
	}
	for _, c := range []prometheus.Collector{m.phases, m.failed[instance.OpCreate], m.failed[instance.OpRecord], m.failed[instance.OpDelete]} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register machine metrics: %w", err)
		}
	}
	// An observation of the instance that fails is, in the original, a failed
	// update.
	m.failed[instance.OpObserve] = m.failed[instance.OpRecord]
	return m, nil
}

// observe counts what one look at a Machine brought; before is the Machine as
// it was.
func (m *Metrics) observe(before *machinev1.Machine, s engine.Status, now time.Time) {
	if m == nil {
		return
	}
	if p := string(s.Phase); p != "" && p != phaseOf(before) && s.Phase != engine.Deleting {
		m.phases.WithLabelValues(p).Observe(now.Sub(before.CreationTimestamp.Time).Seconds())
	}
	i := s.Instance
	if c := m.failed[i.Op]; c != nil && i.Fault != nil && i.Fresh {
		c.WithLabelValues(before.Name, before.Namespace, failureReason(i.Fault)).Inc()
	}
}

// forget drops what is counted for a Machine that is no more.
func (m *Metrics) forget(machine *machinev1.Machine) {
	if m == nil {
		return
	}
	for _, c := range m.failed {
		c.DeletePartialMatch(prometheus.Labels{"name": machine.Name, "namespace": machine.Namespace})
	}
}

// failureReason is one of a closed set.
func failureReason(f *cloud.Fault) string {
	text := f.Error()
	for _, r := range wire.FailureReasons() {
		if strings.Contains(text, r) {
			return r
		}
	}
	return string(cloud.KindOf(f))
}
