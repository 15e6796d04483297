package approver_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineapi/approver"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/engine/csr"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/memapi"
	"millwright.io/millwright/internal/pki"
)

const node = "demo-worker-francecentral2-x7k2p"

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// world is both controllers on an API in memory.
type world struct {
	t             *testing.T
	api           *memapi.API
	clk           *clocktesting.FakeClock
	log           *bytes.Buffer
	rec           *events.FakeRecorder
	machine, comp kube.Controller
}

func newWorld(t *testing.T, objs ...client.Object) *world {
	t.Helper()
	w := &world{t: t, clk: clocktesting.NewFakeClock(start), log: &bytes.Buffer{}, rec: events.NewFakeRecorder(100)}
	w.api = memapi.New(newScheme(t), w.clk, objs...)
	d := approver.Deps{Client: w.api, Live: w.api, Clock: w.clk, Recorder: w.rec,
		Log: kube.KlogTextTo("", kube.KlogOptions{Out: w.log, Clock: w.clk})}
	w.machine, w.comp = approver.NewMachine(d), approver.NewNodeClient(d)
	if err := kube.AddIndexes(t.Context(), w.api, approver.Indexes()...); err != nil {
		t.Fatal(err)
	}
	return w
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{machinev1beta1.Install, corev1.AddToScheme, certificatesv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// step runs both controllers on a request and returns its answer.
func (w *world) step(name string) []certificatesv1.CertificateSigningRequestCondition {
	w.t.Helper()
	for _, c := range []kube.Controller{w.machine, w.comp} {
		if _, err := c.Step(w.t.Context(), client.ObjectKey{Name: name}); err != nil {
			w.t.Fatalf("%s: %v", c.Name, err)
		}
	}
	return answer(w.t, w.api, name)
}

func answer(t *testing.T, r client.Reader, name string) []certificatesv1.CertificateSigningRequestCondition {
	t.Helper()
	var o certificatesv1.CertificateSigningRequest
	if err := r.Get(t.Context(), client.ObjectKey{Name: name}, &o); err != nil {
		t.Fatal(err)
	}
	for i := range o.Status.Conditions {
		o.Status.Conditions[i].LastUpdateTime = metav1.Time{}
		o.Status.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	return o.Status.Conditions
}

func (w *world) create(objs ...client.Object) {
	w.t.Helper()
	for _, o := range objs {
		if err := w.api.Create(w.t.Context(), o); err != nil {
			w.t.Fatal(err)
		}
	}
}

// machine is provisioned: its addresses are known, it has no node yet.
func machine(with ...func(*machinev1beta1.Machine)) *machinev1beta1.Machine {
	m := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: wire.Namespace, Name: node, CreationTimestamp: metav1.NewTime(start)}}
	m.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: node},
		{Type: corev1.NodeInternalDNS, Address: node},
		{Type: corev1.NodeInternalIP, Address: "10.0.128.5"},
	}
	for _, f := range with {
		f(m)
	}
	return m
}

func linked(m *machinev1beta1.Machine) {
	m.Status.NodeRef = &corev1.ObjectReference{Kind: "Node", Name: node}
}

func request(t testing.TB, name, signer, user, cn, org string, usages []certificatesv1.KeyUsage, groups ...string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	var dns []string
	var ips []net.IP
	if signer == certificatesv1.KubeletServingSignerName {
		dns, ips = []string{node}, []net.IP{net.ParseIP("10.0.128.5")}
	}
	o := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       certificatesv1.CertificateSigningRequestSpec{Request: certificateRequest(t, cn, org, dns, ips), SignerName: signer, Username: user, Groups: groups, Usages: usages},
	}
	if signer == certificatesv1.KubeAPIServerClientSignerName {
		o.Spec.ExpirationSeconds = ptr.To[int32](86400)
	}
	return o
}

func certificateRequest(t testing.TB, cn, org string, dns []string, ips []net.IP) []byte {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	pem, err := pki.NewCSR(key, cn, []string{org}, dns, ips)
	if err != nil {
		t.Fatal(err)
	}
	return pem
}

func clientUsages() []certificatesv1.KeyUsage {
	return []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
}

