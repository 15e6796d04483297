package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const machineConfigDigest = "54a94f3804ac8eb246899c97505fce5abe5b4c1cb71792a30f07e37b936f435a"

const (
	bootIDs = `oc get nodes -o jsonpath='{range .items[*]}{.metadata.name} {.status.nodeInfo.bootID}{"\n"}{end}' | sort`
	workers = "oc get nodes -l node-role.kubernetes.io/worker -o jsonpath='{.items[*].metadata.name}'"
)

// repair walks the document about a degraded worker and a change without the
// operator.
type repair struct {
	*walker
	steps []step
	boots string // before the second chapter
	shell *terminal
}

func TestWalkMachineConfig(t *testing.T) {
	steps := readWalk(t, "machineconfig")
	if got := digest(steps); got != machineConfigDigest {
		t.Fatalf("the commands have the digest %s, want %s: they are the document's, word for word", got, machineConfigDigest)
	}
	r := &repair{walker: newWalker(t, ownWorld(t, append([]string{"--admission", "volatile-path=warn"}, quick...)...), "machineconfig"), steps: steps}
	untilPools(t, r.world)
	r.values["old"] = r.sh(t, poolTarget)
	// The document's operator leaves a broken node to people.
	r.sh(t, "oc annotate mcp worker millwright.io/self-heal=Disabled")
	for _, name := range []string{"99-worker-always-degraded.yaml", "99-worker-add-mc-test.yaml"} {
		r.copyHome(t, name)
	}
	checks := r.degraded()
	for lines, check := range r.human() {
		checks[lines] = check
	}
	walk(t, r.walker, steps, checks)
}

