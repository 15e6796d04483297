package dcs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"millwright.io/millwright/internal/cloud"
)

const (
	pageSize = 100 // VRM takes a larger limit for 100 from the start
	maxPages = 1000
	maxBody  = 32 << 20
)

// client sends requests for one account: never more than its slots at once,
// each with the account's session. Only a request that was refused for want of
// a session is ever repeated.
type client struct {
	http  *http.Client
	base  string
	slots chan struct{}
	sess  *session
}

// call sends one request and decodes the answer into out, if any.
func (c *client) call(ctx context.Context, op, method, path string, body, out any) error {
	var raw []byte
	if body != nil {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return fmt.Errorf("%s: encode request: %w", op, err)
		}
	}
	var stale string
	for again := false; ; again = true {
		token, version, err := c.sess.get(ctx, c, stale)
		if err != nil {
			return named(op, err)
		}
		h := headers(version)
		h.Set("X-Auth-Token", token)
		_, answer, err := c.send(ctx, op, method, c.base+path, h, raw)
		if reason(err) == codeNoSession && !again {
			stale = token
			continue
		}
		if err != nil || out == nil || len(answer) == 0 {
			return err
		}
		if err := json.Unmarshal(answer, out); err != nil {
			return &cloud.Fault{Kind: cloud.Transient, Op: op, Reason: "BadAnswer", Cause: fmt.Errorf("decode answer: %w", err)}
		}
		return nil
	}
}

func headers(version string) http.Header {
	h := http.Header{}
	h.Set("Accept", "application/json;version="+version+";charset=UTF-8")
	h.Set("Content-Type", "application/json;charset=UTF-8")
	h.Set("Accept-Language", "en_US")
	h.Set("User-Agent", "millwright")
	return h
}

// send is one exchange. VRM reports errors with any status, so the body is
// looked at in each case.
func (c *client) send(ctx context.Context, op, method, to string, h http.Header, body []byte) (http.Header, []byte, error) {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return nil, nil, unreachable(op, ctx.Err())
	}
	req, err := http.NewRequestWithContext(ctx, method, to, bytes.NewReader(body))
	if err != nil {
		return nil, nil, invalid(op, "InvalidEndpoint", "the endpoint is no URL")
	}
	req.Header = h
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, nil, unreachable(op, err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return nil, nil, unreachable(op, err)
	}
	var e struct {
		Code string `json:"errorCode"`
		Des  string `json:"errorDes"`
	}
	_ = json.Unmarshal(raw, &e) // no JSON, no code: the status decides
	if e.Code == "" && resp.StatusCode < 300 {
		return resp.Header, raw, nil
	}
	f := classify(op, resp.StatusCode, e.Code, e.Des)
	if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 && n < 86400 {
		f.RetryAfter = time.Duration(n) * time.Second
	}
	return nil, nil, f
}

// pages reads a whole list.
func pages[T any](ctx context.Context, c *client, op, path, name string, q url.Values) ([]T, error) {
	var out []T
	if q == nil {
		q = url.Values{}
	}
	for range maxPages {
		q.Set("limit", strconv.Itoa(pageSize))
		q.Set("offset", strconv.Itoa(len(out)))
		var answer map[string]json.RawMessage
		if err := c.call(ctx, op, http.MethodGet, join(path, q), nil, &answer); err != nil {
			return nil, err
		}
		var items []T
		var total int
		if err := decodeList(answer, name, &items, &total); err != nil {
			return nil, &cloud.Fault{Kind: cloud.Transient, Op: op, Reason: "BadAnswer", Cause: err}
		}
		out = append(out, items...)
		if len(items) == 0 || len(out) >= total {
			return out, nil
		}
	}
	return nil, &cloud.Fault{Kind: cloud.Transient, Op: op, Reason: "BadAnswer", Cause: fmt.Errorf("the list of %s has no end", name)}
}

// join adds parameters to a path that may have some.
func join(path string, q url.Values) string {
	if strings.Contains(path, "?") {
		return path + "&" + q.Encode()
	}
	return path + "?" + q.Encode()
}

func decodeList(answer map[string]json.RawMessage, name string, items, total any) error {
	if raw := answer[name]; raw != nil {
		if err := json.Unmarshal(raw, items); err != nil {
			return fmt.Errorf("decode %s: %w", name, err)
		}
	}
	if raw := answer["total"]; raw != nil { // lists without pages have none
		if err := json.Unmarshal(raw, total); err != nil {
			return fmt.Errorf("decode total: %w", err)
		}
	}
	return nil
}

type started struct {
	URN  string `json:"urn"`
	Task string `json:"taskUri"`
}

// start sends something that becomes a task and remembers it under a name, if
// there is one.
func (c *Cloud) start(ctx context.Context, op, name, path string, body any) error {
	var s started
	if body == nil {
		body = map[string]any{}
	}
	if err := c.call(ctx, op, http.MethodPost, path, body, &s); err != nil {
		return written(err)
	}
	c.remember(name, s.Task)
	return nil
}

func (c *Cloud) remember(name, task string) {
	if name != "" && task != "" {
		c.mu.Lock()
		c.tasks[name] = task
		c.mu.Unlock()
	}
}

func (c *Cloud) forget(name string) {
	c.mu.Lock()
	delete(c.tasks, name)
	c.mu.Unlock()
}

// lost forgets where the disc of a UID is.
func (c *Cloud) lost(uid string) {
	c.mu.Lock()
	delete(c.where, uid)
	c.mu.Unlock()
}

// pending tells whether what was last started under a name still runs. It
// reports the fault of a task that failed, once.
func (c *Cloud) pending(ctx context.Context, op, name string) (bool, error) {
	c.mu.Lock()
	path := c.tasks[name]
	c.mu.Unlock()
	if path == "" {
		return false, nil
	}
	var t struct {
		Type      string `json:"type"`
		Status    string `json:"status"`
		Reason    string `json:"reason"`
		ReasonDes string `json:"reasonDes"`
	}
	err := c.call(ctx, op, http.MethodGet, path, nil, &t)
	switch {
	case cloud.KindOf(err) == cloud.NotFound: // old tasks are forgotten by VRM too
	case err != nil:
		return false, err
	case t.Status == "waiting" || t.Status == "running" || t.Status == "cancelling":
		return true, nil
	}
	c.forget(name)
	if t.Status != "failed" {
		return false, nil
	}
	f := classify(op, 0, t.Reason, t.ReasonDes)
	f.Message = op + ": " + t.Type + " failed: " + t.ReasonDes + " (" + t.Reason + ")"
	return false, written(f)
}
