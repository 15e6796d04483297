//go:build scale

package scale

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	update = flag.Bool("update", false, "write the figures into docs/reference/figures.md")
	fewer  = flag.Int("fewer", 200, "Machines of the first round")
	most   = flag.Int("most", 1000, "Machines of the second round")
)

const (
	set = "scale"
	// patience bounds one way of one Machine while all go it.
	patience = time.Second
	grace    = 5 * time.Minute
)

// machineAPI are the processes that the originals are compared with.
var machineAPI = []string{"machineset-controller", "machine-controller", "nodelink-controller"}

// round is one fleet, up and down.
type round struct{ up, down cost }

func TestMachinesUpAndDown(t *testing.T) {
	w := startWorld(t)
	w.serveMetrics(t)
	w.sh(t, `oc get machineset/`+w.infra+`-worker-francecentral1 -n $MAPI -o json | jq --arg n `+set+` '
		.metadata = {name: $n, namespace: .metadata.namespace, labels: .metadata.labels} | del(.status) | .spec.replicas = 0
		| .spec.selector.matchLabels["machine.openshift.io/cluster-api-machineset"] = $n
		| .spec.template.metadata.labels["machine.openshift.io/cluster-api-machineset"] = $n' | oc create -f -`)
	var rounds []round
	for _, n := range []int{*fewer, *most} {
		rounds = append(rounds, w.round(t, n))
		fmt.Print(figures(rounds[len(rounds)-1:]))
	}
	table := figures(rounds)
	fmt.Print(table)
	if *update {
		write(t, table)
	}
	judge(t, rounds)
}

// serveMetrics lets the processes that serve none by default tell about their
// queues.
func (w *world) serveMetrics(t *testing.T) {
	t.Helper()
	for _, row := range []struct{ namespace, deployment, container, port string }{
		{namespace, "machine-api-controllers", "nodelink-controller", "8084"},
		{"openshift-cluster-machine-approver", "machine-approver", "machine-approver-controller", "9191"},
	} {
		w.sh(t, fmt.Sprintf(`oc get deployment -n %[1]s %[2]s -o json | jq '(.spec.template.spec.containers[] | select(.name == "%[3]s").args) +=
			["--metrics-bind-address=$(MILLWRIGHT_BIND_IP):%[4]s"]' | oc replace -f - && oc rollout status -n %[1]s deployment/%[2]s --timeout=90s`,
			row.namespace, row.deployment, row.container, row.port))
	}
	until(t, grace, func() error {
		serving := 0
		for _, p := range w.processes(t) {
			if p.metrics != "" && (slices.Contains(machineAPI, p.controllers) || strings.Contains(p.controllers, "approver")) {
				serving++
			}
		}
		if serving != len(machineAPI)+1 {
			return fmt.Errorf("%d processes serve their queues, want %d", serving, len(machineAPI)+1)
		}
		return nil
	})
	w.untilQuiet(t, 10*time.Second, grace)
}

func (w *world) round(t *testing.T, n int) round {
	t.Helper()
	limit := grace + time.Duration(n)*patience
	scale := func(n int) { w.sh(t, fmt.Sprintf("oc scale machineset %s -n $MAPI --replicas=%d", set, n)) }

	start := w.sample(t)
	scale(n)
	w.untilIs(t, "oc get machineset "+set+" -n $MAPI -o jsonpath='{.status.availableReplicas}'", fmt.Sprint(n), limit)
	w.untilIs(t, "oc get machines -n $MAPI -l machine.openshift.io/cluster-api-machineset="+set+" --no-headers | grep -c ' Running '", fmt.Sprint(n), limit)
	t.Logf("%d Machines are Running after %s", n, time.Since(start.at).Round(time.Second))
	w.untilQuiet(t, 10*time.Second, limit)
	up := w.since(t, n, start)

	start = w.sample(t)
	scale(0)
	w.untilIs(t, "oc get machines -n $MAPI -l machine.openshift.io/cluster-api-machineset="+set+" -o name --chunk-size=0 | wc -l", "0", limit)
	t.Logf("%d Machines are gone after %s", n, time.Since(start.at).Round(time.Second))
	w.untilQuiet(t, 10*time.Second, limit)
	down := w.since(t, n, start)
	if got := w.sh(t, "oc get nodes -o name | grep -c ^node/"+set+"- || true"); got != "0" {
		t.Errorf("%s Nodes are left", got)
	}
	return round{up: up, down: down}
}

// columns are the costs in the order of the figures.
func columns(rounds []round) (heads []string, costs []cost) {
	for _, r := range rounds {
		heads = append(heads, fmt.Sprintf("%d up", r.up.machines), fmt.Sprintf("%d down", r.down.machines))
		costs = append(costs, r.up, r.down)
	}
	return heads, costs
}

