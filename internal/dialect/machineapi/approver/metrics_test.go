package approver_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright.io/millwright/internal/dialect/machineapi/approver"
)

func TestPendingRequestsAreCounted(t *testing.T) {
	old := clientRequest(t, "csr-old")
	old.CreationTimestamp = metav1.NewTime(start.Add(-61 * time.Minute))
	w := newWorld(t, machine(), old, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
	reg := prometheus.NewRegistry()
	if err := approver.RegisterMetrics(reg, w.api, w.clk); err != nil {
		t.Fatal(err)
	}
	w.create(clientRequest(t, "csr-1"), servingRequest(t, "csr-2"), componentRequest(t, "csr-3"))
	read := func() map[string]float64 {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]float64{}
		for _, f := range families {
			out[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
		}
		return out
	}
	want := map[string]float64{"mapi_current_pending_csr": 2, "mapi_max_pending_csr": 102}
	if diff := cmp.Diff(want, read()); diff != "" {
		t.Errorf("pending (-want +got):\n%s", diff)
	}
	w.step("csr-1")
	want["mapi_current_pending_csr"] = 1
	if diff := cmp.Diff(want, read()); diff != "" {
		t.Errorf("after one approval (-want +got):\n%s", diff)
	}
}
