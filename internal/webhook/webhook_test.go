package webhook_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/memapi"
	"millwright.io/millwright/internal/webhook"
)

var service = client.ObjectKey{Namespace: "ns", Name: "svc"}

var rules = []cloud.Rule{{ID: "a-rule"}, {ID: "our-rule", Ours: true}}

func TestParseModesNamesWhatIsWrong(t *testing.T) {
	for setting, want := range map[string]string{
		"a-rule":       `"a-rule": want RULE=MODE, e.g. machineset-overlap=warn`,
		"=warn":        `"=warn": want RULE=MODE, e.g. machineset-overlap=warn`,
		"b-rule=warn":  `unknown rule "b-rule": want one of a-rule, our-rule`,
		"a-rule=maybe": `a-rule: unknown mode "maybe": want enforce, warn or off`,
	} {
		if _, err := webhook.ParseModes([]string{setting}, rules); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", setting, err, want)
		}
	}
}

func TestRespond(t *testing.T) {
	orig := cloud.Problem{Rule: "a-rule", Type: cloud.ProblemRequired, Field: "x", Detail: "must be"}
	ours := cloud.Problem{Rule: "our-rule", Detail: "no"}
	soft := cloud.Problem{Rule: "our-rule", Detail: "hm", Warning: true}
	const hint = " (to accept the risk, annotate the object with millwright.io/accept-risk: our-rule)"
	for _, row := range []struct {
		name        string
		settings    []string
		problems    []cloud.Problem
		annotations map[string]string
		denied      string
		warnings    []string
	}{
		{name: "nothing"},
		{name: "the original's words", problems: []cloud.Problem{orig}, denied: "x: Required value: must be"},
		{name: "ours tells the way out", problems: []cloud.Problem{ours}, denied: "no" + hint},
		{name: "several", problems: []cloud.Problem{orig, ours, soft}, denied: "[x: Required value: must be, no" + hint + "]", warnings: []string{"hm"}},
		{name: "one of them accepted", problems: []cloud.Problem{orig, ours}, annotations: map[string]string{webhook.AnnotationAcceptRisk: "our-rule,other"},
			denied: "x: Required value: must be", warnings: []string{"no (accepted by annotation millwright.io/accept-risk: our-rule)"}},
		{name: "modes", settings: []string{"a-rule=warn", "our-rule=off"}, problems: []cloud.Problem{orig, ours, soft}, warnings: []string{"x: Required value: must be"}},
		{name: "the last setting counts", settings: []string{"a-rule=off", "a-rule=enforce"}, problems: []cloud.Problem{orig}, denied: "x: Required value: must be"},
	} {
		t.Run(row.name, func(t *testing.T) {
			modes, err := webhook.ParseModes(row.settings, rules)
			if err != nil {
				t.Fatal(err)
			}
			resp := modes.Respond(admission.Request{}, webhook.Finding{Problems: row.problems, Annotations: row.annotations})
			if diff := cmp.Diff(row.warnings, resp.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if got := resp.Result.Message; resp.Allowed != (row.denied == "") || !resp.Allowed && got != row.denied {
				t.Errorf("allowed %v, message %q; want %q", resp.Allowed, got, row.denied)
			}
		})
	}
}

func configuration(name string, label bool) *admissionregistrationv1.ValidatingWebhookConfiguration {
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if label {
		c.Labels = map[string]string{webhook.LabelInject: "true"}
	}
	for _, svc := range []string{service.Name, "somebody-else"} {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{Name: svc + ".io",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: service.Namespace, Name: svc}},
			SideEffects:  ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"}})
	}
	return c
}

type replica struct {
	*webhook.Authority
	clk *clocktesting.FakeClock
}

func newReplica(t *testing.T, api *memapi.API, clk *clocktesting.FakeClock) replica {
	t.Helper()
	a := webhook.NewAuthority(webhook.AuthorityDeps{Client: api, Live: api, Namespace: service.Namespace, Service: service, Clock: clk, Log: logr.Discard()})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return replica{a, clk}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute for: %s", what)
		}
	}
}

