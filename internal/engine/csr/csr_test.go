package csr_test

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"millwright.io/millwright/internal/engine/csr"
	"millwright.io/millwright/internal/engine/plan"
)

const node = "demo-w-z1-a1b2c"

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// young is a machine created ten minutes ago, with addresses and no node.
func young() csr.Machine {
	return csr.Machine{Name: node, CreatedAt: now.Add(-10 * time.Minute), Addresses: []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: node},
		{Type: corev1.NodeInternalDNS, Address: node},
		{Type: corev1.NodeInternalDNS, Address: node + ".Internal.example."},
		{Type: corev1.NodeInternalIP, Address: "10.0.128.5"},
		{Type: corev1.NodeInternalIP, Address: "fd00::5"},
	}}
}

func linked() csr.Machine {
	m := young()
	m.Node = node
	return m
}

func clientRequest(with ...func(*csr.Request)) csr.Request {
	r := csr.Request{
		Name: "csr-ok", Signer: certificatesv1.KubeAPIServerClientKubeletSignerName, Username: csr.Bootstrapper,
		Groups:  []string{"system:serviceaccounts", "system:serviceaccounts:openshift-machine-config-operator", "system:authenticated"},
		Usages:  []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		Created: now, CommonName: "system:node:" + node, Organizations: []string{"system:nodes"},
	}
	return changed(r, with)
}

func servingRequest(with ...func(*csr.Request)) csr.Request {
	r := csr.Request{
		Name: "csr-serve", Signer: certificatesv1.KubeletServingSignerName, Username: "system:node:" + node,
		Groups:  []string{"system:nodes", "system:authenticated"},
		Usages:  []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		Created: now, CommonName: "system:node:" + node, Organizations: []string{"system:nodes"},
		DNSNames: []string{strings.ToUpper(node)}, IPs: []netip.Addr{netip.MustParseAddr("10.0.128.5")},
	}
	return changed(r, with)
}

func componentRequest(with ...func(*csr.Request)) csr.Request {
	r := csr.Request{
		Name: "csr-ovn", Signer: certificatesv1.KubeAPIServerClientSignerName, Username: "system:node:" + node,
		Groups:  []string{"system:nodes", "system:authenticated"},
		Usages:  []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		Created: now, Lifetime: 24 * time.Hour, CommonName: "system:ovn-node:" + node, Organizations: []string{"system:ovn-nodes"},
	}
	return changed(r, with)
}

func changed(r csr.Request, with []func(*csr.Request)) csr.Request {
	for _, f := range with {
		f(&r)
	}
	return r
}

type row struct {
	name string
	in   csr.Input
	want csr.Outcome
	rule string
	says string
}

func (r row) check(t *testing.T, decide func(csr.Input) plan.Decision[csr.Verdict]) {
	t.Helper()
	r.in.Now = now
	d := decide(r.in)
	if d.Status.Outcome != r.want || d.Status.Rule != r.rule {
		t.Errorf("got %s by %s (%s), want %s by %s", d.Status.Outcome, d.Status.Rule, d.Status.Why, r.want, r.rule)
	}
	if !strings.Contains(d.Status.Why, r.says) {
		t.Errorf("says %q, want %q in it", d.Status.Why, r.says)
	}
	writes := r.want == csr.Approve || r.want == csr.Deny
	if writes != (len(d.Actions) == 1) {
		t.Errorf("got actions %v for %s", d.Actions, r.want)
	}
	if quiet := r.want == csr.Approve || r.want == csr.Ignore; quiet != (len(d.Notes) == 0) {
		t.Errorf("got notes %v for %s", d.Notes, r.want)
	}
}

