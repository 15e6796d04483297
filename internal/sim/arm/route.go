package arm

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// maxBody is the Resource Manager's own limit.
const maxBody = 4 << 20

// route is a parsed path. Types and names alternate after the provider.
type route struct {
	subscription string
	group        string // resource group; empty: the whole subscription
	hasGroups    bool   // the path has /resourceGroups
	provider     string // as spelled
	parts        []string
	path         string
}

func (r route) last() string {
	if len(r.parts) == 0 {
		return ""
	}
	return r.parts[len(r.parts)-1]
}

// namespace is the provider that operations of this call live under.
func (r route) namespace() string {
	if r.provider == "" {
		return "Microsoft.Resources"
	}
	return r.provider
}

// typ is the lower-cased resource type of the path, without names.
func (r route) typ() string {
	t := []string{strings.ToLower(r.provider)}
	for i := 0; i < len(r.parts); i += 2 {
		t = append(t, strings.ToLower(r.parts[i]))
	}
	return strings.Join(t, "/")
}

func parseRoute(path string) (route, bool) {
	r := route{path: strings.TrimSuffix(path, "/")}
	p := strings.Split(strings.Trim(path, "/"), "/")
	if len(p) < 1 || !strings.EqualFold(p[0], "subscriptions") {
		return r, false
	}
	for _, s := range p {
		if s == "" {
			return r, false
		}
	}
	if p = p[1:]; len(p) == 0 {
		return r, true
	}
	r.subscription, p = p[0], p[1:]
	if len(p) > 0 && strings.EqualFold(p[0], "resourceGroups") {
		r.hasGroups = true
		if p = p[1:]; len(p) > 0 {
			r.group, p = p[0], p[1:]
		}
	}
	if len(p) >= 2 && strings.EqualFold(p[0], "providers") {
		r.provider, p = p[1], p[2:]
	}
	r.parts = p
	return r, true
}

// call is one request on its way through the server.
type call struct {
	w          http.ResponseWriter
	r          *http.Request
	route      route
	apiVersion string
	query      url.Values
	body       object
	kind       *kind
	fault      *Fault // an asynchronous fault to apply
}

// fail writes an error in ARM's shape.
func (c *call) fail(e *Error) {
	retryAfter(c.w.Header(), e.RetryAfter)
	c.answer(e.Status, object{"error": e.body()})
}

func (e *Error) body() object {
	b := object{"code": e.Code, "message": e.Message}
	if e.Target != "" {
		b["target"] = e.Target
	}
	return b
}

// answer writes status and body; nil is no body.
func (c *call) answer(status int, body any) {
	if body == nil {
		c.w.WriteHeader(status)
		return
	}
	b, err := json.Marshal(body)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"error":{"code":"InternalServerError","message":"encode response"}}`)
	}
	c.w.Header().Set("Content-Type", "application/json; charset=utf-8")
	c.w.WriteHeader(status)
	_, _ = c.w.Write(b)
}

// readBody decodes the JSON object of a PUT, PATCH or POST.
func (c *call) readBody() *Error {
	b, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxBody))
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return fail(http.StatusRequestEntityTooLarge, "RequestContentTooLarge", "The request content size exceeds the maximum size of 4 MB.")
	}
	if err != nil {
		return fail(http.StatusBadRequest, "InvalidRequestContent", "The request content could not be read.")
	}
	if len(b) == 0 && c.r.Method == http.MethodPost {
		return nil
	}
	if err := json.Unmarshal(b, &c.body); err != nil || c.body == nil {
		why := "it is not a JSON object"
		if err != nil {
			why = err.Error()
		}
		return fail(http.StatusBadRequest, "InvalidRequestContent", "The request content was invalid and could not be deserialized: '"+why+"'.")
	}
	return nil
}
