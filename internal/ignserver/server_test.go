package ignserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_5"
	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright.io/millwright/internal/engine/firstboot"
	"millwright.io/millwright/internal/engine/ignition"
)

// source is a cluster with one pool, worker, whose token is "secret".
type source struct {
	access Access
	fail   error
}

func (s source) Access(_ context.Context, pool string) (Access, error) {
	if pool != "worker" {
		return Access{}, ErrNoPool
	}
	return s.access, nil
}

func (s source) Boot(context.Context, string) (Boot, error) {
	if s.fail != nil {
		return Boot{}, s.fail
	}
	return Boot{Config: rendered(), Kubeconfig: []byte("kubeconfig with a token"), Revision: "1",
		Controller: mcfgv1.ControllerConfigSpec{KubeAPIServerServingCAData: []byte("fresh CA\n")}}, nil
}

func rendered() *mcfgv1.MachineConfig {
	return &mcfgv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "rendered-worker-aaaa"},
		Spec: mcfgv1.MachineConfigSpec{
			OSImageURL: "registry.example.com/os@sha256:1",
			Config: runtime.RawExtension{Raw: []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[
				{"path":"/etc/motd","mode":420,"overwrite":true,"contents":{"source":"data:,hello"}},
				{"path":"/etc/kubernetes/kubelet-ca.crt","mode":420,"contents":{"source":"data:,old"}}]}}`)},
		},
	}
}

func ask(t *testing.T, s *Server, method, path string, header map[string]string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	for k, v := range header {
		r.Header.Set(k, v)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result()
}

const v35 = "application/vnd.coreos.ignition+json;version=3.5.0, */*;q=0.1"

func TestServerAnswersAndRefuses(t *testing.T) {
	token := map[string]string{"Authorization": "Bearer secret", "Accept": v35}
	cases := []struct {
		name, method, path string
		header             map[string]string
		source             source
		anonymous          bool
		want               int
	}{
		{"with the token", "GET", "/config/worker", token, source{}, false, 200},
		{"head", "HEAD", "/config/worker", token, source{}, false, 200},
		{"without a token", "GET", "/config/worker", map[string]string{"Accept": v35}, source{}, false, 401},
		{"with another token", "GET", "/config/worker", map[string]string{"Authorization": "Bearer secreT", "Accept": v35}, source{}, false, 401},
		{"with a prefix of the token", "GET", "/config/worker", map[string]string{"Authorization": "Bearer secre"}, source{}, false, 401},
		{"an empty token of a pool that has none", "GET", "/config/worker", map[string]string{"Authorization": "Bearer "}, source{access: Access{Token: "-"}}, false, 401},
		{"anonymous by switch", "GET", "/config/worker", map[string]string{"Accept": v35}, source{}, true, 200},
		{"anonymous by the pool", "GET", "/config/worker", map[string]string{"Accept": v35}, source{access: Access{Anonymous: true}}, false, 200},
		{"unknown pool", "GET", "/config/nope", token, source{}, false, 404},
		{"no pool", "GET", "/config/", token, source{}, false, 404},
		{"elsewhere", "GET", "/", nil, source{}, false, 404},
		{"post", "POST", "/config/worker", token, source{}, false, 405},
		{"health", "GET", "/healthz", nil, source{}, false, 200},
		{"delete health", "DELETE", "/healthz", nil, source{}, false, 405},
		{"version nobody writes", "GET", "/config/worker", map[string]string{"Authorization": "Bearer secret", "Accept": "application/vnd.coreos.ignition+json;version=4.0.0"}, source{}, false, 400},
		{"3.0 has no translation", "GET", "/config/worker", map[string]string{"Authorization": "Bearer secret", "Accept": "application/vnd.coreos.ignition+json;version=3.0.0"}, source{}, false, 400},
		{"cluster not ready", "GET", "/config/worker", token, source{fail: errors.New("no config yet")}, false, 500},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.source.access == (Access{}) || c.source.access.Anonymous {
				c.source.access.Token = "secret"
			}
			s := New(Config{Source: c.source, Anonymous: c.anonymous, Log: logr.Discard()})
			resp := ask(t, s, c.method, c.path, c.header)
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != c.want {
				t.Errorf("got %d, want %d", resp.StatusCode, c.want)
			}
			if c.want != 200 && len(body) > 0 {
				t.Errorf("a refusal says %q, want nothing", body)
			}
			if c.method == "GET" && resp.Header.Get("Content-Length") != fmt.Sprint(len(body)) {
				t.Errorf("Content-Length %q for %d bytes", resp.Header.Get("Content-Length"), len(body))
			}
		})
	}
}

func TestServedConfigHasTheNodesFiles(t *testing.T) {
	s := New(Config{Source: source{access: Access{Token: "secret"}}, Log: logr.Discard()})
	resp := ask(t, s, "GET", "/config/worker", map[string]string{"Authorization": "Bearer secret", "Accept": v35})
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	cfg, report, err := v3_5.Parse(raw)
	if err != nil || report.IsFatal() {
		t.Fatalf("the official library refuses the config: %v\n%s", err, report.String())
	}
	var paths []string
	contents := map[string]string{}
	for _, f := range cfg.Storage.Files {
		paths = append(paths, f.Path)
		body, err := ignition.Contents(f.Contents)
		if err != nil {
			t.Fatal(err)
		}
		contents[f.Path] = string(body)
	}
	want := []string{"/etc/motd", "/etc/kubernetes/kubelet-ca.crt", "/etc/machine-config-daemon/node-annotations.json",
		"/etc/kubernetes/kubeconfig", "/etc/mcs-machine-config-content.json", "/etc/ignition-machine-config-encapsulated.json"}
	if d := cmp.Diff(want, paths); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
	if got := contents["/etc/kubernetes/kubelet-ca.crt"]; got != "fresh CA\n" {
		t.Errorf("kubelet CA is %q, want the ControllerConfig's", got)
	}
	wantAnnotations := `{"machineconfiguration.openshift.io/currentConfig":"rendered-worker-aaaa","machineconfiguration.openshift.io/desiredConfig":"rendered-worker-aaaa","machineconfiguration.openshift.io/firstPivotConfig":"rendered-worker-aaaa","machineconfiguration.openshift.io/state":"Done"}`
	if d := cmp.Diff(wantAnnotations, contents["/etc/machine-config-daemon/node-annotations.json"]); d != "" {
		t.Errorf("node annotations (-want +got):\n%s", d)
	}
	var encapsulated mcfgv1.MachineConfig
	if err := json.Unmarshal([]byte(contents["/etc/ignition-machine-config-encapsulated.json"]), &encapsulated); err != nil {
		t.Fatal(err)
	}
	if got := string(encapsulated.Spec.Config.Raw); got != `{"ignition":{"version":"3.5.0"}}` || encapsulated.Spec.OSImageURL == "" {
		t.Errorf("encapsulated config is %s with image %q", got, encapsulated.Spec.OSImageURL)
	}
}

func TestNegotiate(t *testing.T) {
	const ign = "application/vnd.coreos.ignition+json"
	cases := []struct{ accept, want string }{
		{"", "2.2.0"},
		{"text/plain", "2.2.0"},
		{ign + "; version=2.4.0, " + ign + "; version=1; q=0.5, */*; q=0.1", "2.2.0"},
		{ign + ";version=3.99.0, */*;q=0.1", "3.5.0"},
		{ign + ";version=3.2.0", "3.2.0"},
		{ign + ";version=3.1.0;q=0.3, " + ign + ";version=3.4.0;q=0.9", "3.4.0"},
		{ign + ";version=4.0.0", "error"},
		{ign + ";version=2.1.0", "error"},
		{ign + ";version=1.0.0", "error"},
	}
	for _, c := range cases {
		got, err := negotiate(c.accept)
		if err != nil {
			got = "error"
		}
		if got != c.want {
			t.Errorf("%q: got %s, want %s", c.accept, got, c.want)
		}
	}
}

func FuzzNegotiate(f *testing.F) {
	for _, s := range []string{"", v35, "application/vnd.coreos.ignition+json;version=", "a/b;version=\"3.1.0\";q=NaN,,;"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		v, err := negotiate(accept)
		if err == nil && v != oldest && !strings.HasPrefix(v, "3.") {
			t.Errorf("%q gives %s", accept, v)
		}
	})
}

// A request that never ends its headers, and one whose headers are huge, get no
// config and hold nothing for others.
func TestHugeHeadersAreRefused(t *testing.T) {
	s := New(Config{Source: source{access: Access{Token: "secret"}}, Log: logr.Discard()})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := s.HTTP()
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /config/worker HTTP/1.1\r\nHost: x\r\nX-Large: %s\r\n\r\n", strings.Repeat("a", 1<<20))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil {
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("got %d, want 431", resp.StatusCode)
		}
	}
}

// A thousand machines that boot at once all get the config, which is built once.
func TestAThousandFirstBootsAtOnce(t *testing.T) {
	s := New(Config{Source: source{access: Access{Token: "secret"}}, Log: logr.Discard(), Parallel: 8})
	var wg sync.WaitGroup
	var mu sync.Mutex
	codes := map[int]int{}
	for range 1000 {
		wg.Go(func() {
			r := httptest.NewRequest("GET", "/config/worker", nil)
			r.Header.Set("Authorization", "Bearer secret")
			r.Header.Set("Accept", v35)
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			mu.Lock()
			defer mu.Unlock()
			codes[w.Code]++
		})
	}
	wg.Wait()
	if d := cmp.Diff(map[int]int{200: 1000}, codes); d != "" || len(s.answers) != 1 {
		t.Errorf("codes (-want +got):\n%s%d answers kept, want 1", d, len(s.answers))
	}
}

func BenchmarkFirstBoot(b *testing.B) {
	s := New(Config{Source: source{access: Access{Token: "secret"}}, Log: logr.Discard()})
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest("GET", "/config/worker", nil)
		r.Header.Set("Authorization", "Bearer secret")
		r.Header.Set("Accept", v35)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != 200 {
			b.Fatal(w.Code)
		}
	}
}

func TestStubIsRenewedInPlace(t *testing.T) {
	in := firstboot.StubInput{Host: "api-int.example.com", Pool: "worker", CA: []byte("A"), Token: "one"}
	stub, err := firstboot.Stub(in)
	if err != nil {
		t.Fatal(err)
	}
	if _, report, err := v3_5.Parse(stub); err != nil {
		t.Fatalf("the official library refuses the stub: %v %s", err, report.String())
	}
	if again, err := firstboot.Renew(stub, in); err != nil || again != nil {
		t.Errorf("renewing with the same gave %s, %v; want nothing", again, err)
	}
	in.Token, in.CA = "two", []byte("B")
	renewed, err := firstboot.Renew(stub, in)
	if err != nil || !strings.Contains(string(renewed), `"Bearer two"`) || strings.Contains(string(renewed), "Bearer one") {
		t.Errorf("got %s, %v", renewed, err)
	}
	if _, err := firstboot.Renew([]byte(`#cloud-config`), in); err == nil {
		t.Error("a cloud-config was taken for a stub")
	}
}
