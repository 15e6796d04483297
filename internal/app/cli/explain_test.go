package cli

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"millwright.io/millwright/internal/cli"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/engine/csr"
	"millwright.io/millwright/internal/engine/health"
	engine "millwright.io/millwright/internal/engine/machine"
)

var updateExplain = flag.Bool("update-explain", false, "rewrite the golden explanations")

// explainNow is the newest moment of every stuck world here: the heartbeat of
// its Nodes.
var explainNow = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(explainNow.Add(-d)) }

func stuckMachine(name, phase string, change ...func(*machinev1beta1.Machine)) *machinev1beta1.Machine {
	m := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: wire.Namespace, Name: name, UID: types.UID("uid-" + name), CreationTimestamp: ago(time.Hour), Finalizers: []string{wire.MachineFinalizer},
		Labels:          map[string]string{wire.LabelCluster: "demo", wire.LabelMachineSet: "w"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "machine.openshift.io/v1beta1", Kind: "MachineSet", Name: "w", UID: "uid-w", Controller: ptr.To(true)}},
	}}
	m.Status.Phase, m.Status.LastUpdated = ptr.To(phase), ptr.To(ago(40*time.Minute))
	for _, c := range change {
		c(m)
	}
	return m
}

func refusedFor(kind, text string) func(*machinev1beta1.Machine) {
	return func(m *machinev1beta1.Machine) {
		m.Status.ErrorMessage = ptr.To(text)
		m.Status.Conditions = []machinev1beta1.Condition{{
			Type: engine.InstanceReconciled, Status: corev1.ConditionFalse, Severity: "Warning", Reason: kind, Message: text, LastTransitionTime: ago(12 * time.Minute),
		}}
	}
}

func withNode(name string) func(*machinev1beta1.Machine) {
	return func(m *machinev1beta1.Machine) {
		m.Status.NodeRef = &corev1.ObjectReference{Kind: "Node", Name: name}
		m.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalDNS, Address: name}, {Type: corev1.NodeInternalIP, Address: "10.0.0.5"}}
		m.Spec.ProviderID = ptr.To("azure:///" + name)
	}
}

func going(m *machinev1beta1.Machine) {
	m.DeletionTimestamp = ptr.To(ago(7 * time.Minute))
}

func workerNode(name string, ready corev1.ConditionStatus, silent time.Duration) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: ago(time.Hour)}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: ago(silent), LastHeartbeatTime: ago(0)}}
	return n
}

func told(kind, namespace, name, reason, text string, n int32) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "." + strings.ToLower(reason)}, InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: name},
		Type: "Warning", Reason: reason, Message: text, Count: n, LastTimestamp: ago(2 * time.Minute),
	}
}

func stuckSet(name, label string) *machinev1beta1.MachineSet {
	s := &machinev1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: wire.Namespace, Name: name, UID: types.UID("uid-" + name), Generation: 1, CreationTimestamp: ago(2 * time.Hour)}}
	s.Spec.Replicas = ptr.To[int32](2)
	s.Spec.Selector.MatchLabels = map[string]string{wire.LabelMachineSet: label}
	s.Spec.Template.Labels = map[string]string{wire.LabelMachineSet: label}
	s.Status.ObservedGeneration = 1
	return s
}

// shop is a Deployment's pod on a Node and the budget that keeps it.
func shop(node string) []client.Object {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", Labels: map[string]string{"app": "web"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs", Controller: ptr.To(true)}}}}
	pod.Spec.NodeName, pod.Status.Phase = node, corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	pdb := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: 1}}
	pdb.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	pdb.Spec.MinAvailable = ptr.To(intstr.FromInt32(1))
	pdb.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DesiredHealthy: 1, CurrentHealthy: 1, ExpectedPods: 1}
	return []client.Object{pod, pdb}
}

func signing(t *testing.T, name, signer, node string, first bool, ips ...net.IP) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{Organization: []string{"system:nodes"}, CommonName: "system:node:" + node}, IPAddresses: ips}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	o := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: ago(20 * time.Minute)}}
	o.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	o.Spec.SignerName, o.Spec.Username = signer, "system:node:"+node
	o.Spec.Groups = []string{"system:nodes", "system:authenticated"}
	o.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}
	if first {
		o.Spec.Username = csr.Bootstrapper
		o.Spec.Groups = []string{"system:serviceaccounts:openshift-machine-config-operator", "system:serviceaccounts", "system:authenticated"}
		o.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	}
	return o
}

