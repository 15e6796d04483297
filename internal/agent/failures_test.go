package agent

import (
	"context"
	"fmt"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"millwright.io/millwright/internal/engine/node"
	"millwright.io/millwright/internal/host"
)

// edited is a change of a disk by hand.
type edited func(w *world)

func write(p, body string) edited { return func(w *world) { w.put(p, body) } }

func chmod(p string, mode uint32) edited {
	return func(w *world) {
		if err := w.host.Files().Replace(p, []byte(w.body(p)), host.Attr{Mode: mode}); err != nil {
			w.t.Fatal(err)
		}
	}
}

func link(target, p string) edited {
	return func(w *world) {
		if err := w.host.Files().Link(target, p); err != nil {
			w.t.Fatal(err)
		}
	}
}

// TestEditsByHandAreToldAndHeal: a file, its mode and its kind.
func TestEditsByHandAreToldAndHeal(t *testing.T) {
	for _, row := range []struct {
		name   string
		edit   edited
		reason string
	}{
		{"contents", write("/etc/a", "x"), `content mismatch for file "/etc/a"`},
		{"mode", chmod("/etc/a", 0o600), `mode mismatch for file: "/etc/a"; expected: -rw-r--r--/420/0644; received: -rw-------/384/0600`},
		{"link", link("/etc/b", "/etc/a"), `mode mismatch for file: "/etc/a"; expected: -rw-r--r--/420/0644; received: Lrwxrwxrwx/134218239/01000000777`},
		{"removed", func(w *world) {
			if err := w.host.Files().Remove("/etc/a"); err != nil {
				w.t.Fatal(err)
			}
		}, `could not stat file "/etc/a": lstat /etc/a: no such file or directory`},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := settled(t)
			row.edit(w)
			w.run()
			w.want("rendered-worker-a", node.Degraded, "unexpected on-disk state validating against rendered-worker-a: "+row.reason)
			w.wantEvent("Warning ConfigDriftDetected: " + row.reason)
			w.put("/etc/a", "a")
			w.run()
			w.want("rendered-worker-a", node.Done, "")
			if w.boots != 0 {
				t.Errorf("%d boots", w.boots)
			}
		})
	}
}

// TestAConfigThatThisHostCannotHave is refused before anything is written, and the
// way back needs no person.
func TestAConfigThatThisHostCannotHave(t *testing.T) {
	owner := func(mc *mcfgv1.MachineConfig) {
		mc.Spec.Config.Raw = []byte(strings.Replace(string(mc.Spec.Config.Raw), `"path":"/etc/b"`, `"path":"/etc/b","user":{"name":"nobody-here"}`, 1))
	}
	for _, row := range []struct {
		name   string
		files  map[string]string
		more   func(*mcfgv1.MachineConfig)
		reason string
	}{
		{"unknown owner", map[string]string{"/etc/a": "a", "/etc/b": "b"}, owner,
			`failed to retrieve file ownership for file "/etc/b": failed to retrieve UserID for username: nobody-here`},
		{"64k pages on amd64", etc, func(mc *mcfgv1.MachineConfig) { mc.Spec.KernelType = "64k-pages" },
			"64k-pages is only supported for aarch64 architecture"},
		{"unknown extension", etc, func(mc *mcfgv1.MachineConfig) { mc.Spec.Extensions = []string{"sail"} },
			"invalid extensions found: [sail]"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := settled(t)
			w.create(rendered("rendered-worker-b", row.files, row.more))
			before := w.host.Tree("/var/lib/millwright")
			w.set(node.DesiredConfig, "rendered-worker-b")
			w.run()
			w.want("rendered-worker-a", node.Degraded, row.reason)
			if n := w.node(); n.Spec.Unschedulable || w.boots != 0 {
				t.Errorf("cordoned %t, %d boots: want pods left alone", n.Spec.Unschedulable, w.boots)
			}
			if after := w.host.Tree("/var/lib/millwright"); after != before {
				t.Errorf("the disk changed:\n%s\nwas\n%s", after, before)
			}
			w.set(node.DesiredConfig, "rendered-worker-a")
			w.run()
			w.want("rendered-worker-a", node.Done, "")
		})
	}
}

