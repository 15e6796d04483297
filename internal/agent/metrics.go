package agent

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"millwright.io/millwright/internal/engine/node"
	"millwright.io/millwright/internal/engine/transition"
)

// Metrics are the agent's, under the names that alerts and dashboards know. A nil one
// counts nothing.
type Metrics struct {
	host     *prometheus.GaugeVec
	states   *prometheus.GaugeVec
	updates  *prometheus.GaugeVec
	drifted  prometheus.Gauge
	reboots  prometheus.Counter
	pivots   prometheus.Gauge
	lastDown string
}

// NewMetrics registers the agent's metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		host:    prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "mcd_host_os_and_version", Help: "Operating system of the host."}, []string{"os", "version"}),
		states:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "mcd_state", Help: "State of the agent and its reason, since when."}, []string{"state", "reason"}),
		updates: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "mcd_update_state", Help: "Config of the last update and its error, since when."}, []string{"config", "err"}),
		drifted: prometheus.NewGauge(prometheus.GaugeOpts{Name: "mcd_config_drift", Help: "When the disk was found to differ from its config, 0 if it does not."}),
		reboots: prometheus.NewCounter(prometheus.CounterOpts{Name: "mcd_reboots_failed_total", Help: "Reboots that could not be asked for."}),
		pivots:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "mcd_pivot_errors_total", Help: "Failures to stage an OS image since the last success."}),
	}
	r.MustRegister(m.host, m.states, m.updates, m.drifted, m.reboots, m.pivots)
	return m
}

// Host tells what the host runs.
func (m *Metrics) Host(f transition.Facts) {
	if m != nil {
		m.host.Reset()
		m.host.WithLabelValues(f.ID, f.Version).Set(1)
	}
}

// state shows the one state that holds; its time moves only when it changes.
func (m *Metrics) state(annotations map[string]string, _ []transition.Difference) {
	if m == nil {
		return
	}
	state, reason := annotations[node.State], annotations[node.Reason]
	if key := state + "\n" + reason + "\n" + annotations[node.CurrentConfig]; key != m.lastDown {
		m.lastDown = key
		m.states.Reset()
		m.states.WithLabelValues(state, reason).SetToCurrentTime()
		m.updates.Reset()
		m.updates.WithLabelValues("MachineConfig: "+annotations[node.CurrentConfig], reason).SetToCurrentTime()
	}
}

func (m *Metrics) drift(found bool, now time.Time) {
	switch {
	case m == nil:
	case found:
		m.drifted.Set(float64(now.Unix()))
	default:
		m.drifted.Set(0)
	}
}

func (m *Metrics) rebootFailed() {
	if m != nil {
		m.reboots.Inc()
	}
}

func (m *Metrics) pivotFailed() {
	if m != nil {
		m.pivots.Inc()
	}
}

// pivoted forgets the failures once an image was staged.
func (m *Metrics) pivoted(steps []transition.Step) {
	if m != nil && slices.ContainsFunc(steps, func(s transition.Step) bool { return s.Kind == transition.KindImage }) {
		m.pivots.Set(0)
	}
}
