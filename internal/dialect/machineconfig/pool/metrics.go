package pool

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	"millwright.io/millwright/internal/engine/rollout"
)

type gauges struct {
	machines, updated, degraded, unavailable, alert *prometheus.GaugeVec
}

// known are the gauges that dashboards know.
var known = sync.OnceValue(func() gauges {
	vec := func(name, help, label string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{label})
		metrics.Registry.MustRegister(g)
		return g
	}
	g := gauges{
		machines:    vec(wire.MetricMachines, "Nodes of a pool.", wire.MetricLabelPool),
		updated:     vec(wire.MetricUpdated, "Nodes of a pool that have its config.", wire.MetricLabelPool),
		degraded:    vec(wire.MetricDegraded, "Nodes of a pool that are degraded.", wire.MetricLabelPool),
		unavailable: vec(wire.MetricUnavailable, "Nodes of a pool that are out of service.", wire.MetricLabelPool),
		alert:       vec(wire.MetricPoolAlert, "1 for a control plane node that a custom pool selects, too.", wire.MetricLabelNode),
	}
	g.alert.WithLabelValues("initialize").Set(0)
	return g
})

func measure(p *picture, s rollout.Status) {
	g := known()
	g.machines.WithLabelValues(p.pool.Name).Set(float64(s.Machines))
	g.updated.WithLabelValues(p.pool.Name).Set(float64(s.Updated))
	g.degraded.WithLabelValues(p.pool.Name).Set(float64(s.Degraded))
	g.unavailable.WithLabelValues(p.pool.Name).Set(float64(s.Unavailable))
	for node, on := range p.alerts {
		value := 0.0
		if on {
			value = 1
		}
		g.alert.WithLabelValues(node).Set(value)
	}
}

func unmeasure(pool string) {
	g := known()
	for _, v := range []*prometheus.GaugeVec{g.machines, g.updated, g.degraded, g.unavailable} {
		v.DeleteLabelValues(pool)
	}
}
