package testenv_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"strings"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/pki"
	"millwright.io/millwright/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// eventually polls until done returns nil, and fails with its last error.
func eventually(t *testing.T, done func() error) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := done()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after a minute: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestStartServesOurKinds(t *testing.T) {
	env := testenv.Start(t)
	ns := env.Namespace(t)
	machine := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: ns}}
	if err := env.Client.Create(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	if err := env.Client.Create(t.Context(), pod(ns, "p", "")); err != nil {
		t.Errorf("create a pod without a controller manager: %v", err)
	}
	if again := testenv.Start(t); again.Plane != env.Plane {
		t.Error("a second Start of the package got another server")
	}
}

func TestStartInstallsWhatItIsGiven(t *testing.T) {
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "gears.test.millwright.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "test.millwright.io", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "gears", Singular: "gear", Kind: "Gear", ListKind: "GearList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}
	env := testenv.Start(t, testenv.WithFamilies(), testenv.WithCRDs(crd))
	gear := &unstructured.Unstructured{}
	gear.SetAPIVersion("test.millwright.io/v1")
	gear.SetKind("Gear")
	gear.SetName("g")
	gear.SetNamespace(env.Namespace(t))
	if err := env.Client.Create(t.Context(), gear); err != nil {
		t.Error(err)
	}
}

func TestControllerManagerIssuesApprovedRequests(t *testing.T) {
	env := testenv.Start(t, testenv.WithControllerManager())
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := pki.NewCSR(key, "system:node:n1", []string{"system:nodes"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request, SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			ExpirationSeconds: ptr.To[int32](3600),
			Usages:            []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
	if err := env.Client.Create(t.Context(), csr); err != nil {
		t.Fatal(err)
	}
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test",
	})
	if err := env.Client.SubResource("approval").Update(t.Context(), csr); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(csr), csr); err != nil {
			return err
		}
		if len(csr.Status.Certificate) == 0 {
			return fmt.Errorf("request has conditions %v and no certificate", csr.Status.Conditions)
		}
		return nil
	})
	cert, err := pki.ParseCert(csr.Status.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: env.Plane.CA().Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Errorf("the issued certificate is not the cluster authority's: %v", err)
	}
}

func TestControllerManagerHonoursDisruptionBudgets(t *testing.T) {
	env := testenv.Start(t, testenv.WithControllerManager())
	ns := env.Namespace(t)
	ctx := t.Context()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-"}}
	if err := env.Client.Create(ctx, node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Client.Delete(context.Background(), node) })
	p := pod(ns, "guarded", node.Name)
	if err := env.Client.Create(ctx, p); err != nil {
		t.Fatal(err)
	}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if err := env.Client.Status().Update(ctx, p); err != nil {
		t.Fatal(err)
	}
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: ns},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(1)),
			Selector:     &metav1.LabelSelector{MatchLabels: p.Labels},
		},
	}
	if err := env.Client.Create(ctx, budget); err != nil {
		t.Fatal(err)
	}
	settledFor := func(allowed int32) {
		t.Helper()
		eventually(t, func() error {
			if err := env.Client.Get(ctx, client.ObjectKeyFromObject(budget), budget); err != nil {
				return err
			}
			if s := budget.Status; s.ObservedGeneration != budget.Generation || s.CurrentHealthy != 1 || s.DisruptionsAllowed != allowed {
				return fmt.Errorf("budget status %+v, want %d allowed", s, allowed)
			}
			return nil
		})
	}
	clients, err := kubernetes.NewForConfig(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	evict := func() error {
		return clients.CoreV1().Pods(ns).EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: ns}})
	}
	settledFor(0)
	if err := evict(); !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "disruption budget") {
		t.Errorf("got %v, want 429 because of the budget", err)
	}
	budget.Spec.MinAvailable = ptr.To(intstr.FromInt32(0))
	if err := env.Client.Update(ctx, budget); err != nil {
		t.Fatal(err)
	}
	settledFor(1)
	if err := evict(); err != nil {
		t.Errorf("evict with a budget of one: %v", err)
	}
}

func pod(namespace, name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeName:                      node,
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers:                    []corev1.Container{{Name: "c", Image: "pretend"}},
		},
	}
}
