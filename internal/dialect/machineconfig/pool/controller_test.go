package pool_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	"millwright.io/millwright/internal/telemetry"
)

func TestThreeWorkersRollOneByOne(t *testing.T) {
	w := newWorld(t, workers(3)...)
	w.settle()
	if got := w.columns("worker"); got != "a True False False 3 3 3 0" {
		t.Fatalf("at first %s", got)
	}
	w.aim(configB)
	most := 0
	for range 60 {
		w.round()
		most = max(most, len(w.busy()))
	}
	w.settle()
	if most != 1 {
		t.Errorf("%d nodes at a time", most)
	}
	if got := w.columns("worker"); got != "b True False False 3 3 3 0" {
		t.Errorf("at the end %s", got)
	}
	for name, a := range w.agents {
		n := w.node(name)
		if a.boots != 1 || n.Spec.Unschedulable || n.Annotations[telemetry.AnnotationCordonedBy] != "" || n.Annotations[wire.AnnotationLastAppliedDrain] != "uncordon-"+configB {
			t.Errorf("node %s: %d boots, cordoned %t, %v", name, a.boots, n.Spec.Unschedulable, n.Annotations)
		}
	}
	if got := w.pool("worker").Annotations[telemetry.AnnotationClaims]; got != "" {
		t.Errorf("claims left: %s", got)
	}
	log := w.log.String()
	if !strings.Contains(log, "Pool worker: All nodes are updated with MachineConfig "+configB) {
		t.Errorf("log: %s", log)
	}
}

func TestEventsOfARollout(t *testing.T) {
	w := newWorld(t, workers(1)...)
	w.settle()
	w.events("")
	w.aim(configB)
	w.settle()
	var got []string
	for len(w.rec.Events) > 0 {
		got = append(got, <-w.rec.Events)
	}
	want := []string{
		"Normal SetDesiredConfig Targeted node w-0 to MachineConfig: " + configB,
		"Normal Completed Pool worker has completed update to MachineConfig " + configB,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got)\n%s", diff)
	}
}

// TestBadConfigAndItsDeletion walks the table of a broken rollout, without and
// with healing.
func TestBadConfigAndItsDeletion(t *testing.T) {
	for _, heal := range []bool{false, true} {
		name := map[bool]string{false: "as the original", true: "healing"}[heal]
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, workers(3)...)
			if !heal {
				edit(w, w.pool("worker"), func(p *machineconfigv1.MachineConfigPool) {
					p.Annotations[wire.AnnotationSelfHeal] = wire.SelfHealDisabled
				})
			}
			for _, a := range w.agents {
				a.fails[configB] = "unexpected on-disk state validating against " + configB
			}
			w.aim(configB)
			w.settle()
			if got := w.columns("worker"); got != "a False True True 3 0 0 1" {
				t.Errorf("after the bad config %s", got)
			}
			if len(w.busy()) != 1 {
				t.Errorf("touched %v", w.busy())
			}
			_, reason, message := w.message("worker", "NodeDegraded")
			if reason != "1 nodes are reporting degraded status on sync" || !strings.Contains(message, `is reporting: "unexpected on-disk state`) || !strings.Contains(message, "Next: ") {
				t.Errorf("NodeDegraded %s: %s", reason, message)
			}
			w.aim(configA)
			w.settle()
			want := map[bool]string{false: "a False True True 3 2 2 1", true: "a True False False 3 3 3 0"}[heal]
			if got := w.columns("worker"); got != want {
				t.Errorf("after its deletion %s, want %s", got, want)
			}
		})
	}
}

