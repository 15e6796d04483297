package node_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"millwright.io/millwright/internal/engine/disruption"
	"millwright.io/millwright/internal/engine/node"
	"millwright.io/millwright/internal/engine/render"
	"millwright.io/millwright/internal/engine/transition"
)

// config is one with a single file, whose contents are its name.
func config(name, path string) *node.Config {
	raw := fmt.Sprintf(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":%q,"contents":{"source":"data:,%s"}}]}}`, path, name)
	return &node.Config{Name: name, Spec: mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: []byte(raw)}}}
}

var (
	a = config("a", "/etc/x")
	b = config("b", "/etc/x")
)

func annotations(current, desired, state, drain, drained string) map[string]string {
	out := map[string]string{}
	for k, v := range map[string]string{
		node.CurrentConfig: current, node.DesiredConfig: desired, node.State: state, node.DesiredDrain: drain, node.LastAppliedDrain: drained,
	} {
		if v != "" {
			out[k] = v
		}
	}
	return out
}

// agrees says that the disk holds what configs say, differs that it does not.
func agrees(names ...string) map[string][]transition.Difference {
	out := map[string][]transition.Difference{}
	for _, n := range names {
		out[n] = []transition.Difference{}
	}
	return out
}

func differs(name, reason string) map[string][]transition.Difference {
	return map[string][]transition.Difference{name: {{Kind: render.KindFile, Key: "/etc/x", Reason: reason}}}
}

func known(list ...*node.Config) map[string]*node.Config {
	out := map[string]*node.Config{}
	for _, c := range list {
		out[c.Name] = c
	}
	return out
}

// shown is a decision in one line: question, or action, annotations set and wake.
func shown(d node.Decision) string {
	switch {
	case d.Fetch != "":
		return "fetch " + d.Fetch
	case d.Check != "":
		return "check " + d.Check
	}
	var out []string
	if d.Action != node.Nothing {
		out = append(out, fmt.Sprintf("%s %s", d.Action, d.Change.To.Name))
	}
	for _, key := range []string{node.CurrentConfig, node.State, node.Reason, node.DesiredDrain} {
		if v, ok := d.Set[key]; ok && v != nil {
			_, short, _ := strings.Cut(key, "/")
			out = append(out, short+"="+*v)
		}
	}
	if d.Settled {
		out = append(out, "settled")
	}
	return strings.Join(out, " ")
}