func TestDecideClient(t *testing.T) {
	late := func(r *csr.Request) { r.Created = now.Add(2 * time.Hour) }
	rows := []row{
		{"first certificate", csr.Input{Request: clientRequest(), Machines: []csr.Machine{young()}}, csr.Approve, "C7", ""},
		{"three usages", csr.Input{Request: clientRequest(func(r *csr.Request) { r.Usages = append(r.Usages, certificatesv1.UsageKeyEncipherment) }), Machines: []csr.Machine{young()}}, csr.Approve, "C7", ""},
		{"full name with other case and dot", csr.Input{Request: clientRequest(func(r *csr.Request) { r.CommonName = "system:node:" + node + ".internal.example" }), Machines: []csr.Machine{young()}}, csr.Approve, "C7", ""},
		{"flow disabled", csr.Input{Request: clientRequest(), Machines: []csr.Machine{young()}, ClientDisabled: true}, csr.Wait, "C1", "CSR csr-ok for node client cert rejected as the flow is disabled"},
		{"one group too many", csr.Input{Request: clientRequest(func(r *csr.Request) { r.Groups = append(r.Groups, "admins") }), Machines: []csr.Machine{young()}}, csr.Leave, "C2", "admins"},
		{"no name", csr.Input{Request: clientRequest(func(r *csr.Request) { r.CommonName = "system:node:" })}, csr.Leave, "C3", "system:node:"},
		{"node exists", csr.Input{Request: clientRequest(), Machines: []csr.Machine{young()}, NodeExists: true}, csr.Leave, "C4", "csr-ok: node " + node + " already exists, cannot approve"},
		{"addresses not known yet", csr.Input{Request: clientRequest(), Machines: []csr.Machine{{Name: node}}}, csr.Wait, "C5", "csr-ok: failed to find machine with InternalDNS matching " + node + ", cannot approve"},
		{"two machines of one name", csr.Input{Request: clientRequest(), Machines: []csr.Machine{young(), young()}}, csr.Wait, "C5", "2 machines"},
		{"already joined", csr.Input{Request: clientRequest(), Machines: []csr.Machine{linked()}}, csr.Leave, "C6", "already has node ref, cannot approve"},
		{"late", csr.Input{Request: clientRequest(late), Machines: []csr.Machine{young()}}, csr.Leave, "C7", "csr-ok: CSR creation time 2026-11-30 14:00:00 +0000 UTC not in range (2026-11-30 11:49:50 +0000 UTC, 2026-11-30 13:50:00 +0000 UTC)"},
		{"before its machine", csr.Input{Request: clientRequest(func(r *csr.Request) { r.Created = now.Add(-10*time.Minute - 10*time.Second) }), Machines: []csr.Machine{young()}}, csr.Leave, "C7", "not in range"},
		{"wants to be an admin", csr.Input{Request: clientRequest(func(r *csr.Request) { r.Organizations = []string{"system:masters"} }), Machines: []csr.Machine{young()}}, csr.Deny, "masters", "system:masters"},
		{"a name beside the subject", csr.Input{Request: clientRequest(func(r *csr.Request) { r.DNSNames = []string{"x"} }), Machines: []csr.Machine{young()}}, csr.Leave, "S1", "csr-ok: Unrecoverable serving cert error, cannot approve: "},
		{"renewal by the node", csr.Input{Request: clientRequest(func(r *csr.Request) { r.Username = "system:node:" + node }), Machines: []csr.Machine{linked()}}, csr.Ignore, "queue", ""},
		{"another signer", csr.Input{Request: clientRequest(func(r *csr.Request) { r.Signer = "example.com/network-plugin" }), Machines: []csr.Machine{young()}}, csr.Ignore, "queue", ""},
		{"decided", csr.Input{Request: clientRequest(func(r *csr.Request) { r.Decided = true }), Machines: []csr.Machine{young()}}, csr.Ignore, "decided", ""},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) { r.check(t, csr.Decide) })
	}
}

func TestDecideServing(t *testing.T) {
	m := []csr.Machine{linked()}
	rows := []row{
		{"own names", csr.Input{Request: servingRequest(), Machines: m}, csr.Approve, "S3", ""},
		{"several addresses", csr.Input{Request: servingRequest(func(r *csr.Request) { r.IPs = append(r.IPs, netip.MustParseAddr("fd00:0::5")) }), Machines: m}, csr.Approve, "S3", ""},
		{"not linked yet", csr.Input{Request: servingRequest(), Machines: []csr.Machine{young()}}, csr.Wait, "S3", "csr-serve: could not authorize CSR: exhausted all authorization methods: [unable to find machine for node]"},
		{"foreign name", csr.Input{Request: servingRequest(func(r *csr.Request) { r.DNSNames = []string{"api.example"} }), Machines: m}, csr.Wait, "S3", "DNS name 'api.example' not in machine names: " + node + " " + node},
		{"foreign address", csr.Input{Request: servingRequest(func(r *csr.Request) { r.IPs = []netip.Addr{netip.MustParseAddr("10.0.0.1")} }), Machines: m}, csr.Wait, "S3", "IP address '10.0.0.1' not in machine addresses: 10.0.128.5 fd00::5"},
		{"for another node", csr.Input{Request: servingRequest(func(r *csr.Request) { r.CommonName = "system:node:other" }), Machines: m}, csr.Leave, "S1", "Unrecoverable serving cert error"},
		{"no node group", csr.Input{Request: servingRequest(func(r *csr.Request) { r.Groups = []string{"system:authenticated"} }), Machines: m}, csr.Ignore, "queue", ""},
		{"client usage", csr.Input{Request: servingRequest(func(r *csr.Request) { r.Usages = append(r.Usages, certificatesv1.UsageClientAuth) }), Machines: m}, csr.Leave, "S1", "client auth"},
		{"one usage", csr.Input{Request: servingRequest(func(r *csr.Request) { r.Usages = r.Usages[:1] }), Machines: m}, csr.Leave, "S1", "usages"},
		{"no organization", csr.Input{Request: servingRequest(func(r *csr.Request) { r.Organizations = nil }), Machines: m}, csr.Leave, "S1", "organizations"},
		{"a URI", csr.Input{Request: servingRequest(func(r *csr.Request) { r.URIs = []string{"spiffe://x"} }), Machines: m}, csr.Leave, "S1", "spiffe://x"},
		{"not a node", csr.Input{Request: servingRequest(func(r *csr.Request) { r.Username = "admin" }), Machines: m}, csr.Leave, "S1", "admin"},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) { r.check(t, csr.Decide) })
	}
}

