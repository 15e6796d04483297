package render

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"millwright.io/millwright/internal/dialect/machineconfig/wire"
)

// overrides says of each pool whether its OS image is not the cluster's.
var overrides = sync.OnceValue(func() *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: wire.MetricOSImageOverride,
		Help: "1 for a pool whose OS image a MachineConfig sets, 0 for one with the cluster's.",
	}, []string{wire.MetricLabelPool})
	metrics.Registry.MustRegister(g)
	return g
})

func measure(p *picture) {
	if p.in.Outcome.Err != nil {
		return
	}
	value := 0.0
	if p.in.Outcome.Result.OSImageOverridden {
		value = 1
	}
	overrides().WithLabelValues(p.pool.Name).Set(value)
}
