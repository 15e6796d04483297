package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"millwright.io/millwright/internal/engine/node"
)

var etc = map[string]string{"/etc/a": "a"}

// settled is a world whose node is done with config rendered-worker-a.
func settled(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, rendered("rendered-worker-a", etc))
	w.run()
	w.want("rendered-worker-a", node.Done, "")
	w.log, w.evs = nil, nil
	return w
}

func TestFirstBootIsTakenOver(t *testing.T) {
	w := newWorld(t, rendered("rendered-worker-a", etc))
	w.run()
	w.want("rendered-worker-a", node.Done, "")
	if w.boots != 0 {
		t.Errorf("%d reboots, want none", w.boots)
	}
	n := w.node()
	if n.Annotations[node.DesiredDrain] != "uncordon-rendered-worker-a" || n.Annotations[node.LastAppliedDrain] != "uncordon-rendered-worker-a" {
		t.Errorf("no handshake: %v", n.Annotations)
	}
	body := w.body(currentConfigPath)
	if !strings.HasPrefix(body, `{"kind":"MachineConfig","apiVersion":"machineconfiguration.openshift.io/v1","metadata":{"name":"rendered-worker-a"`) ||
		strings.Contains(body, "\n") {
		t.Errorf("currentconfig is %s", body)
	}
	for _, p := range []string{bootstrapPath, encapsulatedPath} {
		if _, err := w.host.Files().Lstat(p); err == nil {
			t.Errorf("%s is still there", p)
		}
	}
	if w.body(bootstrapDonePath) == "" || w.body(encapsulatedPath+".bak") != "{}" {
		t.Error("the first boot's files were not kept aside")
	}
}

