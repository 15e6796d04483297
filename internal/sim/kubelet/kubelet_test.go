package kubelet

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	utilexec "k8s.io/client-go/util/exec"
)

// One API server serves all of it: starting one takes longer than the rest.
func TestKubelet(t *testing.T) {
	c := newCluster(t)
	cfg := c.config(machineRoot(t))
	stop := c.run(cfg)
	t.Run("RegistersNode", c.testNode)
	t.Run("RunsProcess", c.testProcess)
	t.Run("ServesLogs", c.testLogs)
	t.Run("Execs", c.testExec)
	t.Run("AttachRunsWaitingCommand", c.testAttach)
	t.Run("ForwardsPorts", c.testPortForward)
	t.Run("CountsRestarts", c.testRestarts)
	t.Run("FinishesJobs", c.testFinished)
	t.Run("DeletesGracefully", c.testDeletion)
	t.Run("MirrorsStaticPods", func(t *testing.T) { testStaticPods(t, c, cfg.Root) })
	t.Run("WritesNothingWhenIdle", c.testIdle)
	t.Run("RefusesStrangers", func(t *testing.T) { c.testStrangers(t, cfg) })
	t.Run("RunsHollowNodes", c.testHollow)
	t.Run("ChildrenEndWithIt", func(t *testing.T) { c.testEnd(t, cfg, stop) })
}

func (c *cluster) testNode(t *testing.T) {
	eventually(t, "the node is ready", func() error {
		n, err := c.admin.CoreV1().Nodes().Get(t.Context(), testNode, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, cond := range n.Status.Conditions {
			if cond.Type != corev1.NodeReady {
				continue
			}
			if cond.Status != corev1.ConditionTrue || n.Spec.Taints[0].Key != uninitialized || n.Labels["example.com/rack"] != "r1" ||
				n.Status.NodeInfo.BootID != "boot-1" || n.Status.Addresses[0].Address != testNodeIP || n.Status.DaemonEndpoints.KubeletEndpoint.Port != 10250 {
				return fmt.Errorf("node is %+v", n)
			}
			return nil
		}
		return fmt.Errorf("conditions are %+v", n.Status.Conditions)
	})
	eventually(t, "the lease is held", func() error {
		l, err := c.admin.CoordinationV1().Leases(leaseNamespace).Get(t.Context(), testNode, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if *l.Spec.HolderIdentity != testNode || len(l.OwnerReferences) != 1 || l.OwnerReferences[0].UID == "" {
			return fmt.Errorf("lease is %+v", l)
		}
		return nil
	})
}

func (c *cluster) testProcess(t *testing.T) {
	p := c.pod("echo", "millwright/echo:dev", "say=I am $(POD_NAME) on $(NODE) with $(WORD) and $$(WORD)", "env=WORLD", "env=MILLWRIGHT_BIND_IP",
		"read=/etc/key/word", "whoami", "warn=careful", "serve=8080")
	m := &p.Spec.Containers[0]
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	m.Env = []corev1.EnvVar{
		{Name: "POD_NAME", ValueFrom: field("metadata.name")}, {Name: "NODE", ValueFrom: field("spec.nodeName")},
		{Name: "WORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "key"}, Key: "word"}}},
	}
	m.VolumeMounts = []corev1.VolumeMount{{Name: "key", MountPath: "/etc/key"}}
	m.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(8080)}}}
	p.Spec.Volumes = []corev1.Volume{{Name: "key", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "key"}}}}
	p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "example/init"}}
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "side", Image: "example/side"})
	c.create(p)
	got := c.untilReady(t, "echo")
	if got.Status.Phase != corev1.PodRunning || !strings.HasPrefix(got.Status.PodIP, "10.128.4.") || got.Status.HostIP != testNodeIP ||
		got.Status.InitContainerStatuses[0].State.Terminated == nil || got.Status.StartTime == nil {
		t.Errorf("status is %+v", got.Status)
	}
	o := corev1.PodLogOptions{Container: "main"}
	var log string
	eventually(t, "echo says who it is", func() error {
		if log = c.logs(t, "echo", o); !strings.Contains(log, "careful") {
			return errors.New(log)
		}
		return nil
	})
	for _, want := range []string{
		"I am echo on node-1 with sesame and $(WORD)\n", "WORLD is test\n", "MILLWRIGHT_BIND_IP is 127.201.1.2\n",
		"/etc/key/word holds sesame <nil>\n", "I am system:serviceaccount:shop:default\n",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("log lacks %q:\n%s", want, log)
		}
	}
	if side := c.logs(t, "echo", corev1.PodLogOptions{Container: "side"}); side != "simulated container side started, image example/side\n" {
		t.Errorf("log of the pretended container is %q", side)
	}
}

