package kubelet

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podRun is one pod on this machine: its sandbox, processes and files.
type podRun struct {
	key       string // namespace/name
	ns, name  string
	uid       types.UID
	dir       string // below PodDir
	logDir    string
	automount bool
	hostNet   bool
	loopback  string // where its processes listen
	ctx       context.Context
	cancel    context.CancelFunc

	mu      sync.Mutex
	sb      Sandbox
	pod     *corev1.Pod // as last seen
	procs   map[string]*process
	logs    map[string]*logFile
	volumes map[string]string
	tokens  map[tokenKey]token
	mounted bool
	patched *corev1.Pod // our last status write, while the watch lags behind
	termed  bool        // SIGTERM was sent
	deleted bool        // the object's removal was asked for
}

func (r *podRun) kubeconfig() string { return filepath.Join(r.dir, "kubeconfig") }

func (r *podRun) setVolume(name, dir string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.volumes[name] = dir
}

func (r *podRun) volumeDir(name string) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	dir, ok := r.volumes[name]
	return dir, ok
}

func (r *podRun) sandbox() Sandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	sb := r.sb
	sb.Containers = maps.Clone(sb.Containers)
	return sb
}

// change updates one container under the lock.
func (r *podRun) change(name string, f func(Container) Container) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sb.Containers[name] = f(r.sb.Containers[name])
}

// realImage returns the binary of a millwright/* image.
func realImage(image string) (string, bool) {
	rest, ok := strings.CutPrefix(image, "millwright/")
	if !ok {
		return "", false
	}
	rest, _, _ = strings.Cut(rest, "@")
	base, _, _ := strings.Cut(path.Base(rest), ":")
	if base == "" || base == "." || base == ".." || base == "/" {
		return "", false
	}
	return "millwright-" + base, true
}

func hasReal(pod *corev1.Pod) bool {
	for _, c := range pod.Spec.Containers {
		if _, ok := realImage(c.Image); ok {
			return true
		}
	}
	return false
}

func wantsToken(pod *corev1.Pod) bool {
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ServiceAccountToken != nil && s.ServiceAccountToken.Audience == "" {
				return true
			}
		}
	}
	return false
}

// adopt makes the run of a pod seen for the first time. What an earlier
// kubelet of this machine wrote into its status is where it goes on from.
func (k *Kubelet) adopt(ctx context.Context, pod *corev1.Pod) (*podRun, error) {
	r := &podRun{
		key: pod.Namespace + "/" + pod.Name, ns: pod.Namespace, name: pod.Name, uid: pod.UID,
		dir:       filepath.Join(k.cfg.PodDir, string(pod.UID)),
		logDir:    filepath.Join(k.cfg.LogDir, pod.Namespace+"_"+pod.Name+"_"+string(pod.UID)),
		automount: hasReal(pod) && wantsToken(pod), hostNet: pod.Spec.HostNetwork, loopback: k.cfg.BindIP,
		procs: map[string]*process{}, logs: map[string]*logFile{}, pod: pod, volumes: map[string]string{}, tokens: map[tokenKey]token{},
	}
	r.sb = restore(pod, k.cfg.Clock.Now(), k.agent.prevBoot != "" && k.agent.prevBoot == k.cfg.BootID)
	if !r.hostNet {
		k.mu.Lock()
		loop, err := k.loops.take(pod.UID, "")
		k.mu.Unlock()
		if err != nil {
			return nil, fmt.Errorf("give pod %s a loopback address: %w", r.key, err)
		}
		r.loopback = loop
	}
	r.ctx, r.cancel = context.WithCancel(ctx)
	for name, c := range r.sb.Containers {
		if c.Phase == Running {
			k.pretendLog(r, name, c.Restarts)
		}
	}
	return r, nil
}