func clientRequest(t testing.TB, name string) *certificatesv1.CertificateSigningRequest {
	return request(t, name, certificatesv1.KubeAPIServerClientKubeletSignerName, csr.Bootstrapper, "system:node:"+node, "system:nodes", clientUsages(),
		"system:serviceaccounts", "system:serviceaccounts:openshift-machine-config-operator", "system:authenticated")
}

func servingRequest(t testing.TB, name string) *certificatesv1.CertificateSigningRequest {
	return request(t, name, certificatesv1.KubeletServingSignerName, "system:node:"+node, "system:node:"+node, "system:nodes",
		[]certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}, "system:nodes", "system:authenticated")
}

func componentRequest(t testing.TB, name string) *certificatesv1.CertificateSigningRequest {
	return request(t, name, certificatesv1.KubeAPIServerClientSignerName, "system:node:"+node, "system:ovn-node:"+node, "system:ovn-nodes", clientUsages(),
		"system:nodes", "system:authenticated")
}

// approval is the answer of the machine approver, word for word.
var approval = []certificatesv1.CertificateSigningRequestCondition{{
	Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "NodeCSRApprove",
	Message: "This CSR was approved by the Node CSR Approver (cluster-machine-approver)",
}}

func TestNodeJoinsInThreeRequestsAndTwoWrites(t *testing.T) {
	m := machine()
	w := newWorld(t, m)
	before := w.api.Writes()
	w.create(clientRequest(t, "csr-1"))
	if diff := cmp.Diff(approval, w.step("csr-1")); diff != "" {
		t.Fatalf("client (-want +got)\n%s\n%s", diff, w.log)
	}
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, servingRequest(t, "csr-2"))
	if got := w.step("csr-2"); len(got) != 0 {
		t.Fatalf("serving request answered with %v before the machine has its node", got)
	}
	var have machinev1beta1.Machine
	if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(m), &have); err != nil {
		t.Fatal(err)
	}
	linked(&have)
	if err := w.api.Status().Update(t.Context(), &have); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]client.ObjectKey{{Name: "csr-2"}}, w.machine.Watches[0].Map(t.Context(), w.api, &have)); diff != "" {
		t.Fatalf("the link wakes (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(approval, w.step("csr-2")); diff != "" {
		t.Fatalf("serving (-want +got)\n%s\n%s", diff, w.log)
	}
	w.create(componentRequest(t, "csr-3"))
	want := []certificatesv1.CertificateSigningRequestCondition{{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved", Message: `Auto-approved CSR "csr-3"`,
	}}
	if diff := cmp.Diff(want, w.step("csr-3")); diff != "" {
		t.Fatalf("component (-want +got)\n%s\n%s", diff, w.log)
	}
	for _, n := range []string{"csr-1", "csr-2", "csr-3"} {
		w.step(n)
	}
	answers := 0
	for _, op := range w.api.Log()[before:] {
		if op.Kind == "CertificateSigningRequest/approval" {
			answers++
		}
	}
	if answers != 3 {
		t.Errorf("%d answers for three requests, want one each", answers)
	}
	if !strings.Contains(w.log.String(), "] csr-2: could not authorize CSR: exhausted all authorization methods: [unable to find machine for node]\n") ||
		!strings.Contains(w.log.String(), "] CSR csr-2 approved\n") {
		t.Errorf("log lacks the wait or the answer:\n%s", w.log)
	}
}

func TestClientRequestWaitsForAddresses(t *testing.T) {
	m := machine(func(m *machinev1beta1.Machine) { m.Status.Addresses = nil })
	w := newWorld(t, m)
	w.create(clientRequest(t, "csr-1"))
	if got := w.step("csr-1"); len(got) != 0 {
		t.Fatalf("answered with %v", got)
	}
	if want := "] csr-1: failed to find machine with InternalDNS matching " + node + ", cannot approve\n"; !strings.Contains(w.log.String(), want) {
		t.Errorf("log lacks %q:\n%s", want, w.log)
	}
	old := m.DeepCopy()
	m.Status.Addresses = machine().Status.Addresses
	if !w.machine.Watches[0].Changed(old, m) {
		t.Error("new addresses wake nobody")
	}
	if w.machine.Watches[0].Changed(m, m.DeepCopy()) {
		t.Error("a machine without changes wakes somebody")
	}
}

