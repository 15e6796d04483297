package approver_test

import (
	"net"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"millwright.io/millwright/internal/dialect/machineapi/approver"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// eventually polls until ok or a deadline.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute for: %s", what)
		}
	}
}

// as returns a client of another identity, which must really ask.
func as(t *testing.T, env *testenv.Env, user string, groups ...string) client.Client {
	t.Helper()
	cfg := rest.CopyConfig(env.Config)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	c, err := client.New(cfg, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// On a real API server with the real signers, a machine's three requests end
// approved and issued, each as soon as its machine allows it.
func TestRequestsAreApprovedAndIssued(t *testing.T) {
	env := testenv.Start(t, testenv.WithControllerManager(), testenv.WithFamilies("machine"))
	ctx := t.Context()
	mgr, err := manager.New(env.Config, manager.Options{Scheme: env.Client.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	d := approver.Deps{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: clock.RealClock{}, Recorder: mgr.GetEventRecorder(approver.ControllerMachine), Log: kube.KlogText("")}
	for _, c := range []kube.Controller{approver.NewMachine(d), approver.NewNodeClient(d)} {
		if err := c.Setup(mgr); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Errorf("run manager: %v", err)
		}
	})
	create := func(c client.Client, objs ...client.Object) {
		t.Helper()
		for _, o := range objs {
			if err := c.Create(ctx, o); err != nil {
				t.Fatalf("create %T %s: %v", o, o.GetName(), err)
			}
		}
	}
	create(env.Client,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: wire.Namespace}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "csr-create"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"create"}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "csr-create"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "csr-create"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:serviceaccounts:openshift-machine-config-operator"}, {APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:nodes"}}},
	)
	m := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: wire.Namespace, Name: node, Labels: map[string]string{wire.LabelCluster: "demo"}}}
	create(env.Client, m)
	first := clientRequest(t, "csr-1")
	create(as(t, env, first.Spec.Username, "system:serviceaccounts", "system:serviceaccounts:openshift-machine-config-operator", "system:authenticated"), first)
	m.Status = machine().Status
	if err := env.Client.Status().Update(ctx, m); err != nil {
		t.Fatal(err)
	}
	issued(t, env, "csr-1")

	// The admission of nodes lets a node ask only for itself.
	self := as(t, env, "system:node:"+node, "system:nodes", "system:authenticated")
	create(env.Client, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
	create(self, servingRequest(t, "csr-2"), componentRequest(t, "csr-3"))
	if err := env.Client.Get(ctx, client.ObjectKeyFromObject(m), m); err != nil {
		t.Fatal(err)
	}
	linked(m)
	if err := env.Client.Status().Update(ctx, m); err != nil {
		t.Fatal(err)
	}
	issued(t, env, "csr-2")
	issued(t, env, "csr-3")

	// A foreign address never gets in.
	foreign := servingRequest(t, "csr-4")
	foreign.Spec.Request = withIP(t, "10.0.0.1")
	create(self, foreign)
	create(self, servingRequest(t, "csr-5"))
	issued(t, env, "csr-5")
	if got := answer(t, env.Client, "csr-4"); len(got) != 0 {
		t.Errorf("a foreign address was answered with %v", got)
	}
}

func issued(t *testing.T, env *testenv.Env, name string) {
	t.Helper()
	eventually(t, name+" approved and issued", func() bool {
		var o certificatesv1.CertificateSigningRequest
		return env.Client.Get(t.Context(), client.ObjectKey{Name: name}, &o) == nil && len(o.Status.Certificate) > 0
	})
}

func withIP(t *testing.T, ip string) []byte {
	t.Helper()
	return certificateRequest(t, "system:node:"+node, "system:nodes", []string{node}, []net.IP{net.ParseIP(ip)})
}
