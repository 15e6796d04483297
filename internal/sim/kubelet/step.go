package kubelet

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Phase is where a container of a pod is in its life.
type Phase int

const (
	Created Phase = iota // never started
	Running
	Exited
)

const (
	maxBackOff = 10 * time.Second
	// A container that lived this long starts its back-off anew.
	steadyAfter = time.Minute
)

// Container is what a node knows about one container.
type Container struct {
	Phase    Phase
	ID       string
	Restarts int32 // how often it was started again
	Crashes  int   // early ends in a row, which set the back-off
	Started  time.Time
	Finished time.Time
	ExitCode int32
	Signal   int32
	Ready    bool
	Last     *corev1.ContainerStateTerminated // the run before this one

	// Why it could not be started, and when to try again.
	Reason, Problem string
	RetryAt         time.Time
}

// Sandbox is what a node knows about one pod. The zero Sandbox is a pod
// nothing was done for yet.
type Sandbox struct {
	Ready      bool // it has its address and directories
	IP, HostIP string
	Started    time.Time
	Containers map[string]Container
}

// Outcome is what a node should do for a pod now, and how the pod looks.
type Outcome struct {
	Status corev1.PodStatus
	Start  []string      // containers to start, in order
	Stop   bool          // end all that runs: SIGTERM now, SIGKILL at KillAt
	KillAt time.Time     // meaningful with Stop
	Delete bool          // all has ended: take the object away
	Wake   time.Duration // look again after this long; 0 waits for an event
}

// Begin is the container after it was started.
func (c Container) Begin(id string, at time.Time) Container {
	if c.Phase == Exited {
		c.Restarts++
		c.Last = c.terminated()
	}
	c.Phase, c.ID, c.Started, c.Finished = Running, id, at, time.Time{}
	c.ExitCode, c.Signal, c.Reason, c.Problem, c.RetryAt = 0, 0, "", "", time.Time{}
	return c
}

// Exit is the container after its process ended.
func (c Container) Exit(code, signal int32, at time.Time) Container {
	if at.Sub(c.Started) >= steadyAfter {
		c.Crashes = 0
	}
	c.Crashes++
	c.Phase, c.ExitCode, c.Signal, c.Finished, c.Ready = Exited, code, signal, at, false
	c.RetryAt = at.Add(backOff(c.Crashes))
	return c
}

// Fail is the container after an attempt to start it went wrong.
func (c Container) Fail(reason, problem string, at time.Time) Container {
	c.Crashes++
	c.Ready, c.Reason, c.Problem = false, reason, problem
	c.RetryAt = at.Add(backOff(c.Crashes))
	return c
}

// backOff is 1, 2, 4, 8, then 10 seconds: shorter than a real node's, so that
// a person watching sees the restart.
func backOff(crashes int) time.Duration {
	if crashes < 1 {
		return 0
	}
	return min(time.Second<<min(crashes-1, 8), maxBackOff)
}

// Step decides what to do for a pod. It reads nothing but its arguments.
func Step(pod *corev1.Pod, sb Sandbox, now time.Time) Outcome {
	var out Outcome
	running, live := false, false // anything runs; anything runs or will
	failed := false
	for _, c := range pod.Spec.Containers {
		st := sb.Containers[c.Name]
		running = running || st.Phase == Running
		live = live || st.Phase != Exited || restarts(pod, st)
		failed = failed || st.Phase == Exited && st.ExitCode != 0
	}
	for _, c := range pod.Spec.EphemeralContainers {
		running = running || sb.Containers[c.Name].Phase == Running
	}
	deleting := pod.DeletionTimestamp != nil
	switch {
	case deleting || terminal(pod.Status.Phase):
		out.Stop = running
		out.KillAt = killAt(pod, now)
		out.Delete = deleting && !running
		if out.Stop {
			out.Wake = max(out.KillAt.Sub(now), time.Millisecond)
		}
	case sb.Ready:
		out.Start, out.Wake = starts(pod, sb, now)
	}
	out.Status = status(pod, sb, view{
		now:   now,
		phase: phaseOf(pod, phaseFacts{deleting: deleting, running: running, live: live, failed: failed, ready: sb.Ready, sb: sb}),
	})
	return out
}

func killAt(pod *corev1.Pod, now time.Time) time.Time {
	if pod.DeletionTimestamp != nil {
		return pod.DeletionTimestamp.Time
	}
	grace := int64(30)
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		grace = *g
	}
	return now.Add(time.Duration(grace) * time.Second)
}

func terminal(p corev1.PodPhase) bool {
	return p == corev1.PodSucceeded || p == corev1.PodFailed
}

// restarts tells whether an exited container is to be started again.
func restarts(pod *corev1.Pod, c Container) bool {
	switch pod.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return c.ExitCode != 0
	default:
		return true
	}
}

func starts(pod *corev1.Pod, sb Sandbox, now time.Time) (names []string, wake time.Duration) {
	consider := func(name string, again bool) {
		st := sb.Containers[name]
		if st.Phase == Running || st.Phase == Exited && !again {
			return
		}
		if wait := st.RetryAt.Sub(now); wait > 0 {
			if wake == 0 || wait < wake {
				wake = wait
			}
			return
		}
		names = append(names, name)
	}
	for _, c := range pod.Spec.Containers {
		consider(c.Name, restarts(pod, sb.Containers[c.Name]))
	}
	for _, c := range pod.Spec.EphemeralContainers {
		consider(c.Name, false)
	}
	return names, wake
}

type phaseFacts struct {
	deleting, running, live, failed, ready bool
	sb                                     Sandbox
}

func phaseOf(pod *corev1.Pod, f phaseFacts) corev1.PodPhase {
	switch {
	case terminal(pod.Status.Phase):
		return pod.Status.Phase
	case f.deleting && f.running:
		return started(pod, f.sb)
	case f.deleting && started(pod, f.sb) == corev1.PodPending:
		return corev1.PodFailed
	case f.deleting || f.ready && !f.live:
		if f.failed {
			return corev1.PodFailed
		}
		return corev1.PodSucceeded
	default:
		return started(pod, f.sb)
	}
}

// started is Running once every container has started at least once.
func started(pod *corev1.Pod, sb Sandbox) corev1.PodPhase {
	for _, c := range pod.Spec.Containers {
		if st := sb.Containers[c.Name]; st.Phase == Created && st.Restarts == 0 {
			return corev1.PodPending
		}
	}
	return corev1.PodRunning
}

func (c Container) terminated() *corev1.ContainerStateTerminated {
	reason := "Completed"
	if c.ExitCode != 0 {
		reason = "Error"
	}
	return &corev1.ContainerStateTerminated{
		ExitCode: c.ExitCode, Signal: c.Signal, Reason: reason,
		StartedAt: stamp(c.Started), FinishedAt: stamp(c.Finished),
		ContainerID: containerID(c.ID),
	}
}

func containerID(id string) string {
	if id == "" {
		return ""
	}
	return "millwright://" + id
}

// stamp has the precision that survives the wire, so that a status compares
// equal to itself read back.
func stamp(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t.Truncate(time.Second))
}