func TestForeignCordonUsesAUnitAndStays(t *testing.T) {
	objs := workers(3)
	w := newWorld(t, objs...)
	edit(w, w.node("w-0"), func(n *corev1.Node) { n.Spec.Unschedulable = true })
	w.aim(configB)
	w.settle()
	if got := w.columns("worker"); got != "a False True False 3 0 0 0" {
		t.Errorf("one unit, used by somebody else's cordon: %s", got)
	}
	if status, reason, message := w.message("worker", "Waiting"); status != "True" || reason != "Budget" || !strings.Contains(message, "w-0 (cordoned by somebody else)") {
		t.Errorf("waiting %s %s: %s", status, reason, message)
	}
	edit(w, w.pool("worker"), func(p *machineconfigv1.MachineConfigPool) {
		two := intstr.FromInt32(2)
		p.Spec.MaxUnavailable = &two
	})
	w.settle()
	if got := w.columns("worker"); got != "a False True False 3 2 2 0" {
		t.Errorf("with a second unit %s", got)
	}
	if n := w.node("w-0"); !n.Spec.Unschedulable || n.Annotations[wire.AnnotationDesiredConfig] != configA {
		t.Errorf("the cordoned node: cordoned %t, %v", n.Spec.Unschedulable, n.Annotations)
	}
	edit(w, w.node("w-0"), func(n *corev1.Node) { n.Spec.Unschedulable = false })
	w.settle()
	if got := w.columns("worker"); got != "b True False False 3 3 3 0" {
		t.Errorf("after the uncordon %s", got)
	}
}

func TestCordonDuringTheUpdateIsKept(t *testing.T) {
	w := newWorld(t, workers(1)...)
	w.aim(configB)
	w.step()
	edit(w, w.node("w-0"), func(n *corev1.Node) { n.Spec.Unschedulable = true }) // before the drain begins
	w.settle()
	n := w.node("w-0")
	if !n.Spec.Unschedulable || n.Annotations[wire.AnnotationState] != "Done" || n.Annotations[wire.AnnotationCurrentConfig] != configB {
		t.Errorf("cordoned %t, %v", n.Spec.Unschedulable, n.Annotations)
	}
	if got := w.events("CordonKept"); len(got) != 1 {
		t.Errorf("told %v", got)
	}
}

func TestUncordonDuringTheDrainIsRepeated(t *testing.T) {
	w := newWorld(t, append(workers(1), podOn("w-0", "web"), spentBudget("web"))...)
	w.aim(configB)
	for range 5 {
		w.round()
	}
	edit(w, w.node("w-0"), func(n *corev1.Node) { n.Spec.Unschedulable = false })
	for range 3 {
		w.round()
	}
	if n := w.node("w-0"); !n.Spec.Unschedulable || n.Annotations[wire.AnnotationLastAppliedDrain] != "" {
		t.Errorf("cordoned %t, answered %q", n.Spec.Unschedulable, n.Annotations[wire.AnnotationLastAppliedDrain])
	}
	if err := w.api.Delete(t.Context(), spentBudget("web")); err != nil {
		t.Fatal(err)
	}
	for range 60 {
		w.round()
	}
	if n := w.node("w-0"); n.Spec.Unschedulable || n.Annotations[wire.AnnotationCurrentConfig] != configB {
		t.Errorf("cordoned %t, %v", n.Spec.Unschedulable, n.Annotations)
	}
}

