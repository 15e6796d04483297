package cli

import (
	"strings"
	"testing"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright.io/millwright/internal/engine/node"
)

// toPeople has broken nodes left to people, as the original does.
func (m *machines) toPeople() {
	m.t.Helper()
	m.editPool(func(p *machineconfigv1.MachineConfigPool) { p.Annotations["millwright.io/self-heal"] = "Disabled" })
	m.rest()
}

func (m *machines) wantState(name, state string) {
	m.t.Helper()
	if a := m.node(name).Annotations; a[node.State] != state {
		m.t.Fatalf("%s is %s (%s), want %s\n%s", name, a[node.State], a[node.Reason], state, strings.Join(m.agents[name].log, "\n"))
	}
}

// wantDone checks that a node is back, in service, and that nothing was left on it.
func (m *machines) wantDone(name, config string) {
	m.t.Helper()
	m.wantState(name, node.Done)
	n := m.node(name)
	if n.Spec.Unschedulable || n.Annotations[node.CurrentConfig] != config || n.Annotations[node.DesiredConfig] != config {
		m.t.Errorf("%s: cordoned %v, %v; want %s", name, n.Spec.Unschedulable, n.Annotations, config)
	}
	for _, key := range []string{"millwright.io/verify", "millwright.io/verified", node.RecoverRequest, node.Recovering, node.AdoptRequest} {
		if v, there := n.Annotations[key]; there {
			m.t.Errorf("%s: %s=%s is left", name, key, v)
		}
	}
}

func wantText(t *testing.T, got string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(got, p) {
			t.Errorf("no %q in\n%s", p, got)
		}
	}
}

// TestRecoverAfterTheConfigThatBrokeTheNodeIsGone is the original's trap: the file
// vanished at the node's reboot, the config is deleted, the node stays cordoned and
// is never asked again.
func TestRecoverAfterTheConfigThatBrokeTheNodeIsGone(t *testing.T) {
	m := newMachines(t, 3)
	m.toPeople()
	good := m.target("worker")
	bad := fragment("99-tmp", "/tmp/tmpfile=x")
	m.create(bad)
	m.rest()
	broken := ""
	for name := range m.agents {
		if m.node(name).Annotations[node.State] == node.Degraded {
			broken = name
		}
	}
	if broken == "" {
		t.Fatal("no node broke")
	}
	if err := m.api.Delete(t.Context(), bad); err != nil {
		t.Fatal(err)
	}
	m.rest()
	m.wantState(broken, node.Degraded)
	if !m.node(broken).Spec.Unschedulable {
		t.Fatal("it is not cordoned")
	}

	code, out, errs := m.call("n\n", "recover", broken)
	if code != 1 || m.agents[broken].boots != 1 {
		t.Errorf("a no gave code %d, %d boots\n%s%s", code, m.agents[broken].boots, out, errs)
	}
	wantText(t, out, "node "+broken+" of pool worker: Degraded", `could not stat file "/tmp/tmpfile"`, "1. set desiredConfig back from rendered-worker-", "2. let its agent take "+good)
	m.wantState(broken, node.Degraded)

	code, out, errs = m.call("y\n", "recover", broken)
	if code != 0 {
		t.Fatalf("code %d\n%s%s", code, out, errs)
	}
	wantText(t, errs, "node "+broken+": done, "+good)
	for name := range m.agents {
		m.wantDone(name, good)
	}
	if got := m.agents[broken].boots; got != 2 {
		t.Errorf("%d boots, want the failed change's and the way back", got)
	}
}

func TestRecoverPutsBackWhatDrifted(t *testing.T) {
	m := newMachines(t, 1)
	m.create(fragment("99-mine", "/etc/mine=x"))
	m.rest()
	x := m.agents["worker-0"]
	x.boots = 0
	x.put("/etc/mine", "edited")
	x.start()
	m.rest()
	m.wantState("worker-0", node.Degraded)
	code, out, errs := m.call("", "recover", "worker-0", "--yes")
	if code != 0 || x.boots != 0 || x.body("/etc/mine") != "x" {
		t.Errorf("code %d, %d boots, /etc/mine is %s\n%s%s", code, x.boots, x.body("/etc/mine"), out, errs)
	}
	wantText(t, out, `its disk: content mismatch for file "/etc/mine"`, "1. let its agent write what differs, without a reboot")
	m.wantDone("worker-0", m.target("worker"))
	code, out, _ = m.call("", "recover", "worker-0")
	if code != 0 {
		t.Errorf("code %d of a healthy node", code)
	}
	wantText(t, out, "There is nothing to recover.")
}

func TestRecoverSaysWhenAnotherTryFails(t *testing.T) {
	m := newMachines(t, 1)
	x := m.agents["worker-0"]
	x.host.FailService("crio.service", true)
	m.create(fragment("99-policy", "/etc/containers/policy.json=x"))
	m.rest()
	m.wantState("worker-0", node.Degraded)
	code, out, errs := m.call("", "recover", "worker-0", "--yes")
	if code != 1 {
		t.Errorf("code %d\n%s%s", code, out, errs)
	}
	wantText(t, out, "you: mend the service it names on the node")
	wantText(t, errs, "node worker-0: still Degraded: could not apply update: reloading crio.service", "; you: mend the service")
	x.host.FailService("crio.service", false)
	if code, _, errs := m.call("", "recover", "worker-0", "--yes"); code != 0 || x.boots != 0 {
		t.Errorf("code %d after the service was mended, %d boots\n%s", code, x.boots, errs)
	}
	m.wantDone("worker-0", m.target("worker"))
}