func bundle(t *testing.T, api *memapi.API, name string, entry int) []byte {
	t.Helper()
	var c admissionregistrationv1.ValidatingWebhookConfiguration
	if err := api.Get(t.Context(), client.ObjectKey{Name: name}, &c); err != nil {
		t.Fatal(err)
	}
	return c.Webhooks[entry].ClientConfig.CABundle
}

// trusts says whether who believes bundle believes the replica's certificate.
func trusts(t *testing.T, bundle []byte, r replica) bool {
	t.Helper()
	cert, err := r.GetCertificate(&tls.ClientHelloInfo{})
	if err != nil {
		return false
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	_, err = cert.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: "svc.ns.svc", CurrentTime: r.clk.Now()})
	return err == nil
}

// Two replicas share one authority; it renews itself, and whichever replica is
// late is believed all the same.
func TestAuthorityIsSharedMadeKnownAndRenewed(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, admissionregistrationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	clk := clocktesting.NewFakeClock(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))
	api := memapi.New(scheme, clk, configuration("ours", true), configuration("plain", false))
	first, second := newReplica(t, api, clk), newReplica(t, api, clk)
	known := func() bool {
		clk.Step(10 * time.Second) // a replica that lost the race tries again
		b := bundle(t, api, "ours", 0)
		return trusts(t, b, first) && trusts(t, b, second)
	}
	eventually(t, "both replicas believed", known)
	if len(bundle(t, api, "ours", 1)) > 0 || len(bundle(t, api, "plain", 0)) > 0 {
		t.Error("a bundle was written that nobody asked for")
	}
	before := bundle(t, api, "ours", 0)

	var c admissionregistrationv1.ValidatingWebhookConfiguration
	if err := api.Get(t.Context(), client.ObjectKey{Name: "ours"}, &c); err != nil {
		t.Fatal(err)
	}
	c.Webhooks[0].ClientConfig.CABundle = nil
	if err := api.Update(t.Context(), &c); err != nil {
		t.Fatal(err)
	}
	first.Look()
	eventually(t, "a bundle that was taken away is back", func() bool { return bytes.Equal(bundle(t, api, "ours", 0), before) })

	clk.Step(500 * 24 * time.Hour)
	eventually(t, "a new authority", func() bool { return !bytes.Equal(bundle(t, api, "ours", 0), before) })
	eventually(t, "both replicas believed again", known)
	if !bytes.Contains(bundle(t, api, "ours", 0), before) {
		t.Error("the old certificate is not trusted any more, while a replica may still serve by it")
	}
}

func TestServerAnswersOverTLS(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, admissionregistrationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	clk := clocktesting.NewFakeClock(time.Now())
	api := memapi.New(scheme, clk, configuration("ours", true))
	a := newReplica(t, api, clk)
	s := webhook.New("127.0.0.1:0", a.GetCertificate, map[string]http.Handler{
		"/deny": webhook.Handler(func(context.Context, admission.Request) admission.Response { return admission.Denied("no") }),
		"/die":  webhook.Handler(func(context.Context, admission.Request) admission.Response { panic("broken") }),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Start(ctx) }()
	eventually(t, "the server ready", func() bool { return s.Ready(nil) == nil })
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle(t, api, "ours", 0))
	hc := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "svc.ns.svc"},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr())
		}}}
	post := func(path string) string {
		resp, err := hc.Post("https://svc.ns.svc"+path, "application/json", strings.NewReader(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u"}}`))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	if got := post("/deny"); !strings.Contains(got, `"allowed":false`) || !strings.Contains(got, `"message":"no"`) {
		t.Errorf("deny: got %s", got)
	}
	if got := post("/die"); !strings.Contains(got, `"allowed":false`) {
		t.Errorf("a panic: got %s, want a refusal", got)
	}
	if got := post("/readyz"); got != "ok" {
		t.Errorf("readyz: got %s", got)
	}
	hc.CloseIdleConnections()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
