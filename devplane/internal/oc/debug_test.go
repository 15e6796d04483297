package oc

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	utilexec "k8s.io/client-go/util/exec"
)

const node = "worker-0.example.internal"

// debugWorld is a debugOptions on a fake API in which every pod runs at once.
type debugWorld struct {
	*debugOptions
	api     *fake.Clientset
	out     *bytes.Buffer
	created *corev1.Pod
	ran     [][]string
	phase   corev1.PodPhase
	execErr error
}

func newWorld() *debugWorld {
	w := &debugWorld{out: &bytes.Buffer{}, phase: corev1.PodRunning}
	w.api = fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
	w.api.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		pod := action.(clienttesting.CreateAction).GetObject().(*corev1.Pod)
		pod.Name = pod.GenerateName + "abcde"
		pod.Status = corev1.PodStatus{Phase: w.phase, PodIP: "10.0.14.22"}
		w.created = pod.DeepCopy()
		return false, nil, nil
	})
	w.debugOptions = &debugOptions{
		node: node, namespace: "default", image: debugImage, client: w.api,
		streams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: &bytes.Buffer{}, ErrOut: w.out},
		exec: func(_ context.Context, _ *corev1.Pod, command []string, tty bool) error {
			w.ran = append(w.ran, command)
			return w.execErr
		},
	}
	return w
}

func (w *debugWorld) podsLeft(t *testing.T) int {
	t.Helper()
	list, err := w.api.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

func TestDebugRunsTheCommandAndRemovesItsPod(t *testing.T) {
	w := newWorld()
	w.command = []string{"chroot", "/host", "ls"}
	if err := w.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	const want = "Starting pod/worker-0exampleinternal-debug-abcde ...\n" +
		"To use host binaries, run `chroot /host`. Instead, if you need to access host namespaces, run `nsenter -a -t 1`.\n" +
		"\nRemoving debug pod ...\n"
	if got := w.out.String(); got != want {
		t.Errorf("said\n%s\nwant\n%s", got, want)
	}
	if len(w.ran) != 1 || strings.Join(w.ran[0], " ") != "chroot /host ls" {
		t.Errorf("ran %v", w.ran)
	}
	if n := w.podsLeft(t); n != 0 {
		t.Errorf("%d pods left, want none", n)
	}
	spec := w.created.Spec
	c := spec.Containers[0]
	if spec.NodeName != node || !spec.HostNetwork || !spec.HostPID || c.Name != "container-00" ||
		!*c.SecurityContext.Privileged || c.VolumeMounts[0].MountPath != "/host" || spec.Volumes[0].HostPath.Path != "/" {
		t.Errorf("pod is not a node's debug pod: %+v", spec)
	}
}

func TestDebugOpensAShellWithoutACommand(t *testing.T) {
	w := newWorld()
	if err := w.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Pod IP: 10.0.14.22\n", "If you don't see a command prompt, try pressing enter.\n"} {
		if !strings.Contains(w.out.String(), want) {
			t.Errorf("said\n%s\nwant %q in it", w.out, want)
		}
	}
	if len(w.ran) != 1 || w.ran[0][0] != "/bin/sh" {
		t.Errorf("ran %v, want a shell", w.ran)
	}
}

func TestDebugPassesTheExitCodeOn(t *testing.T) {
	w := newWorld()
	w.command = []string{"false"}
	w.execErr = utilexec.CodeExitError{Err: errors.New("command terminated with exit code 7"), Code: 7}
	err := w.run(t.Context())
	var exit utilexec.ExitError
	if !errors.As(err, &exit) || exit.ExitStatus() != 7 || err.Error() != "error: non-zero exit code from debug container" {
		t.Errorf("got %v, want exit code 7", err)
	}
	if n := w.podsLeft(t); n != 0 {
		t.Errorf("%d pods left after a failure, want none", n)
	}
}

func TestDebugRemovesAPodThatDoesNotRun(t *testing.T) {
	w := newWorld()
	w.phase = corev1.PodFailed
	if err := w.run(t.Context()); err == nil || !strings.Contains(err.Error(), "phase Failed") {
		t.Errorf("got %v, want the phase", err)
	}
	if n := w.podsLeft(t); n != 0 || len(w.ran) != 0 {
		t.Errorf("%d pods left and %v run, want neither", n, w.ran)
	}
}

func TestDebugRefusesAnUnknownNode(t *testing.T) {
	w := newWorld()
	w.node = "nobody"
	if err := w.run(t.Context()); err == nil || !strings.Contains(err.Error(), `"nobody" not found`) {
		t.Errorf("got %v, want not found", err)
	}
	if w.created != nil {
		t.Error("a pod was created")
	}
}

func TestParseTarget(t *testing.T) {
	rows := []struct{ in, want, fault string }{
		{"node/a", "a", ""}, {"nodes/a.b", "a.b", ""}, {"node a", "a", ""},
		{"", "", "node/NAME"}, {"a", "", "only nodes"}, {"pod/a", "", "only nodes"},
		{"node/", "", "no node name"}, {"node/a/b", "", "no node name"}, {"node a b", "", "only nodes"},
	}
	for _, row := range rows {
		got, err := parseTarget(strings.Fields(row.in))
		if got != row.want || (err == nil) != (row.fault == "") || err != nil && !strings.Contains(err.Error(), row.fault) {
			t.Errorf("%q: got %q and %v, want %q and %q", row.in, got, err, row.want, row.fault)
		}
	}
}

func TestTreeHasNodeCommandsUnderAdm(t *testing.T) {
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &bytes.Buffer{}, ErrOut: os.Stderr}
	root := build([]string{"oc"}, genericclioptions.NewConfigFlags(true), streams)
	for _, name := range []string{"cordon", "uncordon", "drain", "taint", "top", "certificate"} {
		cmd, _, err := root.Find([]string{"adm", name})
		if err != nil || cmd.CommandPath() != "oc adm "+name {
			t.Errorf("oc adm %s: %v", name, err)
		} else if strings.Contains(cmd.Example, "kubectl ") {
			t.Errorf("oc adm %s speaks of kubectl:\n%s", name, cmd.Example)
		}
		if _, _, err := root.Find([]string{name}); err == nil {
			t.Errorf("oc %s exists beside oc adm %s", name, name)
		}
	}
	if cmd, _, err := root.Find([]string{"debug"}); err != nil || !strings.Contains(cmd.Use, "node/NAME") {
		t.Errorf("oc debug: %v", err)
	}
	if cmd, _, err := root.Find([]string{"get"}); err != nil || !strings.Contains(cmd.Example, "oc get pods") {
		t.Errorf("oc get: %v", err)
	}
}
