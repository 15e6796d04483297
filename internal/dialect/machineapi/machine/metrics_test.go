package machine_test

import (
	"strings"
	"testing"
	"time"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/dialect/machineapi/machine"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/provider/fake"
)

// TestFailuresAreCountedByReason: the reasons that dashboards know, else the
// kind; each failure once; nothing left of a Machine that is gone.
func TestFailuresAreCountedByReason(t *testing.T) {
	w := newWorld(t, worker(nil))
	reg := prometheus.NewRegistry()
	m, err := machine.NewMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	w.metrics = m
	w.restart()
	w.cloud.FailNext(fake.OpCreateVM, &cloud.Fault{Kind: cloud.Quota, Message: "exceeding approved Total Regional Cores quota"})
	w.cloud.FailNext(fake.OpCreateVM, &cloud.Fault{Kind: cloud.Transient, Message: "failed to create VM network interface: busy"})
	for range 4 {
		w.after(time.Second)
	}
	for range 3 {
		w.after(10 * time.Minute)
	}
	want := `
# HELP mapi_instance_create_failed Refused or failed creations of an instance.
# TYPE mapi_instance_create_failed counter
mapi_instance_create_failed{name="` + name + `",namespace="openshift-machine-api",reason="Quota"} 1
mapi_instance_create_failed{name="` + name + `",namespace="openshift-machine-api",reason="failed to create VM network interface"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), wire.MetricCreateFailed); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(reg, wire.MetricPhaseSeconds); err != nil || n == 0 {
		t.Errorf("%d phases measured: %v", n, err)
	}
}

func TestCollectorTellsMachinesAndSets(t *testing.T) {
	set := &machinev1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: wire.Namespace, Name: "w", CreationTimestamp: metav1.NewTime(start)}}
	set.Status = machinev1.MachineSetStatus{Replicas: 3, ReadyReplicas: 2, AvailableReplicas: 1}
	running := worker(func(m *machinev1.Machine) {
		m.CreationTimestamp = metav1.NewTime(start)
		m.Status.Phase, m.Status.NodeRef, m.Spec.ProviderID = ptr.To(wire.PhaseRunning), &corev1.ObjectReference{Name: "n"}, ptr.To("fake:///n")
	})
	fresh := worker(func(m *machinev1.Machine) { m.Name = "fresh" })
	w := newWorld(t, set, running, fresh)
	reg := prometheus.NewRegistry()
	if err := machine.RegisterCollector(reg, w.api); err != nil {
		t.Fatal(err)
	}
	for metric, n := range map[string]int{
		wire.MetricMachineItems: 1, wire.MetricMachineSetItems: 1, wire.MetricMachineCreated: 1, wire.MetricMachineSetCreated: 1,
		wire.MetricSetReplicas: 1, wire.MetricSetReady: 1, wire.MetricSetAvailable: 1, wire.MetricCollectorUp: 2,
	} {
		if got, err := testutil.GatherAndCount(reg, metric); err != nil || got != n {
			t.Errorf("%s: %d series, want %d: %v", metric, got, n, err)
		}
	}
	want := `
# HELP mapi_machine_items Machines.
# TYPE mapi_machine_items gauge
mapi_machine_items 2
# HELP mapi_machine_set_status_replicas_ready Machines of a MachineSet with a ready Node.
# TYPE mapi_machine_set_status_replicas_ready gauge
mapi_machine_set_status_replicas_ready{name="w",namespace="openshift-machine-api"} 2
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), wire.MetricMachineItems, wire.MetricSetReady); err != nil {
		t.Error(err)
	}
}
