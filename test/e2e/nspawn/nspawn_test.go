// Package nspawn runs the node agent on a real machine: a Debian root with a real
// systemd, booted and rebooted by systemd-nspawn, against a real API server.
//
// It is part of make e2e and needs root, systemd-nspawn, mmdebstrap and a Debian
// mirror. The root is built once and kept in the user's cache.
package nspawn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/engine/node"
	"millwright.io/millwright/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const (
	suite     = "bookworm"
	packages  = "systemd,systemd-sysv,dbus"
	nodeName  = "debian-0"
	bootEntry = "/boot/loader/entries/debian.conf"
	// rebootCode is how systemd-nspawn ends when the machine asked for a reboot.
	rebootCode = 133
)

// machine is a Debian root under systemd-nspawn; a reboot starts it again.
type machine struct {
	t    *testing.T
	root string
	done chan struct{}
	stop context.CancelFunc
}

// debianRoot builds the root once.
func debianRoot(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "millwright", "debian-"+suite+"-systemd")
	if _, err := os.Stat(filepath.Join(dir, "usr/lib/systemd/systemd")); err == nil {
		return dir
	}
	tmp := dir + ".new"
	run(t, "rm", "-rf", tmp)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Logf("building a Debian root in %s, about a minute", dir)
	run(t, "mmdebstrap", "--variant=minbase", "--include="+packages, suite, tmp)
	if err := os.Rename(tmp, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// newMachine lays a machine's own changes over the root.
func newMachine(t *testing.T) *machine {
	t.Helper()
	base, dir := debianRoot(t), t.TempDir()
	m := &machine{t: t, root: filepath.Join(dir, "root"), done: make(chan struct{})}
	for _, d := range []string{"root", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// An overlay cannot lie on another one: the changes are kept in memory.
	run(t, "mount", "-t", "tmpfs", "tmpfs", dir)
	t.Cleanup(func() { run(t, "umount", "-l", dir) })
	for _, d := range []string{"root", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run(t, "mount", "-t", "overlay", "overlay", "-o", fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", base, dir, dir), m.root)
	t.Cleanup(func() { run(t, "umount", "-l", m.root) })
	m.write("/etc/machine-id", "uninitialized\n", 0o644)
	m.write("/etc/hostname", nodeName+"\n", 0o644)
	return m
}

func (m *machine) write(p, body string, mode os.FileMode) {
	m.t.Helper()
	full := filepath.Join(m.root, p)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(body), mode); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) read(p string) string {
	raw, err := os.ReadFile(filepath.Join(m.root, p))
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// boot starts the machine and starts it again whenever it reboots.
func (m *machine) boot(bin string) {
	m.t.Helper()
	// Without a file system of its own there, a reboot fails where /run is on disk.
	const state = "/run/systemd/nspawn"
	if err := os.MkdirAll(state, 0o755); err != nil {
		m.t.Fatal(err)
	}
	if exec.Command("mountpoint", "-q", state).Run() != nil {
		run(m.t, "mount", "-t", "tmpfs", "tmpfs", state)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.stop = cancel
	console, err := os.Create(filepath.Join(m.t.TempDir(), "console"))
	if err != nil {
		m.t.Fatal(err)
	}
	go func() {
		defer close(m.done)
		defer console.Close()
		for {
			cmd := exec.CommandContext(ctx, "systemd-nspawn", "--boot", "--quiet", "--register=no", "--keep-unit", "--console=pipe",
				"--directory="+m.root, "--bind-ro="+bin+":/opt/millwright")
			cmd.Stdout, cmd.Stderr = console, console
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
			cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
			cmd.WaitDelay = 20 * time.Second
			err := cmd.Run()
			var exit *exec.ExitError
			if ctx.Err() != nil || !errors.As(err, &exit) || exit.ExitCode() != rebootCode {
				return
			}
		}
	}()
	m.t.Cleanup(func() {
		cancel()
		<-m.done
		if m.t.Failed() {
			raw, _ := os.ReadFile(console.Name())
			m.t.Logf("console:\n%s", tail(string(raw), 60))
			m.t.Logf("agent:\n%s", tail(m.read("/var/log/agent.log"), 60))
		}
	})
}

func tail(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

const agentUnit = `[Unit]
Description=Node agent
After=network.target dbus.service

[Service]
ExecStart=/opt/millwright/millwright-agent start --root-mount=/ --node-name=` + nodeName + ` --kubeconfig=/etc/agent.kubeconfig --metrics-url= --kubelet-healthz-enabled=false
Restart=always
RestartSec=1
StandardError=append:/var/log/agent.log

[Install]
WantedBy=multi-user.target
`

// demo is a service of a config: it runs until it is told to stop.
const demo = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"

type ignition = map[string]any

// rendered is a config with files and units.
func rendered(t *testing.T, name string, files, units []any, arguments ...string) *mcfgv1.MachineConfig {
	t.Helper()
	raw, err := json.Marshal(ignition{"ignition": ignition{"version": "3.5.0"}, "storage": ignition{"files": files}, "systemd": ignition{"units": units}})
	if err != nil {
		t.Fatal(err)
	}
	return &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: raw}, KernelArguments: arguments}}
}

func file(p, body string, mode int) ignition {
	return ignition{"path": p, "mode": mode, "overwrite": true, "contents": ignition{"source": "data:," + body}}
}

// world is the machine's cluster; the test answers drains as the controller does.
type world struct {
	t   *testing.T
	api client.Client
	m   *machine
}

// await steps the controller's part until the node is as wanted.
func (w *world) await(what string, done func(n *corev1.Node) bool) *corev1.Node {
	w.t.Helper()
	deadline := time.Now().Add(90 * time.Second)
	var n corev1.Node
	for {
		if err := w.api.Get(context.Background(), client.ObjectKey{Name: nodeName}, &n); err != nil {
			w.t.Fatal(err)
		}
		if want := n.Annotations[node.DesiredDrain]; want != n.Annotations[node.LastAppliedDrain] {
			before := n.DeepCopy()
			n.Spec.Unschedulable = strings.HasPrefix(want, "drain-")
			n.Annotations[node.LastAppliedDrain] = want
			if err := w.api.Patch(context.Background(), &n, client.MergeFrom(before)); err != nil {
				w.t.Fatal(err)
			}
			continue
		}
		if done(&n) {
			return &n
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("waiting for %s: annotations are %v", what, n.Annotations)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (w *world) annotate(set map[string]string) {
	w.t.Helper()
	var n corev1.Node
	if err := w.api.Get(context.Background(), client.ObjectKey{Name: nodeName}, &n); err != nil {
		w.t.Fatal(err)
	}
	before := n.DeepCopy()
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	for k, v := range set {
		n.Annotations[k] = v
	}
	if err := w.api.Patch(context.Background(), &n, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

func isDone(config string) func(*corev1.Node) bool {
	return func(n *corev1.Node) bool {
		return n.Annotations[node.State] == node.Done && n.Annotations[node.CurrentConfig] == config && !n.Spec.Unschedulable
	}
}

func newWorld(t *testing.T, configs ...client.Object) *world {
	t.Helper()
	env := testenv.Start(t)
	w := &world{t: t, api: env.Client, m: newMachine(t)}
	for _, o := range append(configs,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "openshift-machine-config-operator"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{"node-role.kubernetes.io/worker": ""}}}) {
		if err := w.api.Create(context.Background(), o); err != nil {
			t.Fatal(err)
		}
	}
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: env.Config.Host, CertificateAuthorityData: env.Config.CAData}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: env.Config.CertData, ClientKeyData: env.Config.KeyData}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	raw, err := clientcmd.Write(*c)
	if err != nil {
		t.Fatal(err)
	}
	w.m.write("/etc/agent.kubeconfig", string(raw), 0o600)
	w.m.write("/etc/systemd/system/agent.service", agentUnit, 0o644)
	if err := os.MkdirAll(filepath.Join(w.m.root, "etc/systemd/system/multi-user.target.wants"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/systemd/system/agent.service", filepath.Join(w.m.root, "etc/systemd/system/multi-user.target.wants/agent.service")); err != nil {
		t.Fatal(err)
	}
	return w
}

func TestAgentOnARealSystemd(t *testing.T) {
	if os.Getenv("MILLWRIGHT_E2E") != "full" {
		t.Skip("boots a Debian machine: part of make e2e")
	}
	if os.Geteuid() != 0 {
		t.Skip("booting a machine needs root")
	}
	bin := os.Getenv("MILLWRIGHT_BIN")
	if bin == "" {
		t.Fatal("MILLWRIGHT_BIN is empty: want the folder of the built programs")
	}
	for _, program := range []string{"systemd-nspawn", "mmdebstrap"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%s is missing: install systemd-container and mmdebstrap", program)
		}
	}
	units := []any{ignition{"name": "demo.service", "enabled": true, "contents": demo}}
	a := rendered(t, "rendered-worker-a", []any{file("/etc/a", "a", 0o644)}, nil)
	b := rendered(t, "rendered-worker-b", []any{file("/etc/a", "b", 0o600), file("/usr/local/bin/tool", "x", 0o755)}, units, "nosmt", "quiet=1")
	w := newWorld(t, a, b)
	w.m.write("/etc/a", "a", 0o644)
	w.m.write(bootEntry, "title Debian\nlinux /vmlinuz\noptions root=/dev/vda ro\n", 0o644)
	w.annotate(map[string]string{node.DesiredConfig: a.Name})
	w.m.boot(bin)

	w.await("the first config", isDone(a.Name))
	first := strings.TrimSpace(w.m.bootID())
	w.annotate(map[string]string{node.DesiredConfig: b.Name})
	w.await("the second config after a real reboot", isDone(b.Name))
	if second := strings.TrimSpace(w.m.bootID()); second == first || second == "" {
		t.Errorf("boot ID %q before, %q after: no reboot", first, second)
	}
	if got := w.m.read("/etc/a"); got != "b" {
		t.Errorf("/etc/a is %q", got)
	}
	if got, want := w.m.read(bootEntry), "title Debian\nlinux /vmlinuz\noptions root=/dev/vda ro nosmt quiet=1\n"; got != want {
		t.Errorf("the boot entry is\n%swant\n%s", got, want)
	}
	if got := w.m.in("systemctl", "is-active", "demo.service"); got != "active" {
		t.Errorf("demo.service is %s after the reboot", got)
	}

	w.m.write("/etc/a", "changed by hand", 0o600)
	n := w.await("the drift", func(n *corev1.Node) bool { return n.Annotations[node.State] == node.Degraded })
	if !strings.Contains(n.Annotations[node.Reason], `content mismatch for file "/etc/a"`) {
		t.Errorf("reason is %s", n.Annotations[node.Reason])
	}
	w.m.write("/etc/a", "b", 0o600)
	w.await("the repair by hand", isDone(b.Name))
}

// init is the process that is number 1 inside.
func (m *machine) init() string {
	out, err := exec.Command("pgrep", "-f", "systemd-nspawn.*--directory="+m.root).Output()
	if err != nil {
		return ""
	}
	pid := strings.Fields(string(out))[0]
	// systemd-nspawn's child, or its child's child, has the machine's name space.
	for range 3 {
		out, err := exec.Command("pgrep", "-P", pid).Output()
		if err != nil {
			return pid
		}
		pid = strings.Fields(string(out))[0]
		if comm, err := os.ReadFile("/proc/" + pid + "/comm"); err == nil && strings.TrimSpace(string(comm)) == "systemd" {
			return pid
		}
	}
	return pid
}

// in runs a program inside the machine.
func (m *machine) in(args ...string) string {
	out, err := exec.Command("nsenter", append([]string{"-t", m.init(), "-a"}, args...)...).CombinedOutput()
	if err != nil && len(out) == 0 {
		return err.Error()
	}
	return strings.TrimSpace(string(out))
}

func (m *machine) bootID() string { return m.in("cat", "/proc/sys/kernel/random/boot_id") }
