package cli

import (
	"strings"
	"testing"
)

func TestPlanFollowsOSImageStreams(t *testing.T) {
	const pool = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata: {name: worker}
spec:
  machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: worker}}
  nodeSelector: {matchLabels: {node-role.kubernetes.io/worker: ""}}
  osImageStream: {name: NAME}
`
	const streams = `---
apiVersion: machineconfiguration.openshift.io/v1
kind: OSImageStream
metadata: {name: cluster}
spec: {defaultStream: nine}
status:
  defaultStream: nine
  availableStreams:
  - {name: nine, osImage: "registry.example.com/nine@sha256:1", osExtensionsImage: "registry.example.com/nine-ext@sha256:1"}
  - {name: ten, osImage: "registry.example.com/ten@sha256:1", osExtensionsImage: "registry.example.com/ten-ext@sha256:1"}
`
	dir := planDir(t)
	for _, tt := range []struct{ name, files, action, fault string }{
		{"ten", streams, "reboot", ""},
		{"elf", streams, "", `there is no OS image stream "elf"; known are nine, ten`},
		{"ten", "", "", "there is no OSImageStream cluster among the objects"},
	} {
		f := write(t, t.TempDir(), "pool.yaml", strings.ReplaceAll(pool, "NAME", tt.name)+tt.files)
		p, _ := planned(t, "-f", f, "--from", dir)
		w := p.Pools[0]
		if w.Action != tt.action || !strings.Contains(w.Error, tt.fault) || (tt.fault == "") != (w.Error == "") {
			t.Errorf("%s: %+v", tt.name, w)
		}
		if tt.fault == "" && w.ForcedBy != "OS image" {
			t.Errorf("forced by %s", w.ForcedBy)
		}
	}
}

func TestPlanHonoursOverrides(t *testing.T) {
	const disk = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 99-disk, labels: {machineconfiguration.openshift.io/role: worker}}
spec: {config: {ignition: {version: 3.4.0}, storage: {disks: [{device: /dev/sdb, wipeTable: true}]}}}
`
	const allow = `---
apiVersion: operator.openshift.io/v1
kind: MachineConfiguration
metadata: {name: cluster}
spec: {managementState: Managed, irreconcilableValidationOverrides: {storage: [WHAT]}}
`
	dir := planDir(t)
	for _, tt := range []struct {
		allow   string
		refused int
	}{{"", 1}, {"Raid", 1}, {"Disks", 0}} {
		text := disk
		if tt.allow != "" {
			text += strings.ReplaceAll(allow, "WHAT", tt.allow)
		}
		p, got := planned(t, "-f", write(t, t.TempDir(), "disk.yaml", text), "--from", dir)
		if w := p.Pools[0]; len(w.Refused) != tt.refused || (got.code == ExitFailure) != (tt.refused > 0) {
			t.Errorf("%q allowed: code %d, %+v", tt.allow, got.code, w.Refused)
		}
	}
}
