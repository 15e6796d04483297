package manager

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"millwright.io/millwright/internal/dialect/machineapi/approver"
	"millwright.io/millwright/internal/dialect/machineapi/healthcheck"
	"millwright.io/millwright/internal/dialect/machineapi/machine"
)

// names remembers what is registered.
type names struct {
	*prometheus.Registry
	seen []string
}

var fqName = regexp.MustCompile(`fqName: "([^"]+)"`)

// Register implements prometheus.Registerer.
func (n *names) Register(c prometheus.Collector) error {
	ch := make(chan *prometheus.Desc, 64)
	c.Describe(ch)
	close(ch)
	for d := range ch {
		n.seen = append(n.seen, fqName.FindStringSubmatch(d.String())[1])
	}
	return n.Registry.Register(c)
}

// TestMetricsOfTheMachineAPIAreDocumented: the reference names what the
// processes register, and nothing else.
func TestMetricsOfTheMachineAPIAreDocumented(t *testing.T) {
	n := &names{Registry: prometheus.NewRegistry()}
	for _, register := range []func() error{
		func() error { return machine.RegisterCollector(n, nil) },
		func() error { _, err := machine.NewMetrics(n); return err },
		func() error { _, err := healthcheck.NewMetrics(n); return err },
		func() error { return approver.RegisterMetrics(n, nil, clock.RealClock{}) },
	} {
		if err := register(); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "reference", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for line := range strings.Lines(string(raw)) {
		if name, ok := strings.CutPrefix(line, "| `mapi_"); ok {
			name, _, _ = strings.Cut(name, "`")
			documented = append(documented, "mapi_"+name)
		}
	}
	slices.Sort(documented)
	slices.Sort(n.seen)
	if d := cmp.Diff(slices.Compact(n.seen), documented); d != "" {
		t.Errorf("registered (-) and documented (+) names:\n%s", d)
	}
}
