package agent

import (
	"encoding/json"
	"strings"
	"testing"

	"millwright.io/millwright/internal/engine/node"
	"millwright.io/millwright/internal/host"
)

// broken is a world as settled, whose pool leaves broken nodes to people.
func broken(t *testing.T) *world {
	t.Helper()
	w := settled(t)
	w.poolAnnotation(annotationSelfHeal, "Disabled")
	return w
}

// recover asks for it as the command line does, with the config that the node should
// have, and checks that the request does not stay.
func (w *world) recover(config string) {
	w.t.Helper()
	w.set(node.DesiredConfig, config)
	w.set(node.RecoverRequest, config)
	w.run()
	for _, key := range []string{node.RecoverRequest, node.Recovering} {
		if v, there := w.node().Annotations[key]; there {
			w.t.Errorf("%s stays %s; log:\n%s", key, v, strings.Join(w.log, "\n"))
		}
	}
}

func (w *world) degraded() {
	w.t.Helper()
	w.run()
	if got := w.node().Annotations[node.State]; got != node.Degraded {
		w.t.Fatalf("state is %s, want Degraded; log:\n%s", got, strings.Join(w.log, "\n"))
	}
}

// TestRecoverOnEveryFailureThatIsLeftToAPerson has self-heal disabled: nothing but
// the request brings the node back.
func TestRecoverOnEveryFailureThatIsLeftToAPerson(t *testing.T) {
	chmod := func(w *world) {
		if err := w.host.Files().Replace("/etc/a", []byte("a"), host.Attr{Mode: 0o600}); err != nil {
			w.t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name, why string
		with      func(w *world) // makes the node Degraded
		config    string         // what it should have
		boots     int
	}{
		{"a file on a volatile path, its config deleted", "the way back is another config", func(w *world) {
			w.create(rendered("rendered-worker-b", map[string]string{"/etc/a": "a", "/tmp/tmpfile": ""}))
			w.set(node.DesiredConfig, "rendered-worker-b")
		}, "rendered-worker-a", 2},
		{"a file on a volatile path, its config still wanted", "it is written again, until the next boot", func(w *world) {
			w.create(rendered("rendered-worker-b", map[string]string{"/etc/a": "a", "/tmp/tmpfile": ""}))
			w.set(node.DesiredConfig, "rendered-worker-b")
		}, "rendered-worker-b", 1},
		{"a managed file was edited", "its bytes are put back", func(w *world) { w.put("/etc/a", "edited"); w.restart() }, "rendered-worker-a", 0},
		{"a managed file was removed", "it is put back", func(w *world) {
			if err := w.host.Files().Remove("/etc/a"); err != nil {
				w.t.Fatal(err)
			}
			w.restart()
		}, "rendered-worker-a", 0},
		{"a managed file's mode was changed", "its mode is put back", func(w *world) { chmod(w); w.restart() }, "rendered-worker-a", 0},
		{"the staged image did not boot", "it is staged once more", func(w *world) {
			w.create(rendered("rendered-worker-b", etc, image(image2)))
			w.host.FailFinalize()
			w.set(node.DesiredConfig, "rendered-worker-b")
		}, "rendered-worker-b", 2},
		{"the staged kernel arguments did not boot", "they are staged once more", func(w *world) {
			w.create(rendered("rendered-worker-b", etc, arguments("nosmt")))
			w.host.FailFinalize()
			w.set(node.DesiredConfig, "rendered-worker-b")
		}, "rendered-worker-b", 2},
		{"the staged image did not boot, and a file was edited", "both are put right by one reboot", func(w *world) {
			w.create(rendered("rendered-worker-b", etc, image(image2)))
			w.host.FailFinalize()
			w.set(node.DesiredConfig, "rendered-worker-b")
			w.run()
			w.put("/etc/a", "edited")
		}, "rendered-worker-b", 2},
		{"currentconfig is cut off", "what the disk holds counts", func(w *world) { w.put(currentConfigPath, `{"kind":"Mach`); w.restart() }, "rendered-worker-a", 0},
		{"currentconfig is empty", "what the disk holds counts", func(w *world) { w.put(currentConfigPath, ""); w.restart() }, "rendered-worker-a", 0},
		{"the desired config was deleted", "the pool has another", func(w *world) { w.set(node.DesiredConfig, "rendered-worker-gone") }, "rendered-worker-a", 0},
		{"the parent of a file is a file", "the way back is another config", func(w *world) {
			w.create(rendered("rendered-worker-b", map[string]string{"/etc/a": "a", "/etc/a/below": "x"}))
			w.set(node.DesiredConfig, "rendered-worker-b")
		}, "rendered-worker-a", 0},
		{"a service did not reload twice, and was mended", "earlier tries do not count", func(w *world) {
			w.create(rendered("rendered-worker-b", map[string]string{"/etc/a": "a", "/etc/containers/policy.json": "policy"}))
			w.host.FailService("crio.service", true)
			w.set(node.DesiredConfig, "rendered-worker-b")
			w.run()
			w.restart()
			w.run()
			w.host.FailService("crio.service", false)
		}, "rendered-worker-b", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := broken(t)
			tt.with(w)
			w.degraded()
			w.recover(tt.config)
			w.want(tt.config, node.Done, "")
			if w.boots != tt.boots {
				t.Errorf("%d boots, want %d: %s", w.boots, tt.boots, tt.why)
			}
		})
	}
}

