package approver

import (
	"context"
	"fmt"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/engine/csr"
)

// scrapeTimeout ends one reading of the cache.
const scrapeTimeout = 5 * time.Second

// collector counts when it is asked, so that a thousand requests at once cost
// no count each.
type collector struct {
	r            client.Reader
	clk          clock.PassiveClock
	pending, max *prometheus.Desc
}

// RegisterMetrics registers how many kubelets' requests are pending and how
// many are normal, both read from r when somebody scrapes. Nothing stops at
// that number: it is there for alerts.
func RegisterMetrics(reg prometheus.Registerer, r client.Reader, clk clock.PassiveClock) error {
	c := &collector{
		r: r, clk: clk,
		pending: prometheus.NewDesc(wire.MetricPendingCSR, "Signing requests of kubelets without an answer, from the last hour.", nil, nil),
		max:     prometheus.NewDesc(wire.MetricMaxPendingCSR, "Pending signing requests that are normal for this many machines.", nil, nil),
	}
	if err := reg.Register(c); err != nil {
		return fmt.Errorf("register approver metrics: %w", err)
	}
	return nil
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) { ch <- c.pending; ch <- c.max }

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	var requests certificatesv1.CertificateSigningRequestList
	if err := c.r.List(ctx, &requests, client.UnsafeDisableDeepCopy); err != nil {
		ch <- prometheus.NewInvalidMetric(c.pending, fmt.Errorf("list signing requests: %w", err))
	} else {
		ch <- prometheus.MustNewConstMetric(c.pending, prometheus.GaugeValue, float64(c.count(requests.Items)))
	}
	limit, err := c.limit(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(c.max, err)
		return
	}
	ch <- prometheus.MustNewConstMetric(c.max, prometheus.GaugeValue, float64(limit))
}

// count counts recent unanswered requests that the rules for kubelets judge.
func (c *collector) count(requests []certificatesv1.CertificateSigningRequest) int {
	n, now := 0, c.clk.Now()
	for i := range requests {
		o := &requests[i]
		if !answered(o) && csr.Queued(o) && csr.IsRecent(o.CreationTimestamp.Time, now) {
			n++
		}
	}
	return n
}

// limit is the larger number of machines and nodes, and some.
func (c *collector) limit(ctx context.Context) (int, error) {
	var machines machinev1beta1.MachineList
	if err := c.r.List(ctx, &machines, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("list machines: %w", err)
	}
	var nodes corev1.NodeList
	if err := c.r.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("list nodes: %w", err)
	}
	return max(len(machines.Items), len(nodes.Items)) + wire.MaxPendingDiff, nil
}