func TestBlockersAreNamedBeforeTheFirstNodeIsTouchedAndAtSecondZero(t *testing.T) {
	w := newWorld(t, append(workers(2), podOn("w-0", "web"), spentBudget("web"))...)
	w.settle()
	w.events("")
	w.aim(configB)
	w.cache.Sync()
	if _, err := w.pools.Step(t.Context(), client.ObjectKey{Name: "worker"}); err != nil {
		t.Fatal(err)
	}
	const blocker = "node w-0: pod shop/web: disruption budget web allows no disruption"
	if got := w.events("DrainForecast"); len(got) != 1 || !strings.Contains(got[0], blocker) {
		t.Errorf("forecast %v", got)
	}
	if status, _, message := w.message("worker", "DrainBlocked"); status != "True" || message != blocker {
		t.Errorf("condition %s %q", status, message)
	}
	if w.node("w-0").Annotations[wire.AnnotationDesiredConfig] == configB {
		t.Error("the blocked node went first, although the other has no pods")
	}
	w.settle()
	n := w.node("w-0")
	if got := n.Annotations[wire.AnnotationDrainBlocked]; !strings.Contains(got, `"web" -n "shop"`) {
		t.Errorf("node says %q", got)
	}
	if got := w.events("DrainBlocked"); len(got) != 1 || !strings.Contains(got[0], "disruption budget web") {
		t.Errorf("told %v", got)
	}
	before := w.api.Writes()
	w.clk.Step(11 * time.Minute)
	w.round()
	w.round()
	if got := w.events("DrainThresholdExceeded"); len(got) != 1 || !strings.Contains(got[0], "Drain has been failing for more than 10 minutes. Waiting 5 minutes then retrying. Error message from drain: ") {
		t.Errorf("told %v", got)
	}
	w.restart()
	w.clk.Step(50 * time.Minute)
	w.round()
	if got := w.events("DrainFailed"); len(got) != 1 || !strings.Contains(got[0], "node w-0: drain exceeded timeout: 1h0m0s. Will continue to retry.") {
		t.Errorf("told %v", got)
	}
	if got := w.api.Writes() - before; got != 0 {
		t.Errorf("%d writes while it waits: %v", got, w.api.Log()[before:])
	}
	if err := w.api.Delete(t.Context(), spentBudget("web")); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if got := w.columns("worker"); got != "b True False False 2 2 2 0" {
		t.Errorf("at the end %s", got)
	}
	if got := w.node("w-0").Annotations[wire.AnnotationDrainBlocked]; got != "" {
		t.Errorf("still says %q", got)
	}
}

func TestCustomPoolsByLabel(t *testing.T) {
	infraA := "rendered-infra-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	w := newWorld(t, append(workers(2), poolNamed("infra", infraA), poolNamed("gpu", "rendered-gpu-dddddddddddddddddddddddddddddddd"))...)
	edit(w, w.node("w-0"), func(n *corev1.Node) { n.Labels[wire.NodeRolePrefix+"infra"] = "" })
	w.settle()
	n := w.node("w-0")
	if n.Annotations[wire.AnnotationCurrentConfig] != infraA {
		t.Errorf("a node of the new pool has %v", n.Annotations)
	}
	if i, k := w.pool("infra").Status, w.pool("worker").Status; i.MachineCount != 1 || k.MachineCount != 1 {
		t.Errorf("infra %d, worker %d", i.MachineCount, k.MachineCount)
	}
	edit(w, w.node("w-0"), func(n *corev1.Node) { n.Labels[wire.NodeRolePrefix+"gpu"] = "" })
	w.settle()
	for _, p := range []string{"infra", "gpu"} {
		status, _, message := w.message(p, "NodesUnassigned")
		if status != "True" || !strings.Contains(message, "node w-0 belongs to 2 custom roles, cannot proceed with this Node: gpu, infra") {
			t.Errorf("pool %s says %s %q", p, status, message)
		}
	}
	if n := w.node("w-0"); n.Annotations[wire.AnnotationDesiredConfig] != infraA {
		t.Errorf("a node in two pools was sent %v", n.Annotations)
	}
	edit(w, w.node("w-0"), func(n *corev1.Node) {
		delete(n.Labels, wire.NodeRolePrefix+"gpu")
		delete(n.Labels, wire.NodeRolePrefix+"infra")
	})
	w.settle()
	if got := w.columns("worker"); got != "a True False False 2 2 2 0" || w.pool("infra").Status.MachineCount != 0 {
		t.Errorf("after leaving: %s, infra %d", got, w.pool("infra").Status.MachineCount)
	}
	if status, _, _ := w.message("gpu", "NodesUnassigned"); status != "False" {
		t.Errorf("still says %s", status)
	}
}

