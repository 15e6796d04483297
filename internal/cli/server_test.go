package cli

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/memapi"
	"millwright.io/millwright/internal/testenv"
)

// TestMain lets this test binary also be the command itself, for scripts.
func TestMain(m *testing.M) {
	if os.Getenv("MILLWRIGHT_TEST_COMMAND") != "" {
		os.Exit(ExitCode(Command(Deps{}).Execute(), os.Stderr))
	}
	testenv.Main(m)
}

// TestPlanReadsALiveClusterAndWritesNothing plans on a real API server and on
// the directory that its objects come from.
func TestPlanReadsALiveClusterAndWritesNothing(t *testing.T) {
	env := testenv.Start(t)
	dir := planDir(t)
	upload(t, env.Config, dir)
	var mu sync.Mutex
	methods := map[string]int{}
	kubeconfig := proxied(t, env.Config, func(r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		methods[r.Method]++
	})
	live, got := planned(t, "-f", "testdata/plan/new-all.yaml", "--kubeconfig", kubeconfig)
	if got.code != 0 {
		t.Fatal(got)
	}
	offline, _ := planned(t, "-f", "testdata/plan/new-all.yaml", "--from", dir)
	live.Source, offline.Source = "", ""
	live.Notes, offline.Notes = nil, nil // the directory also holds a log file
	if d := cmp.Diff(offline, live); d != "" {
		t.Errorf("directory and cluster disagree (-directory +cluster):\n%s", d)
	}
	if len(methods) != 1 || methods[http.MethodGet] == 0 {
		t.Errorf("plan used %v", methods)
	}
}

func upload(t *testing.T, cfg *rest.Config, dir string) {
	t.Helper()
	scheme, err := readScheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	s, err := memapi.Reader(scheme, os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, ns := range []string{"shop", "infra"} {
		n := &corev1.Namespace{}
		n.Name = ns
		account := &corev1.ServiceAccount{}
		account.Namespace, account.Name = ns, "default"
		for _, o := range []client.Object{n, account} {
			if err := c.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, o := range s.Objects() {
		full := o.DeepCopyObject().(client.Object)
		o.SetResourceVersion("")
		o.SetUID("")
		switch o := o.(type) {
		case *corev1.Pod:
			o.Spec.Containers = []corev1.Container{{Name: "c", Image: "example.com/c"}}
		case *mcfgv1.ControllerConfig:
			o.Spec.Images, o.Spec.KubeAPIServerServingCAData, o.Spec.RootCAData = map[string]string{"a": "b"}, []byte("ca"), []byte("ca")
		}
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
		if _, ok := o.(*operatorv1.MachineConfiguration); ok {
			continue // its status is the operator's and may not be empty
		}
		full.SetResourceVersion(o.GetResourceVersion())
		full.SetUID(o.GetUID())
		if err := c.Status().Update(t.Context(), full); client.IgnoreNotFound(err) != nil {
			t.Fatalf("update status of %T %s: %v", o, o.GetName(), err)
		}
	}
}

// proxied returns a kubeconfig of the same server, through a proxy that shows
// every request.
func proxied(t *testing.T, cfg *rest.Config, see func(*http.Request)) string {
	t.Helper()
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		see(r.In)
		r.SetURL(to)
	}}
	srv := httptest.NewServer(proxy)
	t.Cleanup(srv.Close)
	k := clientcmdapi.NewConfig()
	k.Clusters["proxy"] = &clientcmdapi.Cluster{Server: srv.URL}
	k.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy"}
	k.CurrentContext = "proxy"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*k, file); err != nil {
		t.Fatal(err)
	}
	return file
}