// TestRecoverTakesAStaleCordonOfOursAway has a cordon of the controller that no
// request will take away any more, and one of a person.
func TestRecoverTakesAStaleCordonOfOursAway(t *testing.T) {
	m := newMachines(t, 2)
	m.off = true
	m.edit("worker-0", func(n *corev1.Node) {
		n.Spec.Unschedulable = true
		n.Annotations["millwright.io/cordoned-by"] = "machine-config-controller"
	})
	code, out, _ := m.call("", "recover", "worker-0", "--yes")
	if code != 0 || m.node("worker-0").Spec.Unschedulable {
		t.Errorf("code %d, cordoned %v\n%s", code, m.node("worker-0").Spec.Unschedulable, out)
	}
	wantText(t, out, "1. uncordon it")
	m.edit("worker-1", func(n *corev1.Node) { n.Spec.Unschedulable = true })
	code, out, _ = m.call("", "recover", "worker-1", "--yes")
	if code != 0 || !m.node("worker-1").Spec.Unschedulable {
		t.Errorf("code %d, cordoned %v\n%s", code, m.node("worker-1").Spec.Unschedulable, out)
	}
	wantText(t, out, "1. keep it cordoned: that is somebody else's", "There is nothing to recover.")
}

// TestRecoverSaysWhatOnlyAPersonCanDo covers the failures that no try can end.
func TestRecoverSaysWhatOnlyAPersonCanDo(t *testing.T) {
	for _, tt := range []struct {
		name string
		with func(m *machines)
		want string
	}{
		{"two custom pools", func(m *machines) {
			for _, role := range []string{"infra", "gpu"} {
				p := &machineconfigv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: role}}
				p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" + role: ""}}
				m.create(p)
				m.edit("worker-0", func(n *corev1.Node) { n.Labels["node-role.kubernetes.io/"+role] = "" })
			}
		}, "belongs to 2 custom roles, cannot proceed with this Node: remove all but one of the custom pools' labels"},
		{"no pool", func(m *machines) { m.edit("worker-0", func(n *corev1.Node) { n.Labels = nil }) }, "no pool selects it"},
		{"rebooting", func(m *machines) {
			m.edit("worker-0", func(n *corev1.Node) { n.Annotations[node.PostConfigAction] = node.Rebooting })
		}, "it is rebooting: wait"},
		{"drain blocked", func(m *machines) {
			m.edit("worker-0", func(n *corev1.Node) {
				n.Annotations[node.State], n.Annotations[node.DesiredDrain] = node.Working, "drain-x"
				n.Annotations["millwright.io/drain-blocked"] = "pod shop/web"
			})
		}, "waits for pod shop/web: free that"},
		{"no agent", func(m *machines) {
			m.edit("worker-0", func(n *corev1.Node) { n.Annotations = nil })
		}, "its agent has not said anything yet: look at its pod machine-config-daemon"},
		{"cannot be reconciled", func(m *machines) {
			m.edit("worker-0", func(n *corev1.Node) {
				n.Annotations[node.State], n.Annotations[node.Reason] = node.Unreconcilable, "can't reconcile config a with b: detected change to FIPS flag; refusing to modify FIPS on a running cluster"
			})
		}, "nothing is done: another try cannot help"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachines(t, 1)
			m.off = true
			m.agents["worker-0"].hung.Store(true)
			tt.with(m)
			m.stand(t, tt.want)
		})
	}
}

// stand runs recover on a node that it must leave alone.
func (m *machines) stand(t *testing.T, want string) {
	t.Helper()
	before := m.node("worker-0").Annotations[node.DesiredConfig]
	code, out, errs := m.call("", "recover", "worker-0", "--yes")
	if code != 1 || m.node("worker-0").Annotations[node.DesiredConfig] != before {
		t.Errorf("code %d\n%s%s", code, out, errs)
	}
	wantText(t, out, want)
}

func TestRecoverOfAnAgentThatIsSilent(t *testing.T) {
	m := newMachines(t, 1)
	m.agents["worker-0"].hung.Store(true)
	code, out, errs := m.call("", "recover", "worker-0", "--yes", "--answer-timeout", "300ms")
	if code != 1 {
		t.Errorf("code %d\n%s", code, out)
	}
	wantText(t, errs, "node worker-0: its agent does not answer after 300ms: look at its pod machine-config-daemon")
	if _, there := m.node("worker-0").Annotations["millwright.io/verify"]; there {
		t.Error("the question is left")
	}
}

func TestRecoverNeedsANode(t *testing.T) {
	m := newMachines(t, 0)
	if code, _, errs := m.call("", "recover", "nobody"); code != 1 || !strings.Contains(errs, "there is no node nobody") {
		t.Errorf("code %d: %s", code, errs)
	}
	if code, _, _ := m.call("", "recover"); code != 2 {
		t.Errorf("code %d without a node, want 2", code)
	}
}
