package csr

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"millwright.io/millwright/internal/engine/plan"
)

// Identities of nodes.
const (
	nodePrefix    = "system:node:"
	nodeGroup     = "system:nodes"
	authenticated = "system:authenticated"
	mastersGroup  = "system:masters"

	// Bootstrapper is who asks for a node's first client certificate.
	Bootstrapper = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper"
)

// Approval and denial as users and scripts know them.
const (
	ApproveReason  = "NodeCSRApprove"
	ApproveMessage = "This CSR was approved by the Node CSR Approver (cluster-machine-approver)"
	DenyReason     = "NodeCSRDeny"
	// PendingReason is the reason of the event on a serving request that asks
	// for more than its machine has.
	PendingReason = "NodeCSRPending"
	denyMessage   = "This CSR was denied by the Node CSR Approver (cluster-machine-approver): "
)

// A first client certificate is asked for while its machine is young. The
// clock of a machine may be a little behind when it is created.
const (
	machineSkew   = 10 * time.Second
	machineWindow = 2 * time.Hour
)

// bootstrapGroups are the groups of the bootstrapper's service account.
func bootstrapGroups() []string {
	return []string{"system:serviceaccounts:openshift-machine-config-operator", "system:serviceaccounts", authenticated}
}

// Decide judges requests of the two kubelet signers:
//
//   - a node's first client certificate, asked for by the bootstrapper: its
//     machine must be known by its internal DNS name, young and without a node
//     (rules C1 to C7);
//   - a node's serving certificate, asked for by the node: every name and
//     address must be one of its machine's (rules S1 and S3), or all of them
//     those of the certificate that the node presents now (rule S2).
//
// Client renewals come from nodes themselves and belong to the controller
// manager. A request by the bootstrapper for system:masters is denied.
func Decide(in Input) plan.Decision[Verdict] {
	v, wait := limited(in, judge(in))
	reason, message := ApproveReason, ApproveMessage
	if v.Outcome == Deny {
		reason, message = DenyReason, denyMessage+v.Why
	}
	d := decision(in, v, reason, message)
	d.Wake = wait
	if v.Differences != "" {
		d.Events = append(d.Events, plan.Event{Type: plan.Warning, Reason: PendingReason, Message: v.Differences})
	}
	return d
}

// judge finds out whose request it is and which rules it must pass.
func judge(in Input) Verdict {
	r := in.Request
	if r.Decided {
		return Verdict{Outcome: Ignore, Rule: "decided"}
	}
	if !queued(r.Signer, r.Username, r.Groups) {
		return Verdict{Outcome: Ignore, Rule: "queue"}
	}
	if r.Signer == certificatesv1.KubeAPIServerClientKubeletSignerName && slices.Contains(r.Organizations, mastersGroup) {
		return Verdict{Outcome: Deny, Rule: "masters", Node: r.NodeName(),
			Why: fmt.Sprintf("%s: organization %s asked for by %s, only %s can be had", r.Name, mastersGroup, r.Username, nodeGroup)}
	}
	if isClient(r) {
		return judgeClient(in)
	}
	return judgeServing(in)
}

// isClient tells a client request from a serving request by what it asks for.
func isClient(r Request) bool {
	const (
		sign   = certificatesv1.UsageDigitalSignature
		cipher = certificatesv1.UsageKeyEncipherment
		client = certificatesv1.UsageClientAuth
	)
	return slices.Equal(r.Organizations, []string{nodeGroup}) &&
		!r.hasNames() &&
		(sameSet(r.Usages, sign, client) || sameSet(r.Usages, cipher, sign, client)) &&
		strings.HasPrefix(r.CommonName, nodePrefix)
}

// judgeClient applies C1 to C7.
func judgeClient(in Input) Verdict {
	r := in.Request
	node := strings.TrimPrefix(r.CommonName, nodePrefix)
	say := func(o Outcome, rule, format string, args ...any) Verdict {
		return Verdict{Outcome: o, Rule: rule, Node: node, Why: fmt.Sprintf(format, args...)}
	}
	if in.ClientDisabled {
		return say(Wait, "C1", "CSR %s for node client cert rejected as the flow is disabled", r.Name)
	}
	if r.Username != Bootstrapper || len(r.Groups) != len(bootstrapGroups()) || !sameSet(r.Groups, bootstrapGroups()...) {
		return say(Leave, "C2", "%s: asked for by %s with groups %v, want %s with groups %v, cannot approve", r.Name, r.Username, r.Groups, Bootstrapper, bootstrapGroups())
	}
	if node == "" {
		return say(Leave, "C3", "%s: common name %s names no node, cannot approve", r.Name, r.CommonName)
	}
	if in.NodeExists {
		return say(Leave, "C4", "%s: node %s already exists, cannot approve", r.Name, node)
	}
	found := slices.DeleteFunc(slices.Clone(in.Machines), func(m Machine) bool { return !m.hasInternalDNS(node) })
	switch len(found) {
	case 0:
		return say(Wait, "C5", "%s: failed to find machine with InternalDNS matching %s, cannot approve", r.Name, node)
	case 1:
	default:
		return say(Wait, "C5", "%s: %d machines have InternalDNS matching %s, cannot approve", r.Name, len(found), node)
	}
	m := found[0]
	if m.Node != "" {
		return say(Leave, "C6", "%s: machine %s for node %s already has node ref, cannot approve", r.Name, m.Name, node)
	}
	from, to := m.CreatedAt.Add(-machineSkew), m.CreatedAt.Add(machineWindow)
	if !r.Created.After(from) || !r.Created.Before(to) {
		return say(Leave, "C7", "%s: CSR creation time %s not in range (%s, %s)", r.Name, r.Created, from, to)
	}
	return Verdict{Outcome: Approve, Rule: "C7", Node: node}
}