func TestDecideNodeClient(t *testing.T) {
	m := []csr.Machine{linked()}
	rows := []row{
		{"network", csr.Input{Request: componentRequest(), Machines: m}, csr.Approve, "N8", ""},
		{"multus", csr.Input{Request: componentRequest(func(r *csr.Request) {
			r.CommonName, r.Organizations = "system:multus:"+node, []string{"system:multus"}
		}), Machines: m}, csr.Approve, "N8", ""},
		{"renewal by the component", csr.Input{Request: componentRequest(func(r *csr.Request) {
			r.Username, r.Groups = "system:ovn-node:"+node, []string{"system:ovn-nodes", "system:authenticated"}
		}), Machines: m}, csr.Approve, "N8", ""},
		{"somebody else's user", csr.Input{Request: componentRequest(func(r *csr.Request) { r.Username = "system:multus:" + node }), Machines: m}, csr.Leave, "N1", "system:multus:" + node},
		{"more groups", csr.Input{Request: componentRequest(func(r *csr.Request) { r.Groups = append(r.Groups, "system:masters") }), Machines: m}, csr.Leave, "N2", "system:masters"},
		{"another node", csr.Input{Request: componentRequest(func(r *csr.Request) { r.CommonName = "system:ovn-node:other" }), Machines: m}, csr.Leave, "N3", `common name "system:ovn-node:other", want "system:ovn-node:` + node},
		{"more organizations", csr.Input{Request: componentRequest(func(r *csr.Request) { r.Organizations = []string{"system:ovn-nodes", "system:masters"} }), Machines: m}, csr.Leave, "N4", "system:ovn-nodes alone"},
		{"names", csr.Input{Request: componentRequest(func(r *csr.Request) { r.DNSNames = []string{"x"} }), Machines: m}, csr.Leave, "N5", "[x]"},
		{"server usage", csr.Input{Request: componentRequest(func(r *csr.Request) { r.Usages = append(r.Usages, certificatesv1.UsageServerAuth) }), Machines: m}, csr.Leave, "N6", "server auth"},
		{"no lifetime", csr.Input{Request: componentRequest(func(r *csr.Request) { r.Lifetime = 0 }), Machines: m}, csr.Leave, "N7", "expirationSeconds 0, want 1 to 86400"},
		{"long life", csr.Input{Request: componentRequest(func(r *csr.Request) { r.Lifetime = 25 * time.Hour }), Machines: m}, csr.Leave, "N7", "90000"},
		{"no machine", csr.Input{Request: componentRequest(), Machines: []csr.Machine{young()}}, csr.Wait, "N8", "no machine is linked to node " + node},
		{"a node wants something else", csr.Input{Request: componentRequest(func(r *csr.Request) { r.CommonName = "admin" }), Machines: m}, csr.Leave, "queue", "admin"},
		{"a user's own", csr.Input{Request: componentRequest(func(r *csr.Request) { r.CommonName, r.Username = "jane", "jane" }), Machines: m}, csr.Ignore, "queue", ""},
		{"kubelet signer", csr.Input{Request: clientRequest(), Machines: []csr.Machine{young()}}, csr.Ignore, "queue", ""},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) { r.check(t, csr.DecideNodeClient) })
	}
}