func (c *cluster) testLogs(t *testing.T) {
	c.create(c.pod("counter", "millwright/echo:dev", "count"))
	c.untilReady(t, "counter")
	c.untilLog(t, "counter", "line 5")
	five := int64(5)
	if got := c.logs(t, "counter", corev1.PodLogOptions{TailLines: &five}); strings.Count(got, "\n") < 5 || strings.Contains(got, "pid") {
		t.Errorf("tail of 5 is %q", got)
	}
	limit := int64(3)
	if got := c.logs(t, "counter", corev1.PodLogOptions{LimitBytes: &limit}); got != "pid" {
		t.Errorf("3 bytes of log are %q, want %q", got, "pid")
	}
	hour := metav1.NewTime(time.Now().Add(time.Hour))
	if got := c.logs(t, "counter", corev1.PodLogOptions{SinceTime: &hour}); got != "" {
		t.Errorf("log since later is %q, want nothing", got)
	}
	stamped, _, _ := strings.Cut(c.logs(t, "counter", corev1.PodLogOptions{Timestamps: true}), " ")
	if _, err := time.Parse(time.RFC3339Nano, stamped); err != nil {
		t.Errorf("timestamp %q: %v", stamped, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	one := int64(1)
	stream, err := c.admin.CoreV1().Pods(testNS).GetLogs("counter", &corev1.PodLogOptions{Follow: true, TailLines: &one}).Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	lines := bufio.NewScanner(stream)
	last := -1
	for range 10 {
		if !lines.Scan() {
			t.Fatalf("the followed log ended: %v", lines.Err())
		}
		var n int
		if _, err := fmt.Sscanf(lines.Text(), "line %d", &n); err != nil || last >= 0 && n != last+1 {
			t.Fatalf("line after %d is %q", last, lines.Text())
		}
		last = n
	}
	if _, err := c.admin.CoreV1().Pods(testNS).GetLogs("counter", &corev1.PodLogOptions{Previous: true}).DoRaw(t.Context()); err == nil {
		t.Error("a first run has a previous log")
	}
}

func (c *cluster) testExec(t *testing.T) {
	debug := c.pod("debug", "example/tools")
	debug.Spec.Volumes = []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
	debug.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "host", MountPath: "/host"}}
	c.create(debug)
	c.untilReady(t, "debug")
	for _, protocol := range []string{"spdy", "websocket"} {
		t.Run(protocol, func(t *testing.T) {
			if r := c.exec(t, protocol, "debug", "", false, "tool", "chroot", "/host", "/bin/tool", "ls", "/etc"); r.failure != nil || r.out != "os-release\n" {
				t.Errorf("chroot /host ls /etc: %+v", r)
			}
			if r := c.exec(t, protocol, "debug", "hello", false, "tool", "cat"); r.failure != nil || r.out != "hello" {
				t.Errorf("cat: %+v", r)
			}
			r := c.exec(t, protocol, "debug", "", false, "tool", "exit", "7")
			var code utilexec.CodeExitError
			if !errors.As(r.failure, &code) || code.Code != 7 || r.err != "leaving\n" {
				t.Errorf("exit 7: %+v", r)
			}
			if r := c.exec(t, protocol, "debug", "x", true, "tool", "tty"); r.failure != nil || !strings.Contains(r.out, "terminal true\r\n") {
				t.Errorf("tty: %+v", r)
			}
			if r := c.exec(t, protocol, "debug", "", false, "nonsense"); r.failure == nil || !strings.Contains(r.failure.Error(), "executable file not found") {
				t.Errorf("unknown command: %+v", r)
			}
			if r := c.exec(t, protocol, "echo", "", false, "tool", "ls", "/etc"); r.failure != nil || r.out != "os-release\n" {
				t.Errorf("exec beside a real process: %+v", r)
			}
		})
	}
}

