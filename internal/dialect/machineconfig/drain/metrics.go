package drain

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	"millwright.io/millwright/internal/engine/rollout"
)

// failing says of which Nodes an alert speaks.
var failing = sync.OnceValue(func() *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: wire.MetricDrainErr,
		Help: "1 for a node whose drain has been failing for more than an hour.",
	}, []string{wire.MetricLabelNode})
	metrics.Registry.MustRegister(g)
	g.WithLabelValues("initialize").Set(0)
	return g
})

func measure(node string, s rollout.DrainStatus) {
	if s.Late > 0 {
		failing().WithLabelValues(node).Set(1)
		return
	}
	failing().DeleteLabelValues(node)
}
