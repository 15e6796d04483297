package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/cli"
	"millwright.io/millwright/internal/dialect/machineapi/approver"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/engine/csr"
	"millwright.io/millwright/internal/engine/plan"
)

func sortedNames(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

func explainRequest(ctx context.Context, in cli.ExplainInput) (cli.Explanation, error) {
	var o certificatesv1.CertificateSigningRequest
	if err := in.Reader.Get(ctx, in.Key, &o); err != nil {
		return cli.Explanation{}, err
	}
	s, err := newScene(ctx, in, wire.Namespace)
	if err != nil {
		return cli.Explanation{}, err
	}
	e, _, err := s.request(ctx, &o)
	if err != nil {
		return e, err
	}
	told, err := in.Events(ctx, "CertificateSigningRequest", &o)
	e.Evidence = append(e.Evidence, told...)
	return e, err
}

// request explains a signing request by the verdict of its approver.
func (s *scene) request(ctx context.Context, o *certificatesv1.CertificateSigningRequest) (cli.Explanation, plan.Erased, error) {
	for _, c := range o.Status.Conditions {
		since := cli.Since(c.LastUpdateTime.Time)
		switch c.Type {
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			e := stuck(string(c.Type), "The request was refused, and stays so: a new one is needed. "+c.Message)
			e.Evidence = []cli.Evidence{{What: "condition " + string(c.Type) + " (" + c.Reason + ")", Text: c.Message, Since: since}}
			return e, plan.Erased{}, nil
		case certificatesv1.CertificateApproved:
			e := fine("The request is approved, and its certificate is issued.")
			if len(o.Status.Certificate) == 0 {
				e = progressing("The request is approved; its signer has not issued the certificate yet.")
			}
			e.Evidence = []cli.Evidence{{What: "condition Approved (" + c.Reason + ")", Text: c.Message, Since: since}}
			return e, plan.Erased{}, nil
		}
	}
	deps := approver.Deps{Client: s.api, Live: s.api, Clock: s.clk, Recorder: recorder(), Log: quietLog()}
	c := approver.NewMachine(deps)
	if o.Spec.SignerName == certificatesv1.KubeAPIServerClientSignerName {
		c = approver.NewNodeClient(deps)
	}
	d, err := s.decide(ctx, c, client.ObjectKeyFromObject(o))
	if err != nil {
		return cli.Explanation{}, d, fmt.Errorf("ask the approver: %w", err)
	}
	v, _ := d.Status.(csr.Verdict)
	e := s.verdict(o, v)
	e.Evidence = append([]cli.Evidence{{What: "asked for by " + o.Spec.Username, Text: "signer " + o.Spec.SignerName, Since: cli.Since(o.CreationTimestamp.Time)}}, e.Evidence...)
	return e, d, nil
}

// verdict words what an approver thinks of a request.
func (s *scene) verdict(o *certificatesv1.CertificateSigningRequest, v csr.Verdict) cli.Explanation {
	approve := "oc adm certificate approve " + o.Name
	var e cli.Explanation
	switch v.Outcome {
	case csr.Approve:
		if s.age(o.CreationTimestamp.Time) < unseen {
			return progressing("The request is as it should be and is about to be approved.")
		}
		return stuck("ApproverDown", "The request is as it should be, and nobody approves it: the approver does not run.",
			step("See whether the approver runs, and what it says:", "oc -n openshift-cluster-machine-approver logs deployment/machine-approver -c machine-approver-controller --tail=50"),
			step("Meanwhile, by hand:", approve))
	case csr.Deny:
		return stuck("Denied", "The request is refused: "+v.Why+".")
	case csr.Wait:
		e = stuck("WaitingForMachine", "The request waits for its Machine and is approved by itself as soon as the Machine fits: "+v.Why+".")
		if v.Differences != "" {
			e.Cause, e.Why = "Differences", "The Node asks for names or addresses that its Machine does not have. The request is approved by itself when the Machine has them; else nobody may have them certified."
		}
		e.Next = append(e.Next, step("Compare with the Machine of node "+v.Node+":", "oc -n %s get machines -o wide", wire.Namespace))
	case csr.Leave:
		e = stuck("NotApproved", "The request is not approved as it is: "+v.Why+".", step("Only if you know where it comes from and want it all the same:", approve))
	default:
		return progressing("The request is not for the machine approver to judge: its signer, or who asks, is somebody else's business.",
			step("Look at it:", "oc get csr %s -o yaml", o.Name))
	}
	e.Evidence = append(e.Evidence, cli.Evidence{What: "rule " + v.Rule, Text: v.Why})
	for _, d := range strings.Split(v.Differences, "; ") {
		if d != "" {
			e.Evidence = append(e.Evidence, cli.Evidence{What: "difference", Text: d})
		}
	}
	return e
}