// judgeServing applies S1 to S3.
func judgeServing(in Input) Verdict {
	r := in.Request
	node, err := servingNode(r)
	if err != nil {
		return Verdict{Outcome: Leave, Rule: "S1", Node: node, Why: fmt.Sprintf("%s: Unrecoverable serving cert error, cannot approve: %s", r.Name, err)}
	}
	if in.Presented.renews(r) {
		return Verdict{Outcome: Approve, Rule: "S2", Node: node}
	}
	differences, err := authorize(in, node)
	if err == nil && differences != "" {
		err = errors.New(differences)
	}
	if err != nil {
		return Verdict{Outcome: Wait, Rule: "S3", Node: node, Differences: differences, Why: fmt.Sprintf("%s: could not authorize CSR: exhausted all authorization methods: [%s]", r.Name, err)}
	}
	return Verdict{Outcome: Approve, Rule: "S3", Node: node}
}

// servingNode checks that a request is a well-formed serving request by a node
// for itself, and returns the node.
func servingNode(r Request) (string, error) {
	node, ok := strings.CutPrefix(r.Username, nodePrefix)
	switch {
	case r.Signer != certificatesv1.KubeletServingSignerName:
		return "", fmt.Errorf("signer %s gives no serving certificates", r.Signer)
	case !ok || node == "":
		return "", fmt.Errorf("user %q, want %s<node>", r.Username, nodePrefix)
	case !subset([]string{nodeGroup, authenticated}, r.Groups):
		return node, fmt.Errorf("groups %v, want %s and %s", r.Groups, nodeGroup, authenticated)
	case !servingUsages(r.Usages):
		return node, fmt.Errorf("usages %v, want digital signature, server auth and at most key encipherment", r.Usages)
	case r.CommonName != r.Username:
		return node, fmt.Errorf("common name %q differs from user %q", r.CommonName, r.Username)
	case !slices.Contains(r.Organizations, nodeGroup):
		return node, fmt.Errorf("organizations %v, want %s", r.Organizations, nodeGroup)
	case len(r.Emails)+len(r.URIs) > 0:
		return node, fmt.Errorf("e-mail addresses %v and URIs %v, want none", r.Emails, r.URIs)
	}
	return node, nil
}

func servingUsages(u []certificatesv1.KeyUsage) bool {
	const (
		sign   = certificatesv1.UsageDigitalSignature
		cipher = certificatesv1.UsageKeyEncipherment
		server = certificatesv1.UsageServerAuth
	)
	return sameSet(u, sign, server) || sameSet(u, sign, cipher, server)
}

// authorize compares every name and address with the node's machine and
// returns all that the machine lacks. The error says that there is no machine
// to compare with.
func authorize(in Input, node string) (string, error) {
	i := slices.IndexFunc(in.Machines, func(m Machine) bool { return m.Node == node })
	if i < 0 {
		return "", errors.New("unable to find machine for node")
	}
	m := in.Machines[i]
	var out []string
	names := m.addresses(corev1.NodeInternalDNS, corev1.NodeExternalDNS, corev1.NodeHostName)
	for _, want := range in.Request.DNSNames {
		if !slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, want) }) {
			out = append(out, fmt.Sprintf("DNS name '%s' not in machine names: %s", want, strings.Join(names, " ")))
		}
	}
	ips := m.addresses(corev1.NodeInternalIP, corev1.NodeExternalIP)
	for _, want := range in.Request.IPs {
		if !slices.ContainsFunc(ips, func(s string) bool { return sameIP(s, want) }) {
			out = append(out, fmt.Sprintf("IP address '%s' not in machine addresses: %s", want, strings.Join(ips, " ")))
		}
	}
	return strings.Join(out, "; "), nil
}

// hasInternalDNS compares without case and without a trailing dot.
func (m Machine) hasInternalDNS(node string) bool {
	return slices.ContainsFunc(m.addresses(corev1.NodeInternalDNS), func(a string) bool { return Fold(a) == Fold(node) })
}

// Fold brings a DNS name into the form in which names are compared.
func Fold(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

func (m Machine) addresses(kinds ...corev1.NodeAddressType) []string {
	var out []string
	for _, a := range m.Addresses {
		if slices.Contains(kinds, a.Type) {
			out = append(out, a.Address)
		}
	}
	return out
}

func sameIP(s string, want netip.Addr) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Unmap() == want
}
