package kubelet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Egress is the way from the API server to nodes and pods: an HTTP CONNECT
// proxy on a Unix socket that knows where on loopback each simulated address
// is. It refuses every other address and never dials one that is not loopback.
type Egress struct {
	path  string
	clock clock.PassiveClock

	mu     sync.RWMutex
	nodes  map[string]*Kubelet // by address and by name
	static map[string]string
	pods   map[string]podAt
}

type podAt struct {
	loopback string
	on       *Kubelet
}

const (
	dialTimeout   = 10 * time.Second
	headerTimeout = 10 * time.Second
)

// NewEgress makes a proxy for the socket at path, which Serve creates.
func NewEgress(path string) *Egress {
	return &Egress{path: path, clock: clock.RealClock{}, nodes: map[string]*Kubelet{}, static: map[string]string{}, pods: map[string]podAt{}}
}

// AddNode makes the node's address and name mean k, and the addresses of k's
// pods mean their loopback ones, now and later.
func (e *Egress) AddNode(nodeIP string, k *Kubelet) {
	e.mu.Lock()
	e.nodes[nodeIP], e.nodes[k.cfg.NodeName] = k, k
	e.mu.Unlock()
	k.watchAddresses(func(podIP, loopback string) {
		e.mu.Lock()
		defer e.mu.Unlock()
		switch {
		case loopback != "" && e.nodes[k.cfg.NodeName] == k:
			e.pods[podIP] = podAt{loopback: loopback, on: k}
		case e.pods[podIP].on == k:
			delete(e.pods, podIP)
		}
	})
}

// RemoveNode forgets a node and its pods.
func (e *Egress) RemoveNode(nodeIP string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	k := e.nodes[nodeIP]
	if k == nil {
		return
	}
	delete(e.nodes, nodeIP)
	if e.nodes[k.cfg.NodeName] == k {
		delete(e.nodes, k.cfg.NodeName)
	}
	for ip, at := range e.pods {
		if at.on == k {
			delete(e.pods, ip)
		}
	}
}

// AddStatic makes ip mean a loopback address; an empty one takes it away.
func (e *Egress) AddStatic(ip, loopback string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if loopback == "" {
		delete(e.static, ip)
		return
	}
	e.static[ip] = loopback
}

// resolve returns the loopback address of a simulated one.
func (e *Egress) resolve(host string) (string, bool) {
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsLoopback() {
		return host, true
	}
	if host == "localhost" {
		return "127.0.0.1", true
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	if k, ok := e.nodes[host]; ok {
		return k.cfg.BindIP, true
	}
	if at, ok := e.pods[host]; ok {
		return at.loopback, true
	}
	loop, ok := e.static[host]
	return loop, ok
}

// listen makes the socket, open to its owner only.
func (e *Egress) listen() (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(e.path), 0o755); err != nil {
		return nil, fmt.Errorf("create directory of egress socket: %w", err)
	}
	if err := os.Remove(e.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove old egress socket: %w", err)
	}
	lis, err := net.Listen("unix", e.path)
	if err != nil {
		return nil, fmt.Errorf("listen on egress socket: %w", err)
	}
	if err := os.Chmod(e.path, 0o600); err != nil {
		lis.Close()
		return nil, fmt.Errorf("close egress socket to others: %w", err)
	}
	return lis, nil
}

// Serve answers until ctx ends; then all its connections are closed.
func (e *Egress) Serve(ctx context.Context) error {
	lis, err := e.listen()
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := context.AfterFunc(ctx, func() { lis.Close() })
	defer stop()
	defer lis.Close()
	for {
		conn, err := lis.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept on egress socket: %w", err)
		}
		wg.Go(func() { e.handle(ctx, conn) })
	}
}

func (e *Egress) handle(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := conn.SetReadDeadline(e.clock.Now().Add(headerTimeout)); err != nil {
		return
	}
	in := bufio.NewReader(conn)
	req, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return
	}
	if req.Method != http.MethodConnect {
		refuse(conn, http.StatusMethodNotAllowed, "only CONNECT is served here")
		return
	}
	host, port, err := net.SplitHostPort(req.Host)
	if err != nil {
		refuse(conn, http.StatusBadRequest, fmt.Sprintf("address %q has no port", req.Host))
		return
	}
	loop, ok := e.resolve(host)
	if !ok {
		refuse(conn, http.StatusBadGateway, fmt.Sprintf("no node or pod of this world has the address %s", host))
		return
	}
	d := net.Dialer{Timeout: dialTimeout}
	out, err := d.DialContext(ctx, "tcp", net.JoinHostPort(loop, port))
	if err != nil {
		refuse(conn, http.StatusBadGateway, fmt.Sprintf("nobody answers at port %s of %s: %v", port, host, err))
		return
	}
	defer out.Close()
	stopOut := context.AfterFunc(ctx, func() { out.Close() })
	defer stopOut()
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	join(conn, in, out)
}

// join copies both ways until both sides have ended.
func join(conn net.Conn, in io.Reader, out net.Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(out, in) // an end, clean or not, is passed on below
		closeWrite(out)
	}()
	_, _ = io.Copy(conn, out)
	closeWrite(conn)
	<-done
}

func closeWrite(c net.Conn) {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		_ = w.CloseWrite() // the other side may be gone already
	}
}

func refuse(w io.Writer, code int, text string) {
	fmt.Fprintf(w, "HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n",
		code, http.StatusText(code), len(text)+1, text)
}
