package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"millwright.io/millwright/internal/memapi"
)

// file writes objects into a file for -f.
func (m *machines) file(objects ...client.Object) string {
	m.t.Helper()
	var docs []string
	for _, o := range objects {
		raw, err := yaml.Marshal(o)
		if err != nil {
			m.t.Fatal(err)
		}
		docs = append(docs, string(raw))
	}
	path := filepath.Join(m.t.TempDir(), "changes.yaml")
	if err := os.WriteFile(path, []byte(strings.Join(docs, "---\n")), 0o600); err != nil {
		m.t.Fatal(err)
	}
	return path
}

func (m *machines) poolNow() *machineconfigv1.MachineConfigPool {
	m.t.Helper()
	p := &machineconfigv1.MachineConfigPool{}
	if err := m.api.Get(m.t.Context(), client.ObjectKey{Name: "worker"}, p); err != nil {
		m.t.Fatal(err)
	}
	return p
}

func (m *machines) configs() map[string]bool {
	m.t.Helper()
	var list machineconfigv1.MachineConfigList
	if err := m.api.List(m.t.Context(), &list); err != nil {
		m.t.Fatal(err)
	}
	out := map[string]bool{}
	for _, mc := range list.Items {
		out[mc.Name] = true
	}
	return out
}

// untouched checks that a refused adoption left nothing behind.
func (m *machines) untouched(target string, before map[string]bool) {
	m.t.Helper()
	if p := m.poolNow(); p.Spec.Paused || p.Spec.Configuration.Name != target || p.Annotations["millwright.io/adopting"] != "" {
		m.t.Errorf("the pool is paused %v at %s, %v", p.Spec.Paused, p.Spec.Configuration.Name, p.Annotations)
	}
	if got := m.configs(); fmt.Sprint(got) != fmt.Sprint(before) {
		m.t.Errorf("configs %v, before %v", got, before)
	}
	for name := range m.agents {
		m.wantDone(name, target)
	}
}

const byHand = "/usr/local/bin/mc-test"

// TestAdoptMakesWorkByHandOfficial is the whole of it under the real controllers of
// pools: the new config is theirs, and no node drains or reboots.
func TestAdoptMakesWorkByHandOfficial(t *testing.T) {
	m := newMachines(t, 3)
	old := m.target("worker")
	for _, x := range m.agents {
		x.put(byHand, "x")
	}
	file := m.file(fragment("99-by-hand", byHand+"=x"))
	code, out, errs := m.call("y\n", "adopt", "worker", "-f", file)
	if code != 0 {
		t.Fatalf("code %d\n%s%s", code, out, errs)
	}
	fresh := m.target("worker")
	wantText(t, out, "pool worker: "+fresh+" in place of "+old, "+ file "+byHand, "node worker-0: agrees", "node worker-2: agrees")
	wantText(t, errs, "MachineConfig 99-by-hand: written", "pool worker: adopted "+fresh+"; no node rebooted")
	if p := m.poolNow(); fresh == old || p.Spec.Paused || p.Status.Configuration.Name != fresh || p.Status.UpdatedMachineCount != 3 || p.Annotations["millwright.io/adopting"] != "" {
		t.Errorf("the pool is %+v, %+v", p.Spec, p.Status)
	}
	for name, x := range m.agents {
		m.wantDone(name, fresh)
		if x.boots != 0 || !strings.Contains(x.body("/etc/machine-config-daemon/currentconfig"), fresh) {
			t.Errorf("%s: %d boots", name, x.boots)
		}
		if log := strings.Join(x.log, "\n"); strings.Contains(log, "event Drain") || strings.Contains(log, "event Cordon") {
			t.Errorf("%s was drained:\n%s", name, log)
		}
	}
}

func TestAdoptRefusesAndNamesWhatDiffers(t *testing.T) {
	m := newMachines(t, 3)
	old, before := m.target("worker"), m.configs()
	m.agents["worker-0"].put(byHand, "x")
	m.agents["worker-1"].put(byHand, "y")
	code, out, errs := m.call("", "adopt", "worker", "-f", m.file(fragment("99-by-hand", byHand+"=x")), "--yes")
	if code != 1 {
		t.Errorf("code %d", code)
	}
	wantText(t, out, "node worker-0: agrees", "node worker-1: differs\n  content mismatch for file \""+byHand+`"`, "node worker-2: differs\n  could not stat file \""+byHand+`"`)
	wantText(t, errs, "nothing is adopted: 2 of 3 nodes differ")
	m.untouched(old, before)
}

func TestAdoptAsksFirst(t *testing.T) {
	m := newMachines(t, 1)
	old, before := m.target("worker"), m.configs()
	m.agents["worker-0"].put(byHand, "x")
	code, _, errs := m.call("", "adopt", "worker", "-f", m.file(fragment("99-by-hand", byHand+"=x")))
	if code != 1 {
		t.Errorf("code %d without an answer", code)
	}
	wantText(t, errs, "Go on? [y/N]", "nothing was done")
	m.untouched(old, before)
}

