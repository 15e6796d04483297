package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// record runs an endless command beside the test and returns what it has
// printed so far when it is asked to stop.
func (w *world) record(t *testing.T, script string) (stop func() string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "record")
	cmd := exec.Command("bash", "-c", "exec >"+file+"\n"+script)
	// The commands are bash's children: all end with the group.
	cmd.Env, cmd.SysProcAttr = w.env, &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}
	t.Cleanup(end)
	if err := poll(t.Context(), shellLimit, func() error {
		if info, err := os.Stat(file); err != nil || info.Size() == 0 {
			return fmt.Errorf("%s printed nothing", script)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return func() string {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
}

// glimpse is what a watch told of a Node.
type glimpse struct {
	Name     string `json:"name"`
	Cordoned bool   `json:"cordoned"`
	Ready    string `json:"ready"`
	Boot     string `json:"boot"`
	State    string `json:"state"`
	Current  string `json:"current"`
	Desired  string `json:"desired"`
}

const watchWorkers = `oc get nodes -l node-role.kubernetes.io/worker -w -o json | jq --unbuffered -c '{name: .metadata.name, cordoned: (.spec.unschedulable // false),
	ready: (.status.conditions[] | select(.type == "Ready") | .status), boot: .status.nodeInfo.bootID, state: .metadata.annotations["machineconfiguration.openshift.io/state"],
	current: .metadata.annotations["machineconfiguration.openshift.io/currentConfig"], desired: .metadata.annotations["machineconfiguration.openshift.io/desiredConfig"]}'`

func glimpses(t *testing.T, out string) []glimpse {
	t.Helper()
	var all []glimpse
	for line := range strings.Lines(out) {
		if !strings.HasSuffix(line, "\n") {
			break // still being written
		}
		var m glimpse
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("read %q: %v", line, err)
		}
		all = append(all, m)
	}
	return all
}

// row waits for a row of the worker pool: name, conditions and counters.
func row(t *testing.T, w *world, want string) {
	t.Helper()
	w.until(t, "oc get mcp worker --no-headers", changeLimit, func(out string) error {
		if !strings.HasPrefix(one(out), "worker "+want+" ") {
			return fmt.Errorf("want %q", want)
		}
		return nil
	})
}

// config applies a MachineConfig and takes it away at the end of the test.
func config(t *testing.T, w *world, name, manifest string) {
	t.Helper()
	t.Cleanup(func() {
		w.shell(context.Background(), "oc delete mc --ignore-not-found "+name)
		if err := poll(context.Background(), changeLimit, func() error {
			// A pool at rest may not have seen the deletion yet.
			if r := w.shell(context.Background(), poolSources); r.code != 0 || slices.Contains(strings.Fields(r.stdout), name) {
				return fmt.Errorf("the pool still wants %s: %s%s", name, r.stdout, r.stderr)
			}
			r := w.shell(context.Background(), "oc get mcp worker --no-headers")
			if !strings.Contains(one(r.stdout), " True False False 3 3 3 0 ") {
				return fmt.Errorf("the pool does not come to rest without %s: %s%s", name, r.stdout, r.stderr)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	w.sh(t, piped(manifest, "oc apply -f -"))
}

// newTarget waits until the pool aims at another name.
func newTarget(t *testing.T, w *world, old string) string {
	t.Helper()
	return w.until(t, poolTarget, changeLimit, func(out string) error {
		if out == old || out == "" {
			return fmt.Errorf("the pool still aims at %q", out)
		}
		return nil
	})
}

// TestPoolRollsNodeByNode: one file rolls three workers, each cordoned,
// drained, rebooted and uncordoned before the next begins.
func TestPoolRollsNodeByNode(t *testing.T) {
	w := sharedWorld(t)
	untilPools(t, w)
	old := w.sh(t, poolTarget)
	workload(t, w, "rolled", 6, "")
	w.sh(t, "oc rollout status deployment rolled --timeout=90s")
	const uids = "oc get pods -l app=rolled -o jsonpath='{.items[*].metadata.uid}'"
	before := strings.Fields(w.sh(t, uids))
	nodes := w.record(t, watchWorkers)
	pools := w.record(t, "oc get mcp worker -w --no-headers")
	config(t, w, "99-worker-rollout", machineConfig("99-worker-rollout", "/etc/e2e-rollout", "420", ""))
	target := newTarget(t, w, old)
	row(t, w, target+" True False False 3 3 3 0")

	const all = " False True False 3 "
	if err := inOrder(rowsOf(pools()), old+" True False False 3 3 3 0", old+all+"0 0 0", old+all+"1 1 0", old+all+"2 2 0", target+" True False False 3 3 3 0"); err != nil {
		t.Error(err)
	}
	var ms []glimpse
	if err := poll(t.Context(), changeLimit, func() error {
		ms = glimpses(t, nodes())
		return oneByOne(ms, target)
	}); err != nil {
		t.Errorf("%v; the watch told\n%s", err, nodes())
	}
	for _, node := range strings.Fields(w.sh(t, workers)) {
		if got := w.sh(t, "oc debug -q node/"+node+" -- chroot /host cat /etc/e2e-rollout"); got != "hello" {
			t.Errorf("the file on %s holds %q, want hello", node, got)
		}
	}
	for _, uid := range strings.Fields(w.sh(t, uids)) {
		if slices.Contains(before, uid) && ranOnWorker(t, w, uid) {
			t.Errorf("pod %s was on its node before and after the reboot, want it evicted", uid)
		}
	}
	if err := has("Targeted node ", "to MachineConfig: "+target, "Pool worker has completed update to MachineConfig "+target)(
		w.sh(t, "oc logs -n "+mcoNamespace+" deployment/machine-config-controller --tail=-1")); err != nil {
		t.Error(err)
	}
}

func ranOnWorker(t *testing.T, w *world, uid string) bool {
	return strings.Contains(w.sh(t, `oc get pods -l app=rolled -o jsonpath='{.items[?(@.metadata.uid=="`+uid+`")].spec.nodeName}'`), "-worker-")
}

// rowsOf takes what a watch of a table told of the pool, spaces apart.
func rowsOf(out string) string {
	var b strings.Builder
	for line := range strings.Lines(out) {
		b.WriteString(one(line) + "\n")
	}
	return b.String()
}

// oneByOne says what of a rollout is not as it should be: each node goes
// through all of its steps in order, and is done before another starts.
func oneByOne(ms []glimpse, target string) error {
	steps := []struct {
		name string
		is   func(first, now glimpse) bool
	}{
		{"waiting", func(first, now glimpse) bool { return now == first && !now.Cordoned && now.State == "Done" }},
		{"targeted", func(_, now glimpse) bool { return now.Desired == target && now.Current != target }},
		{"cordoned before its reboot", func(first, now glimpse) bool { return now.Cordoned && now.Boot == first.Boot && now.Current != target }},
		{"rebooted, still cordoned", func(first, now glimpse) bool { return now.Cordoned && now.Boot != first.Boot }},
		{"uncordoned after it", func(first, now glimpse) bool { return !now.Cordoned && now.Boot != first.Boot }},
		{"done", func(_, now glimpse) bool {
			return !now.Cordoned && now.Current == target && now.State == "Done" && now.Ready == "True"
		}},
	}
	first, at, out := map[string]glimpse{}, map[string]int{}, map[string]bool{}
	for _, m := range ms {
		if _, ok := first[m.Name]; !ok {
			first[m.Name] = m
		}
		for at[m.Name] < len(steps) && steps[at[m.Name]].is(first[m.Name], m) {
			at[m.Name]++
		}
		out[m.Name] = m.Cordoned || m.Ready != "True" || m.Desired != m.Current
		n := 0
		for _, o := range out {
			if o {
				n++
			}
		}
		if n > 1 {
			return fmt.Errorf("%d nodes are moving at %+v, want one at most", n, m)
		}
	}
	if len(at) != 3 {
		return fmt.Errorf("%d nodes, want 3", len(at))
	}
	for name, n := range at {
		if n < len(steps) {
			return fmt.Errorf("%s was never seen %s", name, steps[n].name)
		}
	}
	return nil
}

// TestChangeWithoutReboot: a key needs neither reboot nor drain.
func TestChangeWithoutReboot(t *testing.T) {
	w := sharedWorld(t)
	untilPools(t, w)
	old, boots := w.sh(t, poolTarget), w.sh(t, bootIDs)
	nodes := w.record(t, watchWorkers)
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHRoaXMga2V5IG9wZW5zIG5vdGhpbmcgYXQgYWxsLi4u e2e"
	config(t, w, "99-worker-zz-key", `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 99-worker-zz-key
  labels: {machineconfiguration.openshift.io/role: worker}
spec:
  config:
    ignition: {version: 3.2.0}
    passwd: {users: [{name: core, sshAuthorizedKeys: ["`+key+`"]}]}
`)
	target := newTarget(t, w, old)
	row(t, w, target+" True False False 3 3 3 0")
	if got := w.sh(t, bootIDs); got != boots {
		t.Errorf("boot IDs\n%s\nwere\n%s\nwant the same", got, boots)
	}
	for _, m := range glimpses(t, nodes()) {
		if m.Cordoned || m.Ready != "True" {
			t.Errorf("%+v: want it in service all the time", m)
		}
	}
	for _, node := range strings.Fields(w.sh(t, workers)) {
		w.until(t, "oc debug -q node/"+node+" -- chroot /host cat /home/core/.ssh/authorized_keys.d/ignition", changeLimit, has(key))
	}
}

// TestDeletingABadConfigHealsItsPool: the broken node needs no force file, no
// annotation and nobody to uncordon it, and the others are never touched.
func TestDeletingABadConfigHealsItsPool(t *testing.T) {
	w := sharedWorld(t)
	untilPools(t, w)
	old, boots := w.sh(t, poolTarget), w.sh(t, bootIDs)
	config(t, w, "99-worker-vanishes", machineConfig("99-worker-vanishes", "/tmp/e2e-vanishes", "420", "millwright.io/accept-risk: volatile-path"))
	row(t, w, old+" False True True 3 0 0 1")
	w.sh(t, "oc delete mc 99-worker-vanishes")
	row(t, w, old+" True False False 3 3 3 0")
	w.untilIs(t, "oc get nodes -o jsonpath='{.items[*].spec.unschedulable}'", "")
	moved := 0
	now := strings.Split(w.sh(t, bootIDs), "\n")
	for _, line := range strings.Split(boots, "\n") {
		if !slices.Contains(now, line) {
			moved++
		}
	}
	if moved != 1 {
		t.Errorf("%d machines were rebooted, want the broken one alone:\n%s\nwere\n%s", moved, strings.Join(now, "\n"), boots)
	}
}