func TestPendingStaysPending(t *testing.T) {
	joined := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	broken := clientRequest(t, "csr-1")
	broken.Spec.Request = []byte("not a request")
	foreign := clientRequest(t, "csr-1")
	foreign.Spec.SignerName = "example.com/network-plugin"
	for _, r := range []struct {
		name    string
		objs    []client.Object
		request *certificatesv1.CertificateSigningRequest
		says    string
	}{
		{"joined", []client.Object{machine(), joined}, clientRequest(t, "csr-1"), "csr-1: node " + node + " already exists, cannot approve"},
		{"linked", []client.Object{machine(linked)}, clientRequest(t, "csr-1"), "already has node ref, cannot approve"},
		{"late", []client.Object{machine(func(m *machinev1beta1.Machine) { m.CreationTimestamp = metav1.NewTime(start.Add(-3 * time.Hour)) })}, clientRequest(t, "csr-1"), "csr-1: CSR creation time"},
		{"unreadable", []client.Object{machine()}, broken, "csr-1: parse request of csr-1: no PEM block, cannot approve"},
		{"foreign signer", []client.Object{machine()}, foreign, ""},
		{"component without machine", nil, componentRequest(t, "csr-1"), "no machine is linked to node " + node},
	} {
		t.Run(r.name, func(t *testing.T) {
			w := newWorld(t, r.objs...)
			w.create(r.request)
			before := w.api.Writes()
			if got := w.step("csr-1"); len(got) != 0 {
				t.Errorf("answered with %v", got)
			}
			if w.api.Writes() != before {
				t.Errorf("wrote %v", w.api.Log()[before:])
			}
			if (r.says == "") != (w.log.Len() == 0) || !strings.Contains(w.log.String(), r.says) {
				t.Errorf("log says %q, want %q", w.log, r.says)
			}
		})
	}
}

func TestMastersAreDeniedAndTold(t *testing.T) {
	w := newWorld(t, machine())
	o := request(t, "csr-1", certificatesv1.KubeAPIServerClientKubeletSignerName, csr.Bootstrapper, "system:node:"+node, "system:masters", clientUsages(),
		"system:serviceaccounts", "system:serviceaccounts:openshift-machine-config-operator", "system:authenticated")
	w.create(o)
	got := w.step("csr-1")
	if len(got) != 1 || got[0].Type != certificatesv1.CertificateDenied || !strings.Contains(got[0].Message, "system:masters") {
		t.Errorf("answered with %v, want a denial that names the group", got)
	}
	select {
	case e := <-w.rec.Events:
		if !strings.HasPrefix(e, "Warning NodeCSRDeny") {
			t.Errorf("event %q", e)
		}
	default:
		t.Error("nobody was told")
	}
}

// A flood of one name stops that name and nobody else.
func TestFloodOfOneNameStopsThatNameOnly(t *testing.T) {
	other := machine(func(m *machinev1beta1.Machine) {
		m.Name = "other"
		m.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalDNS, Address: "other"}}
	})
	w := newWorld(t, machine(), other)
	for i := range csr.MaxRecent + 5 {
		name := "csr-" + string(rune('a'+i/10)) + string(rune('0'+i%10))
		w.create(clientRequest(t, name))
		if got := len(w.step(name)); (got == 1) != (i < csr.MaxRecent) {
			t.Fatalf("request %d has %d answers", i, got)
		}
	}
	w.create(request(t, "csr-other", certificatesv1.KubeAPIServerClientKubeletSignerName, csr.Bootstrapper, "system:node:other", "system:nodes", clientUsages(),
		"system:serviceaccounts", "system:serviceaccounts:openshift-machine-config-operator", "system:authenticated"))
	if got := w.step("csr-other"); len(got) != 1 {
		t.Errorf("the other name has %d answers, want 1:\n%s", len(got), w.log)
	}
}

func TestPreviewWritesNothing(t *testing.T) {
	w := newWorld(t, machine())
	w.create(clientRequest(t, "csr-1"))
	before := w.api.Writes()
	d, err := w.machine.Decide(context.Background(), w.api, client.ObjectKey{Name: "csr-1"})
	if err != nil || len(d.Actions) != 1 || d.Actions[0].String() != "approve signing request csr-1" {
		t.Errorf("got %v, %v; want one approval", d.Actions, err)
	}
	if w.api.Writes() != before {
		t.Errorf("a preview wrote %v", w.api.Log()[before:])
	}
}