// TestAFolderThatIsAFile: the parent of a path is a file; the change is taken back.
func TestAFolderThatIsAFile(t *testing.T) {
	w := settled(t)
	w.put("/etc/file", "not a folder")
	w.create(rendered("rendered-worker-b", map[string]string{"/etc/a": "b", "/etc/file/x/y": "y"}))
	w.set(node.DesiredConfig, "rendered-worker-b")
	for range 4 {
		w.run()
	}
	got := w.node().Annotations[node.Reason]
	if w.node().Annotations[node.State] != node.Degraded || !strings.Contains(got, "not a directory") || !strings.Contains(got, "/etc/file") {
		t.Fatalf("reason %q", got)
	}
	if w.body("/etc/a") != "a" || w.body("/etc/file") != "not a folder" {
		t.Errorf("the change was not taken back: %s", w.body("/etc/a"))
	}
	w.set(node.DesiredConfig, "rendered-worker-a")
	w.run()
	w.want("rendered-worker-a", node.Done, "")
}

func TestAFlipOfFIPSIsRefused(t *testing.T) {
	w := settled(t)
	w.put("/proc/sys/crypto/fips_enabled", "0\n")
	w.create(rendered("rendered-worker-b", etc, func(mc *mcfgv1.MachineConfig) { mc.Spec.FIPS = true }))
	w.set(node.DesiredConfig, "rendered-worker-b")
	w.run()
	if n := w.node(); n.Annotations[node.State] != node.Unreconcilable ||
		!strings.Contains(n.Annotations[node.Reason], "detected change to FIPS flag; refusing to modify FIPS on a running cluster") {
		t.Errorf("%v", n.Annotations)
	}
	w.set(node.DesiredConfig, "rendered-worker-a")
	w.run()
	w.want("rendered-worker-a", node.Done, "")
}

// TestLostKernelArgumentsAreStagedOnceMore: somebody took them away.
func TestLostKernelArgumentsAreStagedOnceMore(t *testing.T) {
	w := settled(t)
	w.create(rendered("rendered-worker-b", etc, arguments("nosmt")))
	w.host.FailFinalize()
	w.set(node.DesiredConfig, "rendered-worker-b")
	w.run()
	w.want("rendered-worker-b", node.Done, "")
	facts, err := w.host.Facts(context.Background())
	if err != nil || fmt.Sprint(facts.CommandLine) != "[quiet nosmt]" || w.boots != 2 {
		t.Errorf("command line %v after %d boots, %v", facts.CommandLine, w.boots, err)
	}
}

// TestAConfigThatTheClusterLostOnDisk: the disk's own copy serves, and the node moves
// on.
func TestAConfigThatTheClusterLostOnDisk(t *testing.T) {
	w := settled(t)
	a := rendered("rendered-worker-a", etc)
	if err := w.api.Delete(context.Background(), a); err != nil {
		t.Fatal(err)
	}
	w.create(rendered("rendered-worker-b", map[string]string{"/etc/a": "b"}))
	w.restart()
	w.set(node.DesiredConfig, "rendered-worker-b")
	w.run()
	w.want("rendered-worker-b", node.Done, "")
}

func TestADeletedCurrentConfigIsNoDeadEnd(t *testing.T) {
	w := settled(t)
	if err := w.host.Files().Remove(currentConfigPath); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.run()
	w.want("rendered-worker-a", node.Done, "")
	if w.boots != 0 {
		t.Errorf("%d boots", w.boots)
	}
}

func TestTheDiskOverridesAnnotations(t *testing.T) {
	w := settled(t)
	w.create(rendered("rendered-worker-b", map[string]string{"/etc/a": "b"}))
	w.set(node.CurrentConfig, "rendered-worker-b")
	w.set(node.DesiredConfig, "rendered-worker-b")
	w.restart()
	w.run()
	w.want("rendered-worker-b", node.Done, "")
	w.wantLog(`I "Disk currentConfig \"rendered-worker-a\" overrides node's currentConfig annotation \"rendered-worker-b\""`,
		"I Validating against current config rendered-worker-a")
	if w.body("/etc/a") != "b" || w.boots != 1 {
		t.Errorf("/etc/a is %s after %d boots", w.body("/etc/a"), w.boots)
	}
}

func TestAMissingStateCountsAsDone(t *testing.T) {
	w := settled(t)
	w.unset(node.State)
	w.restart()
	w.run()
	w.want("rendered-worker-a", node.Done, "")
	w.unset(node.State)
	w.run()
	w.want("rendered-worker-a", node.Done, "")
}