// fleetOf is n Machines with Nodes, of which the first bad are not ready.
func fleetOf(n, bad int, ready corev1.ConditionStatus, each time.Duration) []client.Object {
	mhc := &machinev1beta1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: wire.Namespace, Name: "workers", UID: "mhc"}}
	mhc.Spec.Selector.MatchLabels = map[string]string{wire.LabelMachineSet: "w"}
	mhc.Spec.MaxUnhealthy = ptr.To(intstr.FromString("40%"))
	mhc.Spec.UnhealthyConditions = []machinev1beta1.UnhealthyCondition{{Type: corev1.NodeReady, Status: ready, Timeout: metav1.Duration{Duration: 5 * time.Minute}}}
	mhc.Status.Conditions = []machinev1beta1.Condition{{Type: health.RemediationAllowed, Status: corev1.ConditionTrue}}
	out := []client.Object{mhc}
	for i := range n {
		name := fmt.Sprintf("w-%d", i)
		out = append(out, stuckMachine(name, wire.PhaseRunning, withNode(name)))
		if i < bad {
			out = append(out, workerNode(name, ready, 20*time.Minute+time.Duration(i)*each))
		} else {
			out = append(out, workerNode(name, corev1.ConditionTrue, time.Hour))
		}
	}
	return out
}

// explainIn writes objects as manifests and explains one of them.
func explainIn(t *testing.T, objs []client.Object, args ...string) (int, string, string) {
	t.Helper()
	dir := t.TempDir()
	for i, o := range objs {
		o = o.DeepCopyObject().(client.Object)
		gvk, err := apiutil.GVKForObject(o, scheme.Scheme)
		if err != nil {
			gvk = machinev1beta1.GroupVersion.WithKind(reflect.TypeOf(o).Elem().Name())
			if _, ok := o.(*machinev1.ControlPlaneMachineSet); ok {
				gvk = machinev1.GroupVersion.WithKind(reflect.TypeOf(o).Elem().Name())
			}
		}
		o.GetObjectKind().SetGroupVersionKind(gvk)
		raw, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d.yaml", i)), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out, errs bytes.Buffer
	cmd := cli.Command(cli.Deps{Explainers: explainers()})
	cmd.SetArgs(append(append([]string{"explain"}, args...), "--from", dir))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	code := cli.ExitCode(cmd.ExecuteContext(t.Context()), &errs)
	return code, out.String(), errs.String()
}

func goldenExplanation(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "explain", name+".txt")
	if *updateExplain {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", name, d)
	}
}

