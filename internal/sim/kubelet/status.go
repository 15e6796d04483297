package kubelet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

type view struct {
	now   time.Time
	phase corev1.PodPhase
}

// status renders the whole pod status, keeping what others own.
func status(pod *corev1.Pod, sb Sandbox, v view) corev1.PodStatus {
	out := *pod.Status.DeepCopy()
	out.Phase = v.phase
	out.ObservedGeneration = pod.Generation
	if sb.HostIP != "" {
		out.HostIP, out.HostIPs = sb.HostIP, []corev1.HostIP{{IP: sb.HostIP}}
	}
	if sb.IP != "" {
		out.PodIP, out.PodIPs = sb.IP, []corev1.PodIP{{IP: sb.IP}}
	}
	if out.StartTime == nil && !sb.Started.IsZero() {
		out.StartTime = ptr.To(stamp(sb.Started))
	}
	if sb.Started.IsZero() && terminal(v.phase) {
		return out // it ended before this node touched it
	}
	out.InitContainerStatuses = nil
	for i := range pod.Spec.InitContainers {
		out.InitContainerStatuses = append(out.InitContainerStatuses, initStatus(pod, i, sb))
	}
	out.ContainerStatuses = nil
	for _, c := range pod.Spec.Containers {
		out.ContainerStatuses = append(out.ContainerStatuses, containerStatus(pod, c.Name, c.Image, sb, v.now))
	}
	out.EphemeralContainerStatuses = nil
	for _, c := range pod.Spec.EphemeralContainers {
		out.EphemeralContainerStatuses = append(out.EphemeralContainerStatuses, containerStatus(pod, c.Name, c.Image, sb, v.now))
	}
	out.Conditions = conditions(pod, sb, v)
	return out
}

// initStatus pretends: init containers are done as soon as the pod has its
// sandbox; those that restart always run beside the others.
func initStatus(pod *corev1.Pod, i int, sb Sandbox) corev1.ContainerStatus {
	c := pod.Spec.InitContainers[i]
	st := corev1.ContainerStatus{Name: c.Name, Image: c.Image}
	sidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
	if !sb.Ready {
		st.State.Waiting = &corev1.ContainerStateWaiting{Reason: "PodInitializing"}
		return st
	}
	st.ImageID, st.ContainerID, st.Ready = c.Image, containerID(string(pod.UID)+"-"+c.Name), true
	st.Started = ptr.To(sidecar)
	if sidecar {
		st.State.Running = &corev1.ContainerStateRunning{StartedAt: stamp(sb.Started)}
		return st
	}
	st.State.Terminated = &corev1.ContainerStateTerminated{
		Reason: "Completed", StartedAt: stamp(sb.Started), FinishedAt: stamp(sb.Started), ContainerID: st.ContainerID,
	}
	return st
}

func containerStatus(pod *corev1.Pod, name, image string, sb Sandbox, now time.Time) corev1.ContainerStatus {
	c := sb.Containers[name]
	st := corev1.ContainerStatus{
		Name: name, Image: image, RestartCount: c.Restarts,
		Ready: c.Phase == Running && c.Ready, Started: ptr.To(c.Phase == Running),
		ContainerID: containerID(c.ID),
	}
	if c.ID != "" {
		st.ImageID = image
	}
	if c.Last != nil {
		st.LastTerminationState.Terminated = c.Last.DeepCopy()
	}
	switch {
	case c.Phase == Running:
		st.State.Running = &corev1.ContainerStateRunning{StartedAt: stamp(c.Started)}
	case c.Problem != "":
		st.State.Waiting = &corev1.ContainerStateWaiting{Reason: c.Reason, Message: c.Problem}
	case c.Phase == Created:
		st.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	case c.Crashes > 1 && pod.DeletionTimestamp == nil && restarts(pod, c) && !terminal(pod.Status.Phase):
		st.LastTerminationState.Terminated = c.terminated()
		st.State.Waiting = &corev1.ContainerStateWaiting{
			Reason: "CrashLoopBackOff",
			Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
				backOff(c.Crashes), name, pod.Name, pod.Namespace, pod.UID),
		}
	default:
		st.State.Terminated = c.terminated()
	}
	return st
}

// conditions renders those a kubelet owns and keeps all others.
func conditions(pod *corev1.Pod, sb Sandbox, v view) []corev1.PodCondition {
	ready := containersReady(pod, sb, v.phase)
	podReady := ready
	podReady.Type = corev1.PodReady
	if ready.Status == corev1.ConditionTrue {
		podReady = gatesReady(pod, podReady)
	}
	initialized := corev1.PodCondition{Type: corev1.PodInitialized, Status: boolStatus(sb.Ready || terminal(v.phase))}
	if v.phase == corev1.PodSucceeded {
		initialized.Reason = "PodCompleted"
	}
	own := []corev1.PodCondition{
		{Type: corev1.PodReadyToStartContainers, Status: boolStatus(sb.Ready && !terminal(v.phase))},
		initialized, podReady, ready,
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
	}
	out := slices.Clone(pod.Status.Conditions)
	for _, c := range own {
		c.ObservedGeneration = pod.Generation
		out = setCondition(out, c, v.now)
	}
	return out
}

func containersReady(pod *corev1.Pod, sb Sandbox, phase corev1.PodPhase) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse}
	switch phase {
	case corev1.PodSucceeded:
		c.Reason = "PodCompleted"
		return c
	case corev1.PodFailed:
		c.Reason = "PodFailed"
		return c
	}
	var unready []string
	for _, ct := range pod.Spec.Containers {
		if st := sb.Containers[ct.Name]; st.Phase != Running || !st.Ready {
			unready = append(unready, ct.Name)
		}
	}
	if len(unready) == 0 {
		c.Status = corev1.ConditionTrue
		return c
	}
	c.Reason = "ContainersNotReady"
	c.Message = fmt.Sprintf("containers with unready status: [%s]", strings.Join(unready, " "))
	return c
}

func gatesReady(pod *corev1.Pod, c corev1.PodCondition) corev1.PodCondition {
	for _, gate := range pod.Spec.ReadinessGates {
		i := slices.IndexFunc(pod.Status.Conditions, func(pc corev1.PodCondition) bool { return pc.Type == gate.ConditionType })
		if i < 0 || pod.Status.Conditions[i].Status != corev1.ConditionTrue {
			c.Status, c.Reason = corev1.ConditionFalse, "ReadinessGatesNotReady"
			c.Message = fmt.Sprintf("corresponding condition of pod readiness gate %q is not True", gate.ConditionType)
			return c
		}
	}
	return c
}

func setCondition(list []corev1.PodCondition, c corev1.PodCondition, now time.Time) []corev1.PodCondition {
	i := slices.IndexFunc(list, func(have corev1.PodCondition) bool { return have.Type == c.Type })
	if i < 0 {
		c.LastTransitionTime = stamp(now)
		return append(list, c)
	}
	if c.Type == corev1.PodScheduled && list[i].Status == corev1.ConditionTrue {
		return list // the scheduler's
	}
	c.LastTransitionTime = list[i].LastTransitionTime
	if list[i].Status != c.Status || c.LastTransitionTime == (metav1.Time{}) {
		c.LastTransitionTime = stamp(now)
	}
	list[i] = c
	return list
}

func boolStatus(b bool) corev1.ConditionStatus {
	if b {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}
