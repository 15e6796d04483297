package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	poolTarget   = "oc get mcp worker -o jsonpath='{.spec.configuration.name}'"
	poolSources  = "oc get mcp worker -o jsonpath='{.spec.configuration.source[*].name}'"
	poolDegraded = `oc get mcp worker -o jsonpath='{.status.conditions[?(@.type=="RenderDegraded")].status} {.status.conditions[?(@.type=="RenderDegraded")].message}'`
	mcoNamespace = "openshift-machine-config-operator"
)

// machineConfig is a manifest with one file.
func machineConfig(name, path, mode, note string) string {
	return fmt.Sprintf(`apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: %s
  labels: {machineconfiguration.openshift.io/role: worker}
  annotations: {%s}
spec:
  config:
    ignition: {version: 3.2.0}
    storage:
      files: [{path: %s, mode: %s, overwrite: true, contents: {source: "data:,hello"}}]
`, name, note, path, mode)
}

// piped gives a manifest to a command that reads standard input.
func piped(manifest, command string) string {
	return "cat <<'EOF' | " + command + "\n" + manifest + "EOF"
}

// TestMachineConfigBecomesThePrintedName prints what a MachineConfig will make
// of the pool, applies it, and finds that name; taken away again, the pool aims
// at what it did before.
func TestMachineConfigBecomesThePrintedName(t *testing.T) {
	w := sharedWorld(t)
	before := w.until(t, poolTarget, time.Minute, has("rendered-worker-"))
	for _, base := range []string{"00-worker", "01-worker-kubelet", "01-worker-container-runtime", "97-worker-generated-kubelet",
		"98-worker-generated-kubelet", "99-worker-generated-registries", "99-worker-ssh", "00-master", "rendered-master-"} {
		if err := has(base)(w.sh(t, "oc get mc")); err != nil {
			t.Error(err)
		}
	}
	if err := has("GENERATEDBYCONTROLLER", "IGNITIONVERSION")(w.sh(t, "oc get mc")); err != nil {
		t.Error(err)
	}
	if err := has("CONFIG", "UPDATED", "UPDATING", "DEGRADED", "MACHINECOUNT")(w.sh(t, "oc get mcp")); err != nil {
		t.Error(err)
	}
	mc := machineConfig("99-worker-e2e", "/etc/e2e", "420", "")
	printed := strings.TrimSpace(w.sh(t, "oc get mc,mcp,controllerconfig -o yaml >$HOME/cluster.yaml\n"+
		piped(mc, "millwright render -f $HOME/cluster.yaml -f - --pool worker -o name")))
	w.sh(t, piped(mc, "oc apply -f -"))
	defer w.sh(t, "oc delete mc 99-worker-e2e --ignore-not-found")
	w.until(t, poolTarget, time.Minute, has(printed))
	w.sh(t, "oc get mc "+printed)
	w.sh(t, "oc delete mc 99-worker-e2e")
	w.until(t, poolTarget, time.Minute, has(before))
}

// TestMachineConfigIsRefusedAtTheDoor applies what can never work, while the
// controller is stopped; with the risk accepted it gets in and the pool says
// whose fault it is.
func TestMachineConfigIsRefusedAtTheDoor(t *testing.T) {
	w := sharedWorld(t)
	w.until(t, poolTarget, time.Minute, has("rendered-worker-"))
	w.sh(t, "oc -n "+mcoNamespace+" scale deployment/machine-config-controller --replicas=0")
	w.until(t, "oc -n "+mcoNamespace+" get pods -o name", time.Minute, func(out string) error {
		if strings.Contains(out, "machine-config-controller") {
			return fmt.Errorf("still there: %s", out)
		}
		return nil
	})
	refused := func(manifest string) string { return piped(manifest, "oc apply -f - 2>&1 || true") }
	w.until(t, refused(machineConfig("99-worker-bad", "/tmp/x", "420", "")), time.Minute,
		has("denied the request", "vanishes at the reboot that its own application needs", "millwright.io/accept-risk: volatile-path"))
	w.sh(t, piped(machineConfig("99-worker-bad", "/etc/x", "2541", "millwright.io/accept-risk: file-mode"), "oc apply -f -"))
	defer w.sh(t, "oc delete mc 99-worker-bad --ignore-not-found")
	w.sh(t, "oc -n "+mcoNamespace+" scale deployment/machine-config-controller --replicas=1")
	w.until(t, poolDegraded, time.Minute, has("True Failed to render configuration for pool worker", "MachineConfig 99-worker-bad", "cannot exceed 0777"))
	w.sh(t, "oc delete mc 99-worker-bad")
	w.until(t, poolDegraded, time.Minute, has("False"))
}

