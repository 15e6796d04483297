package arm

import (
	"net/http"
	"strings"
)

// Handler serves the Resource Manager and the token endpoint.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Ms-Request-Id", s.uuid())
		rt, ok := parseRoute(r.URL.Path)
		if !ok {
			s.serveToken(w, r)
			return
		}
		s.serveARM(&call{w: w, r: r, route: rt, query: r.URL.Query()})
	})
}

func (s *Server) serveARM(c *call) {
	op := s.opOf(c)
	delay := s.count(op)
	if delay > 0 {
		t := s.cfg.Clock.NewTimer(delay)
		defer t.Stop()
		select {
		case <-t.C():
		case <-c.r.Context().Done():
			return
		}
	}
	if e := s.admit(c); e != nil {
		c.fail(e)
		return
	}
	if c.r.Method == http.MethodPut || c.r.Method == http.MethodPatch || c.r.Method == http.MethodPost {
		if e := c.readBody(); e != nil {
			c.fail(e)
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	if f := s.takeFault(op); f != nil {
		if !f.failsLater(op) {
			c.fail(f.error())
			return
		}
		c.fault = f
	}
	s.dispatch(c)
}

// admit checks what the front door checks: token, API version, subscription.
func (s *Server) admit(c *call) *Error {
	if e := s.authenticate(c); e != nil {
		return e
	}
	c.apiVersion = c.query.Get("api-version")
	if c.apiVersion == "" {
		return fail(http.StatusBadRequest, "MissingApiVersionParameter", "The api-version query parameter (?api-version=) is required for all requests.")
	}
	if c.route.subscription != "" && !strings.EqualFold(c.route.subscription, s.cfg.SubscriptionID) {
		return fail(http.StatusNotFound, "SubscriptionNotFound", "The subscription '"+c.route.subscription+"' could not be found.")
	}
	return nil
}

// opOf names the operation of a call, as Requests, Fail and Slow know it.
func (s *Server) opOf(c *call) string {
	r := c.route
	verb := map[string]string{http.MethodGet: "get", http.MethodHead: "get", http.MethodPut: "put", http.MethodPatch: "patch", http.MethodDelete: "delete"}[c.r.Method]
	if r.provider == "" {
		switch {
		case r.hasGroups && r.group == "":
			return "resourcegroup.list"
		case r.hasGroups:
			return "resourcegroup." + verb
		}
		return "subscription." + verb
	}
	if len(r.parts) == 1 && strings.EqualFold(r.parts[0], "skus") {
		return "sku.list"
	}
	if len(r.parts) >= 3 && strings.EqualFold(r.parts[0], "locations") {
		switch strings.ToLower(r.parts[2]) {
		case "operations", "operationresults":
			return "operation.get"
		case "usages":
			return "usage.list"
		}
	}
	action := ""
	if c.r.Method == http.MethodPost || strings.EqualFold(r.last(), "instanceView") {
		action = strings.ToLower(r.last())
		r.parts = r.parts[:max(len(r.parts)-1, 0)]
	}
	return resourceOp(r, action, verb)
}

// resourceOp names an operation on a resource or on all of a type.
func resourceOp(r route, action, verb string) string {
	k := kindOfType(r.typ())
	switch {
	case k == nil:
		return "unknown." + verb
	case action == "instanceview":
		return k.name + ".get"
	case action != "":
		return k.name + "." + action
	case len(r.parts)%2 == 1:
		return k.name + ".list"
	}
	return k.name + "." + verb
}

func (s *Server) dispatch(c *call) {
	r := c.route
	switch {
	case r.subscription == "":
		c.answer(http.StatusOK, object{"value": []any{s.subscriptionDoc()}})
	case r.provider == "" && !r.hasGroups:
		s.serveSubscription(c)
	case r.provider == "":
		s.serveGroup(c)
	case strings.EqualFold(r.parts0(), "skus") && r.group == "":
		s.listSKUs(c)
	case strings.EqualFold(r.parts0(), "locations") && len(r.parts) >= 3 && r.group == "":
		s.serveLocation(c)
	default:
		s.serveResource(c)
	}
}

func (r route) parts0() string {
	if len(r.parts) == 0 {
		return ""
	}
	return r.parts[0]
}

func (s *Server) subscriptionDoc() object {
	return object{"id": "/subscriptions/" + s.cfg.SubscriptionID, "subscriptionId": s.cfg.SubscriptionID, "tenantId": s.cfg.TenantID, "displayName": "Simulated", "state": "Enabled"}
}

func (s *Server) serveSubscription(c *call) {
	switch {
	case c.r.Method != http.MethodGet:
		c.fail(methodNotAllowed(c))
	case len(c.route.parts) == 0:
		c.answer(http.StatusOK, s.subscriptionDoc())
	case strings.EqualFold(c.route.last(), "locations"):
		var value []any
		for _, name := range regionNames() {
			value = append(value, object{"id": "/subscriptions/" + s.cfg.SubscriptionID + "/locations/" + name, "name": name, "displayName": regionNamed(name).display})
		}
		c.answer(http.StatusOK, object{"value": value})
	case strings.EqualFold(c.route.last(), "resources"):
		s.answerList(c, s.under(c, nil))
	default:
		c.fail(fail(http.StatusNotFound, "NotFound", "The requested path was not found."))
	}
}

func (s *Server) serveLocation(c *call) {
	switch strings.ToLower(c.route.parts[2]) {
	case "operations":
		s.getOperation(c)
	case "operationresults":
		s.getOperationResult(c)
	case "usages":
		s.listUsages(c)
	case "virtualmachines":
		var vms []*resource
		for _, r := range s.sorted(kindVM) {
			if strings.EqualFold(r.location(), c.route.parts[1]) {
				vms = append(vms, r)
			}
		}
		c.kind = kindNamed(kindVM)
		s.answerList(c, vms)
	default:
		c.fail(invalidType(c))
	}
}

func methodNotAllowed(c *call) *Error {
	return fail(http.StatusMethodNotAllowed, "HttpMethodNotAllowed", "The HTTP method '"+c.r.Method+"' is not supported at '"+c.route.path+"'.")
}

func invalidType(c *call) *Error {
	return fail(http.StatusNotFound, "InvalidResourceType", "The resource type '"+strings.Join(c.route.parts, "/")+"' could not be found in the namespace '"+c.route.provider+"' for api version '"+c.apiVersion+"'.")
}

// serveResource serves everything below a provider that has a kind.
func (s *Server) serveResource(c *call) {
	r := &c.route
	action := ""
	if len(r.parts)%2 == 1 && (c.r.Method == http.MethodPost || strings.EqualFold(r.last(), "instanceView")) {
		action, r.parts = r.last(), r.parts[:len(r.parts)-1]
	}
	c.kind = kindOfType(r.typ())
	if c.kind == nil {
		c.fail(invalidType(c))
		return
	}
	if r.group != "" && s.resources[s.groupKey(r.group)] == nil {
		c.fail(groupNotFound(r.group))
		return
	}
	switch {
	case action != "":
		s.act(c, action)
	case len(r.parts)%2 == 1:
		if c.r.Method != http.MethodGet {
			c.fail(methodNotAllowed(c))
			return
		}
		s.list(c)
	case r.group == "":
		c.fail(fail(http.StatusBadRequest, "MissingResourceGroup", "A resource is addressed through its resource group."))
	case c.kind.embedded != "":
		s.serveEmbedded(c)
	default:
		s.serveOne(c)
	}
}

func (s *Server) serveOne(c *call) {
	switch c.r.Method {
	case http.MethodGet, http.MethodHead:
		r := s.find(c)
		if r == nil {
			c.fail(s.notFound(c))
			return
		}
		c.answer(http.StatusOK, s.render(r, c.query.Get("$expand")))
	case http.MethodPut:
		s.putResource(c)
	case http.MethodPatch:
		s.patchTags(c)
	case http.MethodDelete:
		s.deleteResource(c)
	default:
		c.fail(methodNotAllowed(c))
	}
}

func groupNotFound(name string) *Error {
	return fail(http.StatusNotFound, "ResourceGroupNotFound", "Resource group '"+name+"' could not be found.")
}

func (s *Server) notFound(c *call) *Error {
	return fail(http.StatusNotFound, "ResourceNotFound", "The Resource '"+c.kind.typ+"/"+strings.Join(c.names(), "/")+"' under resource group '"+c.route.group+"' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix")
}

func (c *call) names() []string {
	var out []string
	for i := 1; i < len(c.route.parts); i += 2 {
		out = append(out, c.route.parts[i])
	}
	return out
}
