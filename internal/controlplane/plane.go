package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"millwright.io/millwright/internal/pki"
)

const (
	probeEvery   = 50 * time.Millisecond
	probeTimeout = 5 * time.Second
	// dirTimeout is how long Start waits for a directory whose last user is
	// just ending.
	dirTimeout = 5 * time.Second
	// portTries bounds the starts that meet a port somebody else took.
	portTries = 3

	adminUser  = "millwright-admin"
	adminGroup = "system:masters"
)

// Plane is a running control plane. Its methods are safe for concurrent use.
type Plane struct {
	opts  Options
	auth  authorities
	admin *rest.Config
	// adminFile is the administrator's kubeconfig.
	adminFile []byte

	lock  *os.File
	lease *portLease
	spawn *spawner

	mu         sync.Mutex
	components []*component // in start order
	stopping   bool
	err        error // why it ended by itself
	done       chan struct{}
}

// Start runs the control plane and returns when it is ready: the API server
// answers /readyz, the others /healthz. On an error everything that was
// started is stopped. ctx bounds the start only.
func Start(ctx context.Context, opts Options) (*Plane, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if o.EgressSocket, o.AuditLog, err = absolute(o.EgressSocket, o.AuditLog); err != nil {
		return nil, err
	}
	if err := o.prepare(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.StartTimeout)
	defer cancel()
	lock, err := lockDir(ctx, o)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		p, err := start(ctx, o, lock)
		var early *startError
		switch {
		case err == nil:
			return p, nil
		case try < portTries && errors.As(err, &early) && early.portTaken():
			o.Log("%s met a port that is taken; choosing others", early.component)
		default:
			_ = lock.Close()
			return nil, err
		}
	}
}

func absolute(a, b string) (string, string, error) {
	for _, path := range []*string{&a, &b} {
		if *path == "" {
			continue
		}
		full, err := filepath.Abs(*path)
		if err != nil {
			return "", "", fmt.Errorf("start control plane: %w", err)
		}
		*path = full
	}
	return a, b, nil
}

// lockDir takes the directory for this process and its children.
func lockDir(ctx context.Context, o Options) (*os.File, error) {
	path := o.path("lock")
	deadline := o.Clock.Now().Add(dirTimeout)
	for {
		file, err := tryLock(path)
		if err != nil {
			return nil, fmt.Errorf("lock control plane directory: %w", err)
		}
		if file != nil {
			if err := os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
				_ = file.Close()
				return nil, fmt.Errorf("lock control plane directory: %w", err)
			}
			return file, nil
		}
		if o.Clock.Now().After(deadline) {
			owner, _ := os.ReadFile(path)
			return nil, fmt.Errorf("start control plane: directory %s is in use by process %s; stop that one, or use another directory",
				o.Dir, strings.TrimSpace(string(owner)))
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lock control plane directory: %w", ctx.Err())
		case <-o.Clock.After(lockPoll):
		}
	}
}

// start makes one attempt with one set of ports.
func start(ctx context.Context, o Options, lock *os.File) (*Plane, error) {
	began := o.Clock.Now()
	lease, err := leasePorts(o.path("ports.json"))
	if err != nil {
		return nil, err
	}
	p := &Plane{opts: o, lock: lock, lease: lease, spawn: newSpawner(), done: make(chan struct{})}
	if err = p.write(); err == nil {
		err = p.startComponents(ctx)
	}
	if err != nil {
		p.mu.Lock()
		p.stopping = true
		p.mu.Unlock()
		p.stopComponents(nil)
		p.spawn.close()
		lease.release()
		return nil, err
	}
	o.Log("control plane ready in %s at %s", o.Clock.Since(began).Round(time.Millisecond), p.URL())
	return p, nil
}

