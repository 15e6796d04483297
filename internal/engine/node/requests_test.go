package node_test

import (
	"testing"

	"pgregory.net/rapid"

	"millwright.io/millwright/internal/engine/node"
	"millwright.io/millwright/internal/engine/render"
	"millwright.io/millwright/internal/engine/transition"
)

// asked adds requests to annotations: recover, then adopt; empty: none.
func asked(list map[string]string, recover, adopt string) map[string]string {
	for key, v := range map[string]string{node.RecoverRequest: recover, node.AdoptRequest: adopt} {
		if v != "" {
			list[key] = v
		}
	}
	return list
}

// ended says which requests a decision takes away.
func ended(d node.Decision) string {
	out := ""
	for _, key := range []string{node.RecoverRequest, node.Recovering, node.AdoptRequest} {
		if v, ok := d.Set[key]; ok && v == nil {
			out += " -" + key[len("millwright.io/"):]
		}
	}
	return out
}

func TestDecideAboutRequests(t *testing.T) {
	settled := func() map[string]string { return annotations("a", "a", "Done", "uncordon-a", "uncordon-a") }
	broken := func() map[string]string { return annotations("a", "a", "Degraded", "uncordon-a", "uncordon-a") }
	staged := map[string][]transition.Difference{"a": {{Kind: render.KindFile, Key: "/etc/x", Reason: "r"}, {Kind: render.KindOSImage, Reason: "o"}}}
	for _, row := range []struct {
		name string
		in   node.Input
		want string
	}{
		{"recover looks at the disk even of a settled node", node.Input{Disk: a, Annotations: asked(settled(), "a", "")}, "check a"},
		{"recover of a disk that agrees", node.Input{Disk: a, Checked: agrees("a"), Annotations: asked(broken(), "a", "")}, "state=Done reason= settled -recover"},
		{"recover writes files that differ", node.Input{Disk: a, Checked: differs("a", "r"), Annotations: asked(broken(), "a", "")}, "apply a"},
		{"recover empties a node that has to reboot", node.Input{Disk: a, Checked: staged, Annotations: asked(broken(), "a", "")}, "desiredDrain=drain-a"},
		{"recover with another config is dropped", node.Input{Disk: a, Checked: differs("a", "r"), Annotations: asked(broken(), "b", "")},
			"reason=unexpected on-disk state validating against a: r -recover"},
		{"recover forgets earlier tries", node.Input{Disk: a, Known: known(b), Checked: agrees("a"), Failures: 5, Failed: "f",
			Annotations: asked(annotations("a", "b", "Degraded", "drain-b", "drain-b"), "b", "")}, "apply b"},
		{"the same without recover", node.Input{Disk: a, Known: known(b), Checked: agrees("a"), Failures: 5, Failed: "f",
			Annotations: annotations("a", "b", "Degraded", "drain-b", "drain-b")}, "reason=f"},
		{"recover mends the record of a disk that has none", node.Input{DiskError: "EOF", Known: known(a), Checked: agrees("a"), Annotations: asked(broken(), "a", "")}, "adopt a"},
		{"recover of a config that is gone ends", node.Input{Disk: a, Known: map[string]*node.Config{"b": nil}, Annotations: asked(annotations("a", "b", "Degraded", "", ""), "b", "")},
			`reason=machineconfig.machineconfiguration.openshift.io "b" not found -recover`},
		{"adopt asks for the config", node.Input{Disk: a, Annotations: asked(settled(), "", "b")}, "fetch b"},
		{"adopt looks at the disk", node.Input{Disk: a, Known: known(b), Annotations: asked(settled(), "", "b")}, "check b"},
		{"adopt writes the record first", node.Input{Disk: a, Known: known(b), Checked: agrees("b"), Annotations: asked(settled(), "", "b")}, "adopt b"},
		{"adopt writes the annotations then", node.Input{Disk: b, Known: known(b), Checked: agrees("b"), Annotations: asked(settled(), "", "b")}, "currentConfig=b -adopt"},
		{"adopt of a disk that differs ends", node.Input{Disk: a, Known: known(b), Checked: differs("b", "r"), Annotations: asked(settled(), "", "b")}, "settled -adopt"},
		{"adopt of nothing ends", node.Input{Disk: a, Known: map[string]*node.Config{"b": nil}, Annotations: asked(settled(), "", "b")}, "settled -adopt"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := node.Decide(row.in)
			got := shown(d) + ended(d)
			if d.Fetch != "" || d.Check != "" {
				got = shown(d)
			}
			if got != row.want {
				t.Errorf("decided %q, want %q", got, row.want)
			}
		})
	}
}

// TestARequestEndsWithTheDecisionThatEndsIt: no node is left Degraded or done with a
// request that nobody works on.
func TestARequestEndsWithTheDecisionThatEndsIt(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		pick := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(rt, label) }
		desired := pick("desired", "a", "b")
		in := node.Input{
			Disk: rapid.SampledFrom([]*node.Config{a, b, nil}).Draw(rt, "disk"), Known: known(a, b), Checked: map[string][]transition.Difference{},
			SelfHeal: rapid.Bool().Draw(rt, "selfHeal"), Booting: rapid.Bool().Draw(rt, "booting"), Failures: rapid.IntRange(0, 3).Draw(rt, "failures"),
			Annotations: asked(annotations(pick("current", "a", "b"), desired, pick("state", "Done", "Working", "Degraded", "Unreconcilable"),
				pick("asked", "", "drain-a", "drain-b", "uncordon-a", "uncordon-b"), pick("answered", "", "drain-a", "drain-b", "uncordon-a", "uncordon-b")),
				pick("recover", "", "a", "b"), pick("adopt", "", "a", "b")),
		}
		in.Annotations[node.Recovering] = desired
		for _, name := range []string{"a", "b"} {
			in.Checked[name] = []transition.Difference{}
			if kind := pick("differs "+name, "", render.KindFile, render.KindOSImage); kind != "" {
				in.Checked[name] = []transition.Difference{{Kind: kind, Reason: "r"}}
			}
		}
		d := node.Decide(in)
		if _, kept := d.Set[node.AdoptRequest]; in.Annotations[node.AdoptRequest] != "" && !kept && d.Action != node.Adopt {
			rt.Fatalf("a request to adopt waits for nothing: %+v", d)
		}
		if d.Action == node.Adopt && len(in.Checked[d.Change.To.Name]) > 0 {
			rt.Fatalf("took a disk that differs for %s", d.Change.To.Name)
		}
		state := d.Set[node.State]
		over := d.Settled || state != nil && (*state == node.Degraded || *state == node.Unreconcilable)
		if _, gone := d.Set[node.RecoverRequest]; over && in.Annotations[node.RecoverRequest] != "" && !gone {
			rt.Fatalf("a request to recover stays: %+v", d)
		}
	})
}