func TestJoiningNodeOfACustomPoolGetsItsLabels(t *testing.T) {
	infra := "rendered-infra-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	w := newWorld(t, poolNamed(wire.PoolWorker, configA), poolNamed("infra", infra), nodeOf("w-0", "worker", infra, func(n *corev1.Node) {
		n.Annotations[wire.AnnotationFirstPivotConfig] = infra
	}))
	w.settle()
	n := w.node("w-0")
	if _, ok := n.Labels[wire.NodeRolePrefix+"infra"]; !ok || w.agents["w-0"].boots != 0 || w.pool("infra").Status.ReadyMachineCount != 1 {
		t.Errorf("labels %v, %d boots, infra %+v", n.Labels, w.agents["w-0"].boots, w.pool("infra").Status)
	}
	if _, ok := n.Annotations[wire.AnnotationLabelsApplied]; !ok {
		t.Errorf("annotations %v", n.Annotations)
	}
}

func TestPausedPoolTouchesNothing(t *testing.T) {
	w := newWorld(t, workers(2)...)
	edit(w, w.pool("worker"), func(p *machineconfigv1.MachineConfigPool) { p.Spec.Paused, p.Spec.Configuration.Name = true, configB })
	w.settle()
	if w.ops("Node", 0) != 0 {
		t.Errorf("writes to nodes: %v", w.api.Log())
	}
	if _, _, message := w.message("worker", "Updating"); message != "Pool is paused; will not update to MachineConfig "+configB {
		t.Errorf("updating %q", message)
	}
	edit(w, w.pool("worker"), func(p *machineconfigv1.MachineConfigPool) { p.Spec.Paused = false })
	w.settle()
	if got := w.columns("worker"); got != "b True False False 2 2 2 0" {
		t.Errorf("unpaused %s", got)
	}
}

func TestUnreadableSettingsAreNamed(t *testing.T) {
	w := newWorld(t, workers(2)...)
	edit(w, w.pool("worker"), func(p *machineconfigv1.MachineConfigPool) {
		bad := intstr.FromString("50 percent")
		p.Spec.MaxUnavailable, p.Spec.Configuration.Name = &bad, configB
		p.Annotations[wire.AnnotationWindows] = "Foo 1:00-2:00"
	})
	w.settle()
	_, reason, message := w.message("worker", "Waiting")
	if reason != "InvalidSetting" || !strings.Contains(message, `spec.maxUnavailable: read "50 percent"`) || !strings.Contains(message, `millwright.io/windows: window "Foo 1:00-2:00": days "Foo"`) {
		t.Errorf("waiting %s: %s", reason, message)
	}
	if w.ops("Node", 0) != 0 {
		t.Errorf("nodes were touched")
	}
}

func TestWavesThroughTheController(t *testing.T) {
	w := newWorld(t, workers(6)...)
	edit(w, w.pool("worker"), func(p *machineconfigv1.MachineConfigPool) {
		p.Annotations[wire.AnnotationRollout] = `{"canary": {"nodes": 1}, "growth": 2, "soak": "5m", "onFailure": "Rollback"}`
		six := intstr.FromInt32(6)
		p.Spec.MaxUnavailable, p.Spec.Configuration.Name = &six, configB
	})
	for _, a := range w.agents {
		a.fails[configB] = "no space left on device"
	}
	w.settle()
	touched := 0
	for _, a := range w.agents {
		touched += a.boots
	}
	if len(w.busy()) != 0 || touched > 1 {
		t.Errorf("busy %v, %d boots", w.busy(), touched)
	}
	if got := w.columns("worker"); got != "a False False False 6 0 0 0" {
		t.Errorf("rolled back: %s", got)
	}
	if _, reason, message := w.message("worker", "Waiting"); reason != "RolledBack" || !strings.Contains(message, "no space left on device") {
		t.Errorf("waiting %s: %s", reason, message)
	}
	w.restart()
	w.settle()
	if len(w.busy()) != 0 {
		t.Errorf("a restart forgets what failed: %v", w.busy())
	}
	w.aim(configC)
	for range 900 {
		w.round()
	}
	if got := w.columns("worker"); got != "c True False False 6 6 6 0" {
		t.Errorf("the mended config: %s; %s", got, w.pool("worker").Annotations[wire.AnnotationRolloutState])
	}
}