// TestAdoptRefusesWhatWouldNotLast has what no disk needs to be asked for.
func TestAdoptRefusesWhatWouldNotLast(t *testing.T) {
	foreign := fragment("99-foreign", "/etc/x=x")
	foreign.Labels["machineconfiguration.openshift.io/role"] = "infra"
	misnamed := fragment("rendered-worker-00000000000000000000000000000000", "/etc/x=x")
	alone := fragment("rendered-worker-NAME", "/etc/x=x")
	two := fragment("rendered-worker-11111111111111111111111111111111", "/etc/x=x")
	for _, tt := range []struct {
		name    string
		objects []client.Object
		code    int
		want    string
	}{
		{"not the pool's", []client.Object{foreign}, 1, "MachineConfig 99-foreign: metadata.labels: pool worker does not select it"},
		{"a wrong name", []client.Object{misnamed}, 1, "metadata.name: its content has the name rendered-worker-"},
		{"two rendered ones", []client.Object{misnamed, two}, 2, "want one rendered MachineConfig at most"},
		{"another kind", []client.Object{&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "x"}}}, 2, "want MachineConfigs of"},
		{"rendered from nothing", []client.Object{alone}, 1, "so its controller would take this one back"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachines(t, 1)
			old, before := m.target("worker"), m.configs()
			file := m.file(tt.objects...)
			if tt.objects[0] == client.Object(alone) {
				_, name, _ := run(t, "hash", file, "--pool", "worker")
				alone.Name = strings.TrimSpace(name)
				file = m.file(alone)
			}
			code, _, errs := m.call("", "adopt", "worker", "-f", file, "--yes")
			if code != tt.code {
				t.Errorf("code %d, want %d", code, tt.code)
			}
			wantText(t, errs, tt.want)
			m.untouched(old, before)
		})
	}
}

func TestAdoptTakesARenderedConfigThatFitsItsFragments(t *testing.T) {
	m := newMachines(t, 2)
	for _, x := range m.agents {
		x.put(byHand, "x")
	}
	mine := fragment("99-by-hand", byHand+"=x")
	var now machineconfigv1.MachineConfig
	if err := m.api.Get(t.Context(), client.ObjectKey{Name: m.target("worker")}, &now); err != nil {
		t.Fatal(err)
	}
	code, out, errs := run(t, "render", "--from", m.dump(), "-f", m.file(mine), "--pool", "worker")
	if code != 0 {
		t.Fatal(errs)
	}
	path := filepath.Join(t.TempDir(), "rendered.yaml")
	if err := os.WriteFile(path, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs = m.call("", "adopt", "worker", "-f", m.file(mine), "-f", path, "--yes")
	if code != 0 {
		t.Fatalf("code %d\n%s%s", code, out, errs)
	}
	for name, x := range m.agents {
		m.wantDone(name, m.target("worker"))
		if x.boots != 0 {
			t.Errorf("%s: %d boots", name, x.boots)
		}
	}
}

func TestAdoptLooksAfterOtherPoolsThatWouldRoll(t *testing.T) {
	m := newMachines(t, 1)
	old := m.target("worker")
	infra := &machineconfigv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "infra"}}
	infra.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/infra": ""}}
	infra.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "machineconfiguration.openshift.io/role", Operator: metav1.LabelSelectorOpIn, Values: []string{"worker", "infra"}}}}
	m.create(infra)
	m.off = true
	infra.Status.MachineCount = 4
	if err := m.api.Status().Update(t.Context(), infra); err != nil {
		t.Fatal(err)
	}
	before := m.configs()
	code, _, errs := m.call("", "adopt", "worker", "-f", m.file(fragment("99-by-hand", byHand+"=x")), "--yes")
	if code != 1 {
		t.Errorf("code %d", code)
	}
	wantText(t, errs, "pool infra selects these MachineConfigs, too, and would roll out rendered-infra-", "to its 4 nodes: pause it")
	m.untouched(old, before)
}

// TestAdoptThatEndsHalfWayIsRunAgain loses an agent after the disks were compared:
// no node goes back, and the second call ends the pause.
func TestAdoptThatEndsHalfWayIsRunAgain(t *testing.T) {
	m := newMachines(t, 2)
	for _, x := range m.agents {
		x.put(byHand, "x")
	}
	m.api.Hook(nil, func(op memapi.Op) error {
		if op.Verb == "patch" && op.Kind == "MachineConfigPool" {
			m.agents["worker-1"].hung.Store(true) // its disk was compared already
		}
		return nil
	})
	file := m.file(fragment("99-by-hand", byHand+"=x"))
	code, out, errs := m.call("", "adopt", "worker", "-f", file, "--yes", "--timeout", "500ms", "--answer-timeout", "20s")
	if code != 1 {
		t.Fatalf("code %d\n%s%s", code, out, errs)
	}
	wantText(t, errs, "pool worker stays paused, so that nodes worker-0, which have taken rendered-worker-")
	if p := m.poolNow(); !p.Spec.Paused || p.Annotations["millwright.io/adopting"] == "" {
		t.Errorf("the pool is paused %v, %v", p.Spec.Paused, p.Annotations)
	}
	m.api.Hook(nil, nil)
	m.agents["worker-1"].hung.Store(false)
	if code, out, errs := m.call("", "adopt", "worker", "-f", file, "--yes"); code != 0 {
		t.Fatalf("code %d\n%s%s", code, out, errs)
	}
	if m.poolNow().Spec.Paused {
		t.Error("the pool stays paused")
	}
	for name, x := range m.agents {
		m.wantDone(name, m.target("worker"))
		if x.boots != 0 {
			t.Errorf("%s: %d boots", name, x.boots)
		}
	}
}
