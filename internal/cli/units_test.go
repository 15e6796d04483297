package cli

import (
	"fmt"
	"strings"
	"testing"

	"millwright.io/millwright/internal/engine/lint"
)

// TestUnitsThatHostsDenyAreRefused: with what every host has told, plan and
// lint say no; while one has not, they warn.
func TestUnitsThatHostsDenyAreRefused(t *testing.T) {
	names := lint.NewUnitNames([]string{"chronyd.service"})
	published := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\n  namespace: openshift-machine-config-operator\n  labels: {millwright.io/unit-names: %q}\ndata: {units: %q}\n",
		lint.UnitNamesObject(names.Digest()), names.Digest(), names.Text())
	const enable = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 99-worker-unit, labels: {machineconfiguration.openshift.io/role: worker}}
spec: {config: {ignition: {version: 3.2.0}, systemd: {units: [{name: nobody.service, enabled: true}]}}}
`
	file := write(t, t.TempDir(), "unit.yaml", enable)
	cluster := func(nodes ...string) string {
		dir := planDir(t)
		write(t, dir, "units.yaml", published)
		text := `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata: {name: worker}
spec:
  machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: worker}}
  nodeSelector: {matchLabels: {node-role.kubernetes.io/worker: ""}}
`
		for i, digest := range nodes {
			text += fmt.Sprintf("---\napiVersion: v1\nkind: Node\nmetadata:\n  name: n-%d\n  labels: {node-role.kubernetes.io/worker: ''}\n  annotations: {millwright.io/unit-names: %q}\n", i, digest)
		}
		write(t, dir, "namespaces/all.yaml", text)
		return dir
	}
	for _, tt := range []struct {
		why  string
		dir  string
		code int
	}{
		{"all deny", cluster(names.Digest(), names.Digest()), ExitFailure},
		{"one has not told", cluster(names.Digest(), ""), ExitOK},
	} {
		p, got := planned(t, "-f", file, "--from", tt.dir)
		if got.code != tt.code || len(p.Findings) != 1 || p.Findings[0].Rule != lint.RuleUnitUnknown {
			t.Errorf("plan, %s: code %d, %+v", tt.why, got.code, p.Findings)
		}
		if got := call(t, "", "lint", "-f", file, "-f", tt.dir+"/namespaces/all.yaml", "-f", tt.dir+"/units.yaml"); got.code != tt.code {
			t.Errorf("lint, %s: %+v", tt.why, got)
		} else if tt.code != 0 && !strings.Contains(got.stdout, "no node of pool worker has this unit") {
			t.Errorf("lint, %s: %s", tt.why, got.stdout)
		}
	}
}
