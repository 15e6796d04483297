package nspawn

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const demoConfig = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 99-worker-demo
  labels:
    machineconfiguration.openshift.io/role: worker
spec:
  kernelArguments: [nosmt]
  config:
    ignition:
      version: 3.5.0
    storage:
      files:
      - path: /etc/demo.conf
        mode: 420
        contents:
          source: data:,hello
    systemd:
      units:
      - name: demo.service
        enabled: true
        contents: |
          [Service]
          ExecStart=/bin/sleep infinity
          [Install]
          WantedBy=multi-user.target
`

// TestWorldOfRealMachines rolls a change over a worker of `up --machines nspawn`: its
// systemd reboots and comes back with the unit running.
func TestWorldOfRealMachines(t *testing.T) {
	if os.Getenv("MILLWRIGHT_E2E") != "full" {
		t.Skip("boots a Debian machine: part of make e2e")
	}
	if os.Geteuid() != 0 {
		t.Skip("booting a machine needs root")
	}
	bin := os.Getenv("MILLWRIGHT_BIN")
	dir := filepath.Join(t.TempDir(), "world")
	millwright := func(args ...string) string {
		t.Helper()
		return run(t, filepath.Join(bin, "millwright"), append(args, "--dir", dir)...)
	}
	t.Cleanup(func() { millwright("down", "--purge") })
	millwright("up", "--detach", "--machines", "nspawn", "--workers", "1")
	oc := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(filepath.Join(dir, "controlplane", "bin", "oc"), args...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(dir, "kubeconfig"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("oc %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	manifest := filepath.Join(t.TempDir(), "demo.yaml")
	if err := os.WriteFile(manifest, []byte(demoConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	updated := func(what string, done func(config string) bool) string {
		t.Helper()
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(500 * time.Millisecond) {
			got := strings.Fields(oc("get", "mcp", "worker", "--no-headers", "-o",
				"custom-columns=C:.status.configuration.name,N:.status.machineCount,U:.status.updatedMachineCount"))
			if len(got) == 3 && got[1] == "1" && got[2] == "1" && done(got[0]) {
				return got[0]
			}
			if time.Now().After(deadline) {
				t.Fatalf("waiting for %s: the pool says %v", what, got)
			}
		}
	}
	first := updated("the first config", func(config string) bool { return config != "<none>" })
	worker := oc("get", "nodes", "-l", "node-role.kubernetes.io/worker", "-o", "jsonpath={.items[0].metadata.name}")
	bootID := func() string { return oc("get", "node", worker, "-o", "jsonpath={.status.nodeInfo.bootID}") }
	before := bootID()
	if image := oc("get", "node", worker, "-o", "jsonpath={.status.nodeInfo.osImage}"); !strings.Contains(image, "Debian") {
		t.Errorf("the worker runs %s", image)
	}
	oc("apply", "-f", manifest)
	updated("the change", func(config string) bool { return config != first })
	if after := bootID(); after == before {
		t.Errorf("boot ID is still %s", after)
	}
	root := filepath.Join(dir, "machines", worker)
	for p, want := range map[string]string{"etc/demo.conf": "hello", "boot/loader/entries/debian.conf": " nosmt"} {
		raw, err := os.ReadFile(filepath.Join(root, p))
		if err != nil || !strings.Contains(string(raw), want) {
			t.Errorf("/%s is %q, %v; want %q in it", p, raw, err, want)
		}
	}
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		t.Fatal(err)
	}
	m := machine{t: t, root: real}
	if got := m.in("systemctl", "is-active", "demo.service"); got != "active" {
		t.Errorf("demo.service is %s", got)
	}
}