// A pretended container that wants standard input runs its command when
// somebody attaches, and ends with it.
func (c *cluster) testAttach(t *testing.T) {
	p := c.pod("shell", "example/tools", "ls", "/etc")
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	p.Spec.Containers[0].Command, p.Spec.Containers[0].Stdin = []string{"tool"}, true
	c.create(p)
	c.untilReady(t, "shell")
	req := c.admin.CoreV1().RESTClient().Post().Resource("pods").Namespace(testNS).Name("shell").SubResource("attach").
		Param("container", "main").Param("stdout", "true").Param("stderr", "true")
	ex, err := executor(c.plane.Admin(), "websocket", req)
	if err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	if err := ex.StreamWithContext(t.Context(), streamTo(&out, &errOut)); err != nil || out.String() != "os-release\n" {
		t.Errorf("attach shows %q %q: %v", out.String(), errOut.String(), err)
	}
	eventually(t, "the pod ends with its command", func() error {
		if p := c.get(t, "shell"); p.Status.Phase != corev1.PodSucceeded {
			return fmt.Errorf("phase is %s", p.Status.Phase)
		}
		return nil
	})
}

func (c *cluster) testPortForward(t *testing.T) {
	rt, upgrader, err := spdy.RoundTripperFor(c.plane.Admin())
	if err != nil {
		t.Fatal(err)
	}
	url := c.admin.CoreV1().RESTClient().Post().Resource("pods").Namespace(testNS).Name("echo").SubResource("portforward").URL()
	stop, ready := make(chan struct{}), make(chan struct{})
	fw, err := portforward.NewOnAddresses(spdy.NewDialer(upgrader, &http.Client{Transport: rt}, http.MethodPost, url),
		[]string{"127.0.0.1"}, []string{"0:8080"}, stop, ready, nil, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- fw.ForwardPorts() }()
	defer func() {
		close(stop)
		<-done
	}()
	select {
	case <-ready:
	case err := <-done:
		t.Fatalf("forward ports: %v", err)
	case <-time.After(20 * time.Second):
		t.Fatal("port-forward does not get ready")
	}
	ports, err := fw.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/some/path", ports[0].Local))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil || b.String() != "served /some/path" {
		t.Errorf("answer is %q, %v", b.String(), err)
	}
}

func (c *cluster) testRestarts(t *testing.T) {
	pid := c.pid(t, "counter")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the process is started again", func() error {
		st := c.get(t, "counter").Status.ContainerStatuses[0]
		if st.RestartCount != 1 || st.State.Running == nil || !st.Ready {
			return fmt.Errorf("container is %+v", st)
		}
		if last := st.LastTerminationState.Terminated; last == nil || last.ExitCode != 137 || last.Reason != "Error" {
			return fmt.Errorf("last run is %+v", last)
		}
		return nil
	})
	if got := c.logs(t, "counter", corev1.PodLogOptions{Previous: true}); !strings.HasPrefix(got, fmt.Sprintf("pid %d\n", pid)) {
		t.Errorf("previous log begins %.40q, want pid %d", got, pid)
	}
	if now := c.pid(t, "counter"); now == pid {
		t.Error("the new log shows the old process")
	}
	c.create(c.pod("crash", "millwright/echo:dev", "exit=3"))
	eventually(t, "a crash loop shows", func() error {
		st := c.get(t, "crash").Status.ContainerStatuses
		if len(st) == 0 || st[0].State.Waiting == nil || st[0].State.Waiting.Reason != "CrashLoopBackOff" || st[0].RestartCount < 1 {
			return fmt.Errorf("containers are %+v", st)
		}
		return nil
	})
	c.create(c.pod("missing", "millwright/nowhere:dev"))
	eventually(t, "a missing binary shows", func() error {
		st := c.get(t, "missing").Status.ContainerStatuses
		if len(st) == 0 || st[0].State.Waiting == nil || st[0].State.Waiting.Reason != "ErrImagePull" {
			return fmt.Errorf("containers are %+v", st)
		}
		return nil
	})
}

