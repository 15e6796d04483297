package cli

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestLintExplainsTheFileThatVanishes(t *testing.T) {
	got := call(t, "", "lint", "-f", "testdata/lint/99-worker-always-degraded.yaml")
	if got.code != ExitFailure {
		t.Errorf("exit code %d", got.code)
	}
	golden(t, "lint-always-degraded.txt", got.stdout+"--- stderr\n"+got.stderr)
	if !strings.Contains(got.stdout, "/tmp/tmpfile") || !strings.Contains(got.stdout, "vanishes at the reboot that its own application needs, so the node would be Degraded for ever") {
		t.Errorf("the explanation is missing:\n%s", got.stdout)
	}
}

func TestLintPassesTheFileThatStays(t *testing.T) {
	got := call(t, "", "lint", "-f", "testdata/lint/99-worker-add-mc-test.yaml", "-o", "json")
	var r LintReport
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil || got.code != 0 || r.Errors != 0 || r.Checked != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestLintModes(t *testing.T) {
	const bad = "testdata/lint/99-worker-always-degraded.yaml"
	for _, tt := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"warn", []string{"-f", bad, "--rule", "volatile-path=warn"}, 0, "0 errors, 1 warning"},
		{"off", []string{"-f", bad, "--rule", "volatile-path=off"}, 0, "0 errors, 0 warnings"},
		{"directory", []string{"-f", "testdata/lint"}, 1, "2 objects checked: 1 error"},
		{"no such rule", []string{"-f", bad, "--rule", "nonsense=off"}, 2, "no such rule"},
		{"no such mode", []string{"-f", bad, "--rule", "volatile-path=loud"}, 2, "want RULE=enforce"},
		{"no files", nil, 2, "-f FILE"},
		{"empty directory", []string{"-f", t.TempDir()}, 1, "no .yaml, .yml or .json file"},
		{"rules", []string{"--rules"}, 0, "volatile-path"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := call(t, "", append([]string{"lint"}, tt.args...)...)
			if got.code != tt.code || !strings.Contains(got.stdout+got.stderr, tt.want) {
				t.Errorf("got %+v, want code %d and %q", got, tt.code, tt.want)
			}
		})
	}
}

func TestLintNamesFileDocumentAndField(t *testing.T) {
	const two = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 10-a, labels: {machineconfiguration.openshift.io/role: worker}}
spec: {kernelArguements: [nosmt]}
---
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 20-b
  labels: {machineconfiguration.openshift.io/role: worker}
  annotations: {millwright.io/accept-risk: volatile-path}
spec:
  config: {ignition: {version: 3.5.0}, storage: {files: [{path: /run/x, mode: 420, contents: {source: "data:,x"}}]}}
`
	got := call(t, two, "lint", "-f", "-", "-o", "json")
	var r LintReport
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil {
		t.Fatal(err, got)
	}
	if len(r.Findings) != 2 {
		t.Fatalf("findings: %+v", r.Findings)
	}
	a, b := r.Findings[0], r.Findings[1]
	if a.Object != "MachineConfig/10-a" || a.Rule != "unknown-field" || !strings.Contains(a.Fix+a.Why, "kernelArguments") || a.Source.File != "standard input: document 1" {
		t.Errorf("the misspelt field: %+v", a)
	}
	if b.Object != "MachineConfig/20-b" || b.Severity != "warning" || b.Rule != "volatile-path" || b.Source.File != "standard input: document 2" {
		t.Errorf("the accepted risk: %+v", b)
	}
}
