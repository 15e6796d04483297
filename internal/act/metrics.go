package act

import (
	"reflect"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/telemetry"
)

// performed counts actions by kind and result; the kinds are the closed sums
// of engine/plan.
var performed = sync.OnceValue(func() *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: telemetry.MetricActions,
		Help: "Actions that were performed.",
	}, []string{telemetry.LabelAction, telemetry.LabelResult})
	metrics.Registry.MustRegister(v)
	return v
})

// count counts one action: done, failed or, for an eviction that has to wait,
// blocked.
func count(a plan.Action, blocked bool, err error) {
	result := telemetry.ResultDone
	switch {
	case err != nil:
		result = telemetry.ResultFailed
	case blocked:
		result = telemetry.ResultBlocked
	}
	performed().WithLabelValues(reflect.TypeOf(a).Name(), result).Inc()
}
