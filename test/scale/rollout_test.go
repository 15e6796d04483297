//go:build scale

package scale

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

var nodes = flag.Int("nodes", 200, "nodes of the rollout")

const (
	rollingConfig = "99-worker-scale"
	share         = 10 // percent that may be out of service
)

// TestRollout makes hollow machines and rolls one file that needs a reboot over
// all of their nodes.
func TestRollout(t *testing.T) {
	w := startWorld(t)
	w.serveMetrics(t)
	w.makeSet(t)
	up := w.up(t, *nodes)
	fmt.Print(figures([]cost{up})) // an hour is long, and half of it is worth something too
	r := w.roll(t, *nodes)
	judgeRollout(t, r)
	fmt.Print(rollFigures(r))
	if *update {
		write(t, "rollout", rollFigures(r))
	}
}

// rolled is what a rollout cost.
type rolled struct {
	cost
	seen     watched
	rendered int // rendered configs created
	requests map[string]*requests
}

// requests are those of one account about one rollout, Events and Leases excepted.
type requests struct {
	writes, refused, reads int
	kinds                  map[string]int
}

// roll applies one MachineConfig and waits until the pool is there.
func (w *world) roll(t *testing.T, n int) rolled {
	t.Helper()
	w.sh(t, fmt.Sprintf(`oc patch mcp/worker --type merge -p '{"spec":{"maxUnavailable":"%d%%"}}'`, share))
	w.untilPool(t, n, limit(n))
	w.untilQuiet(t, 10*time.Second, limit(n))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	watching := w.watchNodes(t, ctx)
	start := w.sample(t)
	w.sh(t, `oc create -f - <<'YAML'
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: `+rollingConfig+`
  labels: {machineconfiguration.openshift.io/role: worker}
spec:
  config:
    ignition: {version: 3.5.0}
    storage: {files: [{path: /etc/scale, mode: 420, contents: {source: "data:,rolled"}}]}
YAML`)
	w.untilIs(t, `oc get mcp/worker -o jsonpath='{.spec.configuration.source[*].name}' | grep -c `+rollingConfig, "1", grace)
	w.untilPool(t, n, limit(2*n))
	w.untilQuiet(t, 10*time.Second, limit(n))
	r := rolled{cost: w.since(t, fmt.Sprintf("%d nodes", n), n, start), requests: map[string]*requests{}}
	stop()
	r.seen = <-watching
	w.audit(t, start.audit, r.count)
	return r
}

// untilPool waits until the workers' pool says that all are updated.
func (w *world) untilPool(t *testing.T, n int, limit time.Duration) {
	t.Helper()
	w.untilIs(t, `oc get mcp/worker -o json | jq -r '[(.spec.configuration.name == .status.configuration.name), .status.machineCount, .status.updatedMachineCount,
		.status.degradedMachineCount, (.status.conditions[] | select(.type == "Updated").status)] | join(" ")'`, fmt.Sprintf("true %d %d 0 True", n, n), limit)
}

// count adds one request.
func (r *rolled) count(q request) {
	switch q.Object.Resource {
	case "", "events", "leases", "tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews":
		return
	}
	if q.Verb == "create" && q.Object.Resource == "machineconfigs" && strings.HasPrefix(q.Object.Name, "rendered-worker-") && q.Response.Code == http.StatusCreated {
		r.rendered++
	}
	who := q.account()
	if strings.HasPrefix(q.UserAgent, "machine-config-daemon") {
		who = "the agents" // those of hollow machines share one account with who looks on
	} else if who == "millwright-admin" {
		return
	}
	a := r.requests[who]
	if a == nil {
		a = &requests{kinds: map[string]int{}}
		r.requests[who] = a
	}
	switch {
	case q.writes():
		a.writes++
	case q.Verb == "get" || q.Verb == "list":
		a.reads++
	default: // a watch ends and begins again now and then
		return
	}
	if q.Response.Code == http.StatusNotFound || q.Response.Code == http.StatusConflict {
		a.refused++
	}
	a.kinds[strings.TrimSuffix(fmt.Sprintf("%s %s/%s", q.Verb, q.Object.Resource, q.Object.Subresource), "/")+fmt.Sprintf(" %d", q.Response.Code)]++
}

// rollFigures prints the tables.
func rollFigures(r rolled) string {
	var out strings.Builder
	fmt.Fprintf(&out, "\n| %s at %d %% | |\n|---|---|\n", r.name, share)
	row := func(head, format string, args ...any) {
		fmt.Fprintf(&out, "| %s | "+format+" |\n", append([]any{head}, args...)...)
	}
	row("seconds from the first cordon to the last uncordon", "%.0f", r.seen.last.Sub(r.seen.first).Seconds())
	row("load average at the end (1 min)", "%s", r.load)
	row("full renders", "%d", r.rendered)
	row("most nodes unavailable at one moment", "%d", r.seen.most)
	row("nodes ever degraded", "%d", len(r.seen.degraded))
	row("reboots", "%d", r.seen.reboots)
	row("seconds out of service beyond the reboot's own, median", "%.2f", r.seen.median().Seconds())
	row("the same, longest", "%.2f", slices.Max(r.seen.away).Seconds())
	row("CPU ms per node, machine-config-controller", "%.1f", r.milliseconds(machineConfig))
	row("private memory of machine-config-controller, MiB", "%.0f", r.memory[machineConfig])
	for _, who := range slices.Sorted(maps.Keys(r.requests)) {
		a := r.requests[who]
		row("per node, "+who, "%.2f writes, %.2f reads, %.3f refused", r.each(float64(a.writes)), r.each(float64(a.reads)), r.each(float64(a.refused)))
	}
	out.WriteString("\nWhat these requests are:\n")
	for _, who := range []string{machineConfig, "the agents"} {
		a := cmp.Or(r.requests[who], &requests{})
		fmt.Fprintf(&out, "\n- %s:", who)
		for i, k := range slices.Sorted(maps.Keys(a.kinds)) {
			fmt.Fprintf(&out, "%s %s ×%d", strings.Repeat(",", min(i, 1)), k, a.kinds[k])
		}
	}
	return out.String() + "\n"
}

// machineConfig is the account and the process of the controllers measured.
const machineConfig = "machine-config-controller"

// judgeRollout checks the counts that hold however busy the machine is.
func judgeRollout(t *testing.T, r rolled) {
	t.Helper()
	if r.rendered != 1 {
		t.Errorf("%d rendered configs were made, want 1", r.rendered)
	}
	if most := r.machines * share / 100; r.seen.most > most {
		t.Errorf("%d nodes were unavailable at one moment, want at most %d", r.seen.most, most)
	}
	if len(r.seen.degraded) > 0 {
		t.Errorf("%d nodes were degraded, the first: %s", len(r.seen.degraded), slices.Sorted(maps.Values(r.seen.degraded))[0])
	}
	if len(r.seen.away) != r.machines || r.seen.reboots != r.machines {
		t.Errorf("%d nodes were cordoned and uncordoned and %d rebooted, want each of %d once", len(r.seen.away), r.seen.reboots, r.machines)
	}
	if a := r.requests[machineConfig]; a == nil || r.each(float64(a.writes)) > 6 {
		t.Errorf("%s made %+v, want at most 6 writes per node", machineConfig, a)
	}
	if r.milliseconds(machineConfig) == 0 {
		t.Errorf("%s used no CPU: is that its process's name?", machineConfig)
	}
}
