package controlplane_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"millwright.io/millwright/internal/controlplane"
)

// helperEnv makes the test binary start a control plane and wait, so that a
// test can kill it.
const helperEnv = "MILLWRIGHT_TEST_PLANE_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperEnv); dir != "" {
		helper(dir)
	}
	os.Exit(m.Run())
}

func helper(dir string) {
	binary, err := controlplane.Ensure(context.Background(), "", os.Stderr)
	if err == nil {
		var p *controlplane.Plane
		if p, err = controlplane.Start(context.Background(), controlplane.Options{Dir: dir, Binary: binary}); err == nil {
			_ = json.NewEncoder(os.Stdout).Encode(p.PIDs())
			<-p.Done()
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func options(t *testing.T) controlplane.Options {
	t.Helper()
	binary, err := controlplane.Ensure(t.Context(), "", os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	return controlplane.Options{Dir: t.TempDir(), Binary: binary, Log: t.Logf}
}

func start(t *testing.T, o controlplane.Options) *controlplane.Plane {
	t.Helper()
	p, err := controlplane.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop(context.Background()) })
	return p
}

func clientset(t *testing.T, p *controlplane.Plane) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(p.Admin())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// eventually polls until done returns nil, and fails with its last error.
func eventually(t *testing.T, limit time.Duration, done func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := done()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %v", limit, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// processesOf returns the processes whose command line mentions dir.
func processesOf(dir string) []string {
	found := []string{}
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(line), dir) {
			found = append(found, file+" "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

func noneLeft(t *testing.T, dir string) {
	t.Helper()
	eventually(t, 10*time.Second, func() error {
		if left := processesOf(dir); len(left) > 0 {
			return fmt.Errorf("processes left: %v", left)
		}
		return nil
	})
}

func TestPlaneStartsAllFourAndRestartsOnTheSameData(t *testing.T) {
	o := options(t)
	o.ControllerManager, o.Scheduler = true, true
	o.AuditLog = filepath.Join(o.Dir, "audit.log")
	began := time.Now()
	p := start(t, o)
	t.Logf("first start: %s", time.Since(began))
	if got := len(p.PIDs()); got != 4 {
		t.Errorf("%d components, want 4", got)
	}
	ctx := t.Context()
	_, err := clientset(t, p).CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Data: map[string]string{"a": "b"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	url := p.URL()
	if err := p.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Errorf("wait after stop: got %v, want nil", err)
	}
	noneLeft(t, o.Dir)
	checkAudit(t, o.AuditLog)

	began = time.Now()
	p = start(t, o)
	t.Logf("second start: %s", time.Since(began))
	if p.URL() != url {
		t.Errorf("address %s after a restart, want %s", p.URL(), url)
	}
	cm, err := clientset(t, p).CoreV1().ConfigMaps("default").Get(ctx, "kept", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if cm.Data["a"] != "b" {
		t.Errorf("object has %v after a restart", cm.Data)
	}
	checkClients(t, p)
}

// checkAudit wants the write of the test with its user, verb and code.
func checkAudit(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(data), "\n") {
		var ev struct {
			Verb           string
			User           struct{ Username string }
			ObjectRef      struct{ Resource, Name string }
			ResponseStatus struct{ Code int }
		}
		if json.Unmarshal([]byte(line), &ev) == nil && ev.Verb == "create" && ev.ObjectRef.Name == "kept" {
			if ev.User.Username != "millwright-admin" || ev.ResponseStatus.Code != 201 {
				t.Errorf("audit line %s", line)
			}
			return
		}
	}
	t.Error("the write is not in the audit log")
}

// checkClients wants an issued identity to be itself and no more, and kubectl
// and oc to work from the bin directory.
func checkClients(t *testing.T, p *controlplane.Plane) {
	t.Helper()
	config, err := p.ClientConfig("somebody", "some-group")
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `"somebody"`) {
		t.Errorf("got %v, want somebody to be forbidden", err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, p.AdminKubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"kubectl", "version"}, "Server Version: v1.37.2"},
		{[]string{"oc", "get", "namespaces"}, "kube-system"},
		{[]string{"oc", "adm", "drain", "--help"}, "oc adm drain foo --force"},
	} {
		cmd := exec.Command(filepath.Join(p.BinDir(), row.args[0]), row.args[1:]...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+file)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), row.want) {
			t.Errorf("%v: %v\n%s\nwant %q", row.args, err, out, row.want)
		}
	}
}

func TestPlaneRecoversFromAKilledEtcd(t *testing.T) {
	o := options(t)
	var mu sync.Mutex
	said := []string{}
	o.Log = func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, fmt.Sprintf(format, args...))
	}
	p := start(t, o)
	c := clientset(t, p)
	old := p.PIDs()[controlplane.Etcd]
	if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func() error {
		if pid := p.PIDs()[controlplane.Etcd]; pid == old {
			return fmt.Errorf("etcd is still process %d", pid)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "after-"}}, metav1.CreateOptions{})
		return err
	})
	mu.Lock()
	defer mu.Unlock()
	if log := strings.Join(said, "\n"); !strings.Contains(log, "etcd ended with signal: killed; starting it again") {
		t.Errorf("the exit was not reported:\n%s", log)
	}
}

func TestPlaneThatCannotStartSaysWhyAndLeavesNothing(t *testing.T) {
	rows := []struct {
		name string
		set  func(*controlplane.Options)
		want []string
	}{
		{"api server", func(o *controlplane.Options) { o.ExtraAPIServerArgs = []string{"--no-such-flag"} },
			[]string{"start kube-apiserver", "exit status 1", "unknown flag: --no-such-flag", "logs/kube-apiserver.log"}},
		{"scheduler", func(o *controlplane.Options) {
			o.Scheduler, o.ExtraSchedulerArgs = true, []string{"--no-such-flag"}
		}, []string{"start kube-scheduler", "exit status 1", "unknown flag: --no-such-flag", "logs/kube-scheduler.log"}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			o := options(t)
			row.set(&o)
			_, err := controlplane.Start(t.Context(), o)
			if err == nil {
				t.Fatal("it started")
			}
			for _, want := range row.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v\nwant %q in it", err, want)
				}
			}
			if left := processesOf(o.Dir); len(left) > 0 {
				t.Errorf("processes left: %v", left)
			}
		})
	}
}

func TestPlaneRefusesADirectoryInUse(t *testing.T) {
	o := options(t)
	start(t, o)
	_, err := controlplane.Start(t.Context(), o)
	if want := "is in use by process " + strconv.Itoa(os.Getpid()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestPlaneDiesWithItsParent(t *testing.T) {
	o := options(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+o.Dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("helper did not start: %v", err)
	}
	if len(processesOf(o.Dir)) < 2 {
		t.Fatalf("helper runs %s, but no process names its directory", line)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	noneLeft(t, o.Dir)
	// The directory is free and its data good.
	p := start(t, o)
	if _, err := clientset(t, p).CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func TestTwoPlanesRunSideBySide(t *testing.T) {
	a, b := start(t, options(t)), start(t, options(t))
	if a.URL() == b.URL() {
		t.Errorf("both serve at %s", a.URL())
	}
}
