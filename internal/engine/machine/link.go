package machine

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"millwright.io/millwright/internal/engine/plan"
)

// LinkNode is a Node that looks for its Machine.
type LinkNode struct {
	Name, UID   string
	ProviderID  string
	InternalIP  string // the first; may be empty
	Deleting    bool
	Labels      map[string]string
	Annotations map[string]string
	Taints      []corev1.Taint
}

// LinkMachine is a Machine that may be behind a Node.
type LinkMachine struct {
	Namespace, Name string
	ProviderID      string
	DNSNames        []string // its InternalDNS addresses
	NodeRef         *NodeRef
	// What the Machine wants on its Node.
	Labels      map[string]string
	Annotations map[string]string
	Taints      []corev1.Taint
}

// LinkInput is one Node and the Machines that two indexes give for it.
type LinkInput struct {
	Node         LinkNode
	ByProviderID []LinkMachine // whose provider ID is the Node's, byte for byte
	ByInternalIP []LinkMachine // with the Node's first internal address
}

// LinkStatus is the Machine found for a Node.
type LinkStatus struct {
	Machine *LinkMachine // nil: none
	NodeRef *NodeRef     // to be written on the Machine; nil: nothing to write
}

// Link matches a Node to its Machine, by provider ID, else by address, and
// says what both must carry. Nothing is ever taken off a Node, and a Node that
// is being deleted is left alone. It reports an error when the match is not
// unique.
func Link(in LinkInput) (plan.Decision[LinkStatus], error) {
	var d plan.Decision[LinkStatus]
	if in.Node.Deleting {
		return d, nil
	}
	m, err := match(in)
	if err != nil {
		return d, err
	}
	if m == nil {
		d.Notes = note(d.Notes, fmt.Sprintf("Machine for node %q not found", in.Node.Name))
		return d, nil
	}
	d.Status.Machine = m
	if a := wantedOn(in.Node, *m); len(a.Labels) > 0 || len(a.Annotations) > 0 || len(a.Taints) > 0 {
		d.Actions = []plan.Action{a}
	}
	want := NodeRef{Name: in.Node.Name, UID: in.Node.UID}
	if m.NodeRef == nil || *m.NodeRef != want {
		d.Status.NodeRef = &want
		d.Notes = note(d.Notes, fmt.Sprintf("Successfully updated nodeRef for machine %q and node %q", m.Name, in.Node.Name))
	}
	return d, nil
}

func match(in LinkInput) (*LinkMachine, error) {
	found := in.ByProviderID
	if in.Node.ProviderID == "" || len(found) == 0 {
		found = byAddress(in)
	}
	switch len(found) {
	case 0:
		return nil, nil
	case 1:
		return &found[0], nil
	}
	return nil, fmt.Errorf("failed getting machine: expected 1 machine, got %d", len(found))
}

// byAddress leaves out Machines that are known to be another instance: clouds
// give the address of a vanished instance to the next one. Of several, the
// one that bears the Node's name is meant.
func byAddress(in LinkInput) []LinkMachine {
	var out, named []LinkMachine
	for _, m := range in.ByInternalIP {
		if in.Node.ProviderID != "" && m.ProviderID != "" && m.ProviderID != in.Node.ProviderID {
			continue
		}
		out = append(out, m)
		if slices.Contains(m.DNSNames, in.Node.Name) {
			named = append(named, m)
		}
	}
	if len(out) > 1 && len(named) > 0 {
		return named
	}
	return out
}

// wantedOn returns what the Node still lacks.
func wantedOn(n LinkNode, m LinkMachine) plan.LinkNode {
	a := plan.LinkNode{Node: n.Name, Labels: missing(n.Labels, m.Labels), Annotations: missing(n.Annotations, m.Annotations)}
	for _, t := range m.Taints {
		same := func(o corev1.Taint) bool { return o.Key == t.Key && o.Effect == t.Effect }
		if !slices.ContainsFunc(n.Taints, same) && !slices.ContainsFunc(a.Taints, same) {
			a.Taints = append(a.Taints, t)
		}
	}
	return a
}

func missing(have, want map[string]string) map[string]string {
	out := maps.Clone(want)
	maps.DeleteFunc(out, func(k, v string) bool {
		got, ok := have[k]
		return ok && got == v
	})
	if len(out) == 0 {
		return nil
	}
	return out
}
