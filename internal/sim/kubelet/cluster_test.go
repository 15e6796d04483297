package kubelet

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"millwright.io/millwright/internal/controlplane"
	"millwright.io/millwright/internal/pki"
)

const (
	testNode   = "node-1"
	testNodeIP = "10.0.0.4"
	testBindIP = "127.201.1.1"
	testNS     = "shop"
)

// cluster is one API server, one egress proxy and what a test does with them.
type cluster struct {
	t      *testing.T
	plane  *controlplane.Plane
	admin  kubernetes.Interface
	egress *Egress
	bin    string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	binary, err := controlplane.Ensure(t.Context(), "", os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := &cluster{t: t, egress: NewEgress(filepath.Join(dir, "egress.sock")), bin: filepath.Join(dir, "components")}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- c.egress.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	c.plane, err = controlplane.Start(t.Context(), controlplane.Options{
		Dir: filepath.Join(dir, "plane"), Binary: binary, EgressSocket: filepath.Join(dir, "egress.sock"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.plane.Stop(context.Background()) })
	if c.admin, err = kubernetes.NewForConfig(c.plane.Admin()); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(c.bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(c.bin, "millwright-echo")); err != nil {
		t.Fatal(err)
	}
	c.seed()
	return c
}

// seed makes what a controller manager would have made.
func (c *cluster) seed() {
	c.t.Helper()
	ctx := c.t.Context()
	objs := []error{}
	add := func(err error) { objs = append(objs, err) }
	_, err := c.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: testNS}}, metav1.CreateOptions{})
	add(err)
	_, err = c.admin.CoreV1().ServiceAccounts(testNS).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	add(err)
	_, err = c.admin.CoreV1().ConfigMaps(testNS).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": "ca"}}, metav1.CreateOptions{})
	add(err)
	_, err = c.admin.CoreV1().Secrets(testNS).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "key"}, StringData: map[string]string{"word": "sesame"}}, metav1.CreateOptions{})
	add(err)
	for _, err := range objs {
		if err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *cluster) config(root string) Config {
	c.t.Helper()
	node, err := c.plane.ClientConfig("system:node:"+testNode, "system:nodes")
	if err != nil {
		c.t.Fatal(err)
	}
	certPEM, keyPEM, err := c.plane.CA().Issue(pki.Leaf{
		CommonName: "system:node:" + testNode, Organizations: []string{"system:nodes"},
		IPs: []net.IP{net.ParseIP(testNodeIP)}, DNSNames: []string{testNode}, Server: true, TTL: time.Hour,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		c.t.Fatal(err)
	}
	dir := c.t.TempDir()
	return Config{
		NodeName: testNode, Rest: node, BindIP: testBindIP, PodCIDR: "10.128.4.0/24", PodCIDRWait: time.Millisecond,
		Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: testNodeIP}},
		NodeLabels: map[string]string{"example.com/rack": "r1"}, ProviderExternal: true,
		BinDir: c.bin, LogDir: filepath.Join(dir, "logs"), PodDir: filepath.Join(dir, "pods"), Root: root,
		ServingCert: func() (*tls.Certificate, error) { return &cert, nil },
		CAData:      c.plane.CA().CertPEM, BootID: "boot-1", OSImage: "Simulated", ExtraEnv: []string{"WORLD=test"},
	}
}

// run starts a kubelet and returns how to stop it.
func (c *cluster) run(cfg Config) (stop func()) {
	c.t.Helper()
	k, err := New(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	c.egress.AddNode(testNodeIP, k)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			if err != nil {
				c.t.Error(err)
			}
		case <-time.After(20 * time.Second):
			c.t.Error("the kubelet did not end")
		}
		c.egress.RemoveNode(testNodeIP)
	}
	c.t.Cleanup(stop)
	return stop
}

func (c *cluster) pod(name, image string, args ...string) *corev1.Pod {
	zero := int64(5)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: testNS}}
	p.Spec.NodeName, p.Spec.TerminationGracePeriodSeconds = testNode, &zero
	p.Spec.Containers = []corev1.Container{{Name: "main", Image: image, Args: args}}
	return p
}

func (c *cluster) create(p *corev1.Pod) {
	c.t.Helper()
	if _, err := c.admin.CoreV1().Pods(testNS).Create(c.t.Context(), p, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) get(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	p, err := c.admin.CoreV1().Pods(testNS).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (c *cluster) untilReady(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	var p *corev1.Pod
	eventually(t, "pod "+name+" becomes ready", func() error {
		p = c.get(t, name)
		for _, cond := range p.Status.Conditions {
			if cond.Type == corev1.PodReady && cond.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("status is %+v", p.Status)
	})
	return p
}

func (c *cluster) untilGone(t *testing.T, name string) {
	t.Helper()
	eventually(t, "pod "+name+" goes", func() error {
		p, err := c.admin.CoreV1().Pods(testNS).Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("it is there with %+v", p.Status)
	})
}

func (c *cluster) logs(t *testing.T, name string, o corev1.PodLogOptions) string {
	t.Helper()
	b, err := c.admin.CoreV1().Pods(testNS).GetLogs(name, &o).DoRaw(t.Context())
	if err != nil {
		t.Fatalf("read log of %s: %v", name, err)
	}
	return string(b)
}

func (c *cluster) untilLog(t *testing.T, name, want string) string {
	t.Helper()
	var got string
	eventually(t, "log of "+name+" says "+want, func() error {
		if got = c.logs(t, name, corev1.PodLogOptions{}); !strings.Contains(got, want) {
			return fmt.Errorf("it says %q", got)
		}
		return nil
	})
	return got
}

func (c *cluster) pid(t *testing.T, name string) int {
	t.Helper()
	return pidIn(t, c.untilLog(t, name, "pid "))
}

// pidIn finds the process ID that echo prints. Its line need not be the
// first: standard error comes through another pipe.
func pidIn(t *testing.T, log string) int {
	t.Helper()
	var pid int
	_, rest, _ := strings.Cut(log, "pid ")
	if _, err := fmt.Sscanf(rest, "%d", &pid); err != nil {
		t.Fatalf("find the process ID in %q: %v", log, err)
	}
	return pid
}

type execResult struct {
	out, err string
	failure  error
}

// exec runs a command in a pod through the API server.
func (c *cluster) exec(t *testing.T, protocol, name, stdin string, tty bool, cmd ...string) execResult {
	t.Helper()
	req := c.admin.CoreV1().RESTClient().Post().Resource("pods").Namespace(testNS).Name(name).SubResource("exec")
	q := req.Param("container", "main").Param("stdout", "true")
	if !tty {
		q = q.Param("stderr", "true")
	} else {
		q = q.Param("tty", "true")
	}
	if stdin != "" {
		q = q.Param("stdin", "true")
	}
	for _, a := range cmd {
		q = q.Param("command", a)
	}
	ex, err := executor(c.plane.Admin(), protocol, q)
	if err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	o := remotecommand.StreamOptions{Stdout: &out, Tty: tty}
	if !tty {
		o.Stderr = &errOut
	}
	if stdin != "" {
		o.Stdin = strings.NewReader(stdin)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	err = ex.StreamWithContext(ctx, o)
	return execResult{out: out.String(), err: errOut.String(), failure: err}
}

func executor(cfg *rest.Config, protocol string, req *rest.Request) (remotecommand.Executor, error) {
	if protocol == "websocket" {
		return remotecommand.NewWebSocketExecutor(cfg, "GET", req.URL().String())
	}
	return remotecommand.NewSPDYExecutor(cfg, "POST", req.URL())
}
