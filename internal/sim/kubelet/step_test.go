package kubelet

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func podOf(policy corev1.RestartPolicy, names ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u1", Generation: 3}}
	p.Spec.RestartPolicy = policy
	for _, n := range names {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: n, Image: "example/" + n})
	}
	return p
}

func deleting(p *corev1.Pod, until time.Time) *corev1.Pod {
	p = p.DeepCopy()
	p.DeletionTimestamp = ptr.To(metav1.NewTime(until))
	return p
}

func withPhase(p *corev1.Pod, phase corev1.PodPhase) *corev1.Pod {
	p = p.DeepCopy()
	p.Status.Phase = phase
	return p
}

func sandboxOf(cs map[string]Container) Sandbox {
	return Sandbox{Ready: true, IP: "10.128.0.5", HostIP: "10.0.0.4", Started: noon.Add(-time.Hour), Containers: cs}
}

func runningFor(d time.Duration) Container {
	c := Container{}.Begin("id", noon.Add(-d))
	c.Ready = true
	return c
}

func exitedWith(code int32, ago time.Duration) Container {
	return runningFor(ago+time.Second).Exit(code, 0, noon.Add(-ago))
}

func TestStepDecides(t *testing.T) {
	type want struct {
		Phase  corev1.PodPhase
		Start  []string
		Stop   bool
		Delete bool
		Wake   time.Duration
		Ready  corev1.ConditionStatus
	}
	always, never, onFailure := corev1.RestartPolicyAlways, corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure
	rows := []struct {
		name, why string
		pod       *corev1.Pod
		sb        Sandbox
		want      want
	}{
		{"new", "without an address nothing starts", podOf(always, "a"), Sandbox{},
			want{Phase: corev1.PodPending, Ready: "False"}},
		{"sandbox ready", "all containers start, in order", podOf(always, "b", "a"), sandboxOf(nil),
			want{Phase: corev1.PodPending, Start: []string{"b", "a"}, Ready: "False"}},
		{"running", "a healthy pod asks for nothing", podOf(always, "a"), sandboxOf(map[string]Container{"a": runningFor(time.Hour)}),
			want{Phase: corev1.PodRunning, Ready: "True"}},
		{"just crashed", "the first restart waits a second", podOf(always, "a"), sandboxOf(map[string]Container{"a": exitedWith(1, 0)}),
			want{Phase: corev1.PodRunning, Wake: time.Second, Ready: "False"}},
		{"crashed, waited", "after its back-off it starts again", podOf(always, "a"), sandboxOf(map[string]Container{"a": exitedWith(1, time.Second)}),
			want{Phase: corev1.PodRunning, Start: []string{"a"}, Ready: "False"}},
		{"job done", "OnFailure keeps a success", podOf(onFailure, "a"), sandboxOf(map[string]Container{"a": exitedWith(0, time.Minute)}),
			want{Phase: corev1.PodSucceeded, Ready: "False"}},
		{"job failed", "OnFailure repeats a failure", podOf(onFailure, "a"), sandboxOf(map[string]Container{"a": exitedWith(2, time.Minute)}),
			want{Phase: corev1.PodRunning, Start: []string{"a"}, Ready: "False"}},
		{"never, failed", "one failure fails the pod when all have ended", podOf(never, "a", "b"),
			sandboxOf(map[string]Container{"a": exitedWith(0, time.Minute), "b": exitedWith(3, time.Minute)}),
			want{Phase: corev1.PodFailed, Ready: "False"}},
		{"never, one lives", "the pod runs until the last has ended", podOf(never, "a", "b"),
			sandboxOf(map[string]Container{"a": exitedWith(1, time.Minute), "b": runningFor(time.Minute)}),
			want{Phase: corev1.PodRunning, Ready: "False"}},
		{"deleted, running", "what runs is stopped, and watched until its time is up", deleting(podOf(always, "a"), noon.Add(30*time.Second)),
			sandboxOf(map[string]Container{"a": runningFor(time.Minute)}),
			want{Phase: corev1.PodRunning, Stop: true, Wake: 30 * time.Second, Ready: "True"}},
		{"deleted, ended", "only then the object goes", deleting(podOf(always, "a"), noon.Add(30*time.Second)),
			sandboxOf(map[string]Container{"a": exitedWith(143, 0)}),
			want{Phase: corev1.PodFailed, Delete: true, Ready: "False"}},
		{"deleted, ended well", "a clean end counts as success", deleting(podOf(always, "a"), noon),
			sandboxOf(map[string]Container{"a": exitedWith(0, 0)}),
			want{Phase: corev1.PodSucceeded, Delete: true, Ready: "False"}},
		{"deleted before it started", "nothing is to stop", deleting(podOf(always, "a"), noon), Sandbox{},
			want{Phase: corev1.PodFailed, Delete: true}},
		{"failed by somebody else", "its containers end, it is not deleted", withPhase(podOf(always, "a"), corev1.PodFailed),
			sandboxOf(map[string]Container{"a": runningFor(time.Minute)}),
			want{Phase: corev1.PodFailed, Stop: true, Wake: 30 * time.Second, Ready: "False"}},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			out := Step(r.pod, r.sb, noon)
			got := want{Phase: out.Status.Phase, Start: out.Start, Stop: out.Stop, Delete: out.Delete, Wake: out.Wake}
			for _, c := range out.Status.Conditions {
				if c.Type == corev1.PodReady {
					got.Ready = c.Status
				}
			}
			if d := cmp.Diff(r.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", r.why, d)
			}
		})
	}
}

