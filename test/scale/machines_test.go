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

func TestMachinesUpAndDown(t *testing.T) {
	w := startWorld(t)
	w.serveMetrics(t)
	w.makeSet(t)
	var costs []cost
	for _, n := range []int{*fewer, *most} {
		for _, way := range []func(*testing.T, int) cost{w.up, w.down} {
			costs = append(costs, way(t, n))
			judge(t, costs[len(costs)-1])
			if *update { // each time: an hour is long, and the first rounds are worth something too
				write(t, "machines", figures(costs))
			}
		}
	}
	fmt.Print(figures(costs))
}

// makeSet makes the set of the Machines that are measured, still without any.
func (w *world) makeSet(t *testing.T) {
	t.Helper()
	w.sh(t, `oc get machineset/`+w.infra+`-worker-francecentral1 -n $MAPI -o json | jq --arg n `+set+` '
		.metadata = {name: $n, namespace: .metadata.namespace, labels: .metadata.labels} | del(.status) | .spec.replicas = 0
		| .spec.selector.matchLabels["machine.openshift.io/cluster-api-machineset"] = $n
		| .spec.template.metadata.labels["machine.openshift.io/cluster-api-machineset"] = $n' | oc create -f -`)
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

func limit(n int) time.Duration { return grace + time.Duration(n)*patience }

func (w *world) scale(t *testing.T, n int) sample {
	t.Helper()
	start := w.sample(t)
	w.sh(t, fmt.Sprintf("oc scale machineset %s -n $MAPI --replicas=%d", set, n))
	return start
}

// up makes n Machines and waits until they run and nobody writes any more.
func (w *world) up(t *testing.T, n int) cost {
	t.Helper()
	start := w.scale(t, n)
	w.untilIs(t, "oc get machineset "+set+" -n $MAPI -o jsonpath='{.status.availableReplicas}'", fmt.Sprint(n), limit(n))
	w.untilIs(t, "oc get machines -n $MAPI -l machine.openshift.io/cluster-api-machineset="+set+" --no-headers | grep -c ' Running '", fmt.Sprint(n), limit(n))
	t.Logf("%d Machines are Running after %s", n, time.Since(start.at).Round(time.Second))
	w.untilQuiet(t, 10*time.Second, limit(n))
	return w.since(t, fmt.Sprintf("%d up", n), n, start)
}

// down removes them.
func (w *world) down(t *testing.T, n int) cost {
	t.Helper()
	start := w.scale(t, 0)
	w.untilIs(t, "oc get machines -n $MAPI -l machine.openshift.io/cluster-api-machineset="+set+" -o name --chunk-size=0 | wc -l", "0", limit(n))
	t.Logf("%d Machines are gone after %s", n, time.Since(start.at).Round(time.Second))
	w.untilQuiet(t, 10*time.Second, limit(n))
	if got := w.sh(t, "oc get nodes -o name | grep -c ^node/"+set+"- || true"); got != "0" {
		t.Errorf("%s Nodes are left", got)
	}
	return w.since(t, fmt.Sprintf("%d down", n), n, start)
}

// figures prints the tables.
func figures(costs []cost) string {
	var heads []string
	for _, c := range costs {
		heads = append(heads, c.name)
	}
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
	line("load average at the end (1 min)", func(c cost) string { return c.load })
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
	for _, q := range names(costs, waited) {
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

// waited lists the queues that had anything.
func waited(c cost) []string {
	var out []string
	for name, q := range c.queues {
		if q.total() > 0 {
			out = append(out, name)
		}
	}
	return out
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
func judge(t *testing.T, c cost) {
	t.Helper()
	if a := c.accounts["machine-api-controllers"]; a == nil || c.each(float64(a.writes)) > 8 || c.each(float64(a.refused)) > 0.01 {
		t.Errorf("%s: machine-api-controllers wrote %+v, want at most 8 per Machine, of these 0.01 refused", c.name, a)
	}
	if a := c.accounts["cloud-controller-manager"]; a != nil && c.each(float64(a.writes)) > 3 {
		t.Errorf("%s: cloud-controller-manager wrote %+v, want at most 3 per Machine", c.name, a)
	}
	if ms := c.milliseconds(machineAPI...); ms > 25 {
		t.Logf("%s: %.1f ms of CPU per Machine, promised are 25", c.name, ms)
	}
	for name, q := range c.queues {
		if q.total() > 0 && q.longest() > 1 {
			t.Logf("%s: something waited up to %g s in the queue of %s, promised is 1", c.name, q.longest(), name)
		}
	}
}

// write puts tables into the page of figures, between the marks of their section.
func write(t *testing.T, section, table string) {
	t.Helper()
	begins, ends := "<!-- "+section+": written by make scale -->\n", "<!-- end of "+section+" -->\n"
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