// write makes every file that the components read.
func (p *Plane) write() (err error) {
	if p.auth, err = loadAuthorities(p.opts.path("pki"), p.opts.Clock); err != nil {
		return err
	}
	if err := p.auth.writeCerts(p.opts); err != nil {
		return err
	}
	if err := writeServerConfigs(p.opts); err != nil {
		return err
	}
	for _, name := range []string{ControllerManager, Scheduler} {
		user := "system:" + name
		config, err := p.auth.clientConfig(p.URL(), user, nil)
		if err != nil {
			return err
		}
		data, err := kubeconfig(config, user)
		if err != nil {
			return err
		}
		if err := writeFile(p.opts.path(name+".kubeconfig"), data); err != nil {
			return fmt.Errorf("write kubeconfig: %w", err)
		}
	}
	if p.admin, err = p.auth.clientConfig(p.URL(), adminUser, []string{adminGroup}); err != nil {
		return err
	}
	if p.adminFile, err = kubeconfig(p.admin, adminUser); err != nil {
		return err
	}
	if err := writeFile(p.opts.path("admin.kubeconfig"), p.adminFile); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// startComponents starts etcd and the API server side by side, then, once the
// API answers, what needs it.
func (p *Plane) startComponents(ctx context.Context) error {
	client, err := rest.HTTPClientFor(p.admin)
	if err != nil {
		return fmt.Errorf("make readiness client: %w", err)
	}
	defer client.CloseIdleConnections()
	ports := p.lease.ports
	etcd, err := p.launch(Etcd, etcdArgs(p.opts, ports))
	if err != nil {
		return err
	}
	api, err := p.launch(APIServer, apiServerArgs(p.opts, ports))
	if err != nil {
		return err
	}
	if err := p.waitReady(ctx, client, p.URL()+"/readyz", etcd, api); err != nil {
		return err
	}
	waits := []func() error{}
	later := func(name string, args []string, port int) error {
		c, err := p.launch(name, args)
		if err != nil {
			return err
		}
		waits = append(waits, func() error { return p.waitReady(ctx, client, loopbackURL("https", port)+"/healthz", c) })
		return nil
	}
	if p.opts.ControllerManager {
		if err := later(ControllerManager, controllerManagerArgs(p.opts, ports), ports.ControllerManager); err != nil {
			return err
		}
	}
	if p.opts.Scheduler {
		if err := later(Scheduler, schedulerArgs(p.opts, ports), ports.Scheduler); err != nil {
			return err
		}
	}
	for _, wait := range waits {
		if err := wait(); err != nil {
			return err
		}
	}
	return nil
}

func (p *Plane) launch(name string, args []string) (*component, error) {
	c := &component{
		name: name, args: args, opts: p.opts, spawn: p.spawn, lock: p.lock, lost: p.giveUp,
		stopCh: make(chan struct{}), killCh: make(chan struct{}), failed: make(chan struct{}), gone: make(chan struct{}),
	}
	if err := c.launch(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.components = append(p.components, c)
	p.mu.Unlock()
	return c, nil
}

// waitReady polls url until it answers 200, or one of cs ends, or ctx does.
// The last of cs is the one that url belongs to.
func (p *Plane) waitReady(ctx context.Context, client *http.Client, url string, cs ...*component) error {
	ended := make(chan struct{})
	var once sync.Once
	finished := make(chan struct{})
	defer close(finished)
	for _, c := range cs {
		go func() {
			select {
			case <-c.failed:
				once.Do(func() { close(ended) })
			case <-finished:
			}
		}()
	}
	last := ""
	for {
		ok, text := probe(ctx, client, url)
		if ok {
			break
		}
		last = text
		select {
		case <-ended:
		case <-ctx.Done():
			c := cs[len(cs)-1]
			return fmt.Errorf("start %s: not ready at %s: %w; last answer: %s; whole log: %s",
				c.name, url, ctx.Err(), last, p.opts.path("logs", c.name+".log"))
		case <-p.opts.Clock.After(probeEvery):
			continue
		}
		break
	}
	for _, c := range cs {
		if err := c.markReady(); err != nil {
			return err
		}
	}
	return nil
}

func probe(ctx context.Context, client *http.Client, url string) (ok bool, text string) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, err.Error()
	}
	resp, err := client.Do(req)
	if err != nil {
		return false, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	return resp.StatusCode == http.StatusOK, resp.Status + " " + lastLines(body, 5)
}

// giveUp ends the control plane because a component does not stay up.
func (p *Plane) giveUp(err error) {
	p.mu.Lock()
	if p.err == nil && !p.stopping {
		p.err = fmt.Errorf("keep the control plane running: %w", err)
	}
	p.mu.Unlock()
	p.opts.Log("giving up: %v", err)
	go func() { _ = p.shutdown(nil) }()
}

// Stop ends the components in the order scheduler, controller manager, API
// server, etcd, and returns when no process is left. When ctx ends, what is
// left is killed. Stopping twice is fine.
func (p *Plane) Stop(ctx context.Context) error { return p.shutdown(ctx.Done()) }

func (p *Plane) shutdown(kill <-chan struct{}) error {
	p.mu.Lock()
	first := !p.stopping
	p.stopping = true
	p.mu.Unlock()
	if !first {
		<-p.done
		return nil
	}
	p.stopComponents(kill)
	p.spawn.close()
	p.lease.release()
	err := p.lock.Close()
	close(p.done)
	if err != nil {
		return fmt.Errorf("unlock control plane directory: %w", err)
	}
	return nil
}

func (p *Plane) stopComponents(kill <-chan struct{}) {
	p.mu.Lock()
	components := slices.Clone(p.components)
	p.mu.Unlock()
	slices.Reverse(components)
	for _, c := range components {
		c.stop(kill)
	}
}

// Done is closed when the control plane has ended.
func (p *Plane) Done() <-chan struct{} { return p.done }

// Wait returns when the control plane has ended: nil after Stop, else why it
// could not be kept running.
func (p *Plane) Wait() error {
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// URL is the API server's address.
func (p *Plane) URL() string { return loopbackURL("https", p.lease.APIServer) }

// Admin returns the configuration of a member of system:masters.
func (p *Plane) Admin() *rest.Config { return rest.CopyConfig(p.admin) }

// AdminKubeconfig is Admin as a kubeconfig file.
func (p *Plane) AdminKubeconfig() []byte { return slices.Clone(p.adminFile) }

// CA is the authority that signs the API server's certificate, all client
// certificates and, through kube-controller-manager, those of kubelets.
func (p *Plane) CA() *pki.CA { return p.auth.cluster }

// ClientConfig issues a client certificate for user in groups.
func (p *Plane) ClientConfig(user string, groups ...string) (*rest.Config, error) {
	return p.auth.clientConfig(p.URL(), user, groups)
}

// Kubeconfig renders a configuration made by ClientConfig as a file.
func Kubeconfig(config *rest.Config, user string) ([]byte, error) { return kubeconfig(config, user) }

// BinDir holds kubectl and oc, as links to the devplane.
func (p *Plane) BinDir() string { return p.opts.path("bin") }

// PIDs returns the current process of every component by name.
func (p *Plane) PIDs() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]int{}
	for _, c := range p.components {
		out[c.name] = c.pid()
	}
	return out
}
