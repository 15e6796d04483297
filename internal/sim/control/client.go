package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// requestTimeout bounds one knob; every one of them answers at once.
const requestTimeout = 30 * time.Second

// ErrNoWorld says that nobody listens on the socket.
var ErrNoWorld = errors.New("no world is running here")

// Client talks to one world. It implements Knobs.
type Client struct{ http *http.Client }

var _ Knobs = (*Client)(nil)

// NewClient returns a client for the socket. It does not connect yet.
func NewClient(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "unix", socket)
		if err != nil {
			return nil, errors.Join(ErrNoWorld, err)
		}
		return c, nil
	}
	return &Client{&http.Client{Timeout: requestTimeout, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Ping returns the status, or an error that wraps ErrNoWorld.
func (c *Client) Ping(ctx context.Context) (Status, error) {
	var s Status
	err := c.do(ctx, http.MethodGet, "/v1/status", nil, &s)
	return s, err
}

// Status is Ping for callers that know the world is there; on failure the
// phase is empty and the message tells why.
func (c *Client) Status(ctx context.Context) Status {
	s, err := c.Ping(ctx)
	if err != nil {
		return Status{Message: err.Error()}
	}
	return s
}

// VMs lists the machines.
func (c *Client) VMs(ctx context.Context) ([]VM, error) {
	var out []VM
	err := c.do(ctx, http.MethodGet, "/v1/vms", nil, &out)
	return out, err
}

// StartVM powers a machine on.
func (c *Client) StartVM(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodPost, "/v1/vms/"+url.PathEscape(name)+"/start", nil, nil)
}

// StopVM powers a machine off.
func (c *Client) StopVM(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodPost, "/v1/vms/"+url.PathEscape(name)+"/stop", nil, nil)
}

// DeleteVM deletes a machine behind everybody's back.
func (c *Client) DeleteVM(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/v1/vms/"+url.PathEscape(name), nil, nil)
}

// Console returns what a machine printed so far.
func (c *Client) Console(ctx context.Context, name string) ([]byte, error) {
	var b []byte
	err := c.do(ctx, http.MethodGet, "/v1/vms/"+url.PathEscape(name)+"/console", nil, &b)
	return b, err
}

// Quotas lists the limits.
func (c *Client) Quotas(ctx context.Context) ([]Quota, error) {
	var out []Quota
	err := c.do(ctx, http.MethodGet, "/v1/quotas", nil, &out)
	return out, err
}

// SetQuota changes a limit.
func (c *Client) SetQuota(ctx context.Context, q Quota) error {
	return c.do(ctx, http.MethodPost, "/v1/quotas", q, nil)
}

// Faults lists the faults that are set.
func (c *Client) Faults(ctx context.Context) ([]Fault, error) {
	var out []Fault
	err := c.do(ctx, http.MethodGet, "/v1/faults", nil, &out)
	return out, err
}

// AddFault sets one more fault.
func (c *Client) AddFault(ctx context.Context, f Fault) error {
	return c.do(ctx, http.MethodPost, "/v1/faults", f, nil)
}

// ClearFaults removes all faults.
func (c *Client) ClearFaults(ctx context.Context) error {
	return c.do(ctx, http.MethodDelete, "/v1/faults", nil, nil)
}

// SetSlow delays an operation.
func (c *Client) SetSlow(ctx context.Context, s Slow) error {
	return c.do(ctx, http.MethodPost, "/v1/slow", s, nil)
}

func (c *Client) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://world"+path, body)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("ask the world: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		var f failure
		if json.Unmarshal(data, &f) != nil || f.Error == "" {
			return fmt.Errorf("the world answered %s to %s %s", resp.Status, method, path)
		}
		if resp.StatusCode == http.StatusNotFound {
			return &NotFoundError{f.Error}
		}
		return errors.New(f.Error)
	}
	switch o := out.(type) {
	case nil:
	case *[]byte:
		*o = data
	default:
		if err := json.Unmarshal(data, out); err != nil {
			return fmt.Errorf("decode answer to %s %s: %w", method, path, err)
		}
	}
	return nil
}
