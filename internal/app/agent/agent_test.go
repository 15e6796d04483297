package agent

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"millwright.io/millwright/internal/host"
)

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := Command()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestCommandLine(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	for _, row := range []struct {
		name, args, want string
		code             int
	}{
		{"no name", "start", "node-name is required", 2},
		{"once from", "start --node-name n --once-from /x", "--once-from is not supported", 2},
		{"hosted", "start --node-name n --desired-configmap /x", "--desired-configmap is not supported", 2},
		{"unknown flag", "start --nope", "unknown flag: --nope", 2},
		{"no root", "start --node-name n --root-mount /nowhere/at/all", "/nowhere/at/all", 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := run(t, strings.Fields(row.args)...)
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Fatalf("error %v, want %s", err, row.want)
			}
			if got := ExitCode(err); got != row.code {
				t.Errorf("exit code %d, want %d", got, row.code)
			}
		})
	}
	if out, err := run(t, "version"); err != nil || !strings.HasPrefix(out, "MachineConfigDaemon ") {
		t.Errorf("version prints %q, %v", out, err)
	}
	// Flags of the original's DaemonSet.
	if _, err := run(t, "start", "--payload-version=4.20.4", "--v=2", "--kubelet-healthz-enabled=false", "--tls-min-version=VersionTLS12", "--skip-reboot=false"); err == nil || !strings.Contains(err.Error(), "node-name") {
		t.Errorf("error %v, want only the name to be missing", err)
	}
}

func TestLogLinesAreKlogs(t *testing.T) {
	var out bytes.Buffer
	clk := clocktesting.NewFakePassiveClock(time.Date(2025, 11, 28, 6, 52, 26, 556e6, time.UTC))
	log := &klogText{out: &out, pid: 5494, clock: clk}
	log.Errorf("Marking Degraded due to: %q", "x")
	var line int
	if n, err := fmt.Sscanf(out.String(), "E1128 06:52:26.556000    5494 agent_test.go:%d] Marking Degraded due to: \"x\"\n", &line); n != 1 || err != nil {
		t.Errorf("line %q: %v", out.String(), err)
	}
}

func TestMountsOfAWorldWithoutMounts(t *testing.T) {
	for _, row := range []struct{ mounts, want string }{
		{"", "/rootfs"}, {"/other=/x", "/rootfs"}, {"/var=/v;/rootfs=/w/node-0/root", "/w/node-0/root"},
	} {
		if got := mounted("/rootfs", row.mounts); got != row.want {
			t.Errorf("mounted(%q) = %q, want %q", row.mounts, got, row.want)
		}
	}
}

// pair is a client's certificate and key.
func pair(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw})
}

// TestTheKubeletsCertificateIsTakenUpWhenItRotates, behind links that are the host's.
func TestTheKubeletsCertificateIsTakenUpWhenItRotates(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	srv.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
	srv.StartTLS()
	defer srv.Close()
	h, err := host.New(t.TempDir(), host.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := h.Files()
	put := func(p string, body []byte) {
		t.Helper()
		if err := f.Replace(p, body, host.Attr{Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
	}
	current := "/var/lib/kubelet/pki/kubelet-client-current.pem"
	rotate := func(name string) {
		t.Helper()
		cert, key := pair(t, name)
		file := "/var/lib/kubelet/pki/" + name + ".pem"
		put(file, append(cert, key...))
		if err := f.Link(file, current); err != nil {
			t.Fatal(err)
		}
	}
	rotate("first")
	put("/etc/kubernetes/ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}))
	put("/var/lib/kubelet/kubeconfig", []byte(strings.NewReplacer("URL", srv.URL, "PEM", current).Replace(
		`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"k","user":"u"}}],
"clusters":[{"name":"k","cluster":{"server":"URL","certificate-authority":"/etc/kubernetes/ca.crt"}}],
"users":[{"name":"u","user":{"client-certificate":"PEM","client-key":"PEM"}}]}`)))
	clk := clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
	cfg, err := kubeletConfig("/var/lib/kubelet/kubeconfig", f, clk)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ask := func() string {
		t.Helper()
		answer, err := client.Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = answer.Body.Close() }()
		var b bytes.Buffer
		if _, err := b.ReadFrom(answer.Body); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if got := ask(); got != "first" {
		t.Fatalf("the server saw %s", got)
	}
	rotate("second")
	clk.SetTime(clk.Now().Add(lookAgain))
	if got := ask(); got != "second" {
		t.Errorf("after the rotation the server saw %s", got)
	}
}

func TestAHostWithoutAKubeletsKubeconfig(t *testing.T) {
	h, err := host.New(t.TempDir(), host.Options{})
	if err != nil {
		t.Fatal(err)
	}
	clk := clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
	if cfg, err := kubeletConfig("/var/lib/kubelet/kubeconfig", h.Files(), clk); cfg != nil || err != nil {
		t.Errorf("got %v, %v; want nothing", cfg, err)
	}
	if err := h.Files().Replace("/k", []byte("apiVersion: v1\nkind: Config\ncurrent-context: gone\n"), host.Attr{Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	if _, err := kubeletConfig("/k", h.Files(), clk); err == nil || !strings.Contains(err.Error(), `current-context "gone"`) {
		t.Errorf("error %v", err)
	}
}

func TestAskKubeletFailsOnlyWithoutAnAnswer(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	if err := askKubelet(t.Context(), srv.Client(), srv.URL); err != nil {
		t.Errorf("an unwell kubelet answers: %v", err)
	}
	srv.Close()
	if err := askKubelet(t.Context(), srv.Client(), srv.URL); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want one of the connection", err)
	}
}