// copyHome puts a manifest of the document where its commands look for it.
func (r *repair) copyHome(t *testing.T, name string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err == nil {
		err = os.WriteFile(filepath.Join(r.home, name), b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// degraded are the checks of the first chapter.
func (r *repair) degraded() map[string]seen {
	const overrides = `"Disk currentConfig \"{bad}\" overrides node's currentConfig annotation \"{old}\""`
	const onDisk = `unexpected on-disk state validating against {bad}: could not stat file %[1]s/tmp/tmpfile%[1]s: lstat /tmp/tmpfile: no such file or directory`
	inLog, inJSON := "Marking Degraded due to: \""+fmt.Sprintf(onDisk, `\"`)+`"`, fmt.Sprintf(onDisk, `\"`)
	const starting = "Starting pod/{node}-debug-"
	const hint = "To use host binaries, run `chroot /host`. Instead, if you need to access host namespaces, run `nsenter -a -t 1`."
	return map[string]seen{
		"15": r.finds("version 4.20.0 True False", "Cluster version is 4.20.0"),
		"18": r.finds("{infra}-master-0 Ready control-plane,master", "{infra}-worker-francecentral"),
		"47": r.finds("machineconfig.machineconfiguration.openshift.io/99-worker-always-degraded created", "[volatile-path]"),
		"49": r.seesDegraded,
		"53": r.finds("{node} Ready,SchedulingDisabled worker"),
		"64": r.finds(`machineconfig.machineconfiguration.openshift.io "99-worker-always-degraded" deleted`),
		"66": r.finds("worker {old} False True True 3 2 2 1", "master rendered-master-", " True False False 3 3 3 0 "),
		"75": r.seesPods,
		"96": r.finds("Defaulted container \"machine-config-daemon\" out of: machine-config-daemon, kube-rbac-proxy",
			overrides, "Current config: {old}", "Desired config: {bad}", "state: Degraded", "Validating against current config {bad}", inLog),
		"119": r.seesNoFile,
		"142": r.finds(starting, hint, `{"kind":"MachineConfig","apiVersion":"machineconfiguration.openshift.io/v1","metadata":{"name":"{bad}","uid":"`, "Removing debug pod ..."),
		"149": r.finds("{ \"kind\": \"MachineConfig\", \"apiVersion\": \"machineconfiguration.openshift.io/v1\", \"metadata\": { \"name\": \"{bad}\", \"uid\": \"", "\"resourceVersion\": \"", "\"generation\": 1,", "\"creationTimestamp\": \"", "\"annotations\": {"),
		"164": r.finds(`{ "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "metadata": { "annotations": { "machineconfiguration.openshift.io/generated-by-controller-version": "`, `"machineconfiguration.openshift.io/release-image-version": "4.20.0" }, "creationTimestamp": "`),
		"184": r.finds(`[ { "manager": "machine-config-controller", "operation": "Update", "apiVersion": "machineconfiguration.openshift.io/v1", "time": "`, `"f:ownerReferences": { ".": {}, "k:{\"uid\":\"`),
		"211": r.finds(`Event(v1.ObjectReference{Kind:"MachineConfigPool", Namespace:"openshift-machine-config-operator", Name:"worker", UID:"`,
			"type: 'Normal' reason: 'SetDesiredConfig' Targeted node {node} to MachineConfig: {bad}"),
		"216": r.finds(`"machineconfiguration.openshift.io/currentConfig": "{old}"`, `"machineconfiguration.openshift.io/desiredConfig": "{bad}"`,
			`"machineconfiguration.openshift.io/desiredDrain": "drain-{bad}"`, `"machineconfiguration.openshift.io/lastAppliedDrain": "drain-{bad}"`,
			`"machineconfiguration.openshift.io/reason": "`+inJSON+`"`, `"machineconfiguration.openshift.io/state": "Degraded"`, `"volumes.kubernetes.io/controller-managed-attach-detach": "true"`),
		"229": r.editsDesired,
		"242": r.finds("node/{node} Ready,SchedulingDisabled worker", "machineconfigpool.machineconfiguration.openshift.io/worker {old} False True True 3 2 2 1"),
		"255": r.seesOverridden(overrides),
		"265": r.finds(starting, hint, "Removing debug pod ..."),
		"270": r.finds("node/{node} ", "uncordoned"),
		"273": r.finds("worker {old} True False False 3 3 3 0", "master rendered-master-", " True False False 3 3 3 0 "),
	}
}

// one is s with each run of spaces and line ends as one space.
func one(s string) string { return strings.Join(strings.Fields(s), " ") }

// changes are the commands that must run one time.
var changes = regexp.MustCompile(`^(oc (apply|delete|scale|cp|patch|adm|-n \S+ patch|debug .* (touch|chown))|cp|jq) `)

// finds waits until a command shows the texts, on either output, whatever the
// spaces; commands that change something run one time.
func (r *repair) finds(texts ...string) seen {
	return func(t *testing.T, w *walker, s step) {
		t.Helper()
		ok := func(out string) error {
			for _, text := range texts {
				if want := w.filled(t, text); !strings.Contains(one(out), want) {
					return fmt.Errorf("want %q", want)
				}
			}
			return nil
		}
		script := "exec 2>&1\n" + w.script(t, s)
		if len(texts) > 0 && !changes.MatchString(s.commands) {
			w.until(t, script, changeLimit, ok)
			return
		}
		if out := w.sh(t, script); ok(out) != nil {
			t.Fatalf("%s%v in\n%s", s.commands, ok(out), out)
		}
	}
}

// seesDegraded learns which node broke, too.
func (r *repair) seesDegraded(t *testing.T, w *walker, s step) {
	r.finds("worker {old} False True True 3 0 0 1", "master rendered-master-", " True False False 3 3 3 0 ")(t, w, s)
	node := w.sh(t, `oc get nodes -o json | jq -r '.items[] | select(.metadata.annotations["machineconfiguration.openshift.io/state"] == "Degraded").metadata.name'`)
	w.values["node"] = node
	w.values["bad"] = w.sh(t, "oc get node "+node+` -o jsonpath='{.metadata.annotations.machineconfiguration\.openshift\.io/desiredConfig}'`)
	w.values["daemon"] = w.podOf(t, "machine-config-daemon", "--field-selector=spec.nodeName="+node)
	w.values["controller"] = w.podOf(t, "machine-config-controller")
	if w.values["bad"] == w.values["old"] {
		t.Fatalf("%s is Degraded and wants %s, the old config", node, w.values["old"])
	}
}

// podOf names the one pod of a component.
func (w *world) podOf(t *testing.T, app string, flags ...string) string {
	t.Helper()
	return w.until(t, "oc get pods -n "+mcoNamespace+" -l k8s-app="+app+" "+strings.Join(flags, " ")+" -o jsonpath='{.items[*].metadata.name}'", changeLimit, func(out string) error {
		if out == "" || strings.Contains(out, " ") {
			return fmt.Errorf("got %q, want one pod", out)
		}
		return nil
	})
}

// seesPods counts the pods of the family that run as a whole.
func (r *repair) seesPods(t *testing.T, w *walker, s step) {
	nodes := strings.Fields(w.sh(t, "oc get nodes -o jsonpath='{.items[*].metadata.name}'"))
	w.until(t, w.script(t, s), changeLimit, func(out string) error { return family(out, nodes, true) })
}

// family says what the list of pods lacks: a static pod on each node and the
// operator, with the processes that serve if they are to run.
func family(out string, nodes []string, serving bool) error {
	got := map[string]int{}
	for _, line := range strings.Split(out, "\n")[1:] {
		f := strings.Fields(line)
		if len(f) < 5 || f[2] != "Running" {
			return fmt.Errorf("%q does not run", line)
		}
		name := f[0]
		for _, app := range []string{"machine-config-controller", "machine-config-daemon", "machine-config-operator", "machine-config-server"} {
			if strings.HasPrefix(name, app+"-") {
				name = app
			}
		}
		got[name+" "+f[1]]++
	}
	want := map[string]int{"machine-config-operator 2/2": 1}
	for _, n := range nodes {
		want["kube-rbac-proxy-crio-"+n+" 1/1"] = 1
	}
	if serving {
		want["machine-config-controller 2/2"], want["machine-config-daemon 2/2"], want["machine-config-server 1/1"] = 1, len(nodes), 3
	}
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		return fmt.Errorf("pods %s, want %s", g, w)
	}
	return nil
}

// seesNoFile finds /tmp there, and empty of what the reboot took away.
func (r *repair) seesNoFile(t *testing.T, w *walker, s step) {
	out := w.sh(t, w.script(t, s))
	if err := has("total ", "drwxrwxrwt ", "root ")(out); err != nil || strings.Contains(out, "tmpfile") {
		t.Fatalf("%v; want /tmp without tmpfile:\n%s", err, out)
	}
}

// editsDesired edits the annotation as the prose of line 228 does, which the
// command then shows to have helped nothing.
func (r *repair) editsDesired(t *testing.T, w *walker, s step) {
	w.sh(t, w.filled(t, `KUBE_EDITOR="sed -i 's/desiredConfig: {bad}/desiredConfig: {old}/'" oc edit node {node}`))
	const p = "machineconfiguration.openshift.io/"
	r.finds(p+"currentConfig: {old}", p+"desiredConfig: {old}", p+"desiredDrain: drain-{bad}", p+"lastAppliedDrain: drain-{bad}", p+"lastObservedServerCAAnnotation: \"false\"",
		p+"lastSyncedControllerConfigResourceVersion: \"", p+`post-config-action: ""`, p+"reason: 'unexpected on-disk state validating", p+"state: Degraded")(t, w, s)
}

// seesOverridden waits until the daemon looked at the edited annotation.
func (r *repair) seesOverridden(overrides string) seen {
	return func(t *testing.T, w *walker, s step) {
		w.until(t, w.script(t, s), changeLimit, func(out string) error {
			return inOrder(out, w.filled(t, "Desired config: {old}"), "state: Degraded", w.filled(t, overrides), "Marking Degraded due to: ")
		})
		w.until(t, "oc get mcp worker", changeLimit, func(out string) error {
			return has(w.filled(t, "worker {old} False True True 3 2 2 1"))(one(out))
		})
	}
}

// human are the checks of the second chapter.
func (r *repair) human() map[string]seen {
	const warns = `Warning: spec.template.spec.nodeSelector[node-role.kubernetes.io/master]: use "node-role.kubernetes.io/control-plane" instead`
	const pool = "machineconfigpool.machineconfiguration.openshift.io/"
	unnoticed := r.finds("worker {old} True False False 3 3 3 0", "master rendered-master-")
	return map[string]seen{
		"300": func(t *testing.T, w *walker, s step) {
			r.boots = w.sh(t, bootIDs)
			r.finds(warns, "deployment.apps/machine-config-controller scaled")(t, w, s)
		},
		"303": r.finds(warns, "daemonset.apps/machine-config-server patched"),
		"306": r.finds("daemonset.apps/machine-config-daemon patched"),
		"308": r.seesOthersOnly,
		"320": r.finds("worker {old} True False False 3 3 3 0"),
		"324": r.finds(), "326": r.finds(),
		"327":     r.edits,
		"328":     r.finds("< name: {old} --- > name: {new}", "> - mode: 420 > overwrite: false > path: /usr/local/bin/mc-test"),
		"419":     r.finds("{new}"),
		"422":     r.finds("machineconfig.machineconfiguration.openshift.io/99-worker-add-mc-test created"),
		"424":     r.createsRendered,
		"426":     r.seesConfigs,
		"448":     unnoticed,
		"454":     r.readsDisk,
		"458":     r.finds(),
		"459":     r.finds(),
		"460":     r.seesMerged,
		"462":     r.opensShell,
		"467-472": r.types,
		"474":     r.seesDebugPod,
		"477":     r.finds(),
		"478":     r.placesOnOthers,
		"484":     r.annotates,
		"491":     r.finds(pool + "worker patched"),
		"495":     r.finds(pool + "worker {old} True False False 3 3 3 0"),
		"507":     r.finds("daemonset.apps/machine-config-daemon patched"),
		"508":     r.finds("daemonset.apps/machine-config-server patched"),
		"509":     r.finds("deployment.apps/machine-config-controller scaled"),
		"510": func(t *testing.T, w *walker, s step) {
			r.seesPods(t, w, s)
			w.values["controller"] = w.podOf(t, "machine-config-controller")
		},
		"531": r.seesSwitched,
		"543": r.finds("Pool worker: All nodes are updated with MachineConfig {new}", `Event(v1.ObjectReference{Kind:"MachineConfigPool", Namespace:"openshift-machine-config-operator", Name:"worker", UID:"`,
			"type: 'Normal' reason: 'Completed' Pool worker has completed update to MachineConfig {new}"),
	}
}

func (r *repair) seesOthersOnly(t *testing.T, w *walker, s step) {
	nodes := strings.Fields(w.sh(t, "oc get nodes -o jsonpath='{.items[*].metadata.name}'"))
	w.until(t, w.script(t, s), changeLimit, func(out string) error { return family(out, nodes, false) })
}

func (r *repair) edits(t *testing.T, w *walker, s step) {
	w.sh(t, w.script(t, s))
	w.values["new"] = w.sh(t, "cd && sed -n 's/^  name: //p' new-rendered-mc.yaml | head -n 1")
	if !strings.HasPrefix(w.values["new"], "rendered-worker-") || w.values["new"] == w.values["old"] {
		t.Fatalf("the edited config is named %q, want another one of the pool's than %s", w.values["new"], w.values["old"])
	}
}

// createsRendered also asks what the controller would render of the same.
func (r *repair) createsRendered(t *testing.T, w *walker, s step) {
	r.finds("machineconfig.machineconfiguration.openshift.io/{new} created")(t, w, s)
	got := w.sh(t, "cd && oc get mc,mcp,controllerconfig -o yaml >cluster.yaml && millwright render -f cluster.yaml --pool worker -o name")
	if got != w.values["new"] {
		t.Errorf("the controller would render %q, by hand it is %q", got, w.values["new"])
	}
}

func (r *repair) seesConfigs(t *testing.T, w *walker, s step) {
	want := []string{"99-worker-add-mc-test 3.5.0 ", "99-master-ssh 3.2.0 ", "99-worker-ssh 3.2.0 "}
	version := one(w.sh(t, "oc get mc 00-worker -o jsonpath='{.metadata.annotations.machineconfiguration\\.openshift\\.io/generated-by-controller-version}'"))
	for _, name := range []string{"00-master", "00-worker", "01-master-container-runtime", "01-master-kubelet", "01-worker-container-runtime", "01-worker-kubelet",
		"97-master-generated-kubelet", "97-worker-generated-kubelet", "98-master-generated-kubelet", "98-worker-generated-kubelet",
		"99-master-generated-registries", "99-worker-generated-registries", "{old}", "{bad}", "{new}"} {
		want = append(want, name+" "+version+" 3.5.0 ")
	}
	r.finds(append(want, "NAME GENERATEDBYCONTROLLER IGNITIONVERSION AGE")...)(t, w, s)
}

// readsDisk takes the first worker, and does not look where the command
// writes.
func (r *repair) readsDisk(t *testing.T, w *walker, s step) {
	w.values["node"] = strings.Fields(w.sh(t, workers))[0]
	w.sh(t, w.script(t, s))
	if got := w.sh(t, "cd && jq -r .metadata.name currentconfig.json"); got != w.values["old"] {
		t.Fatalf("the disk of %s holds %q, want %s", w.values["node"], got, w.values["old"])
	}
}

func (r *repair) seesMerged(t *testing.T, w *walker, s step) {
	w.sh(t, w.script(t, s))
	got := w.sh(t, `cd && wc -l <new-currentconfig.txt && jq -r '.metadata.name, .metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"], .metadata.managedFields[0].manager, .spec.config.storage.files[-1].path' new-currentconfig.txt`)
	if want := w.filled(t, "1 {new} null machine-config-controller /usr/local/bin/mc-test"); one(got) != want {
		t.Fatalf("the new currentconfig has %q, want %q", one(got), want)
	}
}

func (r *repair) opensShell(t *testing.T, w *walker, s step) {
	r.shell = w.terminal(t, w.script(t, s))
	r.shell.untilPrompt(t, 0)
	if err := has(w.filled(t, "Starting pod/{node}-debug-"), "Pod IP: 10.", "If you don't see a command prompt, try pressing enter.")(r.shell.text()); err != nil {
		t.Error(err)
	}
}

func (r *repair) types(t *testing.T, w *walker, s step) {
	for _, line := range strings.Split(strings.TrimSpace(s.commands), "\n") {
		r.shell.enter(t, line)
	}
	if err := has("-rw-r--r--", "root     root           0")(r.shell.text()); err != nil || strings.Contains(r.shell.text(), "No such file") {
		t.Errorf("%v in\n%s", err, r.shell.text())
	}
}

func (r *repair) seesDebugPod(t *testing.T, w *walker, s step) {
	w.values["pod"] = w.sh(t, "oc get pod -o jsonpath='{.items[*].metadata.name}'")
	r.finds("{node}-debug-", "1/1 Running 0 ")(t, w, s)
}

// placesOnOthers ends the session, and does everything since its start on the
// other two workers, as the prose of line 482 says.
func (r *repair) placesOnOthers(t *testing.T, w *walker, s step) {
	first := w.values["node"]
	owned := r.finds("Removing debug pod ...")
	owned(t, w, s)
	r.shell.leave(t)
	for _, node := range strings.Fields(w.sh(t, workers)) {
		if node == first {
			continue
		}
		w.values["node"] = node
		from := slices.IndexFunc(r.steps, func(s step) bool { return s.lines == "462" })
		for i, check := range []seen{r.opensShell, r.types, r.seesDebugPod, r.finds(), owned} {
			check(t, w, r.steps[from+i])
		}
		r.shell.leave(t)
	}
}

func (r *repair) annotates(t *testing.T, w *walker, s step) {
	out := w.sh(t, w.script(t, s))
	for _, node := range strings.Fields(w.sh(t, workers)) {
		if n := strings.Count(out, "node/"+node+" annotated\n"); n != 2 && strings.Count(out+"\n", "node/"+node+" annotated\n") != 2 {
			t.Errorf("%s was annotated %d times, want 2:\n%s", node, n, out)
		}
	}
}

// seesSwitched: the name switches, no machine boots, and nothing is left to do.
func (r *repair) seesSwitched(t *testing.T, w *walker, s step) {
	r.finds("machineconfigpool.machineconfiguration.openshift.io/worker {new} True False False 3 3 3 0", "machineconfigpool.machineconfiguration.openshift.io/master rendered-master-")(t, w, s)
	w.untilIs(t, `oc get nodes -l node-role.kubernetes.io/worker -o json | jq -r '[.items[] | .metadata.annotations["machineconfiguration.openshift.io/state"], .metadata.annotations["machineconfiguration.openshift.io/currentConfig"], .spec.unschedulable] | unique | join(" ")'`,
		w.filled(t, "Done {new}"))
	if got := w.sh(t, poolTarget); got != w.values["new"] {
		t.Errorf("the controller aims at %q, want %q", got, w.values["new"])
	}
	if got := w.sh(t, bootIDs); got != r.boots {
		t.Errorf("boot IDs\n%s\nwere\n%s\nwant the same", got, r.boots)
	}
}

// untilPools waits until both pools are as they were made.
func untilPools(t testing.TB, w *world) {
	t.Helper()
	w.until(t, "oc get mcp --no-headers", changeLimit, func(out string) error {
		if n := strings.Count(one(out), " True False False 3 3 3 0 "); n != 2 {
			return fmt.Errorf("%d pools are updated, want both", n)
		}
		return nil
	})
}

// terminal is a session of a command on a terminal of its own.
type terminal struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	mu  sync.Mutex
	out bytes.Buffer
}

// Write takes what the terminal shows.
func (c *terminal) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Write(p)
}

