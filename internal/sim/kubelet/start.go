package kubelet

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// startReal starts the child process of one container. The returned reason
// is the container's waiting reason if there is an error.
func (k *Kubelet) startReal(ctx context.Context, r *podRun, pod *corev1.Pod, c *corev1.Container, bin string) (string, error) {
	sb := r.sandbox()
	r.mu.Lock()
	mounted := r.mounted
	r.mu.Unlock()
	if !mounted {
		if err := k.mount(ctx, r, pod, sb.IP); err != nil {
			return "ContainerCreating", err
		}
		r.mu.Lock()
		r.mounted = true
		r.mu.Unlock()
		go k.keepFresh(r)
	}
	e, err := k.containerEnv(ctx, r, pod, c, sb.IP)
	if err != nil {
		return "CreateContainerConfigError", err
	}
	path := filepath.Join(k.cfg.BinDir, bin)
	if _, err := os.Stat(path); err != nil {
		return "ErrImagePull", fmt.Errorf("find binary of image %s: %w", c.Image, err)
	}
	st := sb.Containers[c.Name]
	id := containerRunID(r, c.Name, st)
	run := st.Restarts
	if st.Phase == Exited {
		run++
	}
	lines, err := k.openLog(r, c.Name, run)
	if err != nil {
		return "CreateContainerError", err
	}
	cmd := k.command(path, expandAll(c.Args, e.values), e.list(), r.dir)

	// Under the lock, so that the exit of a process that ends at once is
	// recorded after its start.
	r.mu.Lock()
	defer r.mu.Unlock()
	p, err := launch(k.spawn, cmd, lines, func(p *process) { k.exited(r, c.Name, p) })
	if err != nil {
		lines.close()
		return "RunContainerError", err
	}
	r.procs[c.Name] = p
	st = r.sb.Containers[c.Name].Begin(id, k.cfg.Clock.Now())
	st.Ready = c.ReadinessProbe == nil || c.ReadinessProbe.HTTPGet == nil && c.ReadinessProbe.TCPSocket == nil
	r.sb.Containers[c.Name] = st
	if !st.Ready {
		go k.probe(r, c, p)
	}
	return "", nil
}

// command runs a program beside the machine, or inside it if it is a real one.
func (k *Kubelet) command(path string, args, environment []string, dir string) *exec.Cmd {
	if len(k.cfg.Enter) == 0 {
		cmd := exec.Command(path, args...)
		cmd.Env, cmd.Dir = environment, dir
		return cmd
	}
	for i, kv := range environment {
		if mounts, ok := strings.CutPrefix(kv, mountsEnv+"="); ok {
			environment[i] = mountsEnv + "=" + strings.ReplaceAll(mounts+";", "="+k.cfg.Root+";", "=/;")
		}
	}
	line := append(append([]string{}, k.cfg.Enter[1:]...), path)
	cmd := exec.Command(k.cfg.Enter[0], append(line, args...)...)
	cmd.Env = environment
	return cmd
}

// mountsEnv tells a process where its mounts are.
const mountsEnv = "MILLWRIGHT_MOUNTS"

func (k *Kubelet) exited(r *podRun, name string, p *process) {
	r.mu.Lock()
	r.sb.Containers[name] = r.sb.Containers[name].Exit(p.code, p.signal, k.cfg.Clock.Now())
	if r.procs[name] == p {
		delete(r.procs, name)
	}
	r.mu.Unlock()
	k.queue.Add(r.key)
}

// keepFresh brings volumes and tokens up to date until the pod ends.
func (k *Kubelet) keepFresh(r *podRun) {
	tick := k.cfg.Clock.NewTicker(refreshEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-tick.C():
		}
		if err := k.bounded(r.ctx, func(ctx context.Context) error {
			return k.mount(ctx, r, r.podNow(), r.sandbox().IP)
		}); err != nil && r.ctx.Err() == nil {
			k.cfg.Log.Error(err, "Refreshing volumes", "Pod", r.key)
		}
	}
}

func (k *Kubelet) bounded(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return f(ctx)
}

// firstProbe is how often a container that was never ready is asked; once it
// has been ready its own period counts.
const firstProbe = 250 * time.Millisecond

// probe asks a real container whether it is ready for as long as it runs.
func (k *Kubelet) probe(r *podRun, c *corev1.Container, p *process) {
	period, threshold := time.Duration(c.ReadinessProbe.PeriodSeconds)*time.Second, int(c.ReadinessProbe.FailureThreshold)
	setDefault(&period, 10*time.Second)
	setDefault(&threshold, 3)
	timeout := time.Duration(max(c.ReadinessProbe.TimeoutSeconds, 1)) * time.Second
	tr := &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // as every kubelet: a probe asks for life, not identity
		DisableKeepAlives: true,
	}
	client := &http.Client{Timeout: timeout, Transport: tr}
	ready, failures := false, 0
	for {
		wait := period
		if !ready {
			wait = min(firstProbe, period)
		}
		timer := k.cfg.Clock.NewTimer(wait)
		select {
		case <-r.ctx.Done():
			timer.Stop()
			return
		case <-p.done:
			timer.Stop()
			return
		case <-timer.C():
		}
		ok := k.ask(r.ctx, client, c, r.loopback, timeout)
		if ok {
			failures = 0
		} else {
			failures++
		}
		next := ok || ready && failures < threshold
		if next == ready {
			continue
		}
		ready = next
		r.mu.Lock()
		if st := r.sb.Containers[c.Name]; r.procs[c.Name] == p && st.Phase == Running {
			st.Ready = ready
			r.sb.Containers[c.Name] = st
		}
		r.mu.Unlock()
		k.queue.Add(r.key)
	}
}

func (k *Kubelet) ask(ctx context.Context, client *http.Client, c *corev1.Container, loopback string, timeout time.Duration) bool {
	if tcp := c.ReadinessProbe.TCPSocket; tcp != nil {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(loopback, portOf(c, tcp.Port)), timeout)
		if err != nil {
			return false
		}
		conn.Close()
		return true
	}
	get := c.ReadinessProbe.HTTPGet
	scheme := strings.ToLower(string(get.Scheme))
	setDefault(&scheme, "http")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		scheme+"://"+net.JoinHostPort(loopback, portOf(c, get.Port))+"/"+strings.TrimPrefix(get.Path, "/"), nil)
	if err != nil {
		return false
	}
	for _, h := range get.HTTPHeaders {
		req.Header.Add(h.Name, h.Value)
	}
	req.Header.Set("User-Agent", "kube-probe/1.37")
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode < http.StatusBadRequest
}

// portOf resolves a named port by the container's own list.
func portOf(c *corev1.Container, p intstr.IntOrString) string {
	if p.Type == intstr.String {
		for _, cp := range c.Ports {
			if cp.Name == p.StrVal {
				return fmt.Sprint(cp.ContainerPort)
			}
		}
	}
	return p.String()
}
