// Package csr decides about certificate signing requests of nodes: approve,
// deny, wait for something that may still happen, or leave alone, each with
// the reason. There are two rule sets: Decide for the two kubelet signers and
// DecideNodeClient for the short-lived client certificates of components that
// run on every node.
//
// It is pure: it parses what it is given and compares it with machines it is
// given. It never looks anything up, dials a node or reads a clock, and it
// trusts a request's user name and groups only because the API server wrote
// them.
//
//	d := csr.Decide(csr.Input{Request: req, Machines: candidates, Now: now})
//	fmt.Println(d.Status.Outcome, d.Status.Why)
package csr

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"millwright.io/millwright/internal/engine/plan"
)

// Outcome is what becomes of a request.
type Outcome string

// Outcomes. Everything but Approve and Deny leaves the request pending.
const (
	Approve Outcome = "Approve"
	Deny    Outcome = "Deny"
	Wait    Outcome = "Wait"   // may be approved once a machine changes
	Leave   Outcome = "Leave"  // ours to judge, and never to be approved as it is
	Ignore  Outcome = "Ignore" // somebody else's to judge, or judged already
)

// Verdict is the status of a decision about one request.
type Verdict struct {
	Outcome Outcome
	Rule    string // the check that decided, e.g. C5
	Node    string // the node the request is for; empty when it names none
	Why     string // in words; empty for Approve and Ignore
	// Differences are the names and addresses that a serving request asks for
	// and its machine lacks; empty when there are none.
	Differences string
}

// Machine is a machine as far as certificates are concerned.
type Machine struct {
	Name      string
	CreatedAt time.Time
	Node      string // the name of its node; empty when it has none yet
	Addresses []corev1.NodeAddress
}

// Input is everything a decision depends on. Machines are those that may
// matter: by InternalDNS address or by node name. More of them change nothing.
type Input struct {
	Request    Request
	Machines   []Machine
	NodeExists bool // a Node of the name that the request is for
	// ClientDisabled switches off approval of first client certificates.
	ClientDisabled bool
	// Recent are the creation times of the requests for the same subject and
	// signer that are approved already.
	Recent []time.Time
	// Presented is the serving certificate of the node that asks for one; nil:
	// not known.
	Presented *Presented
	Now       time.Time
}

// Limits of approvals for one subject and signer. They bound what one broken
// or stolen identity can have signed without standing in anybody else's way.
const (
	MaxRecent  = 32
	RecentSpan = time.Hour
)

// decision turns a verdict into a decision; reason and message are those of
// the approval or denial.
func decision(in Input, v Verdict, reason, message string) plan.Decision[Verdict] {
	d := plan.Decision[Verdict]{Status: v}
	name := in.Request.Name
	switch v.Outcome {
	case Approve:
		d.Actions = []plan.Action{plan.ApproveRequest{Name: name, Reason: reason, Message: message}}
	case Deny:
		d.Actions = []plan.Action{plan.DenyRequest{Name: name, Reason: reason, Message: message}}
		d.Events = []plan.Event{{Type: plan.Warning, Reason: reason, Message: message}}
		d.Notes = []plan.Note{{Message: v.Why}}
	case Wait, Leave:
		d.Notes = []plan.Note{{Message: v.Why}}
	case Ignore:
	}
	return d
}

// limited turns an approval into a wait while the subject has had its share,
// and says for how long.
func limited(in Input, v Verdict) (Verdict, time.Duration) {
	if v.Outcome != Approve {
		return v, 0
	}
	n, left := 0, RecentSpan
	for _, t := range in.Recent {
		if age := in.Now.Sub(t); age < RecentSpan {
			n++
			left = min(left, RecentSpan-age)
		}
	}
	if n < MaxRecent {
		return v, 0
	}
	v.Outcome, v.Rule = Wait, "limit"
	v.Why = fmt.Sprintf("%s: %d requests for %s were approved within %s, cannot approve one more yet", in.Request.Name, n, in.Request.CommonName, RecentSpan)
	return v, left
}