func TestStepShowsCrashLoop(t *testing.T) {
	c := exitedWith(1, 0)
	c = c.Begin("2", noon).Exit(7, 0, noon)
	out := Step(podOf(corev1.RestartPolicyAlways, "a"), sandboxOf(map[string]Container{"a": c}), noon)
	got := out.Status.ContainerStatuses[0]
	if got.State.Waiting == nil || got.State.Waiting.Reason != "CrashLoopBackOff" {
		t.Fatalf("state is %+v, want CrashLoopBackOff", got.State)
	}
	if want := "back-off 2s restarting failed container=a pod=web_shop(u1)"; got.State.Waiting.Message != want {
		t.Errorf("message is %q, want %q", got.State.Waiting.Message, want)
	}
	if got.RestartCount != 1 || got.LastTerminationState.Terminated == nil || got.LastTerminationState.Terminated.ExitCode != 7 {
		t.Errorf("restarts %d, last %+v, want 1 and exit code 7", got.RestartCount, got.LastTerminationState.Terminated)
	}
}

func TestStepKeepsForeignConditions(t *testing.T) {
	p := podOf(corev1.RestartPolicyAlways, "a")
	p.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour))},
		{Type: "example.com/Gate", Status: corev1.ConditionFalse},
	}
	p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/Gate"}}
	out := Step(p, sandboxOf(map[string]Container{"a": runningFor(time.Hour)}), noon)
	byType := map[corev1.PodConditionType]corev1.PodCondition{}
	for _, c := range out.Status.Conditions {
		byType[c.Type] = c
	}
	if d := cmp.Diff(p.Status.Conditions[0], byType[corev1.PodScheduled]); d != "" {
		t.Errorf("PodScheduled changed (-want +got):\n%s", d)
	}
	if c := byType[corev1.PodReady]; c.Status != corev1.ConditionFalse || c.Reason != "ReadinessGatesNotReady" {
		t.Errorf("Ready is %s %s, want False ReadinessGatesNotReady", c.Status, c.Reason)
	}
}

func TestBackOffGrowsToTenSeconds(t *testing.T) {
	var got []time.Duration
	for n := range 7 {
		got = append(got, backOff(n)/time.Second)
	}
	if d := cmp.Diff([]time.Duration{0, 1, 2, 4, 8, 10, 10}, got); d != "" {
		t.Errorf("back-off (-want +got):\n%s", d)
	}
	if c := runningFor(2*time.Minute).Exit(1, 0, noon); c.Crashes != 1 {
		t.Errorf("crashes after a long life is %d, want 1", c.Crashes)
	}
}

// Obeying Step and stepping again writes nothing new and asks for nothing.
func TestStepIsQuietOnceObeyed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		policy := rapid.SampledFrom([]corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}).Draw(rt, "policy")
		names := []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(rt, "containers")]
		pod := podOf(policy, names...)
		sb := sandboxOf(map[string]Container{})
		for _, n := range names {
			switch rapid.IntRange(0, 3).Draw(rt, n) {
			case 1:
				sb.Containers[n] = runningFor(time.Minute)
			case 2:
				sb.Containers[n] = exitedWith(int32(rapid.IntRange(0, 2).Draw(rt, "code")), time.Minute)
			}
		}
		if rapid.Bool().Draw(rt, "deleting") {
			pod = deleting(pod, noon)
		}
		out := Step(pod, sb, noon)
		sb = pretend(pod, sb, out, noon)
		pod.Status = Step(pod, sb, noon).Status
		again := Step(pod, sb, noon.Add(time.Second))
		if len(again.Start) > 0 || again.Stop {
			rt.Fatalf("second step starts %v, stops %v, want nothing", again.Start, again.Stop)
		}
		if d := cmp.Diff(pod.Status, again.Status); d != "" {
			rt.Fatalf("second step changes the status (-first +second):\n%s", d)
		}
		if slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Ready && c.State.Running == nil }) {
			rt.Fatal("a container is ready and does not run")
		}
	})
}

func TestRestoreCountsTheLostRun(t *testing.T) {
	pod := podOf(corev1.RestartPolicyAlways, "real", "other")
	pod.Spec.Containers[0].Image = "millwright/manager:dev"
	for _, n := range []string{"real", "other"} {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: n, RestartCount: 2, ContainerID: "millwright://x", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon.Add(-time.Hour))}},
		})
	}
	sb := restore(pod, noon, true)
	if got := sb.Containers["other"]; got.Phase != Running || got.Restarts != 2 {
		t.Errorf("pretended container is %+v, want it running on", got)
	}
	got := sb.Containers["real"]
	if got.Phase != Exited {
		t.Fatalf("real container is %+v, want it ended with its kubelet", got)
	}
	if got = got.Begin("next", noon); got.Restarts != 3 {
		t.Errorf("restarts is %d, want 3", got.Restarts)
	}
	if after := restore(pod, noon, false).Containers["other"]; after.Phase != Exited {
		t.Errorf("after a reboot the pretended container is %+v, want it ended", after)
	}
}
