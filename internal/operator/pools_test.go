package operator

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func poolWith(name string, required bool, conds ...mcfgv1.MachineConfigPoolCondition) mcfgv1.MachineConfigPool {
	p := mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if required {
		p.Labels = map[string]string{labelRequired: ""}
	}
	p.Spec.Configuration.Name, p.Status.Configuration.Name = "rendered-"+name+"-b", "rendered-"+name+"-a"
	p.Status.MachineCount, p.Status.ReadyMachineCount, p.Status.UpdatedMachineCount, p.Status.UnavailableMachineCount = 3, 1, 1, 1
	p.Status.Conditions = conds
	return p
}

func TestPoolsShowInTheOperator(t *testing.T) {
	is := func(kind mcfgv1.MachineConfigPoolConditionType, reason, message string) mcfgv1.MachineConfigPoolCondition {
		return mcfgv1.MachineConfigPoolCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message}
	}
	broken := []mcfgv1.MachineConfigPoolCondition{is(mcfgv1.MachineConfigPoolNodeDegraded, "1 nodes are reporting degraded status on sync", "Node n is reporting: \"x\""),
		is(mcfgv1.MachineConfigPoolDegraded, "", "Node n is reporting: \"x\"")}
	cases := []struct {
		name      string
		pools     []mcfgv1.MachineConfigPool
		degraded  string
		upgrade   string
		extension string
	}{
		{"all updated", []mcfgv1.MachineConfigPool{poolWith("worker", false, is(mcfgv1.MachineConfigPoolUpdated, "", "")), poolWith("master", true, is(mcfgv1.MachineConfigPoolUpdated, "", ""))},
			"", "AsExpected", `{"master":"all 3 nodes are at latest configuration rendered-master-a","worker":"all 3 nodes are at latest configuration rendered-worker-a"}`},
		{"updating", []mcfgv1.MachineConfigPool{poolWith("worker", false, is(mcfgv1.MachineConfigPoolUpdating, "", ""))},
			"", "AsExpected", `{"worker":"1 (ready 1) out of 3 nodes are updating to latest configuration rendered-worker-b"}`},
		{"a worker pool degraded", []mcfgv1.MachineConfigPool{poolWith("worker", false, broken...)},
			"", "DegradedPool", `{"worker":"pool is degraded because nodes fail with \"1 nodes are reporting degraded status on sync\": \"Node n is reporting: \\\"x\\\"\""}`},
		{"a required pool degraded", []mcfgv1.MachineConfigPool{poolWith("master", true, broken...)},
			"Failed to resync 4.20.0 because: MachineConfigPool master is not ready, retrying. Status: (pool degraded: true total: 3, ready 1, updated: 1, unavailable: 1, reason: Node n is reporting: \"x\")",
			"DegradedPool", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			face := Faces(ControllerMachineConfig)[0]
			face.DaemonSets = nil
			d := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "machine-config-controller"}}
			d.Status.AvailableReplicas, d.Status.UpdatedReplicas = 1, 1
			out, _ := face.decide(observed{version: "4.20.0", now: time.Unix(0, 0), deployments: []appsv1.Deployment{d}, pools: c.pools})
			for _, cond := range out.Conditions {
				switch {
				case cond.Type == configv1.OperatorUpgradeable && cond.Reason != c.upgrade:
					t.Errorf("Upgradeable has reason %s, want %s", cond.Reason, c.upgrade)
				case cond.Type == configv1.OperatorDegraded && cond.Message != c.degraded:
					t.Errorf("Degraded says (-want +got):\n%s", cmp.Diff(c.degraded, cond.Message))
				}
			}
			if c.extension != "" && string(out.Extension.Raw) != c.extension {
				t.Errorf("extension (-want +got):\n%s", cmp.Diff(c.extension, string(out.Extension.Raw)))
			}
		})
	}
}
