package cli

import (
	"strings"
	"testing"
)

func TestDiffComparesByMeaning(t *testing.T) {
	dir := t.TempDir()
	const head = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: %}\nspec:\n"
	a := write(t, dir, "a.yaml", strings.Replace(head, "%", "rendered-worker-a", 1)+`  kernelArguments: [console=ttyS0, quiet]
  config:
    ignition: {version: 3.5.0}
    storage:
      files:
      - {path: /etc/app.conf, mode: 420, contents: {source: "data:,level%3D1%0Aport%3D80%0A"}}
      - {path: /etc/same, contents: {source: "data:,same"}}
    systemd:
      units: [{name: app.service, enabled: true, contents: "[Unit]\n"}]
`)
	b := write(t, dir, "b.yaml", strings.Replace(head, "%", "rendered-worker-b", 1)+`  kernelArguments: [console=ttyS1, quiet, nosmt]
  config:
    ignition: {version: 3.2.0}
    storage:
      files:
      - {path: /etc/app.conf, mode: 384, contents: {source: "data:;base64,bGV2ZWw9Mgpwb3J0PTgwCg=="}}
      - {path: /etc/same, mode: 420, contents: {source: "data:;base64,c2FtZQ=="}}
      directories: [{path: /var/x}]
    systemd:
      units: [{name: app.service, enabled: false, contents: "[Unit]\n"}]
`)
	got := call(t, "", "diff", a, b)
	if got.code != 0 {
		t.Errorf("exit code %d: %s", got.code, got.stderr)
	}
	golden(t, "diff.txt", got.stdout)
	golden(t, "diff.json", call(t, "", "diff", a, b, "-o", "json").stdout)
	if got := call(t, "", "diff", a, a); got.code != 0 || !strings.Contains(got.stdout, "No difference in meaning.") {
		t.Errorf("a config and itself: %+v", got)
	}
}

func TestDiffRefusesBadInput(t *testing.T) {
	a := write(t, t.TempDir(), "a.yaml", "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: x}\nspec: {config: {ignition: {version: 9.9.9}}}\n")
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"diff", a}, 2, "arg"},
		{[]string{"diff", "-", "-"}, 2, "only once"},
		{[]string{"diff", a, "testdata/plan/nodes.yaml"}, 2, "holds no MachineConfig"},
		{[]string{"diff", a, "testdata/lint/99-worker-add-mc-test.yaml"}, 1, "compare " + a},
	} {
		if got := call(t, "", tt.args...); got.code != tt.code || !strings.Contains(got.stderr, tt.want) || got.stdout != "" {
			t.Errorf("%v: %+v", tt.args, got)
		}
	}
}