// figures prints the tables.
func figures(rounds []round) string {
	heads, costs := columns(rounds)
	var out strings.Builder
	line := func(head string, of func(cost) string) {
		out.WriteString("| " + head)
		for _, c := range costs {
			out.WriteString(" | " + of(c))
		}
		out.WriteString(" |\n")
	}
	table := func(head string) {
		fmt.Fprintf(&out, "\n| %s | %s |\n|---|%s\n", head, strings.Join(heads, " | "), strings.Repeat("---|", len(heads)))
	}
	table("per Machine")
	line("seconds in all", func(c cost) string { return fmt.Sprintf("%.0f", c.took.Seconds()) })
	for _, a := range names(costs, func(c cost) []string { return slices.Collect(maps.Keys(c.accounts)) }) {
		line("writes by "+a, func(c cost) string {
			if c.accounts[a] == nil {
				return "0"
			}
			return fmt.Sprintf("%.2f", c.each(float64(c.accounts[a].writes)))
		})
	}
	for _, a := range names(costs, func(c cost) []string { return refusing(c) }) {
		line("refused (404, 409) of "+a, func(c cost) string {
			if c.accounts[a] == nil {
				return "0"
			}
			return fmt.Sprintf("%.3f", c.each(float64(c.accounts[a].refused)))
		})
	}
	line("CPU ms, Machine API", func(c cost) string { return fmt.Sprintf("%.1f", c.milliseconds(machineAPI...)) })
	processes := names(costs, func(c cost) []string { return slices.Collect(maps.Keys(c.cpu)) })
	for _, p := range processes {
		line("CPU ms, "+p, func(c cost) string { return fmt.Sprintf("%.1f", c.milliseconds(p)) })
	}
	table("longest wait in a queue, at most")
	for _, q := range names(costs, func(c cost) []string { return slices.Collect(maps.Keys(c.queues)) }) {
		line(q, func(c cost) string {
			if c.queues[q].total() == 0 {
				return "–"
			}
			return fmt.Sprintf("%g s (%.2f %% within 1 s)", c.queues[q].longest(), 100*c.queues[q][1]/c.queues[q].total())
		})
	}
	table("private memory, MiB")
	for _, p := range processes {
		line(p, func(c cost) string { return fmt.Sprintf("%.0f", c.memory[p]) })
	}
	out.WriteString("\nWhat the writes of the Machine API's controllers are:\n")
	for i, c := range costs {
		if a := c.accounts["machine-api-controllers"]; a != nil {
			fmt.Fprintf(&out, "\n- %s:", heads[i])
			for j, k := range slices.Sorted(maps.Keys(a.kinds)) {
				fmt.Fprintf(&out, "%s %s ×%d", strings.Repeat(",", min(j, 1)), k, a.kinds[k])
			}
		}
	}
	return out.String() + "\n"
}

func refusing(c cost) []string {
	var out []string
	for name, a := range c.accounts {
		if a.refused > 0 || name == "machine-api-controllers" {
			out = append(out, name)
		}
	}
	return out
}

func names(costs []cost, of func(cost) []string) []string {
	all := map[string]bool{}
	for _, c := range costs {
		for _, n := range of(c) {
			all[n] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// judge compares with what is promised. Figures that depend on how busy the
// machine is are reported only.
func judge(t *testing.T, rounds []round) {
	t.Helper()
	for _, r := range rounds {
		for account, limit := range map[string]float64{"machine-api-controllers": 8, "cloud-controller-manager": 3} {
			if a := r.up.accounts[account]; a == nil || r.up.each(float64(a.writes)) > limit {
				t.Errorf("%d up: %+v writes by %s, want at most %.0f per Machine", r.up.machines, a, account, limit)
			}
		}
		for _, c := range []cost{r.up, r.down} {
			if a := c.accounts["machine-api-controllers"]; a != nil && c.each(float64(a.refused)) > 0.01 {
				t.Errorf("%d refused writes for %d Machines, want at most 0.01 each: %v", a.refused, c.machines, a.kinds)
			}
		}
		if ms := r.up.milliseconds(machineAPI...); ms > 25 {
			t.Logf("%d up: %.1f ms of CPU per Machine, promised are 25", r.up.machines, ms)
		}
		for name, q := range r.up.queues {
			if q.longest() > 1 {
				t.Logf("%d up: something waited up to %g s in the queue of %s, promised is 1", r.up.machines, q.longest(), name)
			}
		}
	}
}

const (
	begins = "<!-- machines: written by make scale -->\n"
	ends   = "<!-- end of machines -->\n"
)

// write puts the tables into the page of figures.
func write(t *testing.T, table string) {
	t.Helper()
	page := filepath.Join("..", "..", "docs", "reference", "figures.md")
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := strings.Cut(string(b), begins)
	_, tail, ok2 := strings.Cut(rest, ends)
	if !ok1 || !ok2 {
		t.Fatalf("%s lacks the marks of these figures", page)
	}
	if err := os.WriteFile(page, []byte(head+begins+table+"\n"+ends+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}
