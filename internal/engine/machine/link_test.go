package machine_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"millwright.io/millwright/internal/engine/machine"
	"millwright.io/millwright/internal/engine/plan"
)

func TestLink(t *testing.T) {
	node := machine.LinkNode{Name: "w-1", UID: "n1", ProviderID: "azure:///w-1", InternalIP: "10.0.0.5"}
	m := func(name, id string) machine.LinkMachine { return machine.LinkMachine{Name: name, ProviderID: id} }
	rows := []struct {
		name, why, want, err string
		in                   machine.LinkInput
	}{
		{name: "by provider ID", why: "it is unique", want: "w-1",
			in: machine.LinkInput{Node: node, ByProviderID: []machine.LinkMachine{m("w-1", node.ProviderID)}, ByInternalIP: []machine.LinkMachine{m("other", "")}}},
		{name: "by address", why: "no provider ID yet", want: "w-1",
			in: machine.LinkInput{Node: node, ByInternalIP: []machine.LinkMachine{m("w-1", "")}}},
		{name: "address handed on", why: "another instance had it before", want: "w-1",
			in: machine.LinkInput{Node: node, ByInternalIP: []machine.LinkMachine{m("old", "azure:///old"), m("w-1", "")}}},
		{name: "address handed on, young node", why: "the name decides", want: "w-1",
			in: machine.LinkInput{Node: machine.LinkNode{Name: "w-1", UID: "n1"}, ByInternalIP: []machine.LinkMachine{
				{Name: "old", DNSNames: []string{"old"}}, {Name: "w-1", DNSNames: []string{"w-1"}}}}},
		{name: "two", why: "never guess", err: "failed getting machine: expected 1 machine, got 2",
			in: machine.LinkInput{Node: node, ByProviderID: []machine.LinkMachine{m("a", node.ProviderID), m("b", node.ProviderID)}}},
		{name: "none", why: "not ours", in: machine.LinkInput{Node: node}},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			d, err := machine.Link(r.in)
			if r.err != "" {
				if err == nil || !strings.Contains(err.Error(), r.err) {
					t.Fatalf("%s: error %v, want %q", r.why, err, r.err)
				}
				return
			}
			got := ""
			if d.Status.Machine != nil {
				got = d.Status.Machine.Name
			}
			if err != nil || got != r.want {
				t.Errorf("%s: got %q, %v; want %q", r.why, got, err, r.want)
			}
		})
	}
}

func TestLinkAddsWhatIsMissingAndRemovesNothing(t *testing.T) {
	in := machine.LinkInput{
		Node: machine.LinkNode{
			Name: "w-1", UID: "n1", ProviderID: "p", Labels: map[string]string{"keep": "1", "a": "old"},
			Taints: []corev1.Taint{{Key: "t", Value: "theirs", Effect: corev1.TaintEffectNoSchedule}},
		},
		ByProviderID: []machine.LinkMachine{{
			Name: "w-1", Labels: map[string]string{"a": "new", "keep": "1"}, Annotations: map[string]string{"x": "y"},
			Taints: []corev1.Taint{
				{Key: "t", Value: "ours", Effect: corev1.TaintEffectNoSchedule},
				{Key: "t", Value: "ours", Effect: corev1.TaintEffectNoExecute},
			},
		}},
	}
	d, err := machine.Link(in)
	want := []plan.Action{plan.LinkNode{
		Node: "w-1", Labels: map[string]string{"a": "new"}, Annotations: map[string]string{"x": "y"},
		Taints: []corev1.Taint{{Key: "t", Value: "ours", Effect: corev1.TaintEffectNoExecute}},
	}}
	if diff := cmp.Diff(d.Actions, want); err != nil || diff != "" {
		t.Errorf("error %v, actions (-got +want):\n%s", err, diff)
	}
	if diff := cmp.Diff(d.Status.NodeRef, &machine.NodeRef{Name: "w-1", UID: "n1"}); diff != "" {
		t.Errorf("nodeRef (-got +want):\n%s", diff)
	}
	in.Node.Deleting = true
	if d, _ := machine.Link(in); len(d.Actions) != 0 || d.Status.NodeRef != nil {
		t.Errorf("a Node that is being deleted got %v", d)
	}
}
