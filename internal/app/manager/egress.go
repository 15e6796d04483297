package manager

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"

	"millwright.io/millwright/internal/dialect/machineapi/approver"
)

// envEgress names a Unix socket with an HTTP CONNECT proxy that leads to nodes
// whose addresses this process cannot reach itself.
const envEgress = "MILLWRIGHT_EGRESS_SOCKET"

// kubeletDialer reaches kubelets: directly, or through the proxy.
func kubeletDialer() approver.Dialer {
	var d net.Dialer
	socket := os.Getenv(envEgress)
	if socket == "" {
		return d.DialContext
	}
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, "unix", socket)
		if err != nil {
			return nil, fmt.Errorf("dial egress proxy: %w", err)
		}
		if err := connect(ctx, conn, address); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return conn, nil
	}
}

// connect asks the proxy for a tunnel. The far end says nothing before we do,
// so nothing of it is lost in the buffer.
func connect(ctx context.Context, conn net.Conn, address string) error {
	if end, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(end); err != nil {
			return fmt.Errorf("set deadline: %w", err)
		}
	}
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", address, address); err != nil {
		return fmt.Errorf("ask egress proxy for %s: %w", address, err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return fmt.Errorf("ask egress proxy for %s: %w", address, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("ask egress proxy for %s: %s", address, resp.Status)
	}
	return nil
}
