package controlplane_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright.io/millwright/internal/controlplane"
	"millwright.io/millwright/internal/pki"
	"millwright.io/millwright/internal/sim/kubelet"
)

// TestOcWorksOnASimulatedNode runs the real oc through API server, egress
// socket and simulated kubelet, into the machine's root.
func TestOcWorksOnASimulatedNode(t *testing.T) {
	const name, ip, bind = "worker-0.example.internal", "10.0.128.5", "127.202.7.1"
	o := options(t)
	o.ControllerManager = true
	dir, err := os.MkdirTemp("", "mw-oc-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	o.EgressSocket = filepath.Join(dir, "egress.sock")
	egress := kubelet.NewEgress(o.EgressSocket)
	background(t, egress.Serve)
	p := start(t, o)

	k, err := kubelet.New(nodeConfig(t, p, dir, name, ip, bind))
	if err != nil {
		t.Fatal(err)
	}
	egress.AddNode(ip, k)
	background(t, k.Run)
	c := clientset(t, p)
	eventually(t, time.Minute, func() error {
		_, err := c.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		if err != nil {
			return err
		}
		node, err := c.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && len(node.Status.Addresses) == 0 {
			err = errors.New("node has no address yet")
		}
		return err
	})

	out, said, code := oc(t, p, "debug", "node/"+name, "--", "chroot", "/host", "cat", "/etc/hello")
	if code != 0 || out != "from the machine\n" {
		t.Errorf("debug: exit %d, printed %q and said\n%s", code, out, said)
	}
	for _, want := range []string{"Starting pod/worker-0exampleinternal-debug-", "To use host binaries, run `chroot /host`.", "Removing debug pod ..."} {
		if !strings.Contains(said, want) {
			t.Errorf("said\n%s\nwant %q in it", said, want)
		}
	}
	if _, said, code := oc(t, p, "debug", "node/"+name, "--", "chroot", "/host", "sh", "-c", "exit 7"); code != 7 {
		t.Errorf("debug of a failing command: exit %d, want 7; said\n%s", code, said)
	}
	eventually(t, 30*time.Second, func() error {
		pods, err := c.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		if err == nil && len(pods.Items) > 0 {
			err = errors.New("debug pod " + pods.Items[0].Name + " is still there")
		}
		return err
	})
	if out, said, code := oc(t, p, "adm", "cordon", name); code != 0 || !strings.Contains(out, "node/"+name+" cordoned") {
		t.Errorf("cordon: exit %d, %s%s", code, out, said)
	}
}

// background runs f until the test ends and fails the test with its error.
func background(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// nodeConfig is a node whose root holds a busybox userland and one file.
func nodeConfig(t *testing.T, p *controlplane.Plane, dir, name, ip, bind string) kubelet.Config {
	t.Helper()
	root := filepath.Join(dir, "root")
	for _, sub := range []string{"bin", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatalf("the test needs a static busybox (package busybox-static): %v", err)
	}
	data, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"bin/busybox": data, "etc/hello": []byte("from the machine\n")}
	for path, content := range files {
		if err := os.WriteFile(filepath.Join(root, path), content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, applet := range []string{"sh", "cat", "chroot"} {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", applet)); err != nil {
			t.Fatal(err)
		}
	}
	identity, err := p.ClientConfig("system:node:"+name, "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	serving, err := p.CA().Rotating(pki.Leaf{
		CommonName: "system:node:" + name, Organizations: []string{"system:nodes"},
		DNSNames: []string{name}, IPs: []net.IP{net.ParseIP(ip)}, Server: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return kubelet.Config{
		NodeName: name, Rest: identity, BindIP: bind, PodCIDR: "10.128.9.0/24",
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}, {Type: corev1.NodeHostName, Address: name}},
		BinDir:    filepath.Join(dir, "bin"), LogDir: filepath.Join(dir, "logs"), PodDir: filepath.Join(dir, "pods"), Root: root,
		ServingCert: func() (*tls.Certificate, error) { return serving.GetCertificate(nil) },
		CAData:      p.CA().CertPEM,
	}
}

// oc runs the applet and returns what it printed, what it said, and its code.
func oc(t *testing.T, p *controlplane.Plane, args ...string) (out, said string, code int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, p.AdminKubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(p.BinDir(), "oc"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+file)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}
