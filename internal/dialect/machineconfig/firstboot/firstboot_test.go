package firstboot

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	engine "millwright.io/millwright/internal/engine/firstboot"
	"millwright.io/millwright/internal/memapi"
	"millwright.io/millwright/internal/pki"
)

const host = "api-int.dev.example.com"

type world struct {
	t   *testing.T
	clk *clocktesting.FakeClock
	api *memapi.API
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, configv1.Install, mcfgv1.Install} {
		utilruntime.Must(add(scheme))
	}
	clk := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	infra := &configv1.Infrastructure{ObjectMeta: metav1.ObjectMeta{Name: "cluster"},
		Status: configv1.InfrastructureStatus{APIServerInternalURL: "https://" + host + ":6443"}}
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	return &world{t, clk, memapi.New(scheme, clk, append(objects, infra, pool)...)}
}

func (w *world) step() {
	w.t.Helper()
	c := New(Deps{Client: w.api, Clock: w.clk, Log: logr.Discard()})
	if _, err := c.Step(context.Background(), types.NamespacedName{Name: "cluster"}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) secret(namespace, name string) *corev1.Secret {
	w.t.Helper()
	var s corev1.Secret
	if err := w.api.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, &s); err != nil {
		w.t.Fatal(err)
	}
	return &s
}

const mcoNamespace = "openshift-machine-config-operator"

func TestAPoolGetsTokenCertificateAndUserData(t *testing.T) {
	w := newWorld(t)
	w.step()
	token := string(w.secret(mcoNamespace, "worker-boot-token").Data["token"])
	if len(token) < 40 {
		t.Errorf("token %q is too short to be secret", token)
	}
	managed := w.secret("openshift-machine-api", "worker-user-data-managed")
	if got := string(managed.Data["disableTemplating"]); got != "true\n" {
		t.Errorf("disableTemplating is %q", got)
	}
	if !strings.Contains(string(managed.Data["userData"]), "https://"+host+":22623/config/worker") || !strings.Contains(string(managed.Data["userData"]), token) {
		t.Errorf("user data %s lack server or token", managed.Data["userData"])
	}
	tls := w.secret(mcoNamespace, NameTLS)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.secret(mcoNamespace, NameCA).Data["tls.crt"])
	cert, err := pki.ParseCert(tls.Data["tls.crt"])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: w.clk.Now()}); err != nil {
		t.Errorf("the certificate does not serve %s: %v", host, err)
	}
	writes := w.api.Writes()
	w.step()
	if got := w.api.Writes() - writes; got != 0 {
		t.Errorf("a second look made %d writes, want none", got)
	}
}

// Machines of a taken-over pool have user data without a token, and an admin's own
// user data are nobody's business.
func TestOnlyStubsOfThePoolAreRenewed(t *testing.T) {
	stub, err := engine.Stub(engine.StubInput{Host: host, Pool: "worker", CA: []byte("old")})
	if err != nil {
		t.Fatal(err)
	}
	secret := func(name, data string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-machine-api", Name: name}, Data: map[string][]byte{"userData": []byte(data)}}
	}
	w := newWorld(t, secret("worker-user-data", string(stub)), secret("cloud-init", "#cloud-config"), secret("other", strings.ReplaceAll(string(stub), "/worker", "/infra")))
	w.step()
	token := string(w.secret(mcoNamespace, "worker-boot-token").Data["token"])
	got := string(w.secret("openshift-machine-api", "worker-user-data").Data["userData"])
	ca := base64.StdEncoding.EncodeToString(w.secret(mcoNamespace, NameCA).Data["tls.crt"])
	if !strings.Contains(got, "Bearer "+token) || !strings.Contains(got, ca) || !json.Valid([]byte(got)) {
		t.Errorf("user data %s lack token or authority", got)
	}
	for name, want := range map[string]string{"cloud-init": "#cloud-config", "other": strings.ReplaceAll(string(stub), "/worker", "/infra")} {
		if got := string(w.secret("openshift-machine-api", name).Data["userData"]); got != want {
			t.Errorf("%s became %s", name, got)
		}
	}
}

// A renewed authority does not lock out machines that know only the old one.
func TestAuthorityIsRenewedWithTheOldOneInTheBundle(t *testing.T) {
	w := newWorld(t)
	w.step()
	old := string(w.secret(mcoNamespace, NameCA).Data["tls.crt"])
	w.clk.Step(renewAt + time.Hour)
	w.step()
	fresh := string(w.secret(mcoNamespace, NameCA).Data["tls.crt"])
	var cm corev1.ConfigMap
	if err := w.api.Get(context.Background(), client.ObjectKey{Namespace: mcoNamespace, Name: NameCA}, &cm); err != nil {
		t.Fatal(err)
	}
	if fresh == old || !strings.Contains(cm.Data[KeyBundle], strings.TrimSpace(old)) || !strings.HasPrefix(cm.Data[KeyBundle], strings.TrimSpace(fresh)) {
		t.Errorf("renewed: %v; bundle holds the old one: %v", fresh != old, strings.Contains(cm.Data[KeyBundle], old))
	}
	cert, err := pki.ParseCert(w.secret(mcoNamespace, NameTLS).Data["tls.crt"])
	if err != nil || cert.NotBefore.Before(w.clk.Now().Add(-2*time.Hour)) {
		t.Errorf("the certificate was not renewed with its authority: %v %v", cert.NotBefore, err)
	}
}