func TestDesiredConfigMovesOnDuringADrain(t *testing.T) {
	w := settled(t)
	w.create(rendered("rendered-worker-b", map[string]string{"/etc/a": "b"}), rendered("rendered-worker-c", map[string]string{"/etc/a": "c"}))
	w.answers = false
	w.set(node.DesiredConfig, "rendered-worker-b")
	w.run()
	w.set(node.DesiredConfig, "rendered-worker-c")
	w.answers = true
	w.run()
	w.want("rendered-worker-c", node.Done, "")
	if w.boots != 1 || w.body("/etc/a") != "c" {
		t.Errorf("/etc/a is %s after %d boots", w.body("/etc/a"), w.boots)
	}
}

func TestTheOnlyNodeIsNotDrained(t *testing.T) {
	w := settled(t)
	w.set(node.Topology, "SingleReplica")
	w.create(rendered("rendered-worker-b", map[string]string{"/etc/a": "b"}))
	w.set(node.DesiredConfig, "rendered-worker-b")
	w.run()
	w.want("rendered-worker-b", node.Done, "")
	if all := strings.Join(w.evs, "\n"); strings.Contains(all, "Cordoned") {
		t.Errorf("it was drained:\n%s", all)
	}
}

func TestOnlyTheNameChanges(t *testing.T) {
	w := settled(t)
	w.create(rendered("rendered-worker-b", etc))
	w.set(node.DesiredConfig, "rendered-worker-b")
	w.run()
	w.want("rendered-worker-b", node.Done, "")
	w.wantEvent("Normal SkipReboot: Config changes do not require reboot.")
	if w.boots != 0 {
		t.Errorf("%d boots", w.boots)
	}
}

func TestTheForceFileGoesBeforeTheDisk(t *testing.T) {
	w := settled(t)
	w.put("/etc/a", "changed")
	w.run()
	w.put(forcePath, "")
	w.run()
	w.want("rendered-worker-a", node.Done, "")
	if w.boots != 1 || w.body("/etc/a") != "a" {
		t.Errorf("/etc/a is %s after %d boots", w.body("/etc/a"), w.boots)
	}
	if _, err := w.host.Files().Lstat(forcePath); err == nil {
		t.Error("the force file is still there")
	}
}

// TestRegistriesCAs: exactly those of the ControllerConfig are there.
func TestRegistriesCAs(t *testing.T) {
	w := settled(t)
	w.put("/etc/docker/certs.d/old.example.com/ca.crt", "old")
	w.create(&mcfgv1.ControllerConfig{ObjectMeta: named(controllerConfigName), Spec: mcfgv1.ControllerConfigSpec{
		ImageRegistryBundleData: []mcfgv1.ImageRegistryBundle{{File: "registry.example.com..5000", Data: []byte("CA")}, {File: "../../etc", Data: []byte("no")}},
	}})
	w.run()
	if got := w.body("/etc/docker/certs.d/registry.example.com:5000/ca.crt"); got != "CA\n" {
		t.Errorf("CA is %q", got)
	}
	names, err := w.host.Files().ReadDir(registriesDir)
	if err != nil || len(names) != 1 {
		t.Errorf("folders %v, %v", names, err)
	}
	w.want("rendered-worker-a", node.Done, "")
}

// TestKilledAnywhere kills the agent at every changing operation of the disk: the
// node always ends in the new config by itself.
func TestKilledAnywhere(t *testing.T) {
	killed := 0
	for at := 1; ; at++ {
		w := settled(t)
		w.create(rendered("rendered-worker-b", map[string]string{"/etc/a": "b", "/etc/new": "n"}, arguments("nosmt"), image(image2)))
		fault := &host.Faulty{At: at, Fault: host.Kill}
		w.restartWith(fault)
		w.set(node.DesiredConfig, "rendered-worker-b")
		if !w.runKilled() {
			if fault.Ops >= at {
				t.Fatalf("operation %d was passed and did not kill", at)
			}
			break
		}
		killed++
		w.restart()
		w.run()
		w.want("rendered-worker-b", node.Done, "")
		if w.body("/etc/a") != "b" || w.body("/etc/new") != "n" {
			t.Fatalf("killed at %d: files %s %s", at, w.body("/etc/a"), w.body("/etc/new"))
		}
	}
	if killed < 30 {
		t.Errorf("killed %d times, want every operation", killed)
	}
}