func TestRecoverIsOneTry(t *testing.T) {
	w := broken(t)
	w.create(rendered("rendered-worker-b", map[string]string{"/etc/a": "a", "/etc/containers/policy.json": "policy"}))
	w.host.FailService("crio.service", true)
	w.set(node.DesiredConfig, "rendered-worker-b")
	for range 3 {
		w.run()
		w.restart()
	}
	before := strings.Count(strings.Join(w.evs, "\n"), "FailedServiceReload")
	w.recover("rendered-worker-b")
	w.degraded()
	if got := strings.Count(strings.Join(w.evs, "\n"), "FailedServiceReload") - before; got != 1 {
		t.Errorf("tried %d times more, want 1", got)
	}
}

func TestRecoverSaysWhatCanNeverBe(t *testing.T) {
	w := settled(t)
	b := rendered("rendered-worker-b", etc)
	b.Spec.Config.Raw = []byte(strings.Replace(string(b.Spec.Config.Raw), `"storage":{`, `"storage":{"directories":[{"path":"/x"}],`, 1))
	w.create(b)
	w.recover("rendered-worker-b")
	if got := w.node().Annotations[node.State]; got != node.Unreconcilable {
		t.Errorf("state is %s, want Unreconcilable", got)
	}
}

func TestRecoverWithAnotherConfigIsDropped(t *testing.T) {
	w := broken(t)
	w.put("/etc/a", "edited")
	w.restart()
	w.degraded()
	w.set(node.RecoverRequest, "rendered-worker-old")
	w.degraded()
	if _, there := w.node().Annotations[node.RecoverRequest]; there || w.body("/etc/a") != "edited" {
		t.Errorf("the request stays (%v), /etc/a is %s", there, w.body("/etc/a"))
	}
}

func TestRecoverOfAHealthyNodeDoesNothing(t *testing.T) {
	w := settled(t)
	w.recover("rendered-worker-a")
	w.want("rendered-worker-a", node.Done, "")
	if w.boots != 0 {
		t.Errorf("%d boots, want none", w.boots)
	}
}

func TestADegradedNodeAnswersWhatDiffers(t *testing.T) {
	w := broken(t)
	w.put("/etc/a", "edited")
	w.restart()
	w.degraded()
	w.set(annotationVerify, "rendered-worker-a")
	w.run()
	var v verdict
	if err := json.Unmarshal([]byte(w.node().Annotations[annotationVerified]), &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Differences) != 1 || v.Differences[0].Key != "/etc/a" {
		t.Errorf("answer %+v", v)
	}
}

func TestAdoptTakesTheNameOfADiskThatAgrees(t *testing.T) {
	w := settled(t)
	w.create(rendered("rendered-worker-b", map[string]string{"/etc/a": "a", "/etc/by-hand": "x"}))
	w.put("/etc/by-hand", "x")
	w.set(node.AdoptRequest, "rendered-worker-b")
	w.run()
	w.want("rendered-worker-b", node.Done, "")
	n := w.node()
	if n.Annotations[node.DesiredConfig] != "rendered-worker-b" || n.Annotations[node.AdoptRequest] != "" || w.boots != 0 {
		t.Errorf("%d boots, annotations %v", w.boots, n.Annotations)
	}
	if strings.Contains(strings.Join(w.evs, "\n"), "Drain") {
		t.Errorf("events %v, want no drain", w.evs)
	}
	if !strings.Contains(w.body(currentConfigPath), `"name":"rendered-worker-b"`) {
		t.Errorf("currentconfig is %s", w.body(currentConfigPath))
	}
	w.restart()
	w.run()
	w.want("rendered-worker-b", node.Done, "")
}

func TestAdoptOfAnAgentThatDiedInBetweenIsFinished(t *testing.T) {
	w := settled(t)
	w.create(rendered("rendered-worker-b", map[string]string{"/etc/a": "changed"}))
	w.put("/etc/a", "changed")
	w.set(node.AdoptRequest, "rendered-worker-b")
	if _, err := w.agent.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(w.body(currentConfigPath), "rendered-worker-b") || w.node().Annotations[node.CurrentConfig] != "rendered-worker-a" {
		t.Fatalf("the first step left %v and %s", w.node().Annotations, w.body(currentConfigPath))
	}
	w.restart()
	w.run()
	w.want("rendered-worker-b", node.Done, "")
	if w.boots != 0 {
		t.Errorf("%d boots, want none", w.boots)
	}
}

func TestAdoptHealsANodeThatChangesByHandBroke(t *testing.T) {
	w := settled(t)
	w.put("/etc/a", "by-hand")
	w.agent.suspect()
	w.degraded()
	w.create(rendered("rendered-worker-b", map[string]string{"/etc/a": "by-hand"}))
	w.set(node.AdoptRequest, "rendered-worker-b")
	w.run()
	w.want("rendered-worker-b", node.Done, "")
}

func TestAdoptRefusesADiskThatDiffers(t *testing.T) {
	for config, line := range map[string]string{
		"rendered-worker-b":    `I "Not adopting rendered-worker-b: content mismatch for file \"/etc/a\""`,
		"rendered-worker-bad":  `I "Not adopting rendered-worker-bad: read config rendered-worker-bad: parse Ignition config: storage.files.0.contents.source: \"data:…\": invalid data character"`,
		"rendered-worker-gone": `I "Not adopting rendered-worker-gone: machineconfig.machineconfiguration.openshift.io \"rendered-worker-gone\" not found"`,
	} {
		w := settled(t)
		w.create(rendered("rendered-worker-b", map[string]string{"/etc/a": "b"}), rendered("rendered-worker-bad", map[string]string{"/etc/a": "not data"}))
		w.set(node.AdoptRequest, config)
		w.run()
		w.want("rendered-worker-a", node.Done, "")
		w.wantLog(line)
		if _, there := w.node().Annotations[node.AdoptRequest]; there || strings.Contains(w.body(currentConfigPath), config) {
			t.Errorf("%s: the request stays (%v), or the disk says it", config, there)
		}
	}
}