func TestControlPlaneMovesOneByOneAndTellsItsAnnotations(t *testing.T) {
	objs := []client.Object{poolNamed(wire.PoolMaster, configA, func(p *machineconfigv1.MachineConfigPool) {
		three := intstr.FromInt32(3)
		p.Spec.MaxUnavailable = &three
	}), podOn("m-0", "machine-config-operator", func(p *corev1.Pod) {
		p.Namespace, p.Labels = wire.Namespace, map[string]string{"k8s-app": "machine-config-operator"}
	})}
	for _, n := range []string{"m-0", "m-1", "m-2"} {
		objs = append(objs, nodeOf(n, "master", configA))
	}
	w := newWorld(t, objs...)
	w.settle()
	w.events("")
	edit(w, w.pool("master"), func(p *machineconfigv1.MachineConfigPool) { p.Spec.Configuration.Name = configB })
	var order []string
	for range 60 {
		w.round()
		b := w.busy()
		if len(b) > 1 {
			t.Fatalf("%v at a time", b)
		}
		if len(b) == 1 && !slices.Contains(order, b[0]) {
			order = append(order, b[0])
		}
	}
	if diff := cmp.Diff([]string{"m-1", "m-2", "m-0"}, order); diff != "" {
		t.Errorf("order (-want +got)\n%s", diff)
	}
	if got := w.events("AnnotationChange"); !slices.Contains(got, "Normal AnnotationChange Node m-1 now has "+wire.AnnotationState+"=Working") {
		t.Errorf("told %v", got)
	}
}

func TestRecordsOfNodesFollowCordonAndDrain(t *testing.T) {
	w := newWorld(t, append(workers(1), &machineconfigv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: "w-0"}})...)
	w.aim(configB)
	w.settle()
	var m machineconfigv1.MachineConfigNode
	if err := w.api.Get(t.Context(), client.ObjectKey{Name: "w-0"}, &m); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, c := range m.Status.Conditions {
		got[c.Type] = string(c.Status) + " " + c.Reason
	}
	want := map[string]string{"UpdateExecuted": "Unknown Drained", "Cordoned": "True UpdateExecutedCordoned", "Drained": "True UpdateExecutedDrained",
		"UpdateComplete": "True Uncordoned", "Uncordoned": "True UpdateCompleteUncordoned"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("conditions (-want +got)\n%s", diff)
	}
}

// TestWritesPerNode counts what both controllers write while 200 nodes roll at
// 10 %, on nodes with records.
func TestWritesPerNode(t *testing.T) {
	const n = 200
	objs := workers(n)
	for _, o := range objs[1:] {
		objs = append(objs, &machineconfigv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: o.GetName()}})
	}
	w := newWorld(t, objs...)
	w.settle()
	edit(w, w.pool("worker"), func(p *machineconfigv1.MachineConfigPool) {
		ten := intstr.FromString("10%")
		p.Spec.MaxUnavailable, p.Spec.Configuration.Name = &ten, configB
	})
	skip := len(w.api.Log())
	agents := 0
	for range 2000 {
		w.step()
		before := w.api.Writes()
		for _, name := range w.nodeNames() {
			w.agent(name)
		}
		agents += w.api.Writes() - before
		w.clk.Step(time.Second)
		if w.columns("worker") == "b True False False 200 200 200 0" {
			break
		}
	}
	if got := w.columns("worker"); got != "b True False False 200 200 200 0" {
		t.Fatalf("at the end %s", got)
	}
	all := len(w.api.Log()) - skip
	per := float64(all-agents) / n
	t.Logf("%.2f writes per node by the controllers: %d to pools, %d in all, %d by agents", per, w.ops("MachineConfigPool", skip), all, agents)
	if per > 6.6 {
		t.Errorf("%.2f writes per node", per)
	}
	for _, op := range w.api.Log()[skip:] {
		if op.Err != nil {
			t.Errorf("refused: %s: %v", op, op.Err)
		}
	}
}