func TestDecide(t *testing.T) {
	const gone = `machineconfig.machineconfiguration.openshift.io "b" not found`
	for _, row := range []struct {
		name string
		in   node.Input
		want string
	}{
		{"nothing to do", node.Input{Disk: a, Annotations: annotations("a", "a", "Done", "uncordon-a", "uncordon-a")}, "settled"},
		{"a start looks at the disk", node.Input{Disk: a, Booting: true, Annotations: annotations("a", "a", "Done", "", "")}, "check a"},
		{"a start hands back first", node.Input{Disk: a, Booting: true, Checked: agrees("a"), Annotations: annotations("a", "a", "Done", "", "")},
			"desiredDrain=uncordon-a"},
		{"a start whose uncordon was answered", node.Input{Disk: a, Booting: true, Checked: agrees("a"), Annotations: annotations("a", "a", "Working", "uncordon-a", "uncordon-a")},
			"state=Done reason= settled"},
		{"a start on a disk that differs", node.Input{Disk: a, Booting: true, Checked: differs("a", "r"), Annotations: annotations("a", "a", "Done", "", "")},
			"state=Degraded reason=unexpected on-disk state validating against a: r"},
		{"drift", node.Input{Disk: a, Checked: differs("a", "r"), Annotations: annotations("a", "a", "Done", "uncordon-a", "uncordon-a")},
			"state=Degraded reason=r"},
		{"drift where the pool repairs", node.Input{Disk: a, Repair: true, Checked: differs("a", "r"), Annotations: annotations("a", "a", "Done", "uncordon-a", "uncordon-a")},
			"apply a"},
		{"an update asks for the config", node.Input{Disk: a, Annotations: annotations("a", "b", "Done", "", "")}, "fetch b"},
		{"an update to a config that is gone", node.Input{Disk: a, Known: map[string]*node.Config{"b": nil}, Annotations: annotations("a", "b", "Done", "", "")},
			"state=Degraded reason=" + gone},
		{"an update looks at the disk", node.Input{Disk: a, Known: known(b), Annotations: annotations("a", "b", "Done", "", "")}, "check a"},
		{"an update drains", node.Input{Disk: a, Known: known(b), Checked: agrees("a"), Annotations: annotations("a", "b", "Done", "", "")},
			"state=Working desiredDrain=drain-b"},
		{"an update waits for the drain", node.Input{Disk: a, Known: known(b), Checked: agrees("a"), Annotations: annotations("a", "b", "Working", "drain-b", "uncordon-a")}, ""},
		{"a drained node takes the config", node.Input{Disk: a, Known: known(b), Checked: agrees("a"), Annotations: annotations("a", "b", "Working", "drain-b", "drain-b")},
			"apply b"},
		{"a broken node heals", node.Input{Disk: a, SelfHeal: true, Known: known(b), Checked: differs("a", "r"), Annotations: annotations("a", "b", "Degraded", "drain-b", "drain-b")},
			"apply b"},
		{"a broken node without healing", node.Input{Disk: a, Known: known(b), Checked: differs("a", "r"), Annotations: annotations("a", "b", "Degraded", "drain-b", "drain-b")},
			"reason=unexpected on-disk state validating against a: r"},
		{"a change that failed twice", node.Input{Disk: a, Failures: 2, Failed: "why", Known: known(b), Checked: agrees("a"), Annotations: annotations("a", "b", "Degraded", "drain-b", "drain-b")},
			"reason=why"},
		{"the force file tries again", node.Input{Disk: a, Failures: 2, Failed: "why", Force: true, Known: known(b), Annotations: annotations("a", "b", "Degraded", "drain-b", "drain-b")},
			"apply b"},
		{"no currentconfig: the annotation's is asked for", node.Input{Booting: true, Annotations: annotations("a", "a", "Done", "", "")}, "fetch a"},
		{"no currentconfig, no annotation, nothing known", node.Input{SelfHeal: true, Booting: true, Known: known(b), Annotations: annotations("", "b", "", "", "")}, "check b"},
		{"a disk that already is as it should be", node.Input{SelfHeal: true, Booting: true, Known: known(b), Checked: agrees("b"), Annotations: annotations("", "b", "", "", "")}, "adopt b"},
		{"currentconfig is unreadable, without healing", node.Input{DiskError: "EOF", Annotations: annotations("a", "a", "Done", "", "")}, "state=Degraded reason=EOF"},
		{"first boot", node.Input{Bootstrap: annotations("a", "a", "Done", "", ""), Known: known(a), Checked: agrees("a"), Annotations: annotations("a", "a", "Done", "", "")}, "adopt a"},
		{"no desired config yet", node.Input{Disk: a, Annotations: annotations("a", "", "Done", "", "")}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.in.Node, row.in.Policy = "worker-0", disruption.Defaults()
			if diff := cmp.Diff(row.want, shown(node.Decide(row.in))); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCutKeepsCharacters(t *testing.T) {
	long := strings.Repeat("é", 2500)
	got := node.Cut(long)
	if n := utf8.RuneCountInString(got); n != 2000 || !utf8.ValidString(got) {
		t.Errorf("%d characters, valid %t; want 2000 whole ones", n, utf8.ValidString(got))
	}
	if node.Cut("short") != "short" {
		t.Error("a short reason was changed")
	}
}

// draw is any situation of a node.
func draw(rt *rapid.T) node.Input {
	name := rapid.SampledFrom([]string{"", "a", "b", "c"})
	in := node.Input{
		Node: "worker-0", Policy: disruption.Defaults(), Known: map[string]*node.Config{}, Checked: map[string][]transition.Difference{},
		Annotations: annotations(name.Draw(rt, "current"), name.Draw(rt, "desired"),
			rapid.SampledFrom([]string{"", "Done", "Working", "Degraded", "Unreconcilable", "?"}).Draw(rt, "state"),
			rapid.SampledFrom([]string{"", "drain-a", "drain-b", "uncordon-a", "uncordon-b"}).Draw(rt, "drain"),
			rapid.SampledFrom([]string{"", "drain-a", "drain-b", "uncordon-a", "uncordon-b"}).Draw(rt, "drained")),
		Disk:     rapid.SampledFrom([]*node.Config{nil, a, b, config("lost", "/etc/y")}).Draw(rt, "disk"),
		Booting:  rapid.Bool().Draw(rt, "booting"),
		Force:    rapid.Bool().Draw(rt, "force"),
		SelfHeal: rapid.Bool().Draw(rt, "heal"),
		Repair:   rapid.Bool().Draw(rt, "repair"),
		Failures: rapid.IntRange(0, 3).Draw(rt, "failures"),
	}
	if in.Failures > 0 {
		in.Failed = "why"
	}
	if in.Disk == nil && rapid.Bool().Draw(rt, "unreadable") {
		in.DiskError = "EOF"
	}
	if rapid.Bool().Draw(rt, "first boot") {
		in.Bootstrap = annotations("a", "a", "Done", "", "")
	}
	return in
}

// TestDecideProperties: questions end, nothing runs on a node that still has to be
// emptied, and what is wrong is said.
func TestDecideProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := draw(rt)
		exists := map[string]*node.Config{"a": a, "b": b}
		wrong := rapid.Bool().Draw(rt, "disk differs")
		var d node.Decision
		for questions := 0; ; questions++ {
			if questions > 8 {
				rt.Fatalf("asks for ever: %s", shown(d))
			}
			d = node.Decide(in)
			switch {
			case d.Fetch != "":
				if _, asked := in.Known[d.Fetch]; asked {
					rt.Fatalf("asks twice for %s", d.Fetch)
				}
				in.Known[d.Fetch] = exists[d.Fetch]
				continue
			case d.Check != "":
				in.Checked[d.Check] = []transition.Difference{}
				if wrong {
					in.Checked[d.Check] = differs(d.Check, "r")[d.Check]
				}
				continue
			}
			break
		}
		if d.Action == node.Apply && d.Change.Drain && !d.Change.Drained {
			rt.Fatal("takes a config on a node that is not empty")
		}
		for _, act := range d.Change.Actions {
			if act.Kind == disruption.Reboot && !d.Change.Drain {
				rt.Fatal("reboots a node that nobody empties")
			}
		}
		if v := d.Set[node.State]; v != nil && (*v == node.Degraded || *v == node.Unreconcilable) {
			if r := d.Set[node.Reason]; r == nil || *r == "" {
				rt.Fatalf("%s without a reason", *v)
			}
		}
		if d.Settled && wrong && in.Booting {
			rt.Fatal("done on a disk that differs")
		}
		if d.Action == node.Nothing && !d.Settled && d.Wake == 0 {
			rt.Fatalf("waits for ever: %s", shown(d))
		}
	})
}
