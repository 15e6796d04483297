package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// planDir is a cluster of three workers that all run the pool's target.
func planDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	configs, err := os.ReadFile("testdata/plan/configs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "configs.yaml", string(configs))
	object := call(t, "", "render", "-f", dir, "--pool", "worker")
	if object.code != 0 {
		t.Fatal(object)
	}
	name := strings.TrimSpace(call(t, "", "render", "-f", dir, "--pool", "worker", "-o", "name").stdout)
	nodes, err := os.ReadFile("testdata/plan/nodes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "rendered/"+name+".yaml", object.stdout)
	write(t, dir, "namespaces/all.yaml", strings.ReplaceAll(string(nodes), "TARGET", name))
	write(t, dir, "namespaces/shop/pods/cart-0/logs/current.log", "not: [a manifest")
	return dir
}

func planned(t *testing.T, args ...string) (Plan, answer) {
	t.Helper()
	got := call(t, "", append([]string{"plan", "-o", "json"}, args...)...)
	var p Plan
	if err := json.Unmarshal([]byte(got.stdout), &p); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	return p, got
}

func TestPlanNamesTheForcedActionAndItsCause(t *testing.T) {
	dir := planDir(t)
	for _, tt := range []struct {
		file, why, action, forced string
		drains                    bool
	}{
		{"new-all", "a kernel argument works at boot only", "reboot", "kernel argument nosmt", true},
		{"new-reload", "the policy names the unit to reload", "reload app.service", "file /etc/app/app.conf", false},
		{"new-key", "keys are read at each login", "none", "", false},
	} {
		t.Run(tt.file, func(t *testing.T) {
			p, got := planned(t, "-f", "testdata/plan/"+tt.file+".yaml", "--from", dir, "--exit-code")
			if got.code != ExitChanges {
				t.Errorf("exit code %d: %s", got.code, got.stderr)
			}
			if len(p.Pools) != 1 || len(p.Pools[0].Nodes) != 3 {
				t.Fatalf("pools: %+v", p.Pools)
			}
			w := p.Pools[0]
			if w.Action != tt.action || w.ForcedBy != tt.forced || w.Drains != tt.drains {
				t.Errorf("%s: %s, forced by %s, drains %t; want %s, %s, %t", tt.why, w.Action, w.ForcedBy, w.Drains, tt.action, tt.forced, tt.drains)
			}
			for _, n := range w.Nodes {
				if n.Action != tt.action || n.ForcedBy != tt.forced {
					t.Errorf("node %s: %s, forced by %s", n.Node, n.Action, n.ForcedBy)
				}
			}
			text := call(t, "", "plan", "-f", "testdata/plan/"+tt.file+".yaml", "--from", dir)
			if text.code != 0 {
				t.Errorf("without --exit-code: %d", text.code)
			}
			golden(t, "plan-"+tt.file+".txt", strings.ReplaceAll(text.stdout, dir, "DIR"))
		})
	}
}

func TestPlanOrdersNodesAndNamesBlockers(t *testing.T) {
	p, _ := planned(t, "-f", "testdata/plan/new-all.yaml", "--from", planDir(t))
	w := p.Pools[0]
	var order []string
	for _, n := range w.Nodes {
		order = append(order, n.Node)
	}
	if got := strings.Join(order, " "); got != "w-2 w-1 w-3" {
		t.Errorf("order %s: the cordoned node comes first, then by zone", got)
	}
	if w.Waves != 3 || w.MaxUnavailable != 1 || w.Nodes[2].Wave != 3 {
		t.Errorf("waves %d, maxUnavailable %d", w.Waves, w.MaxUnavailable)
	}
	b := w.Nodes[2].Blockers
	if len(b) != 1 || b[0].Budget != "shop/cart" || len(b[0].Pods) != 1 || b[0].Pods[0] != "shop/cart-0" {
		t.Errorf("blockers of w-3: %+v", b)
	}
	if len(w.Nodes[1].Blockers) != 0 {
		t.Errorf("a DaemonSet's pod blocks w-1: %+v", w.Nodes[1].Blockers)
	}
	if w.Seconds < 3*240+60 {
		t.Errorf("three reboots and a minute of draining take %d s", w.Seconds)
	}
}

func TestPlanWithoutChange(t *testing.T) {
	dir := planDir(t)
	p, got := planned(t, "-f", filepath.Join(dir, "configs.yaml"), "--from", dir, "--exit-code")
	if got.code != 0 || p.Changes || p.Pools[0].Changed || p.Pools[0].Waves != 0 {
		t.Errorf("code %d, plan %+v", got.code, p)
	}
	p, got = planned(t, "--without", "99-worker-app", "--from", dir, "--exit-code")
	if got.code != ExitChanges || p.Pools[0].Action != "reboot" {
		t.Errorf("without the app: code %d, plan %+v", got.code, p)
	}
}

func TestPlanTellsWhatCannotBeRendered(t *testing.T) {
	bad := write(t, t.TempDir(), "bad.yaml", `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 99-bad, labels: {machineconfiguration.openshift.io/role: worker}}
spec: {kernelType: rt}
`)
	p, got := planned(t, "-f", bad, "--from", planDir(t), "--exit-code")
	if got.code != ExitFailure || !strings.Contains(p.Pools[0].Error, "MachineConfig 99-bad: spec.kernelType") {
		t.Errorf("code %d: %+v", got.code, p.Pools)
	}
}

func TestPlanRefusesWrongUsage(t *testing.T) {
	for _, args := range [][]string{
		{"plan"},
		{"plan", "-f", "testdata/plan/new-all.yaml", "--from", ".", "--context", "x"},
		{"plan", "-f", "-", "-f", "-", "--from", "-"},
		{"plan", "--without", "no-such", "--from", "testdata/plan"},
		{"plan", "-f", "testdata/plan/new-all.yaml", "-o", "wide"},
		{"plan", "-f", "testdata/plan/new-all.yaml", "extra"},
	} {
		if got := call(t, "", args...); got.code != ExitUsage {
			t.Errorf("%v: %+v", args, got)
		}
	}
	got := call(t, "", "plan", "-f", "testdata/plan/new-all.yaml", "--from", "no-such-dir")
	if got.code != ExitFailure || !strings.Contains(got.stderr, "no-such-dir") {
		t.Errorf("absent --from: %+v", got)
	}
}

func TestPlanNamesWhatItCannotKnow(t *testing.T) {
	got := call(t, "", "plan", "-f", "testdata/plan")
	for _, want := range []string{
		"Compared with nothing", "config TARGET is not among the objects", "what its nodes have to do is not known",
		"MachineConfig 99-worker-app stands in testdata/plan/configs.yaml: document 5 and in testdata/plan/new-all.yaml: document 1; the later one counts",
	} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("the output lacks %q:\n%s", want, got.stdout)
		}
	}
	other := "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: k}\n"
	if got := call(t, other, "plan", "-f", "-", "--from", "testdata/plan/configs.yaml"); !strings.Contains(got.stdout, "1 Widget objects of the files are not considered") {
		t.Errorf("a kind it does not plan: %+v", got)
	}
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "absent"))
	if got := callWith(t, Deps{}, "", "plan", "-f", "testdata/plan"); got.code != ExitFailure || !strings.Contains(got.stderr, "use --from") {
		t.Errorf("without a kubeconfig: %+v", got)
	}
}