func (c *cluster) testFinished(t *testing.T) {
	for name, want := range map[string]corev1.PodPhase{"0": corev1.PodSucceeded, "4": corev1.PodFailed} {
		p := c.pod("job-"+name, "millwright/echo:dev", "exit="+name)
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		c.create(p)
		eventually(t, "the job ends", func() error {
			got := c.get(t, p.Name)
			if got.Status.Phase != want || fmt.Sprint(got.Status.ContainerStatuses[0].State.Terminated.ExitCode) != name {
				return fmt.Errorf("status is %+v, want %s", got.Status, want)
			}
			return nil
		})
	}
}

func (c *cluster) testDeletion(t *testing.T) {
	stubborn := c.pod("stubborn", "millwright/echo:dev", "stubborn")
	one := int64(1)
	stubborn.Spec.TerminationGracePeriodSeconds = &one
	c.create(stubborn)
	c.untilReady(t, "stubborn")
	pids := []int{c.pid(t, "stubborn"), c.pid(t, "counter")}
	stream, err := c.admin.CoreV1().Pods(testNS).GetLogs("counter", &corev1.PodLogOptions{Follow: true}).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for _, name := range []string{"stubborn", "counter", "debug", "crash", "missing"} {
		if err := c.admin.CoreV1().Pods(testNS).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(stream); err != nil || !strings.HasSuffix(b.String(), "bye\n") {
		t.Errorf("log ends %.80q (%v), want the answer to SIGTERM", b.String()[max(0, b.Len()-80):], err)
	}
	for _, name := range []string{"stubborn", "counter", "debug", "crash", "missing"} {
		c.untilGone(t, name)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d outlives its pod: %v", pid, err)
		}
	}
}

func (c *cluster) testIdle(t *testing.T) {
	before, node := c.get(t, "echo"), c.nodeVersion(t)
	timer := time.NewTimer(1500 * time.Millisecond)
	defer timer.Stop()
	<-timer.C
	if after := c.get(t, "echo"); after.ResourceVersion != before.ResourceVersion {
		t.Error("an idle pod was written")
	}
	if after := c.nodeVersion(t); after != node {
		t.Error("an idle node was written")
	}
}

func (c *cluster) nodeVersion(t *testing.T) string {
	t.Helper()
	n, err := c.admin.CoreV1().Nodes().Get(t.Context(), testNode, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return n.ResourceVersion
}

func (c *cluster) testEnd(t *testing.T, cfg Config, stop func()) {
	pid := c.echoPID(t)
	stop()
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Fatalf("process %d outlives its kubelet: %v", pid, err)
	}
	again := c.run(cfg)
	eventually(t, "the pod goes on with the next kubelet", func() error {
		p := c.get(t, "echo")
		for _, st := range p.Status.ContainerStatuses {
			if want := map[string]int32{"main": 1, "side": 0}[st.Name]; st.RestartCount != want || st.State.Running == nil || !st.Ready {
				return fmt.Errorf("container is %+v, want %d restarts", st, want)
			}
		}
		return nil
	})
	again()
}

// echoPID is the process of the pod of two containers.
func (c *cluster) echoPID(t *testing.T) int {
	t.Helper()
	return pidIn(t, c.logs(t, "echo", corev1.PodLogOptions{Container: "main"}))
}
