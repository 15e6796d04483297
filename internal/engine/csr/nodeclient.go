package csr

import (
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"millwright.io/millwright/internal/engine/plan"
)

// Identities of the components that run on every node and talk to the API
// server under a name of their own.
const (
	ovnPrefix    = "system:ovn-node:"
	multusPrefix = "system:multus:"
)

// MaxNodeClientLifetime is the longest life of such a certificate.
const MaxNodeClientLifetime = 24 * time.Hour

// NodeClientApproveReason is the reason of such an approval.
const NodeClientApproveReason = "AutoApproved"

// component is one identity per node.
type component struct{ prefix, group string }

func components() []component {
	return []component{{ovnPrefix, "system:ovn-nodes"}, {multusPrefix, "system:multus"}}
}

// DecideNodeClient judges requests of signer
// kubernetes.io/kube-apiserver-client for system:ovn-node:<node> and
// system:multus:<node>. All of these must hold, else the request stays
// pending with the reason:
//
//	N1  the user is the node itself (system:node:<node>) or the component on it
//	N2  its groups are those of that user and nothing else
//	N3  the common name names the user's own node
//	N4  the organization is the component's group, alone
//	N5  no subject alternative names
//	N6  the usages are digital signature and client auth
//	N7  expirationSeconds is set and at most 24 hours
//	N8  a machine is linked to the node
//
// Requests of the signer that nodes have nothing to do with are ignored.
func DecideNodeClient(in Input) plan.Decision[Verdict] {
	v, wait := limited(in, judgeNodeClient(in))
	d := decision(in, v, NodeClientApproveReason, fmt.Sprintf("Auto-approved CSR %q", in.Request.Name))
	d.Wake = wait
	return d
}

func judgeNodeClient(in Input) Verdict {
	r := in.Request
	if r.Decided || r.Signer != certificatesv1.KubeAPIServerClientSignerName {
		return Verdict{Outcome: Ignore, Rule: "queue"}
	}
	i := slices.IndexFunc(components(), func(c component) bool { return strings.HasPrefix(r.CommonName, c.prefix) })
	if i < 0 {
		if !strings.HasPrefix(r.Username, nodePrefix) {
			return Verdict{Outcome: Ignore, Rule: "queue"}
		}
		return Verdict{Outcome: Leave, Rule: "queue", Node: strings.TrimPrefix(r.Username, nodePrefix),
			Why: fmt.Sprintf("%s: common name %q is neither %s<node> nor %s<node>, cannot approve", r.Name, r.CommonName, ovnPrefix, multusPrefix)}
	}
	c := components()[i]
	node, rule, err := nodeClientNode(r, c)
	if err != nil {
		return Verdict{Outcome: Leave, Rule: rule, Node: node, Why: fmt.Sprintf("%s: %s, cannot approve", r.Name, err)}
	}
	if !slices.ContainsFunc(in.Machines, func(m Machine) bool { return m.Node == node }) {
		return Verdict{Outcome: Wait, Rule: "N8", Node: node, Why: fmt.Sprintf("%s: no machine is linked to node %s, cannot approve", r.Name, node)}
	}
	return Verdict{Outcome: Approve, Rule: "N8", Node: node}
}

// nodeClientNode applies N1 to N7 and returns the node, or the rule that
// failed and why.
func nodeClientNode(r Request, c component) (node, rule string, err error) {
	node, byNode := strings.CutPrefix(r.Username, nodePrefix)
	userGroup := nodeGroup
	if !byNode {
		var byComponent bool
		if node, byComponent = strings.CutPrefix(r.Username, c.prefix); !byComponent {
			return "", "N1", fmt.Errorf("user %q, want %s<node> or %s<node>", r.Username, nodePrefix, c.prefix)
		}
		userGroup = c.group
	}
	switch {
	case node == "":
		return node, "N1", fmt.Errorf("user %q names no node", r.Username)
	case !sameSet(r.Groups, userGroup, authenticated):
		return node, "N2", fmt.Errorf("groups %v, want %s and %s", r.Groups, userGroup, authenticated)
	case r.CommonName != c.prefix+node:
		return node, "N3", fmt.Errorf("common name %q, want %q", r.CommonName, c.prefix+node)
	case !slices.Equal(r.Organizations, []string{c.group}):
		return node, "N4", fmt.Errorf("organizations %v, want %s alone", r.Organizations, c.group)
	case r.hasNames():
		return node, "N5", fmt.Errorf("subject alternative names %v %v %v %v, want none", r.DNSNames, r.IPs, r.Emails, r.URIs)
	case !sameSet(r.Usages, certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth):
		return node, "N6", fmt.Errorf("usages %v, want digital signature and client auth", r.Usages)
	case r.Lifetime <= 0 || r.Lifetime > MaxNodeClientLifetime:
		return node, "N7", fmt.Errorf("expirationSeconds %d, want 1 to %d", int64(r.Lifetime/time.Second), int64(MaxNodeClientLifetime/time.Second))
	}
	return node, "", nil
}
