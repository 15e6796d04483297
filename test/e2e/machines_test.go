package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// makeSet copies the installer's first set under a name, with the changes of
// a jq filter, and no replicas.
func makeSet(t testing.TB, w *world, name, filter string) {
	t.Helper()
	if filter == "" {
		filter = "."
	}
	w.sh(t, `oc get machineset/`+w.status.InfraID+`-worker-francecentral1 -n $MAPI -o json | jq --arg n "$NAME" '
		.metadata = {name: $n, namespace: .metadata.namespace, labels: .metadata.labels}
		| del(.status) | .spec.replicas = 0
		| .spec.selector.matchLabels["machine.openshift.io/cluster-api-machineset"] = $n
		| .spec.template.metadata.labels["machine.openshift.io/cluster-api-machineset"] = $n
		| '"$FILTER" | oc create -f -`, "NAME="+name, "FILTER="+filter)
	t.Cleanup(func() { removeSet(t, w, name) })
}

// members selects the Machines of a set.
func members(name string) string {
	return "-n $MAPI -l machine.openshift.io/cluster-api-machineset=" + name
}

func scale(t testing.TB, w *world, name string, replicas int) {
	t.Helper()
	w.sh(t, fmt.Sprintf("oc scale machineset %s -n $MAPI --replicas=%d", name, replicas))
}

// untilRunning waits until a set has exactly so many Machines, all Running.
func untilRunning(t testing.TB, w *world, name string, replicas int) {
	t.Helper()
	want := strings.TrimSpace(strings.Repeat("Running ", replicas))
	w.untilIs(t, "oc get machines "+members(name)+" -o jsonpath='{.items[*].status.phase}'", want)
}

// removeSet removes a set, its Machines and with them their Nodes and VMs. The
// test's own context is over when it runs as a cleanup.
func removeSet(t testing.TB, w *world, name string) {
	t.Helper()
	script := `oc delete machineset ` + name + ` -n $MAPI --ignore-not-found --wait=false >/dev/null
		oc delete machines ` + members(name) + ` --wait=false >/dev/null
		oc get machines ` + members(name) + ` -o name`
	err := poll(context.Background(), changeLimit, func() error {
		if r := w.shell(context.Background(), script); r.code != 0 || r.stdout != "" {
			return fmt.Errorf("remove set %s: exit code %d, left: %s%s", name, r.code, r.stdout, r.stderr)
		}
		return nil
	})
	if err != nil {
		t.Errorf("%v\n%s", err, w.logs())
	}
}

// cloudResources counts what the simulated account holds, by the last part of
// the type and with names that contain the text.
func cloudResources(t testing.TB, w *world, text string) map[string]int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(w.dir, "sim", "azure.json"))
	if err != nil {
		t.Fatal(err)
	}
	var state struct {
		Resources []struct {
			Doc struct {
				ID string `json:"id"`
			} `json:"doc"`
		} `json:"resources"`
	}
	if err := json.Unmarshal(b, &state); err != nil {
		t.Fatalf("read the simulator's state: %v", err)
	}
	counts := map[string]int{}
	for _, r := range state.Resources {
		parts := strings.Split(r.Doc.ID, "/")
		if len(parts) > 2 && strings.Contains(parts[len(parts)-1], text) {
			counts[parts[len(parts)-2]]++
		}
	}
	return counts
}