// TestExplainKnowsEachWayToBeStuck: one world for each, its cause and its
// whole text.
func TestExplainKnowsEachWayToBeStuck(t *testing.T) {
	const quota = `failed to reconcile machine "w-0": exceeding approved standardDSv5Family Cores quota. Current Limit: 64, Current Usage: 64, Additional Required: 4`
	clock := workerNode("clock", corev1.ConditionTrue, time.Hour) // tells what time it is
	one := func(m *machinev1beta1.Machine, more ...client.Object) []client.Object {
		return append([]client.Object{clock, m}, more...)
	}
	provisioned := func(m *machinev1beta1.Machine) { withNode("w-0")(m); m.Status.NodeRef = nil }
	tests := []struct {
		name, object, cause string
		objs                []client.Object
	}{
		{"quota", "machine/w-0", "Quota", one(stuckMachine("w-0", wire.PhaseProvisioning, refusedFor("Quota", quota)),
			told("Machine", wire.Namespace, "w-0", "FailedCreate", "CreateError: "+quota, 3))},
		{"quota-of-the-original", "machine/w-0", "Quota", one(stuckMachine("w-0", wire.PhaseProvisioning, func(m *machinev1beta1.Machine) { m.Status.ErrorMessage = ptr.To(quota) }))},
		{"throttling", "machine/w-0", "Throttled", one(stuckMachine("w-0", wire.PhaseProvisioning, refusedFor("Throttled", "too many requests have been received for this subscription; asked again in 120s")))},
		{"credentials", "machine/w-0", "Credentials", one(stuckMachine("w-0", wire.PhaseProvisioning, refusedFor("Credentials", "failed to create scope: error getting credentials secret")))},
		{"invalid-size", "machine/w-0", "Invalid", one(stuckMachine("w-0", wire.PhaseFailed, func(m *machinev1beta1.Machine) {
			m.Status.ErrorReason = ptr.To(machinev1beta1.InvalidConfigurationMachineError)
			m.Status.ErrorMessage = ptr.To(`failed to reconcile machine "w-0": the size Standard_D4s_v9 is not known in francecentral`)
		}))},
		{"waiting-for-csr", "machine/w-0", "WaitingForCSR", one(stuckMachine("w-0", wire.PhaseProvisioned, provisioned, func(m *machinev1beta1.Machine) { m.CreationTimestamp = ago(4 * time.Hour) }),
			signing(t, "csr-first", certificatesv1.KubeAPIServerClientKubeletSignerName, "w-0", true))},
		{"waiting-for-node", "machine/w-0", "WaitingForNode", one(stuckMachine("w-0", wire.PhaseProvisioned, provisioned))},
		{"drain-blocked", "machine/w-0", "DrainBlocked", append(one(stuckMachine("w-0", wire.PhaseDeleting, withNode("w-0"), going), workerNode("w-0", corev1.ConditionTrue, time.Hour)), shop("w-0")...)},
		{"hook", "machine/w-0", "HookWaiting", one(stuckMachine("w-0", wire.PhaseDeleting, withNode("w-0"), going, func(m *machinev1beta1.Machine) {
			m.Spec.LifecycleHooks.PreDrain = []machinev1beta1.LifecycleHook{{Name: "MigrateData", Owner: "storage-team"}}
		}), workerNode("w-0", corev1.ConditionTrue, time.Hour))},
		{"deletion-running", "machine/w-0", "", one(stuckMachine("w-0", wire.PhaseDeleting, going))},
		{"short-circuit", "mhc/workers", "ShortCircuit", fleetOf(5, 3, corev1.ConditionFalse, time.Minute)},
		{"frozen", "mhc/workers", "Frozen", fleetOf(8, 8, corev1.ConditionUnknown, time.Second)},
		{"overlapping-sets", "machineset/w", "OverlappingSets", []client.Object{clock, stuckSet("w", "w"), stuckSet("w-copy", "w")}},
		{"set-without-quota", "machineset/w", "Quota", one(stuckMachine("w-0", wire.PhaseProvisioning, refusedFor("Quota", quota)), stuckSet("w", "w"))},
		{"serving-differences", "csr/csr-serving", "Differences", one(stuckMachine("w-0", wire.PhaseRunning, withNode("w-0")), workerNode("w-0", corev1.ConditionTrue, time.Hour),
			signing(t, "csr-serving", certificatesv1.KubeletServingSignerName, "w-0", false, net.IPv4(10, 0, 0, 5), net.IPv4(10, 9, 9, 9), net.IPv4(10, 9, 9, 8)))},
		{"control-plane-invalid", "cpms/cluster", "InvalidSpec", []client.Object{clock, &machinev1.ControlPlaneMachineSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: wire.Namespace, Name: "cluster"}, Spec: machinev1.ControlPlaneMachineSetSpec{Replicas: ptr.To[int32](3), State: machinev1.ControlPlaneMachineSetStateActive}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, out, errs := explainIn(t, tt.objs, tt.object)
			goldenExplanation(t, tt.name, out)
			if want := map[bool]int{true: cli.ExitFailure, false: cli.ExitOK}[tt.cause != ""]; code != want || errs != "" {
				t.Errorf("exit code %d, want %d; %s", code, want, errs)
			}
			_, out, _ = explainIn(t, tt.objs, tt.object, "-o", "json")
			var e cli.Explanation
			if err := json.Unmarshal([]byte(out), &e); err != nil || e.Cause != tt.cause || e.State == cli.StateStuck && len(e.Next) == 0 {
				t.Errorf("cause %q, want %q, next %v: %v", e.Cause, tt.cause, e.Next, err)
			}
		})
	}
}

func TestExplainArguments(t *testing.T) {
	objs := []client.Object{workerNode("w-0", corev1.ConditionTrue, time.Hour), stuckMachine("w-0", wire.PhaseRunning, withNode("w-0"))}
	for _, tt := range []struct {
		args []string
		code int
		want string // in what is printed
	}{
		{[]string{"machine/w-0"}, 0, "Machine openshift-machine-api/w-0: fine"},
		{[]string{"machines", "w-0", "-n", "openshift-machine-api"}, 0, ": fine"},
		{[]string{"machines.machine.openshift.io/w-0", "-o", "yaml"}, 0, "state: Fine"},
		{[]string{"machines.v1beta1.machine.openshift.io", "w-0"}, 0, ": fine"},
		{[]string{"machine/w-0", "-n", "other"}, 1, "there is no Machine other/w-0"},
		{[]string{"csr/none"}, 1, "there is no CertificateSigningRequest none"},
		{[]string{"machines.cluster.x-k8s.io/w-0"}, 2, `no explanation for kind "machines.cluster.x-k8s.io"`},
		{[]string{"machine"}, 2, "want KIND/NAME or KIND NAME"},
		{[]string{"machine/w-0", "w-1"}, 2, "want KIND/NAME or KIND NAME"},
		{[]string{"machine/w-0", "-o", "xml"}, 2, "want json or yaml"},
	} {
		code, out, errs := explainIn(t, objs, tt.args...)
		if code != tt.code || !strings.Contains(out+errs, tt.want) {
			t.Errorf("%v: exit code %d, want %d; got %s%s", tt.args, code, tt.code, out, errs)
		}
	}
}
