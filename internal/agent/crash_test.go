package agent

import (
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"millwright.io/millwright/internal/engine/node"
	"millwright.io/millwright/internal/host"
)

// withUnits adds a unit, a drop-in and keys to a config.
func withUnits(mc *mcfgv1.MachineConfig) {
	raw := strings.TrimSuffix(string(mc.Spec.Config.Raw), "}")
	mc.Spec.Config.Raw = []byte(raw + `,"systemd":{"units":[
		{"name":"demo.service","enabled":true,"contents":"[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"},
		{"name":"kubelet.service","dropins":[{"name":"10-a.conf","contents":"[Service]\n"}]}]},
		"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["key one"]}]}}`)
}

// TestEveryFaultEndsInTheNewConfig fails, fills, tears and unplugs the disk at every
// single operation of the agent during a change of files, a unit, a drop-in, keys,
// kernel arguments and the OS image: after at most two restarts the node has the new
// config, is uncordoned and says so.
func TestEveryFaultEndsInTheNewConfig(t *testing.T) {
	for _, mode := range []struct {
		name     string
		fault    host.Fault
		powerCut bool
	}{{"torn, then the power cut", host.Torn, true}, {"failing", host.Fail, false}, {"full", host.NoSpace, false}} {
		hits := 0
		for at := 1; ; at++ {
			w := settled(t)
			w.create(rendered("rendered-worker-b", map[string]string{"/etc/a": "b", "/etc/deep/new": "n"}, arguments("nosmt"), image(image2), withUnits))
			fault := &host.Faulty{At: at, Fault: mode.fault}
			w.restartWith(fault)
			w.set(node.DesiredConfig, "rendered-worker-b")
			w.runKilled()
			if fault.Ops < at {
				break
			}
			hits++
			fault.Free()
			if mode.powerCut {
				w.host = w.host.Boot(true, nil)
			}
			for range 2 {
				w.restart()
				w.run()
			}
			w.want("rendered-worker-b", node.Done, "")
			if w.body("/etc/a") != "b" || w.body("/etc/deep/new") != "n" {
				t.Fatalf("%s at operation %d: files %s %s", mode.name, at, w.body("/etc/a"), w.body("/etc/deep/new"))
			}
		}
		if hits < 60 {
			t.Errorf("%s: %d operations were hit, want every one of a long change", mode.name, hits)
		}
		t.Logf("%s: %d operations", mode.name, hits)
	}
}

func TestAMaskedUnitIsNotEnabledBehindItsMask(t *testing.T) {
	w := settled(t)
	if err := w.host.Files().Link("/dev/null", "/etc/systemd/system/demo.service"); err != nil {
		t.Fatal(err)
	}
	b := rendered("rendered-worker-b", etc)
	raw := strings.TrimSuffix(string(b.Spec.Config.Raw), "}")
	b.Spec.Config.Raw = []byte(raw + `,"systemd":{"units":[{"name":"demo.service","enabled":true}]}}`)
	w.create(b)
	w.set(node.DesiredConfig, "rendered-worker-b")
	w.run()
	w.want("rendered-worker-a", node.Degraded, "error enabling units: unit demo.service is masked; set mask: false in the unit, or do not enable it")
	if w.boots != 0 || w.node().Spec.Unschedulable {
		t.Errorf("%d boots, cordoned %v: want neither", w.boots, w.node().Spec.Unschedulable)
	}
}

// The controller is down: the node waits for its answer, and is no failure.
func TestANodeWaitsForASilentController(t *testing.T) {
	w := settled(t)
	w.create(rendered("rendered-worker-b", map[string]string{"/etc/a": "a", "/etc/nmstate/openshift/x.yml": "x"}))
	w.answers = false
	w.set(node.DesiredConfig, "rendered-worker-b")
	w.run()
	if got := w.node().Annotations[node.State]; got != node.Working {
		t.Errorf("state is %s, want %s", got, node.Working)
	}
	w.answers = true
	w.run()
	w.want("rendered-worker-b", node.Done, "")
}
