package healthcheck

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/engine/health"
	"millwright.io/millwright/internal/engine/plan"
)

// Metrics are the names that alerts use. The nil Metrics measures nothing.
type Metrics struct {
	covered  *prometheus.GaugeVec
	repaired *prometheus.CounterVec
	short    *prometheus.GaugeVec
}

// NewMetrics registers the metrics of one process.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	labels := []string{"name", "namespace"}
	m := &Metrics{
		covered:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: wire.MetricNodesCovered, Help: "Machines that a check selects."}, labels),
		repaired: prometheus.NewCounterVec(prometheus.CounterOpts{Name: wire.MetricRemediations, Help: "Repairs that were begun."}, labels),
		short:    prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: wire.MetricShortCircuit, Help: "1 while a check may not repair."}, labels),
	}
	for _, c := range []prometheus.Collector{m.covered, m.repaired, m.short} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register health check metrics: %w", err)
		}
	}
	return m, nil
}

func (m *Metrics) observe(key types.NamespacedName, s health.Status, done []plan.Action) {
	if m == nil {
		return
	}
	m.covered.WithLabelValues(key.Name, key.Namespace).Set(float64(s.Expected))
	short := 0.0
	if s.Short {
		short = 1
	}
	m.short.WithLabelValues(key.Name, key.Namespace).Set(short)
	for _, a := range done {
		switch a.(type) {
		case plan.DeleteMachine, plan.MarkForRepair, plan.CreateRepair:
			m.repaired.WithLabelValues(key.Name, key.Namespace).Inc()
		}
	}
}

func (m *Metrics) forget(key types.NamespacedName) {
	if m == nil {
		return
	}
	m.covered.DeleteLabelValues(key.Name, key.Namespace)
	m.short.DeleteLabelValues(key.Name, key.Namespace)
}