func TestPlanTellsWhatRunningNodesRefuse(t *testing.T) {
	fips := write(t, t.TempDir(), "fips.yaml", `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 99-fips, labels: {machineconfiguration.openshift.io/role: worker}}
spec: {fips: true}
`)
	p, got := planned(t, "-f", fips, "--from", planDir(t), "--exit-code")
	if got.code != ExitFailure || len(p.Pools[0].Refused) != 1 || !strings.Contains(p.Pools[0].Refused[0], "refusing to modify FIPS on a running cluster") {
		t.Errorf("code %d: %+v", got.code, p.Pools[0].Refused)
	}
}

func TestPlanHonoursThePoolOfTheFiles(t *testing.T) {
	dir := planDir(t)
	pool := write(t, t.TempDir(), "pool.yaml", `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata: {name: worker}
spec:
  machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: worker}}
  nodeSelector: {matchLabels: {node-role.kubernetes.io/worker: ""}}
  maxUnavailable: 70%
  paused: true
`)
	p, got := planned(t, "-f", pool, "-f", "testdata/plan/new-all.yaml", "--from", dir, "--exit-code")
	w := p.Pools[0]
	if got.code != ExitChanges || !w.Paused || w.MaxUnavailable != 2 || w.Waves != 2 || w.Old == "" || w.Action != "reboot" {
		t.Errorf("code %d: %+v", got.code, w)
	}
	if !strings.Contains(strings.Join(w.Notes, "\n"), "paused") {
		t.Errorf("nothing says that the pool is paused: %q", w.Notes)
	}
	p, got = planned(t, "-f", pool, "--from", dir, "--exit-code")
	if got.code != 0 || p.Changes {
		t.Errorf("a pool's pace alone changes no config: code %d, %+v", got.code, p)
	}
}