// restore reads a sandbox back from a status. Real processes died with the
// kubelet that ran them; pretended ones survive unless the machine rebooted.
func restore(pod *corev1.Pod, now time.Time, sameBoot bool) Sandbox {
	sb := Sandbox{Containers: map[string]Container{}}
	images := map[string]string{}
	for _, c := range pod.Spec.Containers {
		images[c.Name] = c.Image
	}
	all := append(append([]corev1.ContainerStatus(nil), pod.Status.ContainerStatuses...), pod.Status.EphemeralContainerStatuses...)
	for _, st := range all {
		c := Container{
			Restarts: st.RestartCount, Last: st.LastTerminationState.Terminated.DeepCopy(),
			ID: strings.TrimPrefix(st.ContainerID, "millwright://"),
		}
		_, isReal := realImage(images[st.Name])
		switch {
		case st.State.Running != nil && sameBoot && !isReal:
			c.Phase, c.Started, c.Ready = Running, st.State.Running.StartedAt.Time, true
		case st.State.Running != nil:
			c.Phase, c.Started, c.Finished, c.ExitCode = Exited, st.State.Running.StartedAt.Time, now, 255
		case st.State.Terminated != nil:
			t := st.State.Terminated
			c.Phase, c.Started, c.Finished, c.ExitCode, c.Signal = Exited, t.StartedAt.Time, t.FinishedAt.Time, t.ExitCode, t.Signal
		case c.ID != "" && c.Last != nil:
			c.Phase, c.Started, c.Finished, c.ExitCode = Exited, c.Last.StartedAt.Time, c.Last.FinishedAt.Time, c.Last.ExitCode
		}
		sb.Containers[st.Name] = c
	}
	if pod.Status.StartTime != nil {
		sb.Started = pod.Status.StartTime.Time
	}
	return sb
}

// prepare gives the pod its sandbox; false means: not yet.
func (k *Kubelet) prepare(r *podRun, pod *corev1.Pod) (bool, error) {
	now := k.cfg.Clock.Now()
	host := internalIP(k.cfg.Addresses)
	ip := host
	if !r.hostNet {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.ips == nil && !k.choosePrefix(now) {
			return false, nil
		}
		var err error
		if ip, err = k.ips.take(pod.UID, pod.Status.PodIP); err != nil {
			return false, fmt.Errorf("give pod %s an address: %w", r.key, err)
		}
		k.publishLocked(ip, r.loopback)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sb.Ready, r.sb.IP, r.sb.HostIP = true, ip, host
	if r.sb.Started.IsZero() {
		r.sb.Started = now
	}
	return true, nil
}

// choosePrefix settles where pod addresses come from: the Node's podCIDR, or
// after a while the configured one.
func (k *Kubelet) choosePrefix(now time.Time) bool {
	cidr := k.podCIDR()
	if cidr == "" && k.cfg.PodCIDR != "" && now.Sub(k.startedAt) >= k.cfg.PodCIDRWait {
		cidr = k.cfg.PodCIDR
	}
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return false
	}
	k.ips = newAddresses(prefix)
	return true
}

// startContainers starts the named containers of a pod whose sandbox is ready.
func (k *Kubelet) startContainers(ctx context.Context, r *podRun, pod *corev1.Pod, names []string) {
	for _, name := range names {
		c := findContainer(pod, name)
		bin, isReal := realImage(c.Image)
		if !isReal {
			r.change(name, func(st Container) Container {
				st = st.Begin(containerRunID(r, name, st), k.cfg.Clock.Now())
				st.Ready = true
				return st
			})
			k.pretendLog(r, name, r.sandbox().Containers[name].Restarts)
			continue
		}
		if reason, err := k.startReal(ctx, r, pod, c, bin); err != nil {
			k.cfg.Log.V(1).Info("Container does not start", "Pod", r.key, "container", name, "reason", err.Error())
			r.change(name, func(st Container) Container { return st.Fail(reason, err.Error(), k.cfg.Clock.Now()) })
		}
	}
}

// containerRunID names one run of a container.
func containerRunID(r *podRun, name string, st Container) string {
	run := st.Restarts
	if st.Phase == Exited {
		run++
	}
	return fmt.Sprintf("%s-%s-%d", r.uid, name, run)
}

// findContainer also finds ephemeral containers, which have the same fields.
func findContainer(pod *corev1.Pod, name string) *corev1.Container {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return &pod.Spec.Containers[i]
		}
	}
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			return &pod.Spec.InitContainers[i]
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if e := &pod.Spec.EphemeralContainers[i]; e.Name == name {
			c := corev1.Container(e.EphemeralContainerCommon)
			return &c
		}
	}
	return nil
}