func TestApprovalsCarryTheKnownTexts(t *testing.T) {
	d := csr.Decide(csr.Input{Request: clientRequest(), Machines: []csr.Machine{young()}, Now: now})
	want := []plan.Action{plan.ApproveRequest{Name: "csr-ok", Reason: "NodeCSRApprove", Message: "This CSR was approved by the Node CSR Approver (cluster-machine-approver)"}}
	if diff := cmp.Diff(want, d.Actions); diff != "" {
		t.Errorf("actions (-want +got)\n%s", diff)
	}
	d = csr.DecideNodeClient(csr.Input{Request: componentRequest(), Machines: []csr.Machine{linked()}, Now: now})
	want = []plan.Action{plan.ApproveRequest{Name: "csr-ovn", Reason: "AutoApproved", Message: `Auto-approved CSR "csr-ovn"`}}
	if diff := cmp.Diff(want, d.Actions); diff != "" {
		t.Errorf("actions (-want +got)\n%s", diff)
	}
}

// A flood for one name stops that name only, and only for a while.
func TestApprovalsAreLimitedPerSubject(t *testing.T) {
	in := csr.Input{Request: clientRequest(), Machines: []csr.Machine{young()}, Now: now}
	for i := range csr.MaxRecent {
		in.Recent = append(in.Recent, now.Add(-time.Duration(i)*time.Minute))
	}
	d := csr.Decide(in)
	if d.Status.Outcome != csr.Wait || d.Wake != time.Hour-(csr.MaxRecent-1)*time.Minute {
		t.Errorf("got %s and wake %v, want to wait for the oldest to leave the hour", d.Status.Outcome, d.Wake)
	}
	in.Now = now.Add(d.Wake)
	in.Request.Created = in.Now
	if d := csr.Decide(in); d.Status.Outcome != csr.Approve {
		t.Errorf("got %s (%s) after the wake, want Approve", d.Status.Outcome, d.Status.Why)
	}
}

// A flood: 300 real nodes, each asking three times, are served whatever else
// is pending; nodes that do not exist wait, and other signers are left alone.
func TestFloodKeepsNoRealNodeWaiting(t *testing.T) {
	got := map[string]int{}
	ask := func(kind, node, signer string, machines ...csr.Machine) {
		r := clientRequest()
		r.Signer, r.CommonName = signer, "system:node:"+node
		got[kind+" "+string(csr.Decide(csr.Input{Request: r, Machines: machines, Now: now}).Status.Outcome)]++
	}
	for i := range 500 {
		ask("ghost", fmt.Sprintf("ghost-%03d", i), certificatesv1.KubeAPIServerClientKubeletSignerName)
	}
	for range 150 {
		ask("foreign", "n", "example.com/network-plugin")
	}
	for i := range 300 {
		node := fmt.Sprintf("w-%03d", i)
		m := young()
		m.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalDNS, Address: node}}
		for range 3 {
			ask("real", node, certificatesv1.KubeAPIServerClientKubeletSignerName, m)
		}
	}
	if want := map[string]int{"ghost Wait": 500, "foreign Ignore": 150, "real Approve": 900}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// What is approved never depends on machines that have nothing to do with it.
func TestOtherMachinesChangeNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := csr.Input{Now: now, NodeExists: rapid.Bool().Draw(rt, "exists")}
		in.Request = rapid.SampledFrom([]csr.Request{clientRequest(), servingRequest(), componentRequest()}).Draw(rt, "request")
		if rapid.Bool().Draw(rt, "known") {
			in.Machines = append(in.Machines, rapid.SampledFrom([]csr.Machine{young(), linked()}).Draw(rt, "machine"))
		}
		want, wantClient := csr.Decide(in), csr.DecideNodeClient(in)
		for i := range rapid.IntRange(0, 4).Draw(rt, "others") {
			other := young()
			other.Name = fmt.Sprintf("other-%d", i)
			other.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalDNS, Address: other.Name}}
			if rapid.Bool().Draw(rt, "linked") {
				other.Node = other.Name
			}
			in.Machines = append([]csr.Machine{other}, in.Machines...)
		}
		if diff := cmp.Diff(want, csr.Decide(in)); diff != "" {
			rt.Fatalf("others changed the verdict\n%s", diff)
		}
		if diff := cmp.Diff(wantClient, csr.DecideNodeClient(in)); diff != "" {
			rt.Fatalf("others changed the verdict\n%s", diff)
		}
	})
}
