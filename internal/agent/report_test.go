package agent

import (
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/engine/lint"
	"millwright.io/millwright/internal/engine/node"
	"millwright.io/millwright/internal/host"
)

// conditions of the node's record, as "Type=Status message".
func (w *world) conditions() string {
	w.t.Helper()
	var m mcfgv1.MachineConfigNode
	if err := w.api.Get(w.t.Context(), client.ObjectKey{Name: nodeName}, &m); err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, c := range m.Status.Conditions {
		out = append(out, c.Type+"="+string(c.Status)+" "+c.Message)
	}
	return strings.Join(out, "\n")
}

func (w *world) wantConditions(when string, lines ...string) {
	w.t.Helper()
	all := w.conditions()
	for _, l := range lines {
		if !strings.Contains("\n"+all+"\n", "\n"+l+"\n") {
			w.t.Errorf("%s: no condition\n%s\namong\n%s", when, l, all)
		}
	}
}

func TestConditionsFollowAnUpdate(t *testing.T) {
	w := settled(t)
	w.wantConditions("settled", "Updated=True Node worker-0 Updated", "NodeDegraded=False Node worker-0 upgrade succeeded",
		"Resumed=True In desired config rendered-worker-a. Resumed normal operations. Applying proper annotations.",
		"UpdatePrepared=False This node has not yet entered the UpdatePrepared phase")
	w.create(rendered("rendered-worker-b", map[string]string{"/etc/a": "b"}))
	w.set(node.DesiredConfig, "rendered-worker-b")
	for !w.host.RebootAsked() {
		if _, err := w.agent.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.control()
	}
	w.wantConditions("rebooting", "Updated=False Node worker-0 needs an update",
		"UpdatePrepared=True Update Compatible. Post Cfg Actions: [] Drain Required: true",
		"AppliedFilesAndOS=True Applied files and new OS config to node", "RebootedNode=Unknown Upgrade requires a reboot.")
	if got := w.node().Annotations[node.PostConfigAction]; got != node.Rebooting {
		t.Errorf("post-config-action is %q", got)
	}
	w.boot()
	w.run()
	w.want("rendered-worker-b", node.Done, "")
	w.wantConditions("done", "Updated=True Node worker-0 Updated", "RebootedNode=True Node has rebooted")
	w.create(rendered("rendered-worker-c", map[string]string{"/etc/a": "b", "/tmp/x": ""}))
	w.set(node.DesiredConfig, "rendered-worker-c")
	w.run()
	w.wantConditions("broken", "NodeDegraded=True Node worker-0 upgrade failure. "+
		`unexpected on-disk state validating against rendered-worker-c: could not stat file "/tmp/x": lstat /tmp/x: no such file or directory`)
}

func TestMetricsHaveOneSeriesOfState(t *testing.T) {
	w := settled(t)
	reg := prometheus.NewRegistry()
	w.agent.Metrics = NewMetrics(reg)
	if _, err := w.agent.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.put("/etc/a", "changed")
	w.run()
	if n := testutil.CollectAndCount(w.agent.Metrics.states); n != 1 {
		t.Errorf("%d series of mcd_state, want one", n)
	}
	if got := testutil.ToFloat64(w.agent.Metrics.drifted); got == 0 {
		t.Error("mcd_config_drift is 0 on a disk that drifted")
	}
	facts, err := w.host.Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.agent.Metrics.Host(facts)
	for _, name := range []string{"mcd_host_os_and_version", "mcd_state", "mcd_update_state", "mcd_config_drift", "mcd_reboots_failed_total", "mcd_pivot_errors_total"} {
		if n, err := testutil.GatherAndCount(reg, name); err != nil || n != 1 {
			t.Errorf("%d series of %s, %v; want one", n, name, err)
		}
	}
	w.put("/etc/a", "a")
	w.run()
	w.want("rendered-worker-a", node.Done, "")
	if got := testutil.ToFloat64(w.agent.Metrics.drifted); got != 0 {
		t.Errorf("mcd_config_drift is %v on a disk that agrees", got)
	}
}

func TestUnitNamesArePublishedOnce(t *testing.T) {
	w := newWorld(t, rendered("rendered-worker-a", etc))
	if err := w.host.Files().Replace("/usr/lib/systemd/system/chronyd.service", []byte("[Unit]\n"), host.Attr{Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	w.run()
	digest := w.node().Annotations[lint.UnitNamesKey]
	var list corev1.ConfigMapList
	if err := w.api.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	if digest == "" || len(list.Items) != 1 || list.Items[0].Labels[lint.UnitNamesKey] != digest {
		t.Fatalf("digest %q, %d ConfigMaps", digest, len(list.Items))
	}
	if !strings.Contains(list.Items[0].Data[lint.UnitNamesData], "chronyd.service") {
		t.Errorf("names %q", list.Items[0].Data)
	}
}