func (r *podRun) logPath(container string, run int32) string {
	return filepath.Join(r.logDir, container, fmt.Sprintf("%d.log", run))
}

// openLog makes the log of a run and removes the one before the previous.
func (k *Kubelet) openLog(r *podRun, container string, run int32) (*logFile, error) {
	l, err := createLog(r.logPath(container, run), k.cfg.Clock)
	if err != nil {
		return nil, err
	}
	if run >= 2 {
		for _, suffix := range []string{"", ".1"} {
			_ = os.Remove(r.logPath(container, run-2) + suffix) // usually not there
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logs[container] = l
	return l, nil
}

// pretendLog gives a container that only pretends one line to show.
func (k *Kubelet) pretendLog(r *podRun, container string, run int32) {
	l, err := k.openLog(r, container, run)
	if err != nil {
		k.cfg.Log.Error(err, "Opening log", "Pod", r.key, "container", container)
		return
	}
	c := findContainer(r.podNow(), container)
	image := ""
	if c != nil {
		image = c.Image
	}
	l.append("stdout", "F", fmt.Appendf(nil, "simulated container %s started, image %s", container, image))
	l.idle()
}

func (r *podRun) podNow() *corev1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pod == nil {
		return &corev1.Pod{}
	}
	return r.pod
}

// stopAll ends what runs: pretended containers at once, real ones by SIGTERM,
// and by SIGKILL from killAt on. It tells whether it changed anything itself.
func (k *Kubelet) stopAll(r *podRun, pod *corev1.Pod, killAt time.Time) bool {
	now := k.cfg.Clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := false
	for name, st := range r.sb.Containers {
		if st.Phase != Running {
			continue
		}
		if p := r.procs[name]; p != nil {
			switch {
			case !now.Before(killAt):
				p.kill(syscall.SIGKILL)
			case !r.termed:
				p.kill(syscall.SIGTERM)
			}
			continue
		}
		r.sb.Containers[name] = st.Exit(0, 0, now)
		if l := r.logs[name]; l != nil {
			l.close()
		}
		changed = true
	}
	r.termed = true
	return changed
}

// teardown ends a pod whose object is gone, and frees all it had.
func (k *Kubelet) teardown(r *podRun) {
	r.cancel()
	r.killAndWait(syscall.SIGKILL)
	r.mu.Lock()
	for _, l := range r.logs {
		l.close()
	}
	ip := r.sb.IP
	r.mu.Unlock()
	k.mu.Lock()
	delete(k.runs, r.key)
	if !r.hostNet {
		k.loops.free(r.uid)
		if k.ips != nil {
			k.ips.free(r.uid)
		}
		if ip != "" {
			k.withdrawLocked(ip)
		}
	}
	k.mu.Unlock()
	for _, dir := range []string{r.dir, r.logDir} {
		if err := os.RemoveAll(dir); err != nil {
			k.cfg.Log.Error(err, "Removing directory of pod", "Pod", r.key)
		}
	}
}

// killAndWait signals every process and waits until all have ended.
func (r *podRun) killAndWait(sig syscall.Signal) {
	r.mu.Lock()
	procs := maps.Clone(r.procs)
	r.mu.Unlock()
	for _, p := range procs {
		p.kill(sig)
	}
	if sig != syscall.SIGKILL {
		return
	}
	for _, p := range procs {
		<-p.done // SIGKILL cannot be refused, and pipes are given up after waitDelay
	}
}

func hostRoot(pod *corev1.Pod) bool {
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil && filepath.Clean(v.HostPath.Path) == "/" {
			return true
		}
	}
	return false
}

// wantsSession tells whether a pretended container is waiting for somebody to
// attach: then its command runs in the attached session.
func wantsSession(c *corev1.Container) bool {
	if _, isReal := realImage(c.Image); isReal {
		return false
	}
	return c.Stdin || c.TTY
}

func exitCode(err error) int32 {
	if e, ok := err.(interface{ ExitStatus() int }); ok {
		return int32(e.ExitStatus())
	}
	if err != nil {
		return 1
	}
	return 0
}