func (c *terminal) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.String()
}

// terminal runs a script on a terminal, as a person does.
func (w *world) terminal(t *testing.T, script string) *terminal {
	t.Helper()
	file := filepath.Join(t.TempDir(), "session")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &terminal{cmd: exec.Command("script", "-qfec", "bash "+file, "/dev/null")}
	c.cmd.Env, c.cmd.Stdout, c.cmd.Stderr = w.env, c, c
	var err error
	if c.in, err = c.cmd.StdinPipe(); err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		t.Fatalf("open a terminal: %v", err)
	}
	return c
}

// prompt is a root shell's at the end of the screen; it asks the terminal where
// the cursor is.
var prompt = regexp.MustCompile(`\n[^\n]*# (\x1b\[6n)?$`)

// untilPrompt waits until the shell asks for a command, after what was shown
// before.
func (c *terminal) untilPrompt(t *testing.T, before int) {
	t.Helper()
	if err := poll(t.Context(), shellLimit, func() error {
		if !prompt.MatchString(c.text()[before:]) {
			return fmt.Errorf("no prompt in:\n%s", c.text())
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// enter types a line and waits for the next prompt.
func (c *terminal) enter(t *testing.T, line string) {
	t.Helper()
	before := len(c.text())
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		t.Fatalf("type %q: %v", line, err)
	}
	c.untilPrompt(t, before)
}

// leave ends both shells, of the node's root and of the pod.
func (c *terminal) leave(t *testing.T) {
	t.Helper()
	c.enter(t, "exit")
	_, err := io.WriteString(c.in, "exit\n")
	if err == nil {
		err = c.cmd.Wait()
	}
	if err != nil || !strings.Contains(c.text(), "Removing debug pod ...") {
		t.Errorf("end the session: %v\n%s", err, c.text())
	}
}