// TestSourcesAreRefusedAtTheDoor applies objects that no pool could use.
func TestSourcesAreRefusedAtTheDoor(t *testing.T) {
	w := sharedWorld(t)
	for _, row := range []struct{ manifest, want string }{
		{"apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\nmetadata: {name: e2e}\nspec: {kubeletConfig: {clusterDNS: [1.1.1.1]}}\n",
			"clusterDNS is not allowed to be set, but contains: [1.1.1.1]"},
		{"apiVersion: machineconfiguration.openshift.io/v1\nkind: ContainerRuntimeConfig\nmetadata: {name: e2e}\nspec: {containerRuntimeConfig: {pidsLimit: 1}}\n",
			"invalid PidsLimit 1"},
		{"apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\nmetadata: {name: e2e}\nspec: {machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: e2e}}}\n",
			"the pool does not take the worker's configs"},
	} {
		w.until(t, piped(row.manifest, "oc apply --dry-run=server -f - 2>&1 || true"), time.Minute, has("denied the request", row.want))
	}
}

// TestPlanOfSettingsIsWhatTheWorldDoes plans a KubeletConfig and mirrors on the
// live world and on files of it, finds both plans the same, applies them, and
// finds the pools at the planned names; gone, the pools aim at what they did
// before.
func TestPlanOfSettingsIsWhatTheWorldDoes(t *testing.T) {
	w := sharedWorld(t)
	before := w.until(t, poolTarget, time.Minute, has("rendered-worker-"))
	const settings = `apiVersion: machineconfiguration.openshift.io/v1
kind: KubeletConfig
metadata: {name: e2e-max-pods}
spec:
  machineConfigPoolSelector: {matchLabels: {pools.operator.machineconfiguration.openshift.io/worker: ""}}
  kubeletConfig: {maxPods: 500}
---
apiVersion: config.openshift.io/v1
kind: ImageDigestMirrorSet
metadata: {name: e2e-mirrors}
spec:
  imageDigestMirrors: [{source: registry.example.com/team, mirrors: [mirror.example.com/team]}]
`
	const target = ` -o json | jq -r '.pools[] | select(.pool == "worker") | "\(.new) \(.action) \(.forcedBy)"'`
	const dump = `mkdir -p $HOME/dump && oc get mc,mcp,controllerconfig,kubeletconfigs,containerruntimeconfigs -o yaml >$HOME/dump/a.yaml
for kind in images featuregates nodes apiservers infrastructures imagedigestmirrorsets imagetagmirrorsets; do oc get $kind.config.openshift.io -o yaml >$HOME/dump/$kind.yaml; done
oc get nodes,machineconfigurations.operator.openshift.io -o yaml >$HOME/dump/n.yaml
`
	live := strings.TrimSpace(w.sh(t, piped(settings, "millwright plan -f -"+target)))
	files := strings.TrimSpace(w.sh(t, dump+piped(settings, "millwright plan -f - --from $HOME/dump"+target)))
	if live != files || !strings.Contains(live, "reboot file /etc/kubernetes/kubelet.conf") {
		t.Fatalf("live %q, files %q", live, files)
	}
	verbs := w.sh(t, "grep -h '\"userAgent\":\"millwright-plan' "+filepath.Join(w.dir, "logs", "audit.log")+" | jq -r .verb | sort -u | xargs")
	if got := strings.Fields(verbs); len(got) == 0 || slices.ContainsFunc(got, func(v string) bool { return v != "get" && v != "list" }) {
		t.Errorf("the audit log shows of plan: %q", verbs)
	}
	w.sh(t, piped(settings, "oc apply -f -"))
	gone := "oc delete kubeletconfig/e2e-max-pods imagedigestmirrorsets.config.openshift.io/e2e-mirrors --ignore-not-found"
	defer w.sh(t, gone)
	w.until(t, poolTarget, time.Minute, has(strings.Fields(live)[0]))
	w.sh(t, gone)
	w.until(t, poolTarget, time.Minute, has(before))
}
