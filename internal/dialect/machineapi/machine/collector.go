package machine

import (
	"context"
	"fmt"
	"time"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineapi/wire"
)

// scrapeTimeout ends one reading of the cache.
const scrapeTimeout = 5 * time.Second

// collector counts Machines and sets when it is asked.
type collector struct {
	r                                     client.Reader
	machines, sets, machineAt, setAt, up  *prometheus.Desc
	replicas, readyReplicas, availableNow *prometheus.Desc
}

// RegisterCollector registers how many Machines and MachineSets there are, and
// what they show, read from r when somebody scrapes. r should be a cache.
func RegisterCollector(reg prometheus.Registerer, r client.Reader) error {
	set := []string{"name", "namespace"}
	c := &collector{
		r:             r,
		machines:      prometheus.NewDesc(wire.MetricMachineItems, "Machines.", nil, nil),
		sets:          prometheus.NewDesc(wire.MetricMachineSetItems, "MachineSets.", nil, nil),
		machineAt:     prometheus.NewDesc(wire.MetricMachineCreated, "When a Machine was created, and where it stands.", []string{"name", "namespace", "spec_provider_id", "node", "api_version", "phase"}, nil),
		setAt:         prometheus.NewDesc(wire.MetricMachineSetCreated, "When a MachineSet was created.", []string{"name", "namespace", "api_version"}, nil),
		replicas:      prometheus.NewDesc(wire.MetricSetReplicas, "Machines of a MachineSet.", set, nil),
		readyReplicas: prometheus.NewDesc(wire.MetricSetReady, "Machines of a MachineSet with a ready Node.", set, nil),
		availableNow:  prometheus.NewDesc(wire.MetricSetAvailable, "Machines of a MachineSet with a Node that is ready for long enough.", set, nil),
		up:            prometheus.NewDesc(wire.MetricCollectorUp, "1 when the kind could be read for this scrape.", []string{"kind"}, nil),
	}
	if err := reg.Register(c); err != nil {
		return fmt.Errorf("register machine collector: %w", err)
	}
	return nil
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.machines, c.sets, c.machineAt, c.setAt, c.replicas, c.readyReplicas, c.availableNow, c.up} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	ch <- gauge(c.up, ok(c.collectMachines(ctx, ch)), wire.MetricMachineItems)
	ch <- gauge(c.up, ok(c.collectSets(ctx, ch)), wire.MetricMachineSetItems)
}

func (c *collector) collectMachines(ctx context.Context, ch chan<- prometheus.Metric) error {
	var list machinev1.MachineList
	if err := c.r.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list machines: %w", err)
	}
	ch <- gauge(c.machines, float64(len(list.Items)))
	for i := range list.Items {
		m := &list.Items[i]
		if phaseOf(m) == "" {
			continue // nobody has looked at it yet
		}
		node := ""
		if m.Status.NodeRef != nil {
			node = m.Status.NodeRef.Name
		}
		ch <- gauge(c.machineAt, float64(m.CreationTimestamp.Unix()), m.Name, m.Namespace, ptr.Deref(m.Spec.ProviderID, ""), node, machinev1.GroupVersion.String(), phaseOf(m))
	}
	return nil
}

func (c *collector) collectSets(ctx context.Context, ch chan<- prometheus.Metric) error {
	var list machinev1.MachineSetList
	if err := c.r.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list machine sets: %w", err)
	}
	ch <- gauge(c.sets, float64(len(list.Items)))
	for i := range list.Items {
		s := &list.Items[i]
		ch <- gauge(c.setAt, float64(s.CreationTimestamp.Unix()), s.Name, s.Namespace, machinev1.GroupVersion.String())
		ch <- gauge(c.replicas, float64(s.Status.Replicas), s.Name, s.Namespace)
		ch <- gauge(c.readyReplicas, float64(s.Status.ReadyReplicas), s.Name, s.Namespace)
		ch <- gauge(c.availableNow, float64(s.Status.AvailableReplicas), s.Name, s.Namespace)
	}
	return nil
}

func gauge(d *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func ok(err error) float64 {
	if err != nil {
		return 0
	}
	return 1
}
