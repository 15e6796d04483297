package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millwright.io/millwright/internal/cli"
)

const oneSet = `apiVersion: machine.openshift.io/v1beta1
kind: MachineSet
metadata: {name: w1, namespace: openshift-machine-api, uid: set-1}
spec:
  replicas: %d
  selector: {matchLabels: {set: %s}}
  template:
    metadata: {labels: {set: w1}}
    spec:
      providerSpec:
        value: {apiVersion: machine.openshift.io/v1beta1, kind: AzureMachineProviderSpec, vmSize: %s, location: francecentral%s}
`

const oneMachine = `---
apiVersion: machine.openshift.io/v1beta1
kind: Machine
metadata:
  name: w1-%d
  namespace: openshift-machine-api
  uid: m-%[1]d
  labels: {set: w1}
  ownerReferences: [{apiVersion: machine.openshift.io/v1beta1, kind: MachineSet, name: w1, uid: set-1, controller: true}]
spec:
  providerSpec:
    value: {apiVersion: machine.openshift.io/v1beta1, kind: AzureMachineProviderSpec, vmSize: Standard_D4s_v5, location: francecentral}
`

// previewed runs plan for a set of two machines.
func previewed(t *testing.T, desired string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	now := filepath.Join(dir, "now")
	if err := os.Mkdir(now, 0o755); err != nil {
		t.Fatal(err)
	}
	current := fmt.Sprintf(oneSet, 2, "w1", "Standard_D4s_v5", "") + fmt.Sprintf(oneMachine, 1) + fmt.Sprintf(oneMachine, 2)
	for name, text := range map[string]string{filepath.Join(now, "cluster.yaml"): current, filepath.Join(dir, "new.yaml"): desired} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out, errs bytes.Buffer
	cmd := cli.Command(cli.Deps{PlanSets: planSets})
	cmd.SetArgs(append([]string{"plan", "-f", filepath.Join(dir, "new.yaml"), "--from", now, "--exit-code"}, args...))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	code = cli.ExitCode(cmd.ExecuteContext(t.Context()), &errs)
	return code, out.String(), errs.String()
}

func TestPlanTellsWhatMachineSetsDo(t *testing.T) {
	for _, tt := range []struct {
		name, why, desired string
		code               int
		want, not          []string
	}{
		{"same", "equal content changes nothing", fmt.Sprintf(oneSet, 2, "w1", "Standard_D4s_v5", ""), 0,
			[]string{"Nothing would change."}, []string{"machine set"}},
		{"spelled out", "a default that is written down changes nothing", fmt.Sprintf(oneSet, 2, "w1", "Standard_D4s_v5", ", credentialsSecret: {name: azure-cloud-credentials, namespace: openshift-machine-api}"), 0,
			[]string{"Nothing would change."}, nil},
		{"grow", "the controller itself counts", fmt.Sprintf(oneSet, 5, "w1", "Standard_D4s_v5", ""), 3,
			[]string{"3 machines made", "spec.replicas: 2 → 5"}, []string{"deleted"}},
		{"shrink", "the machine to go is named", fmt.Sprintf(oneSet, 1, "w1", "Standard_D4s_v5", ""), 3,
			[]string{"1 machine deleted", "    w1-"}, []string{"machines made"}},
		{"template", "existing machines keep their size", fmt.Sprintf(oneSet, 2, "w1", "Standard_D8s_v5", ""), 3,
			[]string{"no machine is replaced", "providerSpec.vmSize: Standard_D4s_v5 → Standard_D8s_v5", "machines that keep the old template", "    w1-1\n    w1-2\n"}, []string{"in place"}},
		{"selector", "the API does not allow it", fmt.Sprintf(oneSet, 2, "other", "Standard_D4s_v5", ""), 1,
			[]string{"problem", "a selector cannot be changed"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, out, errs := previewed(t, tt.desired)
			if code != tt.code {
				t.Errorf("%s: exit code %d, want %d: %s", tt.why, code, tt.code, errs)
			}
			for _, w := range tt.want {
				if !strings.Contains(out, w) {
					t.Errorf("%s: output lacks %q:\n%s", tt.why, w, out)
				}
			}
			for _, n := range tt.not {
				if strings.Contains(out, n) {
					t.Errorf("%s: output has %q:\n%s", tt.why, n, out)
				}
			}
		})
	}
}