func TestASettledAgentWritesNothing(t *testing.T) {
	w := settled(t)
	writes := w.api.Writes()
	for range 5 {
		if _, err := w.agent.Step(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.api.Writes() - writes; got != 0 || len(w.evs) > 0 {
		t.Errorf("%d writes and events %v, want none", got, w.evs)
	}
	w.restart()
	w.run()
	if got := w.api.Writes() - writes; got != 0 {
		t.Errorf("%d writes by a restart, want none", got)
	}
}

func TestAChangeDrainsRebootsAndComesBack(t *testing.T) {
	w := settled(t)
	w.create(rendered("rendered-worker-b", map[string]string{"/etc/a": "b", "/etc/new": "n"}, arguments("nosmt"), image(image2)))
	w.answers = false
	w.set(node.DesiredConfig, "rendered-worker-b")
	w.run()
	w.want("rendered-worker-a", node.Working, "")
	if got := w.node().Annotations[node.DesiredDrain]; got != "drain-rendered-worker-b" || w.body("/etc/a") != "a" {
		t.Fatalf("before the drain: desiredDrain %s, /etc/a %s", got, w.body("/etc/a"))
	}
	w.answers = true
	w.run()
	w.want("rendered-worker-b", node.Done, "")
	if w.boots != 1 || w.body("/etc/a") != "b" || w.body("/etc/new") != "n" {
		t.Errorf("%d boots, files %s %s", w.boots, w.body("/etc/a"), w.body("/etc/new"))
	}
	facts, err := w.host.Facts(context.Background())
	if err != nil || facts.Booted != image2 || fmt.Sprint(facts.CommandLine) != "[quiet nosmt]" {
		t.Errorf("booted %s with %v, %v", facts.Booted, facts.CommandLine, err)
	}
	if got := w.node().Annotations[node.PostConfigAction]; got != "" {
		t.Errorf("post-config-action is %q", got)
	}
	w.wantEvent("Normal Reboot: Node will reboot into config rendered-worker-b")
	w.wantLog(`I "Disk currentConfig \"rendered-worker-b\" overrides node's currentConfig annotation \"rendered-worker-a\""`,
		"I Validating against current config rendered-worker-b", `I "Validated on-disk state"`,
		`I "initiating reboot: Node will reboot into config rendered-worker-b"`)
}

func TestAChangeThatNeedsNoRebootGetsNone(t *testing.T) {
	w := settled(t)
	w.create(rendered("rendered-worker-b", map[string]string{"/etc/a": "a", "/etc/nmstate/openshift/x.yml": "x"}))
	w.set(node.DesiredConfig, "rendered-worker-b")
	w.run()
	w.want("rendered-worker-b", node.Done, "")
	if w.boots != 0 || strings.Contains(strings.Join(w.evs, "\n"), "Drain") {
		t.Errorf("%d boots, events %v", w.boots, w.evs)
	}
	w.wantEvent("Normal SkipReboot: Config changes do not require reboot.")
}

const vanished = `unexpected on-disk state validating against rendered-worker-b: could not stat file "/tmp/tmpfile": lstat /tmp/tmpfile: no such file or directory`

func volatileChange(t *testing.T, selfHeal bool) *world {
	t.Helper()
	w := settled(t)
	if !selfHeal {
		w.poolAnnotation(annotationSelfHeal, "Disabled")
	}
	w.create(rendered("rendered-worker-b", map[string]string{"/etc/a": "a", "/tmp/tmpfile": ""}))
	w.set(node.DesiredConfig, "rendered-worker-b")
	w.run()
	w.want("rendered-worker-a", node.Degraded, vanished)
	if w.boots != 1 || !w.node().Spec.Unschedulable {
		t.Fatalf("%d boots, cordoned %v; want one reboot and a cordon", w.boots, w.node().Spec.Unschedulable)
	}
	w.wantLog(fmt.Sprintf("E Marking Degraded due to: %q", vanished))
	w.wantEvent("Warning OnDiskStateValidationFailed: " + vanished)
	w.run()
	if w.boots != 1 {
		t.Fatal("it is applied again and again")
	}
	return w
}

func TestAFileThatVanishesAtItsRebootHealsWhenTheConfigGoes(t *testing.T) {
	w := volatileChange(t, true)
	w.set(node.DesiredConfig, "rendered-worker-a")
	w.run()
	w.want("rendered-worker-a", node.Done, "")
	if _, err := w.host.Files().Lstat("/tmp/tmpfile"); err == nil {
		t.Error("/tmp/tmpfile is there")
	}
}

func TestWithoutSelfHealTheForceFileIsTheWayOut(t *testing.T) {
	w := volatileChange(t, false)
	w.set(node.DesiredConfig, "rendered-worker-a")
	w.run()
	w.want("rendered-worker-a", node.Degraded, vanished)
	w.put(forcePath, "")
	w.run()
	w.want("rendered-worker-a", node.Done, "")
	if w.boots != 2 {
		t.Errorf("%d boots, want the force file's one", w.boots)
	}
}

func TestWorkByHandIsAccepted(t *testing.T) {
	w := settled(t)
	b := rendered("rendered-worker-b", map[string]string{"/etc/a": "a", "/usr/local/bin/mc-test": ""})
	w.create(b)
	w.put("/usr/local/bin/mc-test", "")
	pretty := must(json.MarshalIndent([]*mcfgv1.MachineConfig{b}, "", "  "))
	w.put(currentConfigPath, string(pretty))
	w.set(node.CurrentConfig, "rendered-worker-b")
	w.set(node.DesiredConfig, "rendered-worker-b")
	w.restart()
	w.run()
	w.want("rendered-worker-b", node.Done, "")
	if w.boots != 0 {
		t.Errorf("%d boots, want none", w.boots)
	}
	w.wantLog("I Validating against current config rendered-worker-b", `I "Validated on-disk state"`)
}

func TestDriftIsToldInFullAndClears(t *testing.T) {
	w := newWorld(t, rendered("rendered-worker-a", map[string]string{"/etc/a": "a", "/etc/b": "b"}))
	w.run()
	w.put("/etc/a", "changed")
	w.put("/etc/b", "changed")
	w.agent.suspect()
	w.run()
	both := `content mismatch for file "/etc/a"; content mismatch for file "/etc/b"`
	full := "unexpected on-disk state validating against rendered-worker-a: "
	w.want("rendered-worker-a", node.Degraded, full+both)
	w.wantEvent("Warning ConfigDriftDetected: " + both)
	w.restart()
	w.run()
	w.want("rendered-worker-a", node.Degraded, full+both)
	w.put("/etc/a", "a")
	w.run()
	w.want("rendered-worker-a", node.Degraded, full+`content mismatch for file "/etc/b"`)
	w.put("/etc/b", "b")
	w.run()
	w.want("rendered-worker-a", node.Done, "")
	if w.boots != 0 {
		t.Errorf("%d boots", w.boots)
	}
}

func TestDriftIsRepairedWhereThePoolAsksForIt(t *testing.T) {
	w := settled(t)
	w.poolAnnotation(annotationRepair, "Enabled")
	w.put("/etc/a", "changed")
	w.agent.suspect()
	w.run()
	w.want("rendered-worker-a", node.Done, "")
	if w.body("/etc/a") != "a" || w.boots != 0 {
		t.Errorf("/etc/a is %s after %d boots", w.body("/etc/a"), w.boots)
	}
}

func TestAnUnreadableCurrentConfigIsNoDeadEnd(t *testing.T) {
	for _, body := range []string{"", "{\"kind\":\"Machine", "[]", "null"} {
		w := settled(t)
		w.put(currentConfigPath, body)
		w.restart()
		w.run()
		w.want("rendered-worker-a", node.Done, "")
		w.create(rendered("rendered-worker-b", map[string]string{"/etc/a": "b"}))
		w.set(node.DesiredConfig, "rendered-worker-b")
		w.run()
		w.want("rendered-worker-b", node.Done, "")
	}
}

func TestAnUnreadableCurrentConfigIsTheOriginalsErrorWithoutSelfHeal(t *testing.T) {
	w := settled(t)
	w.poolAnnotation(annotationSelfHeal, "Disabled")
	w.put(currentConfigPath, "")
	w.restart()
	w.run()
	w.want("rendered-worker-a", node.Degraded, "EOF")
}

func TestAServiceThatFailsTwiceIsNotTriedAgain(t *testing.T) {
	w := settled(t)
	w.create(rendered("rendered-worker-b", map[string]string{"/etc/a": "a", "/etc/containers/policy.json": "policy"}))
	w.host.FailService("crio.service", true)
	w.set(node.DesiredConfig, "rendered-worker-b")
	why := "could not apply update: reloading crio.service configuration failed. Error: exit status 1"
	for range 5 {
		w.run()
		w.restart()
	}
	w.want("rendered-worker-a", node.Degraded, why)
	if _, err := w.host.Files().Lstat("/etc/containers/policy.json"); err == nil {
		t.Error("the change was not taken back")
	}
	if got := strings.Count(strings.Join(w.evs, "\n"), "FailedServiceReload"); got != 2 {
		t.Errorf("tried %d times, want 2", got)
	}
	w.set(node.DesiredConfig, "rendered-worker-a")
	w.run()
	w.want("rendered-worker-a", node.Done, "")
}

func TestWhatCannotBeReconciledIsSaidAndForgotten(t *testing.T) {
	w := settled(t)
	b := rendered("rendered-worker-b", etc)
	b.Spec.Config.Raw = []byte(strings.Replace(string(b.Spec.Config.Raw), `"storage":{`, `"storage":{"directories":[{"path":"/x"}],`, 1))
	w.create(b)
	w.set(node.DesiredConfig, "rendered-worker-b")
	w.run()
	w.want("rendered-worker-a", node.Unreconcilable, `can't reconcile config rendered-worker-a with rendered-worker-b: configs rendered-worker-a, rendered-worker-b are not reconcilable: new machineconfig "rendered-worker-a" is not reconcilable against "rendered-worker-b": ignition directories section contains changes`)
	w.set(node.DesiredConfig, "rendered-worker-a")
	w.run()
	w.want("rendered-worker-a", node.Done, "")
	if w.boots != 0 {
		t.Errorf("%d boots", w.boots)
	}
}

func TestAConfigThatIsGoneIsNamed(t *testing.T) {
	w := settled(t)
	w.set(node.DesiredConfig, "rendered-worker-x")
	w.run()
	w.want("rendered-worker-a", node.Degraded, `machineconfig.machineconfiguration.openshift.io "rendered-worker-x" not found`)
	w.set(node.DesiredConfig, "rendered-worker-a")
	w.run()
	w.want("rendered-worker-a", node.Done, "")
}

func TestARevertDuringTheDrainEndsIt(t *testing.T) {
	w := settled(t)
	w.create(rendered("rendered-worker-b", map[string]string{"/etc/a": "b"}))
	w.answers = false
	w.set(node.DesiredConfig, "rendered-worker-b")
	w.run()
	w.set(node.DesiredConfig, "rendered-worker-a")
	w.answers = true
	w.run()
	w.want("rendered-worker-a", node.Done, "")
	if w.boots != 0 || w.body("/etc/a") != "a" {
		t.Errorf("%d boots, /etc/a is %s", w.boots, w.body("/etc/a"))
	}
}

func TestAnImageThatDidNotBootIsStagedOnceMore(t *testing.T) {
	w := settled(t)
	w.create(rendered("rendered-worker-b", etc, image(image2)))
	w.host.FailFinalize()
	w.set(node.DesiredConfig, "rendered-worker-b")
	w.run()
	w.want("rendered-worker-b", node.Done, "")
	if w.boots != 2 {
		t.Errorf("%d boots, want the failed one and another", w.boots)
	}
}

func TestVerifyAnswersWithEveryDifference(t *testing.T) {
	w := settled(t)
	w.create(rendered("rendered-worker-b", map[string]string{"/etc/a": "b", "/etc/c": "c"}))
	w.set(annotationVerify, "rendered-worker-b")
	w.run()
	var v verdict
	if err := json.Unmarshal([]byte(w.node().Annotations[annotationVerified]), &v); err != nil {
		t.Fatal(err)
	}
	if v.Config != "rendered-worker-b" || len(v.Differences) != 2 || v.Differences[0].Key != "/etc/a" {
		t.Errorf("answer %+v", v)
	}
	w.want("rendered-worker-a", node.Done, "")
}

func TestCertificatesAreSyncedWithoutAChange(t *testing.T) {
	w := settled(t)
	w.create(&mcfgv1.ControllerConfig{Spec: mcfgv1.ControllerConfigSpec{KubeAPIServerServingCAData: []byte("CA")}, ObjectMeta: named(controllerConfigName)})
	w.run()
	if got := w.body(kubeletCAPath); got != "CA\n" {
		t.Errorf("kubelet CA is %q", got)
	}
	if w.node().Annotations[annotationSynced] == "" || w.boots != 0 {
		t.Errorf("annotations %v, %d boots", w.node().Annotations, w.boots)
	}
	w.want("rendered-worker-a", node.Done, "")
}
